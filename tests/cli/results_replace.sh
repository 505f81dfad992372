# No result replaces what belongs to a checkpoint, whether the command reads that or not.
make_checkpoint tiny src
fp8q quantize -q src out
cp -r src other
cp src/model-00001-of-00003.safetensors alone.safetensors
find other alone.safetensors -type f | sort | xargs cksum >before.txt
run fp8q verify -q out --junit other/config.json
run fp8q verify -q out --junit other/tokenizer.json
run fp8q verify -q out --junit alone.safetensors
run fp8q report -q out -o other/model-00001-of-00003.safetensors --overwrite
run fp8q report -q out -o alone.safetensors --overwrite
run fp8q gate -q out --markdown other/config.json
run fp8q gate -q out --junit other/model.safetensors.index.json
run fp8q quantize -q src new --write-lock other/model.safetensors.index.json
run fp8q quantize -q src new --write-lock alone.safetensors
run fp8q quantize -q --part 1/1 src new --write-lock alone.safetensors
find other alone.safetensors -type f | sort | xargs cksum >after.txt
same before.txt after.txt
[ -e new ] || [ -e new.partial ] || echo "nothing was made"
# The name became a weight file while the parts ran.
run fp8q quantize -q --part 1/1 src new --write-lock lock.json
cp alone.safetensors lock.json
run fp8q finish new 2>&1 | sed "s,$PWD/,,"
same alone.safetensors lock.json
# Results are replaced as before.
run fp8q report -q out -o report.html
run fp8q report -q out -o report.html --overwrite
run fp8q verify -q out --junit junit.xml
run fp8q verify -q out --junit junit.xml
