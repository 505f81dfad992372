# What is wrong with the input or the request: status, message, nothing left behind.
run fp8q
run fp8q nonsense
run fp8q quantize
run fp8q quantize nothing-here out
run fp8q quantize --nonsense x
run fp8q quantize --scheme int8 data/checkpoints/qwen3 out
run fp8q quantize --format gguf data/checkpoints/qwen3 out
run fp8q quantize --block-size 64x64 data/checkpoints/qwen3 out
run fp8q quantize --threads many data/checkpoints/qwen3 out

printf 'version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 4976698672\n' >lfs.safetensors
printf '\200\002}q\000.................' >pickle.safetensors
printf 'GGUF\003\000\000\000........' >gguf.safetensors
printf '<!DOCTYPE html><html></html>' >page.safetensors
: >empty.safetensors
head -c 5000 data/checkpoints/qwen3/model.safetensors >truncated.safetensors
for f in lfs pickle gguf page empty truncated; do run fp8q quantize $f.safetensors out.safetensors; done

run fp8q quantize data/checkpoints/deepseek-v3-fp8 out
run fp8q quantize data/checkpoints/smolvlm-ragged out
run fp8q quantize data/checkpoints/gpt-oss out
run fp8q quantize data/checkpoints/qwen3 data/checkpoints/qwen3
mkdir there
echo mine >there/notes.txt
run fp8q quantize data/checkpoints/qwen3 there
run fp8q quantize --overwrite data/checkpoints/qwen3 there
cp -rL data/checkpoints/qwen3 source
chmod -R u+w source
run fp8q quantize source source/inside
ln -s source link
run fp8q quantize source link
cp -rL data/checkpoints/llama-untied missing
chmod -R u+w missing
rm missing/model-00002-of-00003.safetensors
run fp8q quantize missing out
run fp8q quantize --ignore model.layer source out
run fp8q quantize --ignore 're:(' source out
run fp8q quantize --ignore mlp.weight --allow-unmatched --dry-run source out
run fp8q quantize --include visual.blocks data/checkpoints/qwen2.5-vl-new out
run fp8q quantize --tp 64 source out
run fp8q quantize --max-memory 1MB source out
run fp8q quantize --max-shard-size 1GB data/checkpoints/bare-file/model.safetensors out.safetensors
run fp8q verify nothing-here
run fp8q verify source
run fp8q inspect data/corpus/safetensors/dtype_bad_U4.safetensors
ls
