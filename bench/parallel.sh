#!/bin/sh
# What parallel layouts make of a training step, beside PyTorch doing the same on gloo in the same run: GPT-2 with AdamW, milliseconds of the median step, of
# turns that change who is first. `part` says how much of what it could be a row is: of one process of two threads (tp 2), of one process of one thread by
# the schedule's formula, (m + p - 1) / (m p) for p stages and m micro-batches (pp 2), of dp 2 (--zero). `PyTorch` is its time over ours.
# PYTHON names an interpreter that has PyTorch; rows of PyTorch are left out where it has none.
# usage: [LAYERS=12] [HIDDEN=768] [HEADS=12] [VOCABULARY=50257] [SEQUENCE=256] [BATCH=4] [RUNS=4] [STEPS=8] [TURNS=3] [DTYPES='fp32 bf16'] [ROWS='one-thread pp2-1f1b'] bench/parallel.sh BUILD
set -eu
[ $# -eq 1 ] || { sed -n '6s/^# //p' "$0" >&2; exit 2; }
redpoll=$1/src/cli/redpoll layers=${LAYERS:-12} hidden=${HIDDEN:-768} heads=${HEADS:-12} vocabulary=${VOCABULARY:-50257}
sequence=${SEQUENCE:-256} batch=${BATCH:-4} runs=${RUNS:-4} steps=${STEPS:-8} turns=${TURNS:-3} dtypes=${DTYPES:-fp32 bf16}
python=${PYTHON:-${REDPOLL_TORCH_VENV:+$REDPOLL_TORCH_VENV/bin/python}}
python=${python:-python3}
here=$(cd "$(dirname "$0")" && pwd)
[ -x "$redpoll" ] || { echo "$redpoll is missing: build first (cmake --build --preset release), then name the build" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

awk 'BEGIN { for (i = 0; i < 20000; i++) print "the red poll trains on seeds, " i }' >"$folder/text.txt"
"$redpoll" data tokenize --tokenizer byte --in "$folder/text.txt" --out "$folder/text" >"$folder/told" 2>&1 || { cat "$folder/told" >&2; exit 1; }
if "$python" -c 'import torch.distributed.pipelining, torch.distributed.tensor.parallel' 2>"$folder/told"; then torch=1; else torch=0; fi
micro=$((batch / runs))
[ $((micro * runs)) -eq "$batch" ] || { echo "BATCH=$batch is not made of RUNS=$runs micro-batches" >&2; exit 2; }

# ours DTYPE WORDS...: milliseconds of the median step behind the first two
ours() {
    dtype=$1
    shift
    "$redpoll" train --model "gpt2:layers=$layers,hidden=$hidden,heads=$heads,vocabulary=$vocabulary,positions=$sequence" --data "tokens:$folder/text" \
        --seq-length "$sequence" --global-batch-size "$batch" --optimizer adamw --steps "$steps" --dtype "$dtype" --no-eval --no-checkpoint --overwrite \
        --out "$folder/run" "$@" >"$folder/told" 2>&1 || { cat "$folder/told" >&2; exit 1; }
    sed -n 's/.*"step_s":\([0-9.eE+-]*\).*/\1/p' "$folder/run/metrics.jsonl" | tail -n +3 | median | awk '{ print 1e3 * $1 }'
}
# theirs LAYOUT RANKS DTYPE
theirs() {
    "$redpoll" run -n "$2" "$python" "$here/pytorch/parallel.py" "$1" "$3" "$layers" "$hidden" "$heads" "$vocabulary" "$sequence" "$batch" "$runs" "$steps" \
        >"$folder/out" 2>"$folder/told" || { cat "$folder/told" >&2; exit 1; }
    sed 's/^\[0\] //' "$folder/out" | tail -n 1
}
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
of() { if [ -f "$folder/$1" ]; then median <"$folder/$1"; else echo 0; fi; }

# measure NAME DTYPE: one turn of a row
measure() {
    case $1 in
    one) ours "$2" -n 1 --threads 2 ;;
    one-thread) ours "$2" -n 1 --threads 1 --micro-batch-size "$micro" ;;
    tp2) ours "$2" -n 2 --threads 1 --tp 2 ;;
    pp2-1f1b) ours "$2" -n 2 --threads 1 --pp 2 --micro-batch-size "$micro" --stage-cut measured ;;
    pp2-zb-h1) ours "$2" -n 2 --threads 1 --pp 2 --micro-batch-size "$micro" --schedule zb-h1 --stage-cut measured ;;
    pp2-auto) ours "$2" -n 2 --threads 1 --pp 2 --micro-batch-size "$micro" --schedule auto ;;
    dp2) ours "$2" -n 2 --threads 1 ;;
    dp2-zero1) ours "$2" -n 2 --threads 1 --zero 1 ;;
    dp2-zero2) ours "$2" -n 2 --threads 1 --zero 2 ;;
    torch-one) theirs one 1 "$2" ;;
    torch-tp2) theirs tensor 2 "$2" ;;
    torch-pp2) theirs pipeline 2 "$2" ;;
    torch-fsdp2) theirs fsdp 2 "$2" ;;
    esac >>"$folder/$2-$1"
}

# row NAME DTYPE IDEAL-NAME FACTOR TORCH-NAME: a row of the table; IDEAL x FACTOR is what it could take
row() {
    own=$(of "$2-$1") ideal=0 other=0
    [ "$own" != 0 ] || return 0
    if [ "$3" != - ]; then ideal=$(of "$2-$3"); fi
    if [ "$torch" -eq 1 ] && [ "$5" != - ]; then other=$(of "$2-$5"); fi
    awk -v name="$1" -v dtype="$2" -v own="$own" -v ideal="$ideal" -v factor="$4" -v other="$other" 'BEGIN {
        part = ideal > 0 ? sprintf("%.3f", ideal * factor / own) : "-"
        times = other > 0 ? sprintf("%.2f x", other / own) : "-"
        printf "%-6s %-12s %12.1f %10s %10s\n", dtype, name, own, part, times }'
}

all='one one-thread tp2 pp2-1f1b pp2-zb-h1 pp2-auto dp2 dp2-zero1 dp2-zero2'
[ "$torch" -eq 0 ] || all="$all torch-one torch-tp2 torch-pp2 torch-fsdp2"
rows=${ROWS:-$all}
for name in $rows; do
    case " $all " in *" $name "*) ;; *) echo "ROWS has $name; there are: $all" >&2; exit 2 ;; esac
done
turn=0
while [ "$turn" -lt "$turns" ]; do
    for dtype in $dtypes; do
        for name in $rows; do measure "$name" "$dtype"; done
    done
    turn=$((turn + 1))
    # The other way round, as the machine warms up and slows down.
    rows=$(echo "$rows" | tr ' ' '\n' | tac | tr '\n' ' ')
done

echo "GPT-2 $layers x $hidden, vocabulary $vocabulary, $batch x $sequence tokens, $runs micro-batches in pipelines; medians of $turns turns"
[ "$torch" -eq 1 ] || echo "rows of PyTorch are left out: $python has none (PYTHON names another)"
printf '%-6s %-12s %12s %10s %10s\n' dtype layout 'step, ms' part PyTorch
formula=$(awk -v m="$runs" 'BEGIN { print (m + 1) / (2 * m) }')
for dtype in $dtypes; do
    row one "$dtype" - 1 torch-one
    row one-thread "$dtype" - 1 -
    row tp2 "$dtype" one 1 torch-tp2
    row pp2-1f1b "$dtype" one-thread "$formula" torch-pp2
    row pp2-zb-h1 "$dtype" pp2-1f1b 1 torch-pp2
    row pp2-auto "$dtype" pp2-1f1b 1 torch-pp2
    row dp2 "$dtype" - 1 -
    row dp2-zero1 "$dtype" dp2 1 torch-fsdp2
    row dp2-zero2 "$dtype" dp2 1 torch-fsdp2
done
