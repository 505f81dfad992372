# A conversion in parts, as on several machines, gives the bytes of a conversion in one run.
same_tree() {
    if diff -r "$1" "$2" >diff.txt; then echo "same: $1 $2"; else cat diff.txt; fi
}
make_checkpoint tiny src
cp -r src other
more='--max-shard-size 300KB'
fp8q quantize -q $more src whole

# Nothing is there yet.
run fp8q finish dst
# In any order; the next machine may start while another works.
run fp8q quantize -q --part 2/3 $more src dst
run fp8q finish dst
fp8q quantize -q --part 3/3 $more src dst &
fp8q quantize -q --part 1/3 $more src dst
wait $!
ls dst.partial
[ ! -e dst ] && echo "no final name yet"
# Again, and twice at the same time.
run fp8q quantize -q --part 2/3 $more src dst
rm dst.partial.fp8q/shard-*.record
for i in 1 2 3; do
    fp8q quantize -q --part $i/3 $more src dst &
    fp8q quantize -q --part $i/3 $more src dst &
done
wait
# Another number of parts, other options, another source: not of this conversion.
run fp8q quantize -q --part 1/2 $more src dst
run fp8q quantize -q --part 1/3 $more --scale-fmt ue8m0 src dst
touch -d 2020-01-01 other/*.safetensors
run fp8q quantize -q --part 1/3 $more other dst
# Times before 1970, of a clock that was never set.
cp -r src old
touch -d '1969-12-31 23:59:58 UTC' old/*
fp8q quantize -q --part 1/2 old aged
run fp8q quantize -q --part 2/2 old aged
touch -d '1969-12-31 23:59:50 UTC' old/config.json old/*.safetensors
run fp8q quantize -q --part 2/2 old aged
rm -r aged.partial aged.partial.fp8q
# A side file that is gone, or new, by its own name, whatever the order of directories and files.
cp -rp src more-files && mkdir more-files/a && touch more-files/a/b more-files/a.txt
fp8q quantize -q --part 1/3 $more more-files sided
rm more-files/a/b
run fp8q quantize -q --part 2/3 $more more-files sided
rm -r sided.partial sided.partial.fp8q
fp8q quantize -q --part 1/3 $more more-files sided
touch more-files/a/b
run fp8q quantize -q --part 2/3 $more more-files sided
rm more-files/a.txt && touch more-files/a/c
run fp8q quantize -q --part 2/3 $more more-files sided
rm -r sided.partial sided.partial.fp8q
# While a part runs (it holds a shared lock), nobody can finish.
flock --shared dst.partial.fp8q/lock sleep 2 &
sleep 0.5
run fp8q finish dst
wait
# A shard that was lost although its record is there.
third=$(ls dst.partial | sed -n 3p)
mv dst.partial/$third lost
run fp8q finish dst
mv lost dst.partial/$third
run fp8q finish dst
same_tree whole dst
ls -A | grep partial || echo "nothing left over"
run fp8q verify dst --source src
run fp8q finish dst
run fp8q quantize -q --part 1/3 $more src dst

# More parts than shards: most are empty.
cp data/checkpoints/bare-file/model.safetensors one.safetensors
fp8q quantize -q one.safetensors whole.safetensors
for i in 3 1 4 2; do run fp8q quantize -q --part $i/4 one.safetensors parts.safetensors; done
run fp8q finish parts.safetensors
same whole.safetensors parts.safetensors
ls -A | grep partial || echo "nothing left over"

# Shards of the output that differ from those of the source; scales inline; per-channel scales.
for options in "" "$more --scales inline" "--scheme FP8_DYNAMIC"; do
    fp8q quantize -q $options src again
    for i in 5 4 3 2 1; do fp8q quantize -q --part $i/5 $options src again2; done
    run fp8q finish again2
    same_tree again again2
    rm -rf again again2
done
run fp8q quantize --part 0/3 src dst2
run fp8q quantize --part 4/3 src dst2
run fp8q quantize --part x src dst2
