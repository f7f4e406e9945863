#!/bin/sh
# Every way to train together beside all-reduce: strategies x links x splits, some seeds of each; one
# table (accuracy, steps/s, MB, exposed time, consensus distance) for docs/decentralised.md, and figures.
# usage: tools/decentralised.sh REDPOLL [--quick | --smallest] [--seeds '1 2 3'] [--splits 'iid by-label'] [--links 'none 50Mbit,5ms'] [--only 'diloco ring'] [--model MODEL] [--steps N] [--page FILE] [--table] [--untimed]
# (`make decentralised` calls it, DECENTRALISED='--quick' hands words on.) The full form (ResNet-20, eight ranks)
# takes two idle cores about three hours, --quick minutes, --smallest seconds, which shows no more than that all
# runs. What is done stays in runs/decentralised (REDPOLL_DECENTRALISED_RUNS): called
# again it goes on from there, and the table holds what is there; --table writes it and trains nothing.
# --untimed: a table without times, of a machine that has other work.
# tools/decentralised_strategies.sh lists the strategies and the forms.
set -eu
usage() {
    sed -n '4s/^# //p' "$0" >&2
    exit 2
}
[ $# -ge 1 ] || usage
redpoll=$(readlink -f "$1")
[ -x "$redpoll" ] || { echo "$1 is no command: build first, then tools/decentralised.sh build/release/src/cli/redpoll" >&2; exit 2; }
shift
words= # as they are typed again
for word in "$@"; do
    case $word in *[!-A-Za-z0-9=:,./_]*) word="'$word'" ;; esac
    words="$words${words:+ }$word"
done
cd "$(dirname "$0")/.."
. tools/runs.sh
. tools/decentralised_strategies.sh
form=full
for word in "$@"; do
    case $word in --quick) form=quick ;; --smallest) form=smallest ;; esac
done
form_is $form
only='' page='' trains=1 untimed=0
while [ $# -gt 0 ]; do
    case $1 in
    --quick | --smallest) shift && continue ;;
    --table) trains=0 && shift && continue ;;
    --untimed) untimed=1 && shift && continue ;;
    esac
    [ $# -ge 2 ] || usage
    case $1 in
    --seeds) seeds=$2 ;;
    --splits) splits=$2 ;;
    --links) links=$2 ;;
    --only) only=$2 ;;
    --model) model=$2 ;;
    --steps) steps=$2 ;;
    --page) page=$2 ;;
    *) usage ;;
    esac
    shift 2
done
for name in $only; do
    case " $names " in *" $name "*) ;; *)
        echo "--only: no strategy is called '$name'; there are: $names" >&2
        exit 2
        ;;
    esac
done
runs=${REDPOLL_DECENTRALISED_RUNS:-runs/decentralised}/$form-$model-$steps
mkdir -p "$runs"
[ -n "$page" ] || { [ $form = smallest ] && page=$runs/page.md || page=docs/decentralised.md; }

# ---- runs ----

wanted() { [ -z "$only" ] || case " $only " in *" $1 "*) ;; *) return 1 ;; esac; }

options_of() { # NAME LINK SPLIT SEED
    echo "--model $model --data $data --split $3 -n $(ranks_of "$1") --threads 1 --steps $steps $recipe" \
        "$(strategy_of "$1") --seed $4 --eval-every $(((steps + 4) / 5)) $more" \
        "$([ "$2" = none ] || echo "--link $2")"
}

# train NAME LINK SPLIT SEED: begins, goes on, or finds that all is done
train() {
    folder=$runs/$1-$2-$3-$4
    finished "$folder" && return
    echo "==> $1, link $2, $3, seed $4"
    mkdir -p "$folder"
    if [ -f "$folder/model.safetensors" ]; then
        set -- --resume "$folder"
    else
        # shellcheck disable=SC2046 # options are words
        set -- $(options_of "$@") --overwrite --out "$folder"
    fi
    "$redpoll" train "$@" >"$folder.log" 2>&1 && finished "$folder" && return
    echo "it failed: redpoll train $*" >&2
    tail -n 3 "$folder.log" >&2
    failures=$((failures + 1))
}

failures=0
todo=$seeds
[ $trains -eq 1 ] || todo=
for seed in $todo; do # one seed of everything first
    for split in $splits; do
        for link in $links; do
            for name in $names; do
                ! wanted "$name" || train "$name" "$link" "$split" "$seed"
            done
        done
    done
done

# ---- the table: runs that are there ----

value() { sed -n "s/.*\"$1\":\\([0-9.eE+-]*\\).*/\\1/p" "$2" | tail -n 1; }

results=$runs/results.txt
: >"$results"
for link in $links; do
    for split in $splits; do
        for name in $names; do
            for file in "$runs/$name-$link-$split"-[0-9]*/metrics.jsonl; do
                finished "${file%/*}" || continue
                distance=$(value consensus_distance "$file")
                echo "$name $link $split $(value test_accuracy "$file") $(value steps "$file")" \
                    "$(value seconds "$file") $(value wire_bytes_mean "$file")" \
                    "$(value exposed_s_mean "$file") ${distance:--}" >>"$results"
            done
        done
    done
done

table() {
    echo "<!-- tools/decentralised.sh writes what follows, up to the end of the table. -->"
    echo
    echo "    make decentralised${words:+ DECENTRALISED=\"$words\"}"
    echo
    echo "$model, $learners ranks that learn, $steps steps of 64 images ($("$redpoll" --version)):"
    echo
    awk -v untimed=$untimed -f tools/decentralised_table.awk "$results"
    echo
    for name in $names; do
        grep -q "^$name " "$results" || continue
        echo "    $name: -n $(ranks_of "$name") $(strategy_of "$name")"
    done
    echo
    echo "all behind \`redpoll train --model $model --data $data --threads 1 --steps $steps $recipe --seed SEED --split SPLIT\`."
    echo
    echo "<!-- end of the table -->"
}

table >"$runs/table.md"
replace_table tools/decentralised.sh "$runs/table.md" "$page"
cat "$runs/table.md"

# ---- the figures, of the first seed over the first link; the page shows the last split's ----

for split in $splits; do
    shown=
    for name in $drawn; do
        folder=$runs/$name-${links%% *}-$split-${seeds%% *}
        ! finished "$folder" || shown="$shown $name=$folder"
    done
    [ -n "$shown" ] || continue
    # shellcheck disable=SC2086 # runs are words
    "$redpoll" report $shown --svg "$runs/figures-$split" --title "$model on ${data%% *}, $learners ranks, $split"
    [ "$page" = docs/decentralised.md ] && [ "$split" = "${splits##* }" ] || continue
    for figure in loss-time loss-bytes consensus-time consensus-bytes; do
        [ ! -f "$runs/figures-$split/$figure.svg" ] ||
            cp "$runs/figures-$split/$figure.svg" "docs/images/decentralised-$figure.svg"
    done
done
[ $failures -eq 0 ] || { echo "$failures of the runs failed; they are not in the table" >&2; exit 1; }
