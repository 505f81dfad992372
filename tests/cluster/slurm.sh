#!/bin/bash
# Runs examples/cluster/slurm.sbatch on a real Slurm that this script starts: munged, slurmctld and two
# slurmd on this machine, all with their own files in a temporary directory.
#
#     slurm.sh FP8Q MAKE_CHECKPOINT       needs Debian's slurm-wlm and munge, and root
#
# A part is made to fail, so that the dependent job must not run; then it is run again.
set -eu
fp8q=$(readlink -f "$1") make_checkpoint=$(readlink -f "$2")
recipe=$(cd "$(dirname "$0")/../../examples/cluster" && pwd)/slurm.sbatch
for program in munged slurmctld slurmd sbatch squeue scancel python3; do
    command -v $program >/dev/null || { echo "slurm.sh: $program is missing: apt-get install slurm-wlm munge"; exit 1; }
done
dir=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-slurm-XXXXXX")
chmod 755 "$dir"

# Everything that was started has this directory in its command line or its working directory, the
# steps that slurmd starts in sessions of their own too.
ours() {
    for proc in /proc/[0-9]*; do
        pid=${proc#/proc/}
        [ "$pid" != $$ ] && [ "$pid" != "$BASHPID" ] || continue
        case "$(tr '\0' ' ' 2>/dev/null <"$proc/cmdline") $(readlink "$proc/cwd" 2>/dev/null)" in
        *"$dir"*) echo "$pid" ;;
        esac
    done
}

stop() {
    code=$?
    trap - EXIT
    cd /
    [ $code = 0 ] || tail -n 30 "$dir"/*.log "$dir"/*.out 2>/dev/null
    for signal in TERM TERM KILL; do
        # shellcheck disable=SC2046
        kill -$signal $(ours) 2>/dev/null || true
        for _ in $(seq 30); do [ -z "$(ours)" ] && break 2 || sleep 0.1; done
    done
    if [ -n "$(ours)" ]; then
        echo "FAILED: still running: $(ours)"
        code=1
    fi
    rm -rf "$dir"
    exit $code
}
trap stop EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

start() { # NAME COMMAND...
    name=$1
    shift
    "$@" >"$dir/$name.log" 2>&1 &
}

# Three ports that nobody listens on; all are held until all are known.
read -r port_controller port_one port_two <<END
$(python3 -c 'import socket
held = [socket.socket() for _ in range(3)]
for s in held:
    s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in held))')
END

head -c 1024 /dev/urandom >"$dir/munge.key"
chmod 600 "$dir/munge.key"
mkdir -m 755 "$dir/munge" "$dir/state" "$dir/spool"
start munged munged --foreground --force --key-file="$dir/munge.key" --socket="$dir/munge/socket" \
    --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
cpus=$(nproc)
cat >"$dir/slurm.conf" <<END
ClusterName=fp8qtest
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_interval=1,bf_interval=1
KillWait=1
MinJobAge=300
ReturnToService=2
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldPort=$port_controller
NodeName=node1 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$port_one CPUs=$cpus State=UNKNOWN
NodeName=node2 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$port_two CPUs=$cpus State=UNKNOWN
PartitionName=all Nodes=node1,node2 Default=YES MaxTime=10 State=UP
END
export SLURM_CONF=$dir/slurm.conf
for _ in $(seq 50); do [ -S "$dir/munge/socket" ] && break || sleep 0.1; done
start slurmctld slurmctld -D -i -f "$SLURM_CONF"
mkdir "$dir/spool/node1" "$dir/spool/node2"
for node in node1 node2; do start $node slurmd -D -N $node -f "$SLURM_CONF"; done
for _ in $(seq 100); do
    sinfo -h -o %T 2>/dev/null | grep -q idle && break || sleep 0.2
done
sinfo -h -o '%N %T %c CPUs'

wait_for() { # until no job is queued or running, but those that can never run
    for _ in $(seq 300); do
        [ -z "$(squeue -h -t pending,running,configuring,completing -o '%i %R' | grep -v NeverSatisfied)" ] && return
        sleep 0.2
    done
    squeue
    return 1
}

cd "$dir"
"$make_checkpoint" tiny src
"$fp8q" quantize -q --max-shard-size 300KB "$dir/src" whole
export SRC=$dir/src DST=$dir/dst FP8Q_OPTIONS="-q --max-shard-size 300KB"
# Part 3 fails at first.
cat >fails-once <<END
#!/bin/sh
case "\$*" in
*3/4*) [ -e $dir/may-run ] || exit 9 ;;
esac
echo "\$SLURMD_NODENAME" >>$dir/nodes
exec $fp8q "\$@"
END
chmod +x fails-once
export FP8Q=$dir/fails-once
options="--cpus-per-task=1 --mem=0 --output=$dir/%A_%a.out"
parts=$(sbatch --parsable $options --array=1-4 "$recipe")
sbatch --parsable $options --dependency=afterok:"$parts" "$recipe" >/dev/null
wait_for
[ ! -e dst ] || { echo "FAILED: finished although a part failed"; exit 1; }
echo "a part failed: the dependent job did not run ($(squeue -h -o %R))"
code=0
"$fp8q" finish dst 2>message || code=$?
cat message
[ $code = 5 ] && grep -q ': 3$' message
scancel --name=fp8q
touch may-run
parts=$(PARTS=4 sbatch --parsable $options --array=3 "$recipe")
sbatch --parsable $options --dependency=afterok:"$parts" "$recipe" >/dev/null
wait_for
diff -r whole dst
[ "$(sort -u nodes | tr '\n' ' ')" = "node1 node2 " ]
"$fp8q" verify -q dst --source src
echo "1 passed, 0 failed"
