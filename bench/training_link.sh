#!/bin/sh
# ResNet-18 on Fashion-MNIST, two ranks: images/s with 4 bits on a slow link as a share of those with
# no link limit, interleaved. usage: bench/training_link.sh BUILD [LINK] [STEPS] [REPEATS]
set -eu
redpoll=$1/src/cli/redpoll link=${2:-200Mbit,50us} steps=${3:-15} repeats=${4:-3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

train() { # name words...
    name=$1
    shift
    "$redpoll" train --model resnet18 --data fashion-mnist -n 2 --steps "$steps" --global-batch-size 64 --seed 1 \
        --no-eval --no-checkpoint --overwrite --out "$folder/run" "$@" >/dev/null
    sed -n 's/.*"images_s_median":\([0-9.eE+-]*\).*/\1/p' "$folder/run/metrics.jsonl" | tail -n 1 >>"$folder/$name"
}
median() { sort -n "$1" | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

r=0
while [ $r -lt "$repeats" ]; do
    train unlimited --codec fp32
    train q4 --codec q4 --link "$link"
    train fp32 --codec fp32 --link "$link"
    r=$((r + 1))
done
awk -v link="$link" -v bound="$(median "$folder/unlimited")" -v q4="$(median "$folder/q4")" -v fp32="$(median "$folder/fp32")" 'BEGIN {
    printf "no limit, fp32   %7.1f images/s\n%s, q4   %7.1f images/s, %.0f %% of it (goal: at least 85 %%)\n%s, fp32 %7.1f images/s, %.0f %%\n",
           bound, link, q4, 100 * q4 / bound, link, fp32, 100 * fp32 / bound }'
