# Patterns: kept groups, a file of patterns, lint.
printf '# from a sweep\nlayers.0.mlp.down_proj\n\nlayers.1\n' >keep.txt
run fp8q quantize data/checkpoints/llama-untied a --ignore-file keep.txt --dry-run
run fp8q quantize data/checkpoints/llama-untied a --ignore layers.0.self_attn.k_proj --dry-run
run fp8q quantize data/checkpoints/llama-untied a --ignore layers.0.self_attn.k_proj --dry-run --strict
run fp8q quantize data/checkpoints/qwen2.5-vl-new a --ignore 're:visual.*' --dry-run
run fp8q quantize data/checkpoints/qwen3 a --include lm_head --dry-run
run fp8q quantize data/checkpoints/llama-untied a -q --lock lock.json
run fp8q verify a --lock lock.json -q
run fp8q quantize data/checkpoints/llama-untied b -q --ignore layers.1 --lock narrow.json
run fp8q verify a --lock narrow.json -q

# Recipes name lm_head for every model; where there is none, nothing is lost.  Only --ignore, and only that name.
run fp8q quantize data/checkpoints/llama-tied b --ignore lm_head --ignore 're:^lm_head$' --dry-run -q
run fp8q quantize data/checkpoints/llama-tied b --include lm_head --dry-run -q
run fp8q quantize data/checkpoints/llama-tied b --ignore lm_haed --dry-run -q
