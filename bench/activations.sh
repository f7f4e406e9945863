#!/bin/sh
# What a codec of activations costs in loss, and spares in bytes: a small GPT-2 over two stages, and over two ranks that share each layer, trained alike but for
# --activations-codec. `sent` is what rank 0 sends in a step; `off` by how much activations, and their gradients, were off where they crossed; `loss` of
# samples that were not learnt from.
# usage: [STEPS=300] [CODECS='fp32 bf16 q8 q6 q4 q3 q2'] [MODEL=gpt2:layers=4,hidden=128,heads=4,vocabulary=257,positions=64] bench/activations.sh BUILD [TEXT]
set -eu
[ $# -eq 1 ] || [ $# -eq 2 ] || { sed -n '5s/^# //p' "$0" >&2; exit 2; }
redpoll=$1/src/cli/redpoll steps=${STEPS:-300} codecs=${CODECS:-fp32 bf16 q8 q6 q4 q3 q2}
model=${MODEL:-gpt2:layers=4,hidden=128,heads=4,vocabulary=257,positions=64}
[ -x "$redpoll" ] || { echo "$redpoll is missing: build first (cmake --build --preset release), then name the build" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if [ $# -eq 2 ]; then
    cp "$2" "$folder/text.txt"
else
    # Sentences that can be learnt from, by a generator that is always the same.
    awk 'BEGIN {
        n = split("the a one every no", article); n = split("red small old quick young", adjective)
        n = split("poll seed bird field wind", noun); n = split("sees finds keeps leaves follows", verb)
        for (i = 0; i < 12000; i++) {
            for (w = 0; w < 7; w++) { s = (s * 16807 + 1) % 2147483647; d[w] = int(s / 65536) % 5 + 1 }
            print article[d[0]], adjective[d[1]], noun[d[2]], verb[d[3]], article[d[4]], adjective[d[5]], noun[(d[2] + d[3] + d[6] % 2) % 5 + 1] "."
        }
    }' >"$folder/text.txt"
fi
"$redpoll" data tokenize --tokenizer byte --in "$folder/text.txt" --out "$folder/text" >"$folder/told" 2>&1 || { cat "$folder/told" >&2; exit 1; }

# number KEY: of the last line of the run that has it
number() { sed -n "s/.*\"$1\":\([-0-9.eE+]*\).*/\1/p" "$folder/run/metrics.jsonl" | tail -n 1; }
# percent NUMBER: 0.00123 is 0.12; nothing: -
percent() { if [ -n "$1" ]; then awk -v x="$1" 'BEGIN { printf "%.2f %%", 100 * x }'; else echo '-'; fi; }

echo "$model, $steps steps of 16 x 64 tokens"
for layout in '--pp 2 --micro-batch-size 4' '--tp 2'; do
    printf '\n%-28s %8s %10s %9s %9s %9s\n' "$layout" codec 'sent, MB' 'off' 'gradients' loss
    for codec in $codecs; do
        # shellcheck disable=SC2086 # several words
        "$redpoll" train --model "$model" --data "tokens:$folder/text,validation=5%" --seq-length 64 --global-batch-size 16 --optimizer adamw --lr 1e-3 \
            --clip 1 --threads 1 --steps "$steps" --eval-images 64 --no-checkpoint --overwrite --out "$folder/run" -n 2 $layout --activations-codec "$codec" \
            >"$folder/told" 2>&1 || { cat "$folder/told" >&2; exit 1; }
        printf '%-28s %8s %10s %9s %9s %9.4f\n' '' "$codec" "$(number wire_bytes_median | awk '{ printf "%.3f", 1e-6 * $1 }')" \
            "$(percent "$(number activations_error)")" "$(percent "$(number activation_gradients_error)")" "$(number test_loss)"
    done
done
