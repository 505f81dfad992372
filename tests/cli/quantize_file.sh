# The main job on a bare file, and the proof of it.
run fp8q quantize data/checkpoints/bare-file/model.safetensors out.safetensors --ignore visual --threads 1
ls
run fp8q verify out.safetensors --source data/checkpoints/bare-file/model.safetensors
run fp8q quantize data/checkpoints/bare-file/model.safetensors out.safetensors
