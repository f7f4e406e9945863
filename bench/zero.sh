#!/bin/sh
# What sharing the optimizer's state (--zero 1), gradients (2) and parameters (3) makes of a training step: two ranks, or
# RANKS, train a small GPT-2 with AdamW, without --zero and with each, in turns of STEPS short runs. Milliseconds of the
# median step of all turns, their least, and the median of the turns' ratios, which a busy machine moves least.
# With "memory": the largest resident set of a rank instead, of four ranks, or RANKS, that train a LLaMA, and of one alone.
# usage: [RANKS=2] [MODEL=...] [STEPS=12] [TURNS=9] [STAGES='1 2 3'] [MORE='--clip 1'] bench/zero.sh BUILD [memory]
set -eu
[ $# -eq 1 ] || [ "${2:-}" = memory ] || { sed -n '6s/^# //p' "$0" >&2; exit 2; }
redpoll=$1/src/cli/redpoll stages=${STAGES:-1 2 3} turns=${TURNS:-9} more=${MORE:-}
[ -x "$redpoll" ] || { echo "$redpoll is missing: build first (cmake --build --preset release), then name the build" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

awk 'BEGIN { for (i = 0; i < 4000; i++) print "the red poll trains on seeds, " i }' >"$folder/text.txt"
"$redpoll" data tokenize --tokenizer byte --in "$folder/text.txt" --out "$folder/text" >"$folder/told" 2>&1 ||
    { cat "$folder/told" >&2; exit 1; }

# run RANKS ZERO OPTION...: a training
run() {
    run_ranks=$1 run_zero=$2
    shift 2
    # shellcheck disable=SC2086 # words
    "$redpoll" train --model "$model" --data "tokens:$folder/text" -n "$run_ranks" --steps "$steps" --optimizer adamw --threads 1 \
        --zero "$run_zero" --no-eval --no-checkpoint --overwrite --out "$folder/run" "$@" $more >"$folder/told" 2>&1 || { cat "$folder/told" >&2; exit 1; }
}

# ---- memory ----
# largest RANKS ZERO: of any rank, in MiB, looked at until the training has ended
largest() {
    run "$1" "$2" --seq-length 64 --batch-size 1 &
    training=$! most=0
    while kill -0 "$training" 2>/dev/null; do
        # shellcheck disable=SC2013 # paths without blanks
        for process in $(grep -lzx "REDPOLL_BENCH_MARK=$folder" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3); do
            now=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$process/status" 2>/dev/null || true)
            if [ "${now:-0}" -gt "$most" ]; then most=$now; fi
        done
        sleep 0.1
    done
    wait "$training"
    echo $((most / 1024))
}
if [ "${2:-}" = memory ]; then
    export REDPOLL_BENCH_MARK="$folder"
    model=${MODEL:-llama:layers=12,hidden=768,heads=12,vocabulary=257,positions=128} ranks=${RANKS:-4} steps=${STEPS:-3}
    alone=$(largest 1 0)
    echo "$model, one rank: $alone MiB"
    for stage in $stages; do
        shared=$(largest "$ranks" "$stage")
        echo "$ranks ranks, --zero $stage: $shared MiB, $(awk "BEGIN { printf \"%.3f\", $shared / $alone }") of it"
    done
    exit 0
fi

# ---- time ----
model=${MODEL:-gpt2:layers=4,hidden=256,heads=4,vocabulary=16384,positions=128} ranks=${RANKS:-2} steps=${STEPS:-12}
# train ZERO: the median of its steps behind the first three, in milliseconds
train() {
    run "$ranks" "$1" --seq-length 128 --batch-size 4
    sed -n 's/.*"step_s":\([0-9.eE+-]*\).*/\1/p' "$folder/run/metrics.jsonl" | tail -n +4 | sort -g |
        awk '{ v[NR] = $1 } END { print 1e3 * v[int((NR + 1) / 2)] }'
}
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

turn=0
while [ "$turn" -lt "$turns" ]; do
    # Who is first changes, as the machine warms up and slows down.
    [ $((turn % 2)) -eq 0 ] && order="0 $stages" || order="$(echo "$stages" | awk '{ for (i = NF; i > 0; i--) print $i }' | tr '\n' ' ')0"
    for stage in $order; do train "$stage" >"$folder/now-$stage"; done
    for stage in $stages; do echo "$(cat "$folder/now-0") $(cat "$folder/now-$stage")" >>"$folder/turns-$stage"; done
    cat "$folder/now-0" >>"$folder/plain"
    turn=$((turn + 1))
done
printf '%s, %s ranks: %s ms a step (least %s)\n' "$model" "$ranks" "$(median <"$folder/plain")" "$(sort -g "$folder/plain" | head -n 1)"
for stage in $stages; do
    awk '{ print $2 }' "$folder/turns-$stage" >"$folder/shared"
    ratio=$(awk '{ print $2 / $1 }' "$folder/turns-$stage" | median)
    printf -- '--zero %s: %s ms (least %s), %.3f of it\n' "$stage" "$(median <"$folder/shared")" "$(sort -g "$folder/shared" | head -n 1)" "$ratio"
done
