# Sequential GPTQ with every scheme of scales: the source's scales, and every block within its bound.
cp -rL data/checkpoints/qwen2 model
chmod -R u+w model
make_checkpoint embeds=100,256 inputs.safetensors
fp8q calibrate model --inputs inputs.safetensors -o c.calib.safetensors -q 2>/dev/null
for scheme in FP8_DYNAMIC FP8 MXFP8 "FP8_STATIC --format compressed-tensors --calibration c.calib.safetensors" \
    "FP8_BLOCK --scheme mlp=FP8_DYNAMIC" "FP8_BLOCK --scale-fmt ue8m0" "FP8_BLOCK --max-shard-size 500kB --scales inline"; do
    rm -rf out one
    run fp8q quantize model out -q --gptq --inputs inputs.safetensors --scheme $scheme
    run fp8q verify out --source model
    run fp8q quantize model one -q --gptq --inputs inputs.safetensors --scheme $scheme --threads 1 --kernel scalar
    for file in out/*.safetensors; do same "$file" "one/${file#out/}"; done
done
