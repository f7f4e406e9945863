#!/bin/sh
# Random programs and chaos for a night: rounds of at most ten minutes each, with new seeds, until the hours are over or
# one fails. A program that fails is made smaller and printed. usage: tools/soak.sh BUILD HOURS
set -eu
build=$1 hours=$2
seconds=$(awk -v h="$hours" 'BEGIN { if (h + 0 <= 0) exit 1; printf "%d", h * 3600 }') || {
    echo "soak: HOURS is '$hours'; a number above 0 is needed, such as HOURS=8 or HOURS=0.5" >&2
    exit 2
}
end=$(($(date +%s) + seconds)) round=0
while now=$(date +%s) && [ "$now" -lt "$end" ]; do
    round=$((round + 1))
    for test in random_programs random_processes chaos flow; do
        now=$(date +%s)
        [ "$now" -lt "$end" ] || break
        slice=$(((end - now) / 3 + 1))
        [ "$slice" -le 600 ] || slice=600
        echo "round $round, $test: at most $slice s, $(((end - now) / 60)) min to go"
        REDPOLL_TEST_SECONDS=$slice "$build/tests/comm/comm_${test}_test"
    done
done
echo "$round rounds in $hours h, and nothing failed"
