#!/bin/sh
# All-reduce of two hosts that two links join (network namespaces, two veth pairs, tbf both ways): over
# one of them, over one by several streams, and over both with a stream each (REDPOLL_STREAMS=2), interleaved.
# A second build, such as an earlier one, takes turns over one link with one stream.
# usage: bench/streams_netns.sh BUILD [RATE] [REPEATS] [COUNT] [CODEC] [OTHER_BUILD]
set -eu
build=$1 rate=${2:-1gbit} repeats=${3:-5} count=${4:-25557032} codec=${5:-fp32} other=${6:-}
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
[ -z "$other" ] || other=$(readlink -f "$other/src/cli/redpoll")
folder=$(mktemp -d)
trap netns_down EXIT
trap 'exit 130' INT TERM

for host in 0 1; do
    ip netns add "$(netns_host $host)"
    ip -n "$(netns_host $host)" link set lo up
done
for link in 0 1; do
    ip link add eth$link netns "$(netns_host 0)" type veth peer name eth$link netns "$(netns_host 1)"
    for host in 0 1; do
        ip -n "$(netns_host $host)" addr add "10.$((77 + link)).0.$((host + 1))/24" dev eth$link
        ip -n "$(netns_host $host)" link set eth$link up
        netns_shape "$(netns_host $host)" eth$link "$rate"
    done
done

port=29600
seconds() { # program interfaces streams
    port=$((port + 1))
    for host in 1 0; do
        netns_exec $host env RANK=$host WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 \
            MASTER_PORT=$port REDPOLL_SOCKET_IFNAME="=$2" REDPOLL_STREAMS="$3" \
            "$1" bench all-reduce --count "$count" --codec "$codec" --transport tcp --iters 3 --warmup 1 --json \
            >"$folder/out.$host" 2>"$folder/err.$host" &
    done
    wait
    [ -s "$folder/out.0" ] || { cat "$folder"/err.* >&2; exit 1; }
    json_key time_s <"$folder/out.0"
}

for name in one several both earlier; do : >"$folder/$name"; done
r=0
while [ $r -lt "$repeats" ]; do
    seconds "$redpoll" eth0 1 >>"$folder/one"
    [ -z "$other" ] || seconds "$other" eth0 1 >>"$folder/earlier"
    seconds "$redpoll" eth0,eth1 2 >>"$folder/both"
    seconds "$redpoll" eth0 4 >>"$folder/several"
    r=$((r + 1))
done
echo "all-reduce of $count floats ($codec) on 2 hosts joined by 2 links of $rate each way, median of $repeats, interleaved"
one=$(median <"$folder/one")
show() { # name words
    awk -v words="$2" -v one="$one" -v its="$(median <"$folder/$1")" 'BEGIN {
        printf "%-28s %.4f s, %.3f times the rate of one link by one stream\n", words, its, one / its }'
}
show one "one link, one stream"
[ -z "$other" ] || show earlier "the other build, as that"
show several "one link, four streams"
show both "both links, a stream each"
rm -r "$folder"
