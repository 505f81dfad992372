# What is wrong with a command line is said, in JSON too; nothing that was asked for is ignored.
src=data/checkpoints/qwen3
samples=data/eval/text.inputs.safetensors

# The nearest word.
run fp8q quantise
run fp8q verfy x
run fp8q zzz
run fp8q --versoin
run fp8q help verfy
run fp8q quantize --ignor lm_head $src
run fp8q quantize --overwite $src
run fp8q quantize --scheme FP8_BLOK $src
run fp8q quantize -x $src

# One object, whatever is wrong.
run fp8q --json
run fp8q nonsense --json
run fp8q quantize --json
run fp8q quantize --json --nonsense $src
run fp8q verify --json --threads -3 out
run fp8q eval --json a b

# What would be ignored.
run fp8q quantize $src a -o b
run fp8q quantize $src --allow-unmatched
run fp8q quantize $src --allow-tower
run fp8q quantize $src --lock a --write-lock b
run fp8q quantize $src -q -v
run fp8q verify $src --calibration c
run fp8q eval a b --inputs $samples --chunk 5
run fp8q eval a b --inputs $samples --text t
run fp8q eval a b --inputs $samples --stack x
run fp8q eval a b --inputs $samples --overwrite
run fp8q calibrate --merge a --no-moments -o b
run fp8q calibrate --import a --inputs $samples -o b
run fp8q sweep a --inputs $samples --budget-kld 1 --budget-bytes 1GB
run fp8q drift a b --scale-fmt ue8m0
run fp8q compare $src --csv --markdown
run fp8q compare $src --csv --json
run fp8q gate --print-policy --lock l
run fp8q gate --print-policy out

# Numbers have a range.
for value in nan -1 inf 1e999 0x10 '' 1x; do
    run fp8q sweep a --inputs $samples --budget-kld "$value"
    run fp8q drift a b --max-sites "$value"
done
for value in 0 -1 4294967297 99999999999999999999 1.5; do
    run fp8q quantize $src --tp "$value"
    run fp8q eval a b --text t --chunk "$value"
done
run fp8q quantize $src --threads 1025
run fp8q quantize $src --max-memory 0
run fp8q quantize $src --max-shard-size -5GB
run fp8q quantize $src --max-shard-size 0x5GB
run fp8q quantize $src --max-memory 0X10
for command in quantize dequantize verify inspect check families compare eval drift sweep calibrate gate bench finish; do
    fp8q $command --kernel nonsense x y 2>&1 >/dev/null | grep -c 'operand\|kernel' | sed "s/^/$command: /"
done

# Result files are nothing that is read.
fp8q quantize -q $src out
cp data/eval/text.inputs.safetensors samples.safetensors
run fp8q verify out --junit out/model-00001-of-00001.safetensors
run fp8q verify out --junit out/new.safetensors
run fp8q eval $src out --inputs samples.safetensors -o samples.safetensors --overwrite
run fp8q eval $src out --inputs samples.safetensors --dump-inputs out/config.json
run fp8q calibrate $src --inputs samples.safetensors -o samples.safetensors --overwrite
run fp8q sweep $src --inputs samples.safetensors -o samples.safetensors --overwrite
run fp8q quantize $src other --write-lock $src/config.json
run fp8q quantize $src other --write-lock nowhere/lock.json
[ ! -e other ] && same samples.safetensors data/eval/text.inputs.safetensors
mkfifo pipe
cat pipe >through &
fp8q verify -q out --junit pipe
wait
grep -c '<testsuite ' through
ls -l pipe | cut -c1

# The lock of a conversion: written, kept, and checked.
run fp8q quantize -q $src one --lock lock.json
run fp8q quantize -q $src two --lock lock.json
run fp8q quantize -q $src three --ignore mlp.up_proj --lock lock.json
run fp8q quantize -q $src three --scheme FP8 --lock lock.json
run fp8q quantize -q $src three --ignore mlp --write-lock lock.json
run fp8q quantize -q $src four --lock lock.json
for name in one two three four; do
    if [ -e $name ]; then echo "$name is there"; fi
done
# Never in what the conversion makes or replaces, and never in its place.
run fp8q quantize -q $src one --overwrite --write-lock one/lock.json
run fp8q quantize -q $src five --write-lock five
cp data/checkpoints/bare-file/model.safetensors bare.safetensors
run fp8q quantize -q bare.safetensors six.safetensors --write-lock six.safetensors
run fp8q quantize -q bare.safetensors six.safetensors --write-lock six.scales.safetensors
ls -d five* six* 2>/dev/null || echo "nothing was made"
# Names of a single file are those on disk.
fp8q quantize --json data/checkpoints/bare-file/model.safetensors there.safetensors | grep -o '"\(output\|sidecar\|shard\)": "[^"]*"' | sort -u
ls there*
