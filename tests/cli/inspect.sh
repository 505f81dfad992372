# inspect --tensor: one tensor's values, a map of its blocks, and the worst of them.
make_checkpoint tiny src
fp8q quantize src dst -q
run fp8q inspect src --tensor model.layers.0.mlp.down_proj.weight
run fp8q inspect dst --tensor model.layers.0.mlp.down_proj
fp8q inspect dst --tensor model.layers.0.self_attn.k_proj --json >one.json
grep -o '"dtype": "[^"]*"\|"scheme": "[^"]*"\|"scale": "[^"]*"\|"blocks": .*}}' one.json
run fp8q inspect src --tensor model.layers.0.mlp.down
run fp8q inspect src --tensor visual.patch_embed.proj --json
run fp8q inspect data/checkpoints/qwen3-vl-moe --tensor model.language_model.layers.0.mlp.experts.down_proj
