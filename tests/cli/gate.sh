# One decision: verify and lock, evidence of eval, task results; each verdict has its exit status.
SOURCE_DATE_EPOCH=1767225600 # 2026-01-01
export SOURCE_DATE_EPOCH
src=data/checkpoints/qwen2
fp8q quantize $src out --lock lock.json -q
fp8q quantize $src wider --include lm_head --allow-unmatched -q
fp8q eval $src out --inputs data/eval/text.inputs.safetensors --decompose --stack "engine 1" -o out.json -q
echo '{"schema": "fp8q-policy/1", "eval": {"min_tokens": 50, "kld_vs_floor": 20}}' >policy.json
echo "passes"
fp8q gate out -p policy.json --lock lock.json -e out.json --stack "engine 1" --source $src -q && echo "exit 0"
echo "limits"
echo '{"schema": "fp8q-policy/1", "eval": {"min_tokens": 50, "kld_vs_floor": 0.001}}' >strict.json
fp8q gate out -p strict.json -e out.json -q 2>/dev/null || echo "exit $?"
echo '{"schema": "fp8q-policy/1", "eval": {"kld_vs_flor": 4}}' >typo.json
run fp8q gate out -p typo.json
echo "evidence"
run fp8q gate out --lock lock.json
fp8q gate out -e out.json -q 2>/dev/null || echo "too few tokens: exit $?"
run fp8q gate out -p policy.json -e out.json --stack "engine 2" -q
fp8q quantize $src other --scale-fmt ue8m0 -q
run fp8q gate other -p policy.json -e out.json -q
SOURCE_DATE_EPOCH=1790000000 run fp8q gate out -p policy.json -e out.json -q
echo "lock"
run fp8q gate wider -p policy.json --lock lock.json -q
echo "damage"
cp -r out broken
printf '\001' | dd of=broken/model-00001-of-00001.safetensors bs=1 seek=70000 conv=notrunc 2>/dev/null
fp8q gate broken -p policy.json -e out.json -q 2>/dev/null || echo "exit $?"
echo "tasks"
echo '{"schema": "fp8q-policy/1", "eval": {"required": false}, "tasks": {"margin": 0.2}}' >tasks.json
printf 'id,score\n1,1\n2,1\n3,0\n4,1\n' >base.csv
printf 'id,score\n4,1\n3,0\n2,1\n1,1\n' >quant.csv
run fp8q gate out -p tasks.json --task pick:base.csv:quant.csv --markdown table.md --junit checks.xml
cat table.md checks.xml
run fp8q gate out -p tasks.json --task pick:base.csv -q
run fp8q gate out -p tasks.json --task pick:base.csv:none.csv -q
run fp8q gate out -p tasks.json --task pick:base.csv:quant.csv --json
