# Other scales, other dialects, another checkpoint's selection; each verified against its source.
for options in "--scheme FP8_DYNAMIC" "--scheme FP8" "--scheme FP8 --format fp8" "--format compressed-tensors" "--unaligned quantize" \
    "--unaligned per-channel" "--scale-fmt ue8m0 --scales inline" "--scheme MXFP8" "--scheme MXFP8 --format fp8 --scales inline"; do
    # shellcheck disable=SC2086
    run fp8q quantize data/checkpoints/phi3-ragged-parts out -q $options
    fp8q verify out --source data/checkpoints/phi3-ragged-parts | tail -n 1
    rm -r out
done
run fp8q quantize data/checkpoints/smolvla out --ragged per-channel -v
sed -n '/config_groups/,/ignore/p' out/config.json
run fp8q quantize data/checkpoints/qwen3.5-moe moe -q
run fp8q quantize data/checkpoints/qwen3.5-moe like -q --like moe
same moe/model-00001-of-00001.safetensors like/model-00001-of-00001.safetensors
run fp8q quantize data/checkpoints/qwen3 wrong -q --like moe
run fp8q quantize data/checkpoints/deepseek-v3-fp8 again -q --requantize
fp8q verify again --source data/checkpoints/deepseek-v3-fp8 | tail -n 1
run fp8q quantize data/checkpoints/qwen3 out2 -q --scheme FP8_DYNAMIC --format fp8
run fp8q quantize data/checkpoints/qwen3 out2 -q --scheme FP8_DYNAMIC --scale-fmt ue8m0
run fp8q quantize data/checkpoints/qwen3 out2 -q --scheme MXFP8 --unaligned quantize
# MXFP8: what the config says, what serves it, a tensor-parallel limit in its own unit, and damage that verify finds.
run fp8q quantize data/checkpoints/smolvlm-ragged mx --scheme MXFP8
sed -n '/quantization_config/,/ignore/p' mx/config.json
fp8q inspect mx | grep quantization
run fp8q dequantize mx back -q
run fp8q quantize data/checkpoints/smolvlm-ragged mx -q --scheme MXFP8 --tp 4 --overwrite
run fp8q quantize data/checkpoints/smolvlm-ragged mx2 -q --scheme MXFP8 --format fp8 --lock mx.lock
sed -n '/quantization_config/,/modules/p' mx2/config.json
run fp8q verify mx2 --lock mx.lock -q
run fp8q verify mx --lock mx.lock -q
flip() { # FILE: another byte at its end, where the scales of the sidecar and the values of a shard are
    size=$(stat -c %s "$1")
    tail -c 1 "$1" | tr '\000-\377' '\001-\377\000' | dd of="$1" bs=1 seek=$((size - 1)) conv=notrunc status=none
}
flip mx/model-scales.safetensors
run fp8q verify mx --source data/checkpoints/smolvlm-ragged
run fp8q quantize data/checkpoints/qwen3 all -q --no-default-ignore --ignore lm_head
fp8q verify all --source data/checkpoints/qwen3 | tail -n 1
