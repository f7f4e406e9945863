#!/bin/sh
# The bytes of heartbeats, KB/s of all ranks together, while they wait in the world and in a group of all: both grow as
# the number of ranks does. In a network namespace of its own (unshare), so that nothing else is counted.
# usage: bench/heartbeats.sh BUILD [RANKS ...]
set -eu
[ $# -ge 1 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
build=$1
shift
[ $# -gt 0 ] || set -- 8 16 32
for file in "$build/src/cli/redpoll" "$build/bench/heartbeats"; do
    [ -x "$file" ] || { echo "$file is missing: build first (cmake --build --preset release), then name the build" >&2; exit 2; }
done
unshare -rn true 2>/dev/null || { echo "this user or kernel cannot make a network namespace" >&2; exit 77; }
for ranks in "$@"; do
    for where in world group; do
        # shellcheck disable=SC2016 # the inner shell expands them
        unshare -rn sh -c 'ip link set lo up && exec "$0/src/cli/redpoll" run -n "$1" "$0/bench/heartbeats" "$2"' "$build" "$ranks" "$where" |
            sed 's/^\[[0-9]*\] //'
    done
done
