#!/bin/sh
# Is a rank's memory what `redpoll info` says? Rank 0 of several layouts of one GPT-2 with AdamW: what info counts; the most that its process held (VmHWM) less
# what it held in the same layout of a model of a few KB, which is code, libraries, links and buffers of messages; and the one over the other. Rank 0 is
# stage 0 of a pipeline, tensor rank 0 of others. Over TCP, as memory that ranks of one host read in place would count for each of them;
# REDPOLL_TRANSPORT=shm shows that.
# usage: [MODEL=...] [SEQUENCE=256] [BATCH=16] [MICRO=4] [ROWS='cp|--zero 3'] bench/memory.sh BUILD     ROWS: those whose names fit, as grep -E has it
set -eu
[ $# -eq 1 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
redpoll=$1/src/cli/redpoll sequence=${SEQUENCE:-256} batch=${BATCH:-16} micro=${MICRO:-4}
model=${MODEL:-gpt2:layers=8,hidden=512,heads=8,vocabulary=8192,positions=256}
tiny=gpt2:layers=8,hidden=8,heads=8,vocabulary=258,positions=256
[ -x "$redpoll" ] || { echo "$redpoll is missing: build first (cmake --build --preset release), then name the build" >&2; exit 2; }
export REDPOLL_TRANSPORT="${REDPOLL_TRANSPORT:-tcp}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

awk 'BEGIN { for (i = 0; i < 20000; i++) print "the red poll trains on seeds, " i }' >"$folder/text.txt"
"$redpoll" data tokenize --tokenizer byte --in "$folder/text.txt" --out "$folder/text" >"$folder/told" 2>&1 || { cat "$folder/told" >&2; exit 1; }

# peak MODEL WORDS...: bytes that rank 0 held at most
peak() {
    peak_model=$1
    shift
    "$redpoll" train --model "$peak_model" --data "tokens:$folder/text" --seq-length "$sequence" --batch-size "$batch" --optimizer adamw --steps 3 \
        --threads 1 --no-eval --no-checkpoint --overwrite --out "$folder/run" "$@" >"$folder/told" 2>&1 || { cat "$folder/told" >&2; exit 1; }
    sed -n 's/.*"memory_bytes":\([0-9.eE+]*\).*/\1/p' "$folder/run/metrics.jsonl"
}

# counted WORDS...: bytes of rank 0 by info: those of the first stage or tensor rank, else all items of its one kind of rank
counted() {
    "$redpoll" info --json --model "$model" --seq-length "$sequence" --batch-size "$batch" --optimizer adamw "$@" >"$folder/info"
    tr '{' ',' <"$folder/info" | tr ',' '\n' | awk -F: '
        /"memory_bytes"/ { gsub(/[^0-9.eE+]/, "", $2); print $2 + 0; found = 1; exit }
        /"(parameters|gradients|optimizer|states|activations|workspace|travelling)_bytes"/ { gsub(/[^0-9.eE+]/, "", $2); sum += $2 }
        END { if (!found) print sum }'
}

# row NAME INFO-WORDS -- TRAIN-WORDS
row() {
    row_name=$1 row_info=$2
    shift 2
    printf '%s\n' "$row_name" | grep -qE -e "${ROWS:-}" || return 0
    # shellcheck disable=SC2086 # words
    said=$(counted $row_info)
    base=$(peak "$tiny" "$@")
    held=$(peak "$model" "$@")
    awk -v name="$row_name" -v said="$said" -v base="$base" -v held="$held" \
        'BEGIN { printf "%-28s %12.1f %12.1f %12.1f %9.3f\n", name, 1e-6 * said, 1e-6 * (held - base), 1e-6 * base, (held - base) / said }'
}

printf '%s, batch %s, micro-batches of %s; MB\n%-28s %12s %12s %12s %9s\n' "$model" "$batch" "$micro" layout 'info says' 'held' 'base' 'held/said'
b="--batch-size $micro"
row 'one rank' "$b" -n 1 --micro-batch-size "$micro"
row 'one rank, --recompute' "$b --recompute" -n 1 --micro-batch-size "$micro" --recompute
row 'dp 2' "$b" -n 2 --micro-batch-size "$micro"
row 'dp 2, --zero 1' "$b --zero 1 -n 2" -n 2 --micro-batch-size "$micro" --zero 1
row 'dp 2, --zero 2' "$b --zero 2 -n 2" -n 2 --micro-batch-size "$micro" --zero 2
row 'dp 2, --zero 3' "$b --zero 3 -n 2" -n 2 --micro-batch-size "$micro" --zero 3
row 'tp 2' "$b --tp 2" -n 2 --micro-batch-size "$micro" --tp 2
row 'cp 2' "$b --cp 2" -n 2 --micro-batch-size "$micro" --cp 2
row 'tp 2, --sequence-parallel' "$b --tp 2 --sequence-parallel" -n 2 --micro-batch-size "$micro" --tp 2 --sequence-parallel
row 'the same, bf16' "$b --tp 2 --sequence-parallel --dtype bf16" -n 2 --micro-batch-size "$micro" --tp 2 --sequence-parallel --dtype bf16
row 'the same, --recompute' "$b --tp 2 --sequence-parallel --recompute" -n 2 --micro-batch-size "$micro" --tp 2 --sequence-parallel --recompute
row 'pp 2, 1f1b' "--pp 2 --micro-batch-size $micro" -n 2 --micro-batch-size "$micro" --pp 2
row 'pp 2, zb-h1' "--pp 2 --micro-batch-size $micro --schedule zb-h1" -n 2 --micro-batch-size "$micro" --pp 2 --schedule zb-h1
row 'pp 2, 1f1b, --recompute' "--pp 2 --micro-batch-size $micro --recompute" -n 2 --micro-batch-size "$micro" --pp 2 --recompute
row 'pp 2 x dp 2, --zero 1' "--pp 2 -n 4 --zero 1 --micro-batch-size $micro" -n 4 --micro-batch-size "$micro" --pp 2 --zero 1
row 'pp 2 x dp 2, --zero 2' "--pp 2 -n 4 --zero 2 --micro-batch-size $micro" -n 4 --micro-batch-size "$micro" --pp 2 --zero 2
row 'pp 2 x dp 2, --zero 3' "--pp 2 -n 4 --zero 3 --micro-batch-size $micro" -n 4 --micro-batch-size "$micro" --pp 2 --zero 3
row 'tp 2 x dp 2, --zero 3' "$b --tp 2 -n 4 --zero 3" -n 4 --micro-batch-size "$micro" --tp 2 --zero 3
