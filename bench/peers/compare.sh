#!/bin/sh
# ResNet-18 on 28x28 images, one training step, fp32: PyTorch (channels-last) beside Redpoll.
# The two take turns, so that both meet the same machine.
#     compare.sh BUILD [--rounds N] [--batch-size N] [--threads N]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: compare.sh BUILD [--rounds N] [--batch-size N] [--threads N]}
shift
rounds=5 batch=64 threads=2
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --batch-size) batch=$2 ;;
    --threads) threads=$2 ;;
    *) echo "compare.sh: unknown option $1" >&2 && exit 2 ;;
    esac
    shift 2
done
python=$(sh "$here/../../tools/torch_venv.sh")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

seconds() { sed -n "s/.*\"$1\": *\([^,}]*\).*/\1/p"; }
median() { sort -n | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
both="--batch-size $batch --threads $threads --iters 5"

round=1
while [ "$round" -le "$rounds" ]; do
    # shellcheck disable=SC2086 # several words
    "$python" "$here/resnet18_torch.py" $both | tee -a "$folder/theirs"
    # shellcheck disable=SC2086
    "$build/bench/engine_bench" --model resnet18 $both | tee -a "$folder/ours"
    round=$((round + 1))
done
report() { # key words
    awk -v theirs="$(seconds "$1" <"$folder/theirs" | median)" \
        -v ours="$(seconds "$1" <"$folder/ours" | median)" \
        -v batch="$batch" -v threads="$threads" -v words="$2" 'BEGIN {
        printf "resnet18, batch %d, %d threads, %s: redpoll %.1f images/s, PyTorch %.1f, ratio %.2f (goal: at least 1.5)\n",
               batch, threads, words, batch / ours, batch / theirs, theirs / ours }'
}
report step_min_s "fastest steps"
report step_s "median steps"
