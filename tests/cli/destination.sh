# Whose a path is: what is refused before the work, what is copied, what a run that goes on notices.
make_checkpoint tiny src
cp data/checkpoints/bare-file/model.safetensors one.safetensors
files() { (cd "$1" && find . -type f -o -type l | sort | tr '\n' ' ' && echo); }

# Names that nothing would read again, and names that cannot be given.
for dst in out.bin out OUT.SAFETENSORS x.scales.safetensors .safetensors; do run fp8q quantize -q one.safetensors $dst; done
for dst in . .. / "" ./; do run fp8q quantize -q src "$dst" --overwrite; done
run fp8q quantize -q src nowhere/dst
long=$(printf 'x%.0s' $(seq 246))
run fp8q quantize -q src "$long" | sed 's/xxx*/x.../g'
mkdir here empty
(cd here && run fp8q quantize -q ../src . --overwrite)
run fp8q quantize -q src empty
run fp8q quantize -q src src/inside/
ln -s empty link
run fp8q quantize -q src link --overwrite
run fp8q quantize -q src like
run fp8q quantize -q src like --like like --overwrite

# DST.partial of somebody else, the source in it, companions of another file.
mkdir dst.partial && echo mine >dst.partial/thesis.txt
for option in "" --overwrite --resume "--part 1/2"; do run fp8q quantize -q src dst $option; done
run fp8q finish dst
rm -r dst.partial
cp -r src m.partial && run fp8q quantize -q m.partial m
echo mine >lora.scales.safetensors && run fp8q quantize -q one.safetensors lora.safetensors --overwrite
cp one.safetensors n.scales.safetensors && run fp8q quantize -q n.scales.safetensors n.safetensors --overwrite
cmp one.safetensors n.scales.safetensors && echo "the source is there"

# An earlier output, as it was and with what somebody did to it.
run fp8q quantize -q src dst
run fp8q quantize -q src dst --overwrite
echo mine >dst/notes.txt && run fp8q quantize -q src dst --overwrite
mkdir dst/empty && rm dst/notes.txt && run fp8q quantize -q src dst --overwrite
rmdir dst/empty && chmod u+w dst/config.json && echo ' ' >>dst/config.json && run fp8q quantize -q src dst --overwrite
rm -r dst

# Modes are those of the source less the umask, as cp gives them.
chmod 750 src && chmod 640 src/*.safetensors && chmod 600 src/config.json
(umask 027 && fp8q quantize -q src dst) && stat -c '%a %n' dst dst/config.json dst/model-*.safetensors dst/*.index.json
chmod 755 src && rm -r dst

# Side files: links, odd names, other weights, modules of their own.
mkdir -p src/voices src/draft src/onnx src/global_step10 src/deep elsewhere
echo x | tee src/spk_dict.pt src/voices/a.pt src/voices/a.safetensors src/pytorch_model.bin src/m.onnx.data src/rust_model.ot \
    src/optimizer.pt src/recipe.yaml src/hf_quant_config.json src/global_step10/x.distcp src/training_args.bin elsewhere/y >blob
echo '{}' >src/draft/config.json && cp one.safetensors src/draft/model.safetensors && echo '{}' >src/draft/model.safetensors.index.json
mkdir src/.eval_results && echo 'MMLU 70' | tee src/README.md src/README_zh.md src/MODEL_CARD.md src/LICENSE src/draft/README.md \
    src/voices/README.md src/.eval_results/mmlu.yaml >claims
ln -s . src/self && ln -s ../elsewhere src/out && ln -s voices src/alias && ln -s ../../blob src/deep/blob && ln -s nothing src/dangling
ln -s .. src/deep/up && mkfifo src/fifo && touch "src/$(printf 'bad\377name')"
run fp8q quantize -q src dst
fp8q quantize src dst2 2>&1 | grep 'not copied'
files dst
cmp src/draft/model.safetensors dst/draft/model.safetensors && echo "byte for byte"

# A model card speaks of the weights beside it: neither direction carries it over, and verify asks for none.
run fp8q verify -q dst
echo 'FP8' >dst/README.md && run fp8q verify -q dst --strict
run fp8q dequantize -q dst back
files back
rm -rf dst dst2 back src && make_checkpoint tiny src

# --resume and what has changed.
fp8q quantize -q src dst
run fp8q quantize src dst --resume
echo new >src/added.txt && run fp8q quantize -q src dst --resume
rm src/added.txt && echo >>src/config.json && run fp8q quantize -q src dst --resume
make_checkpoint tiny fresh && cp fresh/config.json src/
printf X | dd of=src/model-00002-of-00003.safetensors bs=1 seek=20000 conv=notrunc 2>/dev/null
run fp8q quantize -q src dst --resume
rm -rf dst src && make_checkpoint tiny src

# Parts: one that was lost, one that was changed, and what the next run may not do.
more='--max-shard-size 300KB'
fp8q quantize -q $more src whole
for i in 1 2; do fp8q quantize -q $more --part $i/2 src dst; done
run fp8q quantize -q $more src dst
run fp8q quantize -q $more src dst --resume
shard=dst.partial/model-00001-of-00010.safetensors
cp -p $shard kept
printf X | dd of=$shard bs=1 seek=20000 conv=notrunc 2>/dev/null && touch -r kept $shard
run fp8q finish dst
cp -p kept $shard && run fp8q finish dst
diff -r whole dst && echo "same"

# Experts of one stacked tensor in several shards: one fingerprint, whoever made them.
moe=data/checkpoints/qwen3-vl-moe
fp8q quantize -q --max-shard-size 100KB $moe moe
fp8q quantize -q --max-shard-size 100KB $moe moe7 --threads 7
for i in 1 2 3 4 5; do fp8q quantize -q --max-shard-size 100KB --part $i/5 $moe moe-parts; done
fp8q finish -q moe-parts
for dst in moe7 moe-parts; do diff -r moe $dst && echo "same"; done
