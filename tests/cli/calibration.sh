# Error-compensated rounding: calibrate, quantize with it, verify with and without the file.
cp -rL data/checkpoints/qwen2 model
chmod -R u+w model
make_checkpoint embeds=100,256 inputs.safetensors
run fp8q calibrate model --inputs inputs.safetensors -o c.calib.safetensors
run fp8q quantize model out --calibration c.calib.safetensors
run fp8q verify out --source model
run fp8q verify out --source model --calibration c.calib.safetensors
run fp8q quantize model one --calibration c.calib.safetensors -q --threads 1
same out/model-00001-of-00001.safetensors one/model-00001-of-00001.safetensors
same out/model-scales.safetensors one/model-scales.safetensors
run fp8q quantize data/checkpoints/qwen3 foreign -q --calibration c.calib.safetensors
run fp8q quantize model none -q --calibration missing.safetensors
ls
# Scales of the cache from the same file, and values rounded plainly all the same.
fp8q quantize model plain -q
run fp8q quantize model cache --kv-cache fp8 --calibration c.calib.safetensors --no-gptq
same plain/model-00001-of-00001.safetensors cache/model-00001-of-00001.safetensors
run fp8q verify cache --source model --calibration c.calib.safetensors -q
run fp8q quantize model x -q --calibration c.calib.safetensors --no-gptq
run fp8q quantize model x -q --no-gptq
