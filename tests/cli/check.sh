# Which engine loads a checkpoint: outputs of both formats, what was edited, and what others wrote.
src=data/checkpoints/qwen3-moe
fp8q quantize $src fp8 -q
fp8q quantize $src ct -q --format compressed-tensors
run fp8q check fp8
run fp8q check ct
run fp8q check ct --engine vllm --engine SGLang
run fp8q check fp8 --engine llama.cpp --tp 8
run fp8q check fp8 --engine vllm --tp 2
echo "as JSON"
run fp8q check ct --json --engine lmdeploy
run fp8q check fp8 --json --engine trtllm --tp 2
echo "what keeps one out, and what would have to change"
sed 's/"ignored_layers": \[/&\n"model.layers.0.self_attn.q_proj",/' fp8/config.json >config.json && cp -r fp8 listed && cp config.json listed
run fp8q check listed --engine vllm --engine lmdeploy
sed '/"activation_scheme"/d' fp8/config.json >config.json && cp config.json listed
run fp8q check listed --engine vllm --engine transformers
cp -r fp8 astray && cp fp8/model-scales.safetensors astray/model.safetensors && touch astray/consolidated.safetensors
run fp8q check astray -q
fp8q check astray 2>/dev/null | grep -A2 'does not load'
fp8q quantize $src tensor -q --scheme FP8 --format fp8 2>/dev/null
run fp8q check tensor --engine vllm --engine transformers
echo "not of fp8q"
run fp8q check data/checkpoints/deepseek-v3-fp8 --engine sglang --engine transformers
run fp8q check data/checkpoints/qwen3-fp8-ct --engine trtllm
echo "wrong requests"
run fp8q check $src
run fp8q check fp8 --engine vlm
run fp8q check fp8 --tp 0
run fp8q check missing
