#!/bin/sh
# Makes the figures of README.md, docs/images/*.svg, from real runs. Run it on a quiet machine: it
# takes about ten minutes on two cores. usage: tools/readme_plots.sh [REDPOLL]
# REDPOLL_PLOT_STEPS shortens the training, REDPOLL_PLOT_SIZES the benchmark.
set -eu
redpoll=$(readlink -f "${1:-$(dirname "$0")/../build/release/src/cli/redpoll}")
cd "$(dirname "$0")/.."
steps=${REDPOLL_PLOT_STEPS:-150}
sizes=${REDPOLL_PLOT_SIZES:-16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB}
runs=runs/readme-plots
rm -rf $runs
mkdir -p $runs docs/images

for codec in fp32 q4; do
    "$redpoll" train --model resnet18 --data fashion-mnist -n 2 --link 200Mbit,50us --codec $codec \
        --steps "$steps" --global-batch-size 64 --seed 1 --lr 0.05 --lr-schedule cosine --no-eval \
        --no-checkpoint --out $runs/$codec
done
"$redpoll" report "32 bits (exact)=$runs/fp32" "4 bits=$runs/q4" --svg $runs/training \
    --title "ResNet-18 on Fashion-MNIST, two ranks, a link of 200 Mbit/s each way"

for codec in fp32 q8 q4; do
    "$redpoll" bench all-reduce -n 4 --link 1Gbit,50us --sizes "$sizes" --codec $codec --json \
        >$runs/all-reduce-$codec.jsonl
done
"$redpoll" report "32 bits (exact)=$runs/all-reduce-fp32.jsonl" "8 bits=$runs/all-reduce-q8.jsonl" \
    "4 bits=$runs/all-reduce-q4.jsonl" --svg $runs/bench \
    --title "All-reduce of floats over four ranks, a link of 1 Gbit/s each way"

cp $runs/training/loss-time.svg docs/images/loss-time.svg
cp $runs/bench/bench-time.svg docs/images/all-reduce-time.svg
echo "docs/images/loss-time.svg and docs/images/all-reduce-time.svg are made"
