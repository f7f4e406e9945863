#!/bin/sh
# What a world of many ranks on one machine costs: the whole of joining, a barrier and an all-reduce, and
# leaving, with links on need and all at the start; descriptors and memory of a rank; and 64 ranks that reduce 4 KB, beside the ring.
# usage: bench/many_ranks.sh BUILD [RANKS ...]
set -eu
build=$1
shift
[ $# -gt 0 ] || set -- 64 128 256
redpoll=$build/src/cli/redpoll

for ranks in "$@"; do
    for links in need start; do
        start=$(date +%s.%N)
        echo "$ranks ranks, REDPOLL_CONNECT=$links; processor time of all, user and system, in the second line:"
        (
            export REDPOLL_CONNECT="$links"
            "$redpoll" bench all-reduce -n "$ranks" --count 1000 --iters 1 --warmup 0 --connect-timeout 300 >/dev/null
            times
        )
        end=$(date +%s.%N)
        echo "joined, reduced and gone in $(echo "$end - $start" | bc) s"
    done
done
echo "descriptors and memory of the first and the last rank of 256:"
REDPOLL_LONG_TESTS=1 "$build/tests/comm/comm_large_world_test" by_shared_memory by_tcp | grep '^rank'
for algorithm in ring doubling star; do
    "$redpoll" bench all-reduce -n 64 --count 1000 --iters 21 --algorithm "$algorithm" | tail -n 1
done
