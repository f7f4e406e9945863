#!/bin/sh
# Runs one command on each of N hosts of a shaped link (network namespaces, tbf), with torchrun's
# variables; exits 77 where namespaces cannot be made. usage: namespaces.sh RANKS RATE COMMAND...
set -eu
# shellcheck source=bench/netns.sh
. "$(dirname "$0")/../netns.sh"
ranks=$1 rate=$2
shift 2
if ! netns_possible; then
    echo "skipped: this user or kernel cannot make shaped network namespaces" >&2
    exit 77
fi
netns_up "$ranks" "$rate"

# Rank 0 is in the foreground; when it ends, netns_down ends what is left.
i=$((ranks - 1))
while [ $i -ge 0 ]; do
    run="netns_exec $i env RANK=$i WORLD_SIZE=$ranks LOCAL_RANK=0 LOCAL_WORLD_SIZE=1
        MASTER_ADDR=$(netns_address 0) MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0 REDPOLL_TRANSPORT=tcp"
    # shellcheck disable=SC2086 # words
    if [ $i -gt 0 ]; then $run "$@" & else $run "$@"; fi
    i=$((i - 1))
done
wait
