# Other scales, other dialects, another checkpoint's selection; each verified against its source.
for options in "--scheme FP8_DYNAMIC" "--scheme FP8" "--scheme FP8 --format fp8" "--format compressed-tensors" "--unaligned quantize" \
    "--unaligned per-channel" "--scale-fmt ue8m0 --scales inline"; do
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
run fp8q quantize data/checkpoints/qwen3 all -q --no-default-ignore --ignore lm_head
fp8q verify all --source data/checkpoints/qwen3 | tail -n 1
