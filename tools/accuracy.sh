#!/bin/sh
# Does training by 4 bits end where training by 32 does? Small models of every kind, two ranks, the same
# seeds, first weights and order of data with both; writes the table of docs/accuracy.md and its figure.
# usage: tools/accuracy.sh REDPOLL [--quick] [--seeds '1 2 3'] [--only 'gpt2 vit'] [--page FILE]
# (`make accuracy` calls it, ACCURACY='--quick' hands words on.) Some hours on two cores, --quick some
# minutes. What is done stays in runs/accuracy (REDPOLL_ACCURACY_RUNS): called again it goes on from there,
# and the table holds what is there. Text: the King James Bible of Debian's package bible-kjv, or the file
# REDPOLL_KJV; pictures: dataset-fashion-mnist.
set -eu
usage() {
    sed -n '4s/^# //p' "$0" >&2
    exit 2
}
[ $# -ge 1 ] || usage
redpoll=$(readlink -f "$1")
[ -x "$redpoll" ] || { echo "$1 is no command: build first, then tools/accuracy.sh build/release/src/cli/redpoll" >&2; exit 2; }
shift
cd "$(dirname "$0")/.."
seeds='1 2 3' only='' page=docs/accuracy.md shape=full
while [ $# -gt 0 ]; do
    case $1 in
    --quick) shape=quick ;;
    --seeds) [ $# -ge 2 ] || usage; seeds=$2; shift ;;
    --only) [ $# -ge 2 ] || usage; only=$2; shift ;;
    --page) [ $# -ge 2 ] || usage; page=$2; shift ;;
    *) usage ;;
    esac
    shift
done
runs=${REDPOLL_ACCURACY_RUNS:-runs/accuracy}/$shape
mkdir -p "$runs"
. tools/runs.sh
. tools/accuracy_models.sh

# ---- runs ----

wanted() { [ -z "$only" ] || case " $only " in *" $1 "*) ;; *) return 1 ;; esac; }

prepare_text() {
    [ -f "$runs/kjv.ds" ] && return
    if [ -n "${REDPOLL_KJV:-}" ]; then cp "$REDPOLL_KJV" "$runs/kjv.txt"; else
        command -v bible >/dev/null || return 1
        bible -f gen1:1-rev22:21 >"$runs/kjv.txt"
    fi
    "$redpoll" data tokenize --tokenizer train:bpe=2048 --in "$runs/kjv.txt" --out "$runs/kjv" --force
}

prepare_questions() {
    [ -f "$runs/birds/train.json" ] || python3 examples/make_questions.py "$runs/birds"
}

# train NAME SEED CODEC: begins, goes on, or finds that all is done
train() {
    folder=$runs/$1-$3-$2
    finished "$folder" && return
    if [ -f "$folder/model.safetensors" ]; then
        "$redpoll" train --resume "$folder"
    else
        # shellcheck disable=SC2046 # options are words
        "$redpoll" train $(options_of "$1") --codec "$3" --seed "$2" -n 2 --overwrite --out "$folder"
    fi
}

for name in $names; do
    wanted "$name" || continue
    if ! prepare_"$(data_of "$name")"; then
        echo "$name is left out: there is no text (apt-get install bible-kjv, or REDPOLL_KJV=FILE)" >&2
        continue
    fi
    for seed in $seeds; do
        for codec in fp32 q4; do
            echo "==> $name, seed $seed, $codec"
            train "$name" "$seed" "$codec"
        done
    done
done

# ---- the table: pairs that are there ----

results=$runs/results.txt
: >"$results"
for name in $names; do
    for seed in 1 2 3 4 5 6 7 8 9; do
        both=
        for codec in fp32 q4; do
            file=$runs/$name-$codec-$seed/metrics.jsonl
            finished "$runs/$name-$codec-$seed" || continue 2
            value=$(sed -n "s/.*\"$(metric_of "$name")\":\\([0-9.eE+-]*\\).*/\\1/p" "$file" | tail -n 1)
            steps=$(tail -n 1 "$file" | sed -n 's/.*"steps":\([0-9]*\).*/\1/p')
            both="$both $value"
        done
        echo "$name $(metric_of "$name") $steps $seed$both" >>"$results"
    done
done

table() {
    echo "<!-- tools/accuracy.sh writes what follows, up to the end of the table. -->"
    echo
    if [ "$shape" = quick ]; then
        echo "The short form, \`make accuracy ACCURACY=--quick\`, $("$redpoll" --version):"
    else
        echo "\`make accuracy\`, $("$redpoll" --version):"
    fi
    echo
    awk -f tools/accuracy_table.awk "$results"
    echo
    for name in $names; do
        grep -q "^$name " "$results" || continue
        echo "    $name: redpoll train $(options_of "$name" | sed "s|$runs/||g") -n 2 --codec q4 --seed 1"
    done
    echo
    echo "<!-- end of the table -->"
}

table >"$runs/table.md"
replace_table tools/accuracy.sh "$runs/table.md" "$page"
cat "$runs/table.md"

# ---- the figure: validation perplexity of GPT-2, the first seed ----

if finished "$runs/gpt2-fp32-1" && finished "$runs/gpt2-q4-1"; then
    "$redpoll" report "32 bits=$runs/gpt2-fp32-1" "4 bits=$runs/gpt2-q4-1" --svg "$runs/figures" \
        --title "GPT-2 on the King James Bible, two ranks"
    if [ "$page" = docs/accuracy.md ]; then
        cp "$runs/figures/perplexity.svg" docs/images/accuracy-perplexity.svg
    fi
fi
