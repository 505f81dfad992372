# report: a page, a card, a comment; what is refused; names that try to break out.
SOURCE_DATE_EPOCH=1790000000
export SOURCE_DATE_EPOCH
model=data/checkpoints/llama-untied inputs=data/eval/text.inputs.safetensors
fp8q quantize -q $model out
fp8q eval -q $model out --inputs $inputs --decompose -o eval.json
fp8q sweep -q $model --inputs $inputs --json >sweep.json
fp8q compare -q $model --json >compare.json
fp8q calibrate -q $model --inputs $inputs -o a.calib.safetensors
fp8q calibrate -q $model --inputs $inputs --samples 1 -o b.calib.safetensors
fp8q drift -q a.calib.safetensors b.calib.safetensors --json >drift.json 2>/dev/null || true
fp8q gate -q out -e eval.json --json >gate.json 2>/dev/null || true

# The three forms.
all="--source $model --eval eval.json --sweep sweep.json --compare compare.json --drift drift.json --gate gate.json"
run fp8q report out
run fp8q report out $all --calibration a.calib.safetensors -o all.html
run fp8q report out $all --format md --base-model Example/Llama
run fp8q report out --format pr
grep -o '<h[123][^>]*>[^<]*' all.html
grep -c '<svg' all.html
grep -oE '(src|href|url)[=(]["'"'"']?[^#"'"'"'][^"'"'"' )>]*' all.html || echo "nothing is loaded"

# The figures, printed and in the page, are the same.
run fp8q report out --json -o j.html >printed
sed -n 's,.*id="data">\(.*\)</script>.*,\1,p' j.html | sed 's/\\u003c/</g; s/\\u003e/>/g; s/\\u0026/\&/g' >embedded
grep -o '"tensors": {.*}' embedded | head -c 200 && echo
for key in bits_per_weight quantized_weights largest; do
    grep -o "\"$key\": [0-9.]*" printed | sort -u >one && grep -o "\"$key\": [0-9.]*" embedded | sort -u >two && same one two
done

# What is refused.
run fp8q report out
run fp8q report out --overwrite -q
run fp8q report out -o eval.json --eval eval.json --overwrite
run fp8q report out -o out --overwrite
run fp8q report out --eval gate.json -o x.html
run fp8q report out --gate eval.json -o x.html
run fp8q report out --sweep compare.json -o x.html
run fp8q report out --calibration eval.json -o x.html
run fp8q report out --tensor lm_head.weight -o x.html
run fp8q report out --format latex
run fp8q report nowhere -o x.html
sed 's/"tokens": [0-9]*, "source_bytes"/"tokens": -1, "source_bytes"/' sweep.json >broken.json
run fp8q report out --sweep broken.json -o x.html
sed 's/"rows": \[.*\], "groups"/"rows": {}, "groups"/' compare.json >broken.json
run fp8q report out --compare broken.json -o x.html
fp8q quantize -q data/checkpoints/qwen3 other
run fp8q report other --eval eval.json -o x.html
run fp8q report other --gate gate.json -o x.html
run fp8q report other --sweep sweep.json -o x.html
run fp8q report other --calibration a.calib.safetensors -o x.html
[ ! -e x.html ] && echo "nothing was written"

# A checkpoint that fails has a report, which says so; one of another tool, and one that is not FP8, have one too.
cp -r out bad && chmod u+w bad/*.safetensors
printf X | dd of="$(ls bad/model-0*1-of-*.safetensors)" bs=1 seek=100000 conv=notrunc 2>/dev/null
run fp8q report bad --format pr
run fp8q report data/checkpoints/deepseek-v3-fp8 --format pr
run fp8q report $model --format pr

# A path that would be markup, a script, an option of a shell.
evil='"><img src=x onerror=alert(1)>|`x`$(id)\<script>'
cp -r out "$evil"
run fp8q report -q "$evil" -o evil.html
grep -c '<script' evil.html
grep -o '<h1>.*</h1>' evil.html
fp8q report "$evil" --format md | grep -n 'script'

# What the source's model card says of its licence holds for the output; what is no plain text is left out.
cp -rL $model licensed && chmod -R u+w licensed
card() { # FRONT MATTER
    printf '%b' "$1" >licensed/README.md
    echo "-- $1"
    fp8q report out --source licensed --format md >card.md && sed -n '2,/^tags/p; /^## Licence/,$p' card.md | grep -v '^$'
}
card '---\nlicense: apache-2.0\npipeline_tag: image-text-to-text # as the hub has it\n---\nlicense: none\n'
card '---\r\nlicense: other\r\nlicense_name: "Example | License"\r\nlicense_link: https://example.com/LICENSE\r\nlibrary_name: '"'lerobot'"'\r\n---\r\n'
card '---\nlicense: [mit, apache-2.0]\nlicense_name: |\n  a\nlicense_link: &x y\n'
card '---\nlicense:\n- mit\npipeline_tag: "a\\n---"\n---\n'
card 'license: mit\n'

# Categories of samples, with a name that would be markup, and one without a name.
sed 's/^ "samples": \[/  "categories": [{"name": "pick | <b>place<\/b>", "tokens": 40, "samples": 2, "kld": 0.002, "kld_se": 0.0005, "top1": 0.95}, {"name": "", "tokens": 240, "samples": 1, "kld": 0.001, "kld_se": null, "top1": 0.9}],\n&/' eval.json >categories.json
fp8q report out --eval categories.json -q -o categories.html
grep -A8 "By category" categories.html | sed 's/<[^>]*>/ /g'
fp8q report out --eval categories.json --format pr | grep -A3 '| category'
