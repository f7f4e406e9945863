#!/bin/sh
# All-reduce on four hosts of 1 Gbit/s each way (network namespaces, tbf) beside plain sockets that
# move the same bytes in the same pattern without summing, interleaved; prints both and the ratio.
# PLAIN names the plain program where BUILD has none.
# usage: bench/all_reduce_netns.sh BUILD [RANKS] [RATE] [REPEATS] [COUNT]
set -eu
build=$1 ranks=${2:-4} rate=${3:-1gbit} repeats=${4:-5} count=${5:-25557032}
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
plain=$(readlink -f "${PLAIN:-$build/bench/plain_exchange}")
folder=$(mktemp -d)
netns_up "$ranks" "$rate"

addresses="" i=0
while [ $i -lt "$ranks" ]; do
    addresses="$addresses $(netns_address $i):5001"
    i=$((i + 1))
done

plain_seconds() { # pattern bytes
    i=$((ranks - 1))
    while [ $i -ge 0 ]; do
        # shellcheck disable=SC2086 # addresses are words
        netns_exec $i "$plain" $i "$1" "$2" 1 0 $addresses >"$folder/plain.$i" &
        i=$((i - 1))
    done
    wait
    cat "$folder/plain.0"
}

port=29500
redpoll_json() { # codec algorithm
    port=$((port + 1))
    i=$((ranks - 1))
    while [ $i -ge 0 ]; do
        netns_exec $i env RANK=$i WORLD_SIZE="$ranks" LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 \
            MASTER_ADDR="$(netns_address 0)" MASTER_PORT=$port \
            "$redpoll" bench all-reduce --count "$count" --codec "$1" --algorithm "$2" --transport tcp \
            --bind "$(netns_address $i)" --iters 1 --warmup 1 --json >"$folder/redpoll.$i" 2>"$folder/err.$i" &
        i=$((i - 1))
    done
    wait
    [ -s "$folder/redpoll.0" ] || { cat "$folder"/err.* >&2; exit 1; }
    cat "$folder/redpoll.0"
}

echo "all-reduce of $count floats, $ranks hosts of $rate each way, median of $repeats, interleaved"
compare_all
