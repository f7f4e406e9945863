#!/bin/sh
# Is the schedule that --schedule auto takes the quickest? GPT-2 in stages of one thread, over shared memory and over links, by every schedule and by auto,
# in turns. Times are of the median step, the median of all turns; behind them which schedule auto has taken, and its time over the quickest one's.
# usage: [LAYERS=8] [HIDDEN=256] [SEQUENCE=128] [RUNS=8] [STEPS=10] [TURNS=3] [LAYOUTS='pp=2,n=2 pp=4,n=4'] bench/auto_schedule.sh BUILD [LINK ...]     "none" for no link
set -eu
[ $# -ge 1 ] || { sed -n '4s/^# //p' "$0" >&2; exit 2; }
redpoll=$1/src/cli/redpoll layers=${LAYERS:-8} hidden=${HIDDEN:-256} sequence=${SEQUENCE:-128} runs=${RUNS:-8} steps=${STEPS:-10} turns=${TURNS:-3}
layouts=${LAYOUTS:-pp=2,n=2 pp=4,n=4}
[ -x "$redpoll" ] || { echo "$redpoll is missing: build first (cmake --build --preset release), then name the build" >&2; exit 2; }
shift
[ $# -gt 0 ] || set -- none 1Gbit,5ms 200Mbit,1ms
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

awk 'BEGIN { for (i = 0; i < 20000; i++) print "the red poll trains on seeds, " i }' >"$folder/text.txt"
"$redpoll" data tokenize --tokenizer byte --in "$folder/text.txt" --out "$folder/text" >"$folder/told" 2>&1 || { cat "$folder/told" >&2; exit 1; }

# train LINK STAGES RANKS SCHEDULE: adds its milliseconds to the schedule's file
train() {
    words="--pp $2 -n $3 --schedule $4"
    [ "$1" = none ] || words="$words --link $1"
    # shellcheck disable=SC2086 # words
    "$redpoll" train --model "gpt2:layers=$layers,hidden=$hidden,heads=4,vocabulary=261,positions=$sequence" --data "tokens:$folder/text" \
        --seq-length "$sequence" --global-batch-size $((runs * $3 / $2)) --micro-batch-size 1 --optimizer adamw --threads 1 --steps "$steps" --no-eval \
        --no-checkpoint --overwrite --out "$folder/run" $words >"$folder/told" 2>&1 || { cat "$folder/told" >&2; exit 1; }
    sed -n 's/.*"step_s":\([0-9.eE+-]*\).*/\1/p' "$folder/run/metrics.jsonl" | tail -n +3 | median | awk '{ print 1e3 * $1 }' >>"$folder/of-$4"
    [ "$4" != auto ] || sed -n 's/^note: --schedule auto takes \([a-z0-9-]*\):.*/\1/p' "$folder/told" >>"$folder/taken"
}
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

schedules='afab 1f1b eager-1f1b interleaved zb-h1 zb-h2 zb-v'
echo "GPT-2 $layers x $hidden, micro-batches of $sequence tokens, $runs for each replica; medians of $turns turns of $steps steps, ms"
for link in "$@"; do
    for layout in $layouts; do
        stages=$(echo "$layout" | sed -n 's/.*pp=\([0-9]*\).*/\1/p') ranks=$(echo "$layout" | sed -n 's/.*n=\([0-9]*\).*/\1/p')
        rm -f "$folder"/of-* "$folder/taken"
        turn=0
        while [ "$turn" -lt "$turns" ]; do
            for schedule in $schedules auto; do train "$link" "$stages" "$ranks" "$schedule"; done
            turn=$((turn + 1))
        done
        for schedule in $schedules auto; do echo "$schedule $(median <"$folder/of-$schedule")"; done >"$folder/all"
        awk -v link="$link" -v layout="--pp $stages -n $ranks" -v taken="$(sort "$folder/taken" | uniq -c | tr -s ' \n' ' ')" '
            { line = line sprintf(" %s %.1f", $1, $2) } $1 == "auto" { auto = $2; next } !best || $2 < best { best = $2 }
            END { printf "%-12s %-12s%s: %.3f of the quickest; took%s\n", link, layout, line, auto / best, taken }' "$folder/all"
    done
done
