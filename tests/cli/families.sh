# The family table, for people and machines.
run fp8q families
fp8q families --json | tr ',' '\n' | grep -c '"name"'
