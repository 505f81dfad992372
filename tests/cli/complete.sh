# What may stand at the end of an unfinished line; shells ask for it (tests/shells).
run fp8q __complete ''
run fp8q __complete c
run fp8q __complete --
run fp8q __complete help dr
run fp8q __complete nonsense ''

# Options of a command, each once unless it may be given again, and none that those given exclude.
run fp8q __complete dequantize --
run fp8q __complete quantize --al
run fp8q __complete quantize --ignore a --ig
run fp8q __complete quantize --dry-run --dry
run fp8q __complete quantize --write-lock a --lo
run fp8q __complete quantize --lock a --wri
run fp8q __complete compare --csv --mark
run fp8q __complete verify -- --
run fp8q __complete verify -

# Values.
run fp8q __complete quantize --format ''
run fp8q __complete quantize --format=c
run fp8q __complete quantize --scheme fp8_
run fp8q __complete quantize --json --scales sidecar --scale-fmt u
run fp8q __complete quantize --kernel sc
run fp8q __complete quantize --tp ''
run fp8q __complete quantize --dry-run=
run fp8q __complete verify --source ''
run fp8q __complete verify --source=di
run fp8q __complete quantize -o ''

# Operands: as many as the command takes.
run fp8q __complete verify ''
run fp8q __complete verify -q ''
run fp8q __complete verify a ''
run fp8q __complete quantize a ''
run fp8q __complete families ''
