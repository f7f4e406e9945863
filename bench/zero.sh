#!/bin/sh
# What sharing the optimizer's state (--zero 1) makes of a training step: two ranks, or RANKS, train a small GPT-2 with
# AdamW, without --zero and with it, in turns of STEPS short runs. Milliseconds of the median step of all turns, their
# least, and the median of the turns' ratios, which a busy machine moves least.
# usage: [RANKS=2] [MODEL=...] [STEPS=12] [TURNS=9] [MORE='--clip 1'] bench/zero.sh BUILD
set -eu
[ $# -eq 1 ] || { sed -n '5s/^# //p' "$0" >&2; exit 2; }
redpoll=$1/src/cli/redpoll ranks=${RANKS:-2} steps=${STEPS:-12} turns=${TURNS:-9} more=${MORE:-}
model=${MODEL:-gpt2:layers=4,hidden=256,heads=4,vocabulary=16384,positions=128}
[ -x "$redpoll" ] || { echo "$redpoll is missing: build first (cmake --build --preset release), then name the build" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

awk 'BEGIN { for (i = 0; i < 4000; i++) print "the red poll trains on seeds, " i }' >"$folder/text.txt"
"$redpoll" data tokenize --tokenizer byte --in "$folder/text.txt" --out "$folder/text" >"$folder/told" 2>&1 ||
    { cat "$folder/told" >&2; exit 1; }

# train ZERO: the median of its steps behind the first three, in milliseconds
train() {
    # shellcheck disable=SC2086 # words
    "$redpoll" train --model "$model" --data "tokens:$folder/text" --seq-length 128 -n "$ranks" --batch-size 4 --steps "$steps" --optimizer adamw \
        --threads 1 --zero "$1" --no-eval --no-checkpoint --overwrite --out "$folder/run" $more >"$folder/told" 2>&1 || { cat "$folder/told" >&2; exit 1; }
    sed -n 's/.*"step_s":\([0-9.eE+-]*\).*/\1/p' "$folder/run/metrics.jsonl" | tail -n +4 | sort -g |
        awk '{ v[NR] = $1 } END { print 1e3 * v[int((NR + 1) / 2)] }'
}
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

turn=0
while [ "$turn" -lt "$turns" ]; do
    # Who is first changes, as the machine warms up and slows down.
    if [ $((turn % 2)) -eq 0 ]; then plain=$(train 0) shared=$(train 1); else shared=$(train 1) plain=$(train 0); fi
    echo "$plain $shared" >>"$folder/turns"
    turn=$((turn + 1))
done
ratio=$(awk '{ print $2 / $1 }' "$folder/turns" | median)
awk '{ print $1 }' "$folder/turns" >"$folder/plain"
awk '{ print $2 }' "$folder/turns" >"$folder/shared"
printf '%s, %s ranks: %s ms a step (least %s), --zero 1 %s ms (least %s): %.3f of it\n' "$model" "$ranks" "$(median <"$folder/plain")" \
    "$(sort -g "$folder/plain" | head -n 1)" "$(median <"$folder/shared")" "$(sort -g "$folder/shared" | head -n 1)" "$ratio"
