#!/bin/sh
# Is --codec auto ever slower than fp32? Two ranks train over shared memory and over links of some rates, with
# fp32, with q4's bits whatever they cost (auto:like=q4) and with auto, in turns. Times are of the median step behind
# the trial of auto, the median and the least of all turns; beside them what auto has settled for in each turn.
# usage: bench/auto_codec.sh BUILD [MODEL] [STEPS] [TURNS] [BATCH] [LINK ...]        "none" for no link
set -eu
redpoll=$1/src/cli/redpoll model=${2:-mlp:hidden=1024x1024} steps=${3:-60} turns=${4:-5} batch=${5:-64}
[ $# -lt 5 ] && shift $# || shift 5
[ $# -gt 0 ] || set -- none 25Gbit,10us 10Gbit,20us 2500Mbit,30us 1Gbit,50us 200Mbit,50us
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

trial=20 # steps, and a few to be sure
train() { # link codec: adds its milliseconds to the file of this codec
    words="--codec $2"
    [ "$1" = none ] || words="$words --link $1"
    # shellcheck disable=SC2086 # words
    "$redpoll" train --model "$model" --data synthetic --train-images 4096 -n 2 --steps "$steps" --global-batch-size "$batch" --lr 0.001 --seed 1 \
        --no-eval --no-checkpoint --overwrite --out "$folder/run" $words >"$folder/told" 2>&1 || { cat "$folder/told" >&2; exit 1; }
    sed -n 's/.*"step_s":\([0-9.eE+-]*\).*/\1/p' "$folder/run/metrics.jsonl" | tail -n +"$trial" | sort -g >"$folder/steps"
    awk '{ v[NR] = $1 } END { print 1e3 * v[int((NR + 1) / 2)] }' "$folder/steps" >>"$folder/$2"
    sed -n 's/.*codec auto: \(fp32\|lossy\):.*/\1/p' "$folder/told" >>"$folder/settled"
}
median() { sort -g "$folder/$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
least() { sort -g "$folder/$1" | head -n 1; }

echo "$model, 2 ranks, $((batch / 2)) images each, $turns turns of $steps steps: median (least) ms a step"
for link in "$@"; do
    rm -f "$folder/fp32" "$folder/auto" "$folder/auto:like=q4" "$folder/settled"
    turn=0
    while [ $turn -lt "$turns" ]; do
        for codec in fp32 auto:like=q4 auto; do train "$link" $codec; done
        turn=$((turn + 1))
    done
    settled=$(sort "$folder/settled" | uniq -c | tr -s ' \n' ' ')
    awk -v link="$link" -v exact="$(median fp32)" -v exact0="$(least fp32)" -v q4="$(median auto:like=q4)" -v q40="$(least auto:like=q4)" \
        -v auto="$(median auto)" -v auto0="$(least auto)" -v settled="$settled" 'BEGIN {
        printf "%-14s fp32 %.1f (%.1f), auto:like=q4 %.1f (%.1f), auto %.1f (%.1f): %.2f (%.2f) of fp32; settled for%s\n",
               link, exact, exact0, q4, q40, auto, auto0, auto / exact, auto0 / exact0, settled }'
done
