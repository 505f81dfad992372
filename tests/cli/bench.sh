# bench measures, so only its shape can be compared; it leaves nothing behind.
mkdir there
fp8q bench --json --dir there --size 10MB --rounds 1 --kernel scalar >bench.json
grep -o '"[a-z_0-9]*":' bench.json | sort | uniq -c | sed 's/^ *//'
ls -A there
fp8q bench --dir there --size 10MB --rounds 1 --kernel scalar --threads 1 |
    sed 's/  *[0-9.]* \(GB\/s\|M\/s\|s\)/ # \1/g; s/[0-9.]* \(%\|x\)/# \1/g' | grep -v '^scalar .*F'
ls -A there
run fp8q bench --dir there/nowhere --size 10MB --kernel mmx | sed "s/has (.*),/has (...),/"
