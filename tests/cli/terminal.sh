# What only a terminal shows: bars, names cut to the width, colours.  `script` makes one.
make_checkpoint tiny src
on_terminal() { # COLUMNS COMMAND
    script -qec "stty cols $1; $2" /dev/null </dev/null | tr -d '\r' | sed 's/\x1b/<ESC>/g'
}
echo "bars: source by length, output by what is filled"
on_terminal 110 "fp8q quantize src --dry-run" | grep -E ' (quantize|leave) '
on_terminal 80 "fp8q quantize src --dry-run" | grep -E ' (quantize|leave) '
echo "UTF-8"
on_terminal 110 "LC_ALL=C.UTF-8 fp8q quantize src --dry-run" | grep -E ' backbone '
echo "names end where the line does"
on_terminal 80 "fp8q inspect src -v" | grep -c '^.\{81,\}' || true
on_terminal 70 "fp8q inspect src -v" | grep 'k_proj.bias'
echo "roles"
on_terminal 80 "fp8q inspect src" | sed -n '/tensors\{0,1\}  /p'
echo "colours, and none"
on_terminal 80 "fp8q quantize src dst" | grep wrote
rm -rf dst
on_terminal 80 "NO_COLOR=1 fp8q quantize src dst" | grep wrote
rm -rf dst
fp8q quantize src dst | grep wrote
echo "a reader that has read enough"
fp8q inspect src -v | head -n 1
echo "sentences go on below, and nothing is wider than the terminal"
rm -rf dst && fp8q quantize -q src dst
on_terminal 60 "NO_COLOR=1 fp8q check dst --engine vllm"
on_terminal 50 "NO_COLOR=1 fp8q gate dst" | sed -n 1,6p
on_terminal 80 "NO_COLOR=1 fp8q families" | sed "s,<ESC>\[[0-9]*m,,g" | grep -c '^.\{81,\}' || true
echo "a terminal too narrow for that breaks the line itself; a file has whole lines"
on_terminal 20 "NO_COLOR=1 fp8q check dst --engine vllm" | sed -n 3p
fp8q check dst --engine vllm | sed -n 3p
