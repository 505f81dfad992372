# Bits are the product: the same files for every thread count and kernel here, and, since their checksums stand in the
# expectation, for every compiler, build type and machine.
make_checkpoint tiny tiny
hash() { (cd "$1" && cat config.json model*.safetensors* | sha256sum | cut -c1-16); }
for options in "" "--scale-fmt ue8m0" "--scheme FP8_DYNAMIC" "--scheme FP8" "--scheme MXFP8" "--scales inline" "--max-shard-size 500kB"; do
    hashes=
    for kernel in scalar avx2 avx512 neon; do
        fp8q quantize tiny out --kernel $kernel -q --dry-run 2>/dev/null || continue
        for threads in 1 2 7; do
            # shellcheck disable=SC2086
            fp8q quantize tiny out --kernel $kernel --threads $threads -q $options
            hashes="$hashes $(hash out)"
            rm -r out
        done
    done
    echo "$options:" $(echo $hashes | tr ' ' '\n' | sort -u)
done
for source in llama-f16 llama-f32 deepseek-v3 qwen3.5-moe; do
    fp8q quantize data/checkpoints/$source out -q 2>/dev/null
    echo "$source: $(hash out)"
    rm -r out
done
