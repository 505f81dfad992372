# Damage is named; reports for machines; checkpoints of other tools.
run fp8q quantize data/checkpoints/qwen3 out -q
printf '\001' | dd of=out/model-00001-of-00001.safetensors bs=1 seek=600000 conv=notrunc 2>/dev/null
run fp8q verify out --junit junit.xml
grep -A1 tensor-crc junit.xml
run fp8q verify out --source data/checkpoints/qwen3 -v
run fp8q verify out --json
rm -r out
run fp8q quantize data/checkpoints/qwen3 out -q
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 77/' out/config.json
run fp8q verify out
run fp8q verify out --strict
sed -i 's/"activation_scheme": "dynamic"/"activation_scheme": "static"/' out/config.json
run fp8q verify out
run fp8q verify out --source data/checkpoints/llama-untied
run fp8q verify out --source nothing-here
run fp8q verify out --kernel abacus | sed "s/has (.*),/has (...),/"
run fp8q verify data/checkpoints/qwen3-fp8-ct --source data/checkpoints/qwen3
run fp8q verify data/checkpoints/deepseek-v3-fp8
# A lock: every tensor that is quantized beyond it, another scheme, another shape.
src=data/checkpoints/qwen3
rm -rf out
fp8q quantize $src out --ignore mlp --lock narrow.json -q
fp8q quantize $src wider --lock wide.json -q
fp8q quantize $src rows --scheme FP8_DYNAMIC -q
run fp8q verify wider --lock narrow.json --junit junit.xml
grep -c 'is F8_E4M3 and not in the lock' junit.xml
fp8q verify wider --lock narrow.json --json 2>/dev/null | tr '{' '\n' | grep -c 'is F8_E4M3 and not in the lock'
run fp8q verify out --lock wide.json -q
fp8q quantize $src tensor --scheme FP8 -q
run fp8q verify tensor --lock wide.json -q
fp8q quantize $src row --scheme FP8_DYNAMIC -q --write-lock row.json
run fp8q verify tensor --lock row.json -q
run fp8q verify wider --lock row.json -q
run fp8q verify rows --lock wide.json -q
sed 's/\[256, 384\]/[384, 256]/' wide.json >turned.json
run fp8q verify wider --lock turned.json -q
run fp8q verify wider --lock absent.json -q
sed 's/"FP8_BLOCK"/"FP9"/' wide.json >bad.json
run fp8q verify wider --lock bad.json -q
