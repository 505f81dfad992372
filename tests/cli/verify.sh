# Damage is named; reports for machines; checkpoints of other tools.
run fp8q quantize data/checkpoints/qwen3 out -q
printf '\001' | dd of=out/model-00001-of-00001.safetensors bs=1 seek=600000 conv=notrunc 2>/dev/null
run fp8q verify out --junit junit.xml
grep -A1 tensor-crc junit.xml
run fp8q verify out --source data/checkpoints/qwen3 -v
run fp8q verify out --json
rm -r out
run fp8q quantize data/checkpoints/qwen3 out -q
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 77/' out/config.json
run fp8q verify out
run fp8q verify out --strict
sed -i 's/"activation_scheme": "dynamic"/"activation_scheme": "static"/' out/config.json
run fp8q verify out
run fp8q verify out --source data/checkpoints/llama-untied
run fp8q verify out --source nothing-here
run fp8q verify out --kernel abacus | sed "s/has (.*),/has (...),/"
run fp8q verify data/checkpoints/qwen3-fp8-ct --source data/checkpoints/qwen3
run fp8q verify data/checkpoints/deepseek-v3-fp8
