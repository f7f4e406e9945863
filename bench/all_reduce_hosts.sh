#!/bin/sh
# All-reduce on hosts of several ranks each (network namespaces, tbf on every host's one interface) beside
# plain sockets, one process a host, that move the least bytes between hosts that any all-reduce
# can; interleaved; prints both and the ratio.
# usage: bench/all_reduce_hosts.sh BUILD [HOSTS] [RANKS_A_HOST] [RATE] [REPEATS] [COUNT] [ALGORITHMS]
set -eu
build=$1 hosts=${2:-2} each=${3:-2} rate=${4:-1gbit} repeats=${5:-5} count=${6:-25557032}
algorithms=${7:-two-level}
here=$(dirname "$0")
# shellcheck source=bench/netns.sh
. "$here/netns.sh"
# shellcheck source=bench/side_by_side.sh
. "$here/side_by_side.sh"
if ! netns_possible; then
    echo "skipped: this user or kernel cannot make shaped network namespaces"
    exit 77
fi
redpoll=$(readlink -f "$build/src/cli/redpoll")
plain=$(readlink -f "$build/bench/plain_exchange")
folder=$(mktemp -d)
netns_up "$hosts" "$rate"
ranks=$((hosts * each))

addresses="" i=0
while [ $i -lt "$hosts" ]; do
    addresses="$addresses $(netns_address $i):5001"
    i=$((i + 1))
done

plain_seconds() { # pattern bytes; whatever the algorithm, of hosts only `sra` moves least
    i=$((hosts - 1))
    while [ $i -ge 0 ]; do
        # shellcheck disable=SC2086 # addresses are words
        netns_exec $i "$plain" $i sra "$2" 1 0 $addresses >"$folder/plain.$i" &
        i=$((i - 1))
    done
    wait
    cat "$folder/plain.0"
}

port=29500
redpoll_json() { # codec algorithm
    port=$((port + 1))
    words="--algorithm $2"
    [ "$2" != default ] || words=""
    i=$((ranks - 1))
    while [ $i -ge 0 ]; do
        # shellcheck disable=SC2086 # words are words
        netns_exec $((i / each)) env RANK=$i WORLD_SIZE="$ranks" LOCAL_RANK=$((i % each)) \
            LOCAL_WORLD_SIZE="$each" MASTER_ADDR="$(netns_address 0)" MASTER_PORT=$port \
            "$redpoll" bench all-reduce --count "$count" --codec "$1" $words \
            --bind "$(netns_address $((i / each)))" --iters 3 --warmup 1 --check 0 --json \
            >"$folder/redpoll.$i" 2>"$folder/err.$i" &
        i=$((i - 1))
    done
    wait
    [ -s "$folder/redpoll.0" ] || { cat "$folder"/err.* >&2; exit 1; }
    cat "$folder/redpoll.0"
}

echo "all-reduce of $count floats, $hosts hosts x $each ranks, $rate each way a host, median of $repeats, interleaved"
for algorithm in $algorithms; do
    compare fp32 "$algorithm" $((count * 4)) 1.06
    # 4 bits an element and two floats a bucket of 512
    compare q4 "$algorithm" $((count / 2 + (count + 511) / 512 * 8)) 1.12
done
