# The table of formats, on the demonstration's weights: blocks gain nothing for FP8, a factor 4 for INT8.
golden=data/compare/normal-512.safetensors
run fp8q compare $golden
run fp8q compare $golden --csv
run fp8q compare $golden --markdown
run fp8q compare data/checkpoints/qwen2 --tensor model.layers.0.mlp.up_proj.weight --tensor nothing
run fp8q compare data/checkpoints/qwen2 --tensor model.norm.weight
run fp8q compare $golden --csv --markdown
