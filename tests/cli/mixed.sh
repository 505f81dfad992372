# A scheme for each pattern: what the plan says, what is written, and that all that asks for a scheme asks for the tensor's.
src=data/checkpoints/qwen3-moe
run fp8q quantize $src out --scheme lm_head=FP8_DYNAMIC --scheme experts=mxfp8 --lock lock.json
sed -n '/quantization_config/,$p' out/config.json
sed -n '/schemes/,$p' lock.json
run fp8q verify out --source $src --lock lock.json
fp8q inspect out | tail -n 1
run fp8q check out --tp 2
# Parts, threads and a resumed run give the same bytes.
for n in 1 2 3; do fp8q quantize $src parts -q --part $n/3 -t $n --scheme lm_head=FP8_DYNAMIC --scheme experts=mxfp8; done
fp8q finish parts -q
same out/model-scales.safetensors parts/model-scales.safetensors
same out/config.json parts/config.json
# The last pattern that matches holds; groups that engines load as one matrix have one scheme.
run fp8q quantize $src two -q --scheme FP8 --scheme layers.0=FP8_DYNAMIC --scheme layers.0.mlp=FP8_BLOCK
run fp8q verify two --source $src
run fp8q quantize $src x --scheme k_proj=FP8
run fp8q quantize $src x --scheme experts.1=FP8
# What cannot be.
run fp8q quantize $src x --scheme nothing=FP8
run fp8q quantize $src x --scheme norm=FP8 --dry-run
run fp8q quantize $src x --scheme mlp=FP9
run fp8q quantize $src x --scheme =FP8
run fp8q quantize $src x --scheme mlp=FP8 --format fp8
run fp8q quantize $src x --scheme mlp=FP8 --format modelopt
run fp8q quantize $src x --scheme mlp=FP8_STATIC
run fp8q quantize $src x --scheme mlp=FP8 --scale-fmt ue8m0
run fp8q quantize data/checkpoints/qwen2.5-vl-new x --scheme visual=FP8
run fp8q quantize data/checkpoints/qwen2 x --scheme lm_head=FP8_DYNAMIC
# Another scheme than the lock's is more than it allows; a group that says another thing than the scales is a fault.
fp8q quantize $src other -q --scheme lm_head=FP8_DYNAMIC --scheme experts=FP8_DYNAMIC
run fp8q verify other --lock lock.json -q
sed -i 's/re:.*lm_head\$/re:.*no_head$/' out/config.json
run fp8q verify out
sed -i 's/re:.*no_head\$/re:.*mlp.*/' out/config.json
run fp8q verify out
# Back to floats, and from one mix to another.
run fp8q dequantize two back -q
run fp8q quantize two three -q --requantize --scheme self_attn=MXFP8
fp8q verify three --source two | tail -n 1
# Static inputs beside dynamic ones: each linear is served as its group says.
src=data/checkpoints/llama-untied inputs=data/eval/text.inputs.safetensors
fp8q calibrate $src --inputs $inputs -o c.calib.safetensors -q
run fp8q quantize $src static -q --scheme FP8 --scheme mlp=FP8_STATIC --calibration c.calib.safetensors --lock static.json
fp8q verify static --source $src --calibration c.calib.safetensors --lock static.json | tail -n 1
fp8q eval $src static --inputs $inputs | grep -e "quantized linears" -e "static inputs"
fp8q quantize $src dynamic -q --scheme FP8
run fp8q verify dynamic --lock static.json -q
