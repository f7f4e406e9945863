#!/bin/sh
# One of four ranks is three times slower: how many steps the four still make in the same time, and what
# they have learnt in it, by all-reduce, gossip through windows (put; nobody waits), a parameter server
# (staleness 4) and asynchronous local SGD (an exchange with a server every 10 steps), each beside the same
# run without the slow rank, in turns. Steps are sleeps around a small real gradient (straggler.c), so that
# two cores do for five ranks: shares are what to look at.
# usage: bench/straggler.sh BUILD [SEEDS] [STEPS] [STEP_MS] [MORE OPTIONS OF straggler...]
set -eu
[ $# -ge 1 ] || { sed -n '7s/^# //p' "$0" >&2; exit 2; }
redpoll=$1/src/cli/redpoll straggler=$1/bench/straggler
seeds=${2:-1 2 3} steps=${3:-400} step=${4:-50}
for file in "$redpoll" "$straggler"; do
    [ -x "$file" ] || { echo "$file is missing: build first (cmake --build --preset release), then name the build" >&2; exit 2; }
done
if [ $# -gt 4 ]; then shift 4; else set --; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

# learn MODE SEED SLOWER OPTIONS...: "MODE SLOWER STEPS ACCURACY"
learn() {
    mode=$1 seed=$2 slower=$3 ranks=4
    shift 3
    case $mode in server | async-local-sgd) ranks=5 ;; esac # the first one serves
    "$redpoll" run -n $ranks "$straggler" --mode "$mode" --seed "$seed" --slower "$slower" \
        --steps "$steps" --step "$step" "$@" >"$folder/out" 2>"$folder/err" ||
        { cat "$folder/err" >&2; exit 1; }
    sed -n 's/.*"steps":\([0-9.]*\),"test_accuracy":\([0-9.]*\).*/\1 \2/p' "$folder/out" |
        sed "s/^/$mode $slower /" >>"$folder/results"
}

for seed in $seeds; do
    for mode in all-reduce gossip server async-local-sgd; do
        learn $mode "$seed" 1 "$@"
        learn $mode "$seed" 3 "$@"
    done
done
echo "steps of $step ms (sleeps), $steps at most, seeds $seeds; load of this machine: $(uptime | sed 's/.*average[s]*: *//')"
awk '
function accuracies(k,   i, v, low, high, sum) {
    for (i = 1; i <= count[k]; i++) {
        v = accuracy[k, i]
        sum += v
        if (i == 1 || v < low) low = v
        if (i == 1 || v > high) high = v
    }
    return sprintf("%.1f (%.1f-%.1f)", sum / count[k], low, high)
}
{
    k = $1 " " $2
    accuracy[k, ++count[k]] = 100 * $4
    steps[k] += $3
}
END {
    print "| | steps, all alike | one three times slower | of the steps | test accuracy, %, all alike | one slower |"
    print "|---|---|---|---|---|---|"
    modes = split("all-reduce gossip server async-local-sgd", mode, " ")
    for (m = 1; m <= modes; m++) {
        a = mode[m] " 1"
        b = mode[m] " 3"
        printf "| %s | %.0f | %.0f | %.0f %% | %s | %s |\n", mode[m], steps[a] / count[a], steps[b] / count[b],
               100 * (steps[b] / count[b]) / (steps[a] / count[a]), accuracies(a), accuracies(b)
    }
}' "$folder/results"
