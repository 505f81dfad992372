# Back to high precision; replacing an earlier output of it.
run fp8q quantize data/checkpoints/qwen3 q -q
run fp8q dequantize q back
ls back
run fp8q dequantize q back
run fp8q dequantize q back --overwrite --dtype f32
run fp8q dequantize back again
run fp8q quantize data/checkpoints/bare-file/model.safetensors m.safetensors -q
run fp8q dequantize m.safetensors n.safetensors --dtype f16
run fp8q inspect n.safetensors
grep -c quantization_config back/config.json || true
ls
