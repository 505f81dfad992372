# Sequential GPTQ: a quantize like any other, the same bytes from any threads and kernel, and what it refuses.
cp -rL data/checkpoints/qwen2 model
chmod -R u+w model
make_checkpoint embeds=100,256 inputs.safetensors
run fp8q quantize model out --gptq --inputs inputs.safetensors
run fp8q verify out --source model
run fp8q quantize model one --gptq --inputs inputs.safetensors -q --threads 1 --kernel scalar
same out/model-00001-of-00001.safetensors one/model-00001-of-00001.safetensors
same out/model-scales.safetensors one/model-scales.safetensors
run fp8q quantize model plain -q
same out/model-00001-of-00001.safetensors plain/model-00001-of-00001.safetensors
run fp8q quantize model out --gptq --inputs inputs.safetensors --resume
# Other inputs under the same name are another conversion.
rm inputs.safetensors && make_checkpoint embeds=90,256 inputs.safetensors
run fp8q quantize model out --gptq --inputs inputs.safetensors --resume
run fp8q quantize model none --gptq
run fp8q quantize model none --inputs inputs.safetensors
run fp8q quantize model none --gptq --inputs inputs.safetensors --part 1/2
run fp8q quantize model none --gptq --inputs inputs.safetensors --calibration c.safetensors
run fp8q quantize model none -q --gptq --inputs missing.safetensors
run fp8q quantize model none -q --gptq --inputs model/config.json
ls
