# eval, calibrate, drift and sweep on small inputs.
model=data/checkpoints/llama-untied
SOURCE_DATE_EPOCH=1790000000
export SOURCE_DATE_EPOCH
run fp8q quantize $model out -q
run fp8q eval $model out --inputs data/eval/text.inputs.safetensors --decompose --requant-ue8m0 -o eval.json --stack "engine 1"
grep -o '"created": "[^"]*"' eval.json
run fp8q eval $model out --inputs data/eval/text.inputs.safetensors -o eval.json
run fp8q eval $model out --inputs data/eval/text.inputs.safetensors --acts none --samples 1
# Several outputs in one pass: the evidence of each is that of the pair alone.
run fp8q quantize $model out2 -q --scale-fmt ue8m0
run fp8q eval $model out out2 --inputs data/eval/text.inputs.safetensors -o one.json -o two.json
run fp8q eval $model out --inputs data/eval/text.inputs.safetensors -o alone.json -q
cmp one.json alone.json && grep '"output": ' one.json two.json
run fp8q eval $model out out2 --inputs data/eval/text.inputs.safetensors -o three.json
run fp8q eval $model out out2 --inputs data/eval/text.inputs.safetensors -o three.json -o ./three.json
run fp8q eval $model data/checkpoints/qwen3 --inputs data/eval/text.inputs.safetensors
run fp8q eval data/checkpoints/gpt-oss data/checkpoints/gpt-oss --inputs data/eval/text.inputs.safetensors
run fp8q eval $model out
run fp8q calibrate $model --inputs data/eval/text.inputs.safetensors -o a.calib.safetensors
run fp8q calibrate $model --inputs data/eval/text.inputs.safetensors -o b.calib.safetensors --samples 1 --no-moments
run fp8q calibrate --merge a.calib.safetensors --merge b.calib.safetensors -o c.calib.safetensors
run fp8q drift a.calib.safetensors a.calib.safetensors
run fp8q drift a.calib.safetensors b.calib.safetensors --max-rms 0.001
run fp8q drift a.calib.safetensors missing.safetensors
run fp8q sweep $model --inputs data/eval/text.inputs.safetensors --by kind --budget-bytes 2MB -o keep.txt
run fp8q sweep $model --inputs data/eval/text.inputs.safetensors --by kind --samples 1
cat keep.txt
run fp8q quantize $model split -q --ignore-file keep.txt

# The order turned round.
fp8q quantize -q data/checkpoints/llama-untied turned
run fp8q eval turned data/checkpoints/llama-untied --inputs data/eval/text.inputs.safetensors --samples 1
