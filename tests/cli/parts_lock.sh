# The lock of a conversion in parts is written by `finish`, with the output.
make_checkpoint tiny src
more='--max-shard-size 300KB'
top=$PWD
# Locks of parts are told by their whole path.
told() { run "$@" | sed "s,$top/,,g"; }
part() {
    i=$1
    shift
    told fp8q quantize -q --part "$i/2" $more "$@" src dst
}
none() { for path; do [ -e "$path" ] || echo "no $path"; done; }
fp8q quantize -q $more --write-lock whole.json src whole

# Parts write none, and a finish that fails writes none either.
mkdir elsewhere
part 1 --lock lock.json
told fp8q finish dst
none lock.json dst
part 2 --lock lock.json
none lock.json
# Where the finish starts does not matter.
cd elsewhere && ln -s ../src src
told fp8q finish -q ../dst
cd ..
none elsewhere/lock.json
same whole.json lock.json
run fp8q verify -q dst --lock lock.json
# What the parts were asked for is asked again: another lock came meanwhile.
rm -r dst lock.json
part 1 --lock lock.json
part 2 --lock lock.json
sed 's/"FP8_BLOCK"/"FP8"/' whole.json >lock.json
cp lock.json theirs.json
told fp8q finish dst
same theirs.json lock.json
none dst
# The one that allows it came: it is left alone, to the letter.
sed 's/^ *//' whole.json >lock.json
cp lock.json theirs.json
told fp8q finish -q dst
same theirs.json lock.json
# --write-lock replaces it.
rm -r dst
part 1 --write-lock lock.json
part 2 --write-lock lock.json
same theirs.json lock.json
told fp8q finish -q dst
same whole.json lock.json
# All parts ask for the same; a lock that is there is asked again by the finish, too.
rm -r dst
part 1 --lock lock.json
part 2
part 2 --write-lock lock.json
part 2 --lock other.json
part 2 --lock lock.json
echo '{"fp8q_lock": 1, "scheme": "FP8_BLOCK", "tensors": {}}' >lock.json
told fp8q finish dst
none dst
rm -r dst.partial dst.partial.fp8q
# What cannot be written by a finish, or must not.
part 1 --write-lock /dev/stdout
odd=$(printf 'a\377.json')
part 1 --write-lock "$odd" | tr '\377' '?'
part 1 --write-lock src/config.json
part 1 --write-lock dst.partial
none dst.partial
# Between the parts the name became a link to what is read.
part 1 --write-lock new.json
part 2 --write-lock new.json
ln -s src/config.json new.json
before=$(cksum <src/config.json)
told fp8q finish dst
[ "$before" = "$(cksum <src/config.json)" ] && echo "the source is as it was"
