# Plans of published sizes, from headers alone: Qwen2.5-VL-3B shrinks by 36.95 %, DeepSeek-V3 has 163 shards.
make_checkpoint vl-3b vl
fp8q quantize --dry-run vl | grep -E '^  (tensors|quantize)'
fp8q quantize --dry-run --json vl | tr ',' '\n' | grep -E '"(source|output|reduction)"'
make_checkpoint deepseek-v3 ds
ls ds | grep -c safetensors$
fp8q quantize --dry-run ds 2>/dev/null | grep -E '^  (tensors|quantize|leave|tensor)'
rm -r ds
make_checkpoint deepseek-v3-fp8 fp8
fp8q inspect fp8 | tail -n 3
fp8q quantize --dry-run --requantize fp8 2>/dev/null | grep -E '^  (tensors|quantize)'
