# The session of the README, word for word: its fenced block that begins with "$ fp8q".
make_checkpoint tiny tiny
awk '/^```/ { session = !open && $0 == "```"; open = !open; next } session' "$here/../../README.md" >session
sed -n 's/^\$ //p' session >commands
[ -s commands ] || echo "no session in the README"
while read -r command; do
    echo "\$ $command"
    # shellcheck disable=SC2086
    $command 2>&1
done <commands >replayed
diff session replayed && echo "the README's session is true"
