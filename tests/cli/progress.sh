# --progress: for programs an object a line, with the beginning and the end of each stage; on a terminal a line.
make_checkpoint tiny src
printf 'Pick up the red cube.\n' >prompts.txt
figures='s/"per_second": [^,]*/"per_second": R/; s/"eta_seconds": [^}]*/"eta_seconds": S/'
ends() { grep -E '"done": ([0-9]+), "total": \1,' | sed -E "$figures"; }
echo "the end of each stage"
fp8q quantize src dst -q --progress json 2>&1 | ends
fp8q verify dst --json --progress json 2>&1 >/dev/null | ends
fp8q eval src dst --text prompts.txt -q --progress json 2>&1 | ends
fp8q dequantize dst back -q --progress json 2>&1 | ends
echo "every line is an object of these members"
rm -rf dst
fp8q quantize src dst --progress json 2>&1 >/dev/null | sed -E 's/"done": [0-9]+/"done": N/'"; $figures" | sort -u
echo "none, and no terminal"
rm -rf dst
fp8q quantize src dst --progress none 2>&1 >/dev/null
rm -rf dst
fp8q quantize src dst 2>&1 >/dev/null
echo "words"
run fp8q quantize src dst --progress sometimes
