#!/bin/sh
# Is --codec auto ever slower than fp32? Two ranks train over shared memory and over links of some rates, with
# fp32, with q4's bits whatever they cost (auto:like=q4) and with auto, interleaved; median images/s of steps, as a
# share of fp32's, and what auto has picked. "none" for no link.
# usage: bench/auto_codec.sh BUILD [MODEL] [STEPS] [REPEATS] [LINK ...]
set -eu
redpoll=$1/src/cli/redpoll model=${2:-mlp:hidden=1024x1024} steps=${3:-40} repeats=${4:-5}
[ $# -lt 4 ] && shift $# || shift 4
[ $# -gt 0 ] || set -- none 25Gbit,10us 10Gbit,20us 2500Mbit,30us 1Gbit,50us 200Mbit,50us
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

train() { # link codec: adds its images/s to the file of this codec
    words="--codec $2"
    [ "$1" = none ] || words="$words --link $1"
    # shellcheck disable=SC2086 # words
    "$redpoll" train --model "$model" --data synthetic --train-images 4096 -n 2 --steps "$steps" --global-batch-size 64 --lr 0.001 --seed 1 \
        --no-eval --no-checkpoint --overwrite --out "$folder/run" $words >"$folder/told" 2>&1 || { cat "$folder/told" >&2; exit 1; }
    sed -n 's/.*"images_s_median":\([0-9.eE+-]*\).*/\1/p' "$folder/run/metrics.jsonl" | tail -n 1 >>"$folder/$2"
    sed -n 's/.*\(codec auto: .*\)/\1/p' "$folder/told" | head -n 1 >"$folder/picked"
}
median() { sort -n "$1" | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

echo "$model, 2 ranks, median of $repeats runs of $steps steps"
for link in "$@"; do
    rm -f "$folder/fp32" "$folder/auto" "$folder/auto:like=q4"
    r=0
    while [ $r -lt "$repeats" ]; do
        for codec in fp32 auto:like=q4 auto; do train "$link" $codec; done
        r=$((r + 1))
    done
    awk -v link="$link" -v fp32="$(median "$folder/fp32")" -v q4="$(median "$folder/auto:like=q4")" -v auto="$(median "$folder/auto")" \
        'BEGIN { printf "%-14s fp32 %7.1f images/s; auto:like=q4 %.2f of it, auto %.2f\n", link, fp32, q4 / fp32, auto / fp32 }'
    echo "    $(cat "$folder/picked")"
done
