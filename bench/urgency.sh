#!/bin/sh
# How long an all-reduce of 4 KiB takes alone and beside four of 8 MiB of another communicator, on two ranks of this
# machine: medians and 99th percentiles in milliseconds, and the rate of the large ones. Several builds take turns, so
# that "before" and "after" see the same machine; each cell is the median over the rounds. Transport netns is TCP between
# two network namespaces that the kernel shapes (tbf, 1gbit), as root.
# usage: [ROUNDS=3] [LINK=1Gbit,50us] [TRANSPORTS='shm tcp netns'] [MORE='--bulk 8M'] bench/urgency.sh BUILD [BUILD...]
set -eu
[ $# -ge 1 ] || { sed -n '6s/^# //p' "$0" >&2; exit 2; }
rounds=${ROUNDS:-3} link=${LINK-1Gbit,50us} transports=${TRANSPORTS:-shm tcp} more=${MORE:-}
for build in "$@"; do
    for file in "$build/src/cli/redpoll" "$build/bench/urgency"; do
        [ -x "$file" ] || { echo "$file is missing: build first (cmake --build --preset release), then name the build" >&2; exit 2; }
    done
done
folder=$(mktemp -d) port=29700
# shellcheck source=bench/netns.sh
. "$(dirname "$0")/netns.sh"
case $transports in
*netns*)
    netns_possible || { echo "this user or kernel cannot make shaped network namespaces: leave out netns" >&2; exit 77; }
    netns_up 2 1gbit
    ;;
esac
trap 'netns_down; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

# between_hosts BUILD OPTIONS...: rank 0's output
between_hosts() {
    build=$1 port=$((port + 1)) rank=1
    shift
    while [ $rank -ge 0 ]; do
        netns_exec $rank env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR="$(netns_address 0)" \
            MASTER_PORT=$port "$build/bench/urgency" --transport tcp "$@" >"$folder/out.$rank" &
        rank=$((rank - 1))
    done
    wait
    cat "$folder/out.0"
}
# on_this_host BUILD TRANSPORT OPTIONS...
on_this_host() {
    build=$1 transport=$2
    shift 2
    "$build/src/cli/redpoll" run -n 2 "$build/bench/urgency" --transport "$transport" ${link:+--link "$link"} "$@"
}
# measure BUILD TRANSPORT FILE OPTIONS...: a line of median, 99th percentile and rate
measure() {
    with=$1 by=$2 file=$3
    shift 3
    # shellcheck disable=SC2086 # words
    if [ "$by" = netns ]; then between_hosts "$with" "$@" $more; else on_this_host "$with" "$by" "$@" $more; fi \
        >"$folder/out" 2>"$folder/err" || { cat "$folder/err" >&2; exit 1; }
    grep -q bulk_bytes_s "$folder/out" || { cat "$folder/err" >&2; exit 1; }
    sed -n 's/.*"median_us":\([0-9.]*\),.*"p99_us":\([0-9.]*\),.*"bulk_bytes_s":\([0-9.e+]*\)}/\1 \2 \3/p' "$folder/out" >>"$folder/$file"
}
# column FILE N: the median of that column
column() { awk -v n="$2" '{print $n}' "$1" | sort -g | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

round=0
while [ $round -lt "$rounds" ]; do
    for transport in $transports; do
        number=0
        for build in "$@"; do
            number=$((number + 1))
            measure "$build" "$transport" "alone-$transport-$number" --queued 0
            measure "$build" "$transport" "beside-$transport-$number"
            measure "$build" "$transport" "declared-$transport-$number" --priority urgent --bulk-priority bulk
        done
    done
    round=$((round + 1))
done
for transport in $transports; do
    number=0
    for build in "$@"; do
        number=$((number + 1))
        at=${link:+ at $link}
        [ "$transport" != netns ] || at=" at 1gbit"
        echo "$build, $transport$at:"
        for row in alone beside declared; do
            file=$folder/$row-$transport-$number
            awk -v row=$row -v median="$(column "$file" 1)" -v p99="$(column "$file" 2)" -v rate="$(column "$file" 3)" \
                'BEGIN {printf "  %-9s median %8.3f ms   99 %% %8.3f ms   bulk %7.1f MB/s\n", row, median / 1e3, p99 / 1e3, rate / 1e6}'
        done
    done
done
