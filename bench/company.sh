#!/bin/sh
# Training steps a second alone, beside one process that computes without end, and beside a second training, with
# one thread and with two: what company costs. Several builds take turns, so that "before" and "after" see the same
# machine. Medians over the rounds of all steps in a process by the clock, starting not counted.
# usage: [RUN='chrt -r 1'] [MODEL='mlp:hidden=512x512'] [ROUNDS=5] [STEPS=100] bench/company.sh BUILD [BUILD...]
set -eu
[ $# -ge 1 ] || { sed -n '5s/^# //p' "$0" >&2; exit 2; }
model=${MODEL:-mlp:hidden=512x512} batch=${BATCH:-128} rounds=${ROUNDS:-5} steps=${STEPS:-100} run=${RUN:-}
for build in "$@"; do
    [ -x "$build/bench/engine_bench" ] || { echo "$build/bench/engine_bench is missing: build it first" >&2; exit 2; }
done
folder=$(mktemp -d) others=
leave() { [ -z "$others" ] || kill $others 2>/dev/null || :; rm -rf "$folder"; }
trap leave EXIT
trap 'exit 130' INT TERM

# train BUILD THREADS STEPS: the mean step's time is what matters in company, where steps differ
train() {
    # shellcheck disable=SC2086 # words
    $run "$1/bench/engine_bench" --model "$model" --batch-size "$batch" --size 28 --channels 1 --threads "$2" --iters "$3"
}
rate() { sed -n 's/.*"steps_s": \([0-9.]*\).*/\1/p'; }
median() { sort -n | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

# start COMPANY BUILD THREADS
start() {
    case $1 in
    alone) return ;;
    busy) # shellcheck disable=SC2086
        $run sh -c 'while :; do :; done' & ;;
    second) # shellcheck disable=SC2086
        $run "$2/bench/engine_bench" --model "$model" --batch-size "$batch" --size 28 --channels 1 --threads "$3" \
            --iters 100000 >/dev/null & ;;
    esac
    others=$!
}
stop() {
    [ -n "$others" ] || return 0
    kill "$others" 2>/dev/null || :
    wait "$others" 2>/dev/null || :
    others=
}

round=0
while [ $round -lt "$rounds" ]; do
    for threads in 1 2; do
        for company in alone busy second; do
            number=0
            for build in "$@"; do
                number=$((number + 1))
                start $company "$build" $threads
                train "$build" $threads "$steps" | rate >>"$folder/$company-$threads-$number"
                stop
            done
        done
    done
    round=$((round + 1))
done
echo "steps/s of $model, batch $batch: alone, beside one busy process, beside a second training"
number=0
for build in "$@"; do
    number=$((number + 1))
    for threads in 1 2; do
        printf '%s, %s thread(s):' "$build" $threads
        for company in alone busy second; do printf ' %8.1f' "$(median <"$folder/$company-$threads-$number")"; done
        echo
    done
done
