#!/bin/sh
# `make decentralised` in its smallest form: every strategy that it lists trains, and has its row.
# usage: decentralised_test.sh REDPOLL
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1
tools=$(cd "$(dirname "$0")/../../tools" && pwd)
. "$(dirname "$0")/../harness/cases.sh"
export REDPOLL_DECENTRALISED_RUNS="$folder/runs"

compare() { timeout 1200 sh "$tools/decentralised.sh" "$redpoll" "$@" >out 2>err; }
has() { # FILE TEXT
    grep -qF -e "$2" "$1" && pass || complain "$1 lacks '$2': $(cat "$1" err)"
}
refused() { # TEXT WORDS...
    text=$1
    shift
    compare "$@"
    [ $? -eq 2 ] && grep -qF -e "$text" err && pass || complain "$*: $(cat err)"
}

# ---- every strategy, for real ----

compare --smallest && pass || complain "not all of the strategies train: $(cat out err)"
page=$(echo "$folder"/runs/smallest-*/page.md)
. "$tools/decentralised_strategies.sh"
form_is smallest
for name in $names; do
    case $name in
    all-reduce* | server*) distance= ;;
    *) distance='[0-9.e-]+' ;;
    esac
    row="^\\| $name \\| none \\| by-label \\| [0-9.]+ \\| [0-9.]+ \\| [0-9.]+ \\| [0-9.]+ \\| [0-9.]+ \\| [0-9]+ % \\| $distance \\| 1 \\|\$"
    [ "$(grep -cE "$row" "$page")" -eq 1 ] && pass || complain "$name has no row: $(cat "$page")"
done
for name in $drawn; do
    case $name in all-reduce | server*) continue ;; esac
    for figure in loss-bytes consensus-time consensus-bytes; do
        has "${page%/*}/figures-by-label/$figure.svg" ">$name<"
    done
done
cp "$page" first.md
compare --smallest && cmp -s "$page" first.md && pass || complain "called again it changes the page: $(cat err)"
grep -q '^==>' out && complain "called again it trains again: $(cat out)"

# ---- what the table says of runs that are known ----

# run NAME SEED ACCURACY SECONDS [DISTANCE]: 10 steps of 2 MB
run() {
    runs=$folder/known/smallest-mlp-10
    mkdir -p "$runs/$1-none-iid-$2"
    {
        echo '{"step":10,"loss":2,"step_s":0.5}'
        echo "{\"evaluated_step\":10,\"test_accuracy\":$3,\"test_loss\":1${5:+,\"consensus_distance\":$5}}"
        echo "{\"steps\":10,\"seconds\":$4,\"images_s_median\":5,\"exposed_s_mean\":0.05,\"wire_bytes_mean\":2e6,\"test_accuracy\":$3}"
    } >"$runs/$1-none-iid-$2/metrics.jsonl"
}
export REDPOLL_DECENTRALISED_RUNS="$folder/known"
run all-reduce 1 0.50 2
run all-reduce 2 0.54 3
run ring 1 0.5 10 0.02
run ring 2 null 10 0.02 # it was told to stop
sed -i 's/"test_accuracy":null}$/"test_accuracy":null,"stopped":true}/' "$runs/ring-none-iid-2/metrics.jsonl"
printf 'before\n<!-- tools/decentralised.sh: x -->\nold\n<!-- end of the table -->\nbehind\n' >page.md
known="--smallest --model mlp --steps 10 --splits iid --page $folder/page.md"
# shellcheck disable=SC2086 # words
compare $known --table --links 'none 1Gbit' && pass || complain "no table: $(cat err)"
has page.md '| all-reduce | none | iid | 52.0 (50.0-54.0) | 4.0 | 1.00 | 2.000 | 50.0 | 20 % |  | 2 |'
has page.md '| ring | none | iid | 50.0 | 1.0 | 0.25 | 2.000 | 50.0 | 5 % | 0.02 | 1 |'
has page.md "make decentralised DECENTRALISED=\"$known --table --links 'none 1Gbit'\""
has page.md before
has page.md behind
cp page.md timed.md
# shellcheck disable=SC2086
compare $known --table --untimed && pass || complain "no table without times: $(cat err)"
has page.md '| all-reduce | none | iid | 52.0 (50.0-54.0) | 2.000 |  | 2 |'
has page.md '| ring | none | iid | 50.0 | 2.000 | 0.02 | 1 |'
cp timed.md page.md
grep -q '^old' page.md && complain "the table of before is still there"

# ---- mistakes ----

echo 'no place for it' >page.md
# shellcheck disable=SC2086
compare $known --only ring && complain "it writes into a page without a place for the table"
has err "page.md has no line that begins with '<!-- tools/decentralised.sh'"
compare --smallest --only ring --model none --page "$folder/failed.md" && complain "a run fails, and it says nothing"
has err 'it failed: redpoll train --model none'
has err '1 of the runs failed'
refused "no strategy is called 'rings'; there are: all-reduce" --smallest --only rings
refused 'usage: tools/decentralised.sh' --fast
refused 'usage: tools/decentralised.sh' --seeds
sh "$tools/decentralised.sh" "$folder/none" >out 2>err
[ $? -eq 2 ] && grep -q 'build first' err && pass || complain "no command: $(cat err)"
finish
