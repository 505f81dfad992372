# Which scheme for which module: the splits, and that the command which is printed gives what was measured.
src=data/checkpoints/llama-untied
inputs=data/eval/text.inputs.safetensors
all="--scheme FP8_BLOCK --scheme FP8_DYNAMIC --scheme MXFP8"
# shellcheck disable=SC2086
run fp8q sweep $src --inputs $inputs --by kind $all
for budget in 0.0014 0.0008; do
    # shellcheck disable=SC2086
    fp8q sweep $src --inputs $inputs $all --budget-kld $budget >swept.txt
    sed -n '/^chosen/,$p' swept.txt
    eval "$(sed -n 's/^fp8q quantize [^ ]*/fp8q quantize $src out -q --overwrite/p' swept.txt)"
    fp8q verify out --source $src -q
    swept=$(sed -n 's/.*measured \(.*\): budget.*/\1/p' swept.txt)
    fp8q eval $src out --inputs $inputs --json -q | grep -o '"kld": {[^}]*"mean": [0-9.e-]*' | head -n 1 |
        awk -v swept="$swept" '{ printf "%s: swept %s, eval %.6f\n", sprintf("%.6f", $NF) == swept ? "same" : "DIFFERENT", swept, $NF }'
done
run fp8q sweep $src --inputs $inputs --scheme MXFP8 --by layer
run fp8q sweep $src --inputs $inputs --scheme MXFP8 --scale-fmt ue8m0
run fp8q sweep $src --inputs $inputs --scheme FP8_STATIC
