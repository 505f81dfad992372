# A directory: shards, sidecar, index, config, copies.
run fp8q quantize data/checkpoints/qwen2.5-vl-new out --threads 1
ls out
run fp8q verify out
run fp8q inspect out
sed -n '/quantization_config/,$p' out/config.json
