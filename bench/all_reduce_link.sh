#!/bin/sh
# The same comparison without root: four ranks with --link beside plain sockets on loopback that pace
# themselves to the same rate; prints both and the ratio.
# usage: bench/all_reduce_link.sh BUILD [RANKS] [REPEATS] [COUNT]
set -eu
build=$1 ranks=${2:-4} repeats=${3:-5} count=${4:-25557032}
# shellcheck source=bench/side_by_side.sh
. "$(dirname "$0")/side_by_side.sh"
redpoll=$build/src/cli/redpoll plain=$build/bench/plain_exchange
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

port=$((20000 + $$ % 20000)) addresses="" i=0
while [ $i -lt "$ranks" ]; do
    addresses="$addresses 127.0.0.1:$((port + i))"
    i=$((i + 1))
done

plain_seconds() { # pattern bytes
    i=$((ranks - 1))
    while [ $i -ge 0 ]; do
        # shellcheck disable=SC2086 # addresses are words
        "$plain" $i "$1" "$2" 1 125000000 $addresses >"$folder/plain.$i" &
        i=$((i - 1))
    done
    wait
    cat "$folder/plain.0"
}

redpoll_json() { # codec algorithm
    "$redpoll" bench all-reduce -n "$ranks" --count "$count" --codec "$1" --algorithm "$2" --link 1Gbit,50us \
        --iters 1 --warmup 1 --json 2>/dev/null | sed -n 's/^\(\[0\] \)*{/{/p'
}

echo "all-reduce of $count floats, $ranks ranks with --link 1Gbit,50us, median of $repeats, interleaved"
compare_all
