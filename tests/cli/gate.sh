# One decision: verify and lock, evidence of eval, task results; each verdict has its exit status.
SOURCE_DATE_EPOCH=1767225600 # 2026-01-01
export SOURCE_DATE_EPOCH
now=2026-01-02T00:00:00Z
src=data/checkpoints/qwen2
fp8q quantize $src out --lock lock.json -q
cp -r $src untied
sed -i 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' untied/config.json
fp8q quantize untied wider --include lm_head -q
fp8q eval $src out --inputs data/eval/text.inputs.safetensors --decompose --stack "engine 1" -o out.json -q
echo '{"schema": "fp8q-policy/1", "eval": {"min_tokens": 50, "kld_vs_floor": 20}}' >policy.json
echo "passes"
fp8q gate --now $now out -p policy.json --lock lock.json -e out.json --stack "engine 1" --source $src -q && echo "exit 0"
echo "limits"
echo '{"schema": "fp8q-policy/1", "eval": {"min_tokens": 50, "kld_vs_floor": 0.001}}' >strict.json
fp8q gate --now $now out -p strict.json -e out.json -q 2>/dev/null || echo "exit $?"
echo '{"schema": "fp8q-policy/1", "eval": {"kld_vs_flor": 4}}' >typo.json
run fp8q gate out -p typo.json
echo "evidence"
run fp8q gate out --lock lock.json
fp8q gate --now $now out -e out.json -q 2>/dev/null || echo "too few tokens: exit $?"
run fp8q gate --now $now out -p policy.json -e out.json --stack "engine 2" -q
fp8q quantize $src other --scale-fmt ue8m0 -q
run fp8q gate --now $now other -p policy.json -e out.json -q
run fp8q gate out -p policy.json -e out.json -q --now 2026-09-21T00:00:00Z
fp8q gate out -p policy.json -e out.json -q 2>/dev/null || echo "by the clock, whatever SOURCE_DATE_EPOCH says: exit $?"
run fp8q gate out --now yesterday
echo "lock"
run fp8q gate wider -p policy.json --lock lock.json -q
echo "damage"
cp -r out broken
printf '\001' | dd of=broken/model-00001-of-00001.safetensors bs=1 seek=70000 conv=notrunc 2>/dev/null
fp8q gate --now $now broken -p policy.json -e out.json -q 2>/dev/null || echo "exit $?"
echo "tasks"
echo '{"schema": "fp8q-policy/1", "eval": {"required": false}, "tasks": {"margin": 0.2}}' >tasks.json
printf 'id,score\n1,1\n2,1\n3,0\n4,1\n' >base.csv
printf 'id,score\n4,1\n3,0\n2,1\n1,1\n' >quant.csv
run fp8q gate out -p tasks.json --task pick:base.csv:quant.csv --markdown table.md --junit checks.xml
cat table.md checks.xml
# What is read is not written over, under whatever name.
ln -s base.csv alias.csv
for file in base.csv quant.csv ./base.csv alias.csv; do
    fp8q gate out -p tasks.json --task pick:base.csv:quant.csv --junit $file 2>&1 || echo "exit $?"
    fp8q gate out -p tasks.json --task pick:base.csv:quant.csv --markdown $file 2>&1 || echo "exit $?"
done
cat base.csv quant.csv | tr '\n' ' '
echo
run fp8q gate out -p tasks.json --task pick:base.csv -q
run fp8q gate out -p tasks.json --task pick:base.csv:none.csv -q
run fp8q gate out -p tasks.json --task pick:base.csv:quant.csv --json
echo "evidence of something else"
cp -r out edited
sed 's/"rms_norm_eps": [^,]*/"rms_norm_eps": 0.5/' out/config.json >edited/config.json
run fp8q gate edited -p policy.json -e out.json -q --now $now
run fp8q gate edited -p policy.json -e out.json -q --now $now --source $src
fp8q eval $src out --inputs data/eval/text.inputs.safetensors --decompose --acts none -o acts.json -q
run fp8q gate out -p policy.json -e acts.json -q --now $now
fp8q eval out out --inputs data/eval/text.inputs.safetensors --decompose -o itself.json -q
run fp8q gate out -p policy.json -e itself.json -q --now $now
run fp8q gate out -p policy.json -e out.json -b out.json -q --now $now
sed 's/"mean": 0.001[0-9]*/"mean": 0.0001/' out.json >halved.json
fp8q gate out -p policy.json -e halved.json -q --now $now 2>/dev/null || echo "contradiction: exit $?"
run fp8q gate out -p tasks.json --task pick:base.csv:base.csv -q
