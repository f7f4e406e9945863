#!/bin/sh
# fp32 against 4 bits with error feedback: three seeds each, the same data order, test accuracy side by
# side; writes docs/accuracy.md. usage: tools/accuracy.sh REDPOLL [PAGE]     (`make accuracy` calls it)
# REDPOLL_ACCURACY_EPOCHS and REDPOLL_ACCURACY_SEEDS make it longer or shorter.
set -eu
redpoll=$(readlink -f "$1")
cd "$(dirname "$0")/.."
page=${2:-docs/accuracy.md}
seeds=${REDPOLL_ACCURACY_SEEDS:-1 2 3}
scale=${REDPOLL_ACCURACY_EPOCHS:-1} # times the epochs below
runs=runs/accuracy
common="--data fashion-mnist -n 2 --global-batch-size 128 --lr-schedule cosine"
mkdir -p $runs
results=$runs/results.txt
: >$results

compare() { # model epochs learning-rate
    for seed in $seeds; do
        for codec in fp32 q4; do
            out=$runs/$(echo "$1" | tr ':=' '--')-$codec-$seed
            # shellcheck disable=SC2086 # options are words
            "$redpoll" train --model "$1" $common --epochs $(($2 * scale)) --lr "$3" --codec $codec --seed "$seed" \
                --overwrite --out "$out"
            accuracy=$(sed -n 's/.*"test_accuracy":\([0-9.eE+-]*\).*/\1/p' "$out/metrics.jsonl" | tail -n 1)
            echo "$1 $(($2 * scale)) $3 $codec $seed $accuracy" >>$results
        done
    done
}
compare mlp:hidden=512x256 10 0.05
compare resnet18:width=16 2 0.1

awk -v common="$common" -v version="$("$redpoll" --version)" '
    { model = $1; epochs[model] = $2; rate[model] = $3; x = 100 * $6
      if (!(model in count)) models[++m] = model
      if (!((model, $5) in seen)) { seen[model, $5] = 1; seeds[model, ++count[model]] = $5 }
      value[model, $4, $5] = x; sum[model, $4] += x; squares[model, $4] += x * x }
    function deviation(k,   v, n) { n = count[model]; v = (squares[model, k] - sum[model, k] ^ 2 / n) / (n > 1 ? n - 1 : 1); return sqrt(v > 0 ? v : 0) }
    END {
        print "# Accuracy: 4 bits beside 32\n"
        print "Test accuracy on all 10,000 test images of Fashion-MNIST after training on two ranks with fp32 gradients"
        print "and with 4-bit gradients and error feedback: same seed, same initial weights, same global batches in the"
        print "same order. `make accuracy` runs all of it and rewrites this page. " version ".\n"
        for (k = 1; k <= m; k++) {
            model = models[k]; n = count[model]
            printf "## %s, %d epochs\n\n", model, epochs[model]
            printf "    redpoll train --model %s %s --epochs %d --lr %s --codec q4 --seed 1\n\n", model, common, epochs[model], rate[model]
            print "| seed | fp32 | q4 | difference, points |\n|---|---|---|---|"
            for (i = 1; i <= n; i++) { s = seeds[model, i]
                printf "| %s | %.2f %% | %.2f %% | %+.2f |\n", s, value[model, "fp32", s], value[model, "q4", s], value[model, "q4", s] - value[model, "fp32", s] }
            printf "| mean +- standard deviation | %.2f +- %.2f %% | %.2f +- %.2f %% | **%+.2f** |\n\n", sum[model, "fp32"] / n, deviation("fp32"),
                   sum[model, "q4"] / n, deviation("q4"), (sum[model, "q4"] - sum[model, "fp32"]) / n
        }
        print "Tensors of one dimension and those of fewer than 10,000 elements travel exact in both columns."
    }' $results | tee "$page"
