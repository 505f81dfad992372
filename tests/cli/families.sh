# The family table, for people and machines.
run fp8q families
fp8q families --json | tr ',' '\n' | grep -c '"name"'
fp8q families --json | grep -o '{"name": "Qwen2-MoE, Qwen3-MoE".*' | sed 's/}.*/}/'
fp8q families --json | grep -o '{"name": "Qwen2-VL, Qwen2.5-VL".*' | sed 's/}.*/}/'
