#!/bin/sh
# fp32 against 4 bits with error feedback: three seeds each, the same data order, test accuracy side by
# side; writes docs/accuracy.md. usage: tools/accuracy.sh REDPOLL     (`make accuracy` calls it)
# REDPOLL_ACCURACY_EPOCHS and REDPOLL_ACCURACY_SEEDS make it longer or shorter.
set -eu
redpoll=$(readlink -f "$1")
cd "$(dirname "$0")/.."
epochs=${REDPOLL_ACCURACY_EPOCHS:-4}
seeds=${REDPOLL_ACCURACY_SEEDS:-1 2 3}
options="--model resnet18:width=16 --data fashion-mnist -n 2 --global-batch-size 128 --epochs $epochs --lr 0.1 --lr-schedule cosine"
runs=runs/accuracy
mkdir -p $runs
results=$runs/results.txt
: >$results

for seed in $seeds; do
    for codec in fp32 q4; do
        # shellcheck disable=SC2086 # options are words
        "$redpoll" train $options --codec $codec --seed "$seed" --overwrite --out "$runs/$codec-$seed"
        accuracy=$(sed -n 's/.*"test_accuracy":\([0-9.eE+-]*\).*/\1/p' "$runs/$codec-$seed/metrics.jsonl" | tail -n 1)
        echo "$codec $seed $accuracy" >>$results
    done
done

awk -v options="$options" -v version="$("$redpoll" --version)" '
    { value[$1, $2] = 100 * $3; if (!($2 in seen)) { seen[$2] = 1; order[++n] = $2 }
      sum[$1] += 100 * $3; squares[$1] += 10000 * $3 * $3 }
    function deviation(codec,   v) { v = (squares[codec] - sum[codec] * sum[codec] / n) / (n > 1 ? n - 1 : 1); return sqrt(v > 0 ? v : 0) }
    END {
        print "# Accuracy: 4 bits beside 32\n"
        print "Test accuracy on all 10,000 test images of Fashion-MNIST after training with fp32 gradients and with 4-bit"
        print "gradients and error feedback: same seed, same initial weights, same global batches in the same order.\n"
        print "    make accuracy          # runs this for each seed and codec, then rewrites this page:"
        print "    redpoll train " options " --codec q4 --seed 1 --out runs/accuracy/q4-1\n"
        print "| seed | fp32 | q4 | difference |"
        print "|---|---|---|---|"
        for (i = 1; i <= n; i++) { s = order[i]
            printf "| %s | %.2f %% | %.2f %% | %+.2f |\n", s, value["fp32", s], value["q4", s], value["q4", s] - value["fp32", s] }
        printf "| mean +- standard deviation | %.2f +- %.2f %% | %.2f +- %.2f %% | **%+.2f** |\n\n", sum["fp32"] / n, deviation("fp32"),
               sum["q4"] / n, deviation("q4"), (sum["q4"] - sum["fp32"]) / n
        print "Tensors of one dimension and those of fewer than 10,000 elements travel exact in both columns. " version "."
    }' $results | tee docs/accuracy.md
