#!/bin/sh
# tools/accuracy.sh makes its table of the runs that are there. usage: accuracy_test.sh REDPOLL
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1
tools=$(cd "$(dirname "$0")/../../tools" && pwd)
. "$(dirname "$0")/../harness/cases.sh"
export REDPOLL_ACCURACY_RUNS="$folder/runs"

# run NAME CODEC SEED VALUE [OPEN]: one that ended with this accuracy, or has not ended
run() {
    mkdir -p "$folder/runs/quick/$1-$2-$3"
    {
        echo '{"step":1,"loss":2}'
        echo '{"evaluated_step":50,"test_accuracy":0.125,"test_loss":3}'
        echo "{\"evaluated_step\":100,\"test_accuracy\":$4,\"test_loss\":1}"
        [ $# -gt 4 ] || echo '{"steps":100,"images_s_median":5}'
    } >"$folder/runs/quick/$1-$2-$3/metrics.jsonl"
}
table() { sh "$tools/accuracy.sh" "$redpoll" --quick --only none --page "$folder/page.md" >out 2>err; }
has() { grep -qF -e "$1" page.md && pass || complain "the page lacks '$1': $(cat page.md err)"; }

run resnet18 fp32 1 0.50
run resnet18 q4 1 0.52
run resnet18 fp32 2 0.54
run resnet18 q4 2 0.52
run vit fp32 1 0.75
run vit q4 1 0.7425
run vit fp32 2 0.75
run vit q4 2 0.75 open
printf 'before\n<!-- tools/accuracy.sh: x -->\nold\n<!-- end of the table -->\nbehind\n' >page.md
table && pass || complain "no table: $(cat err)"
has '| resnet18 | 100 | accuracy, % | 52.00 ± 2.83 | 52.00 ± 0.00 | +0.00 | 2 |'
has '| vit | 100 | accuracy, % | 75.00 | 74.25 | -0.75 | 1 |'
has 'redpoll train --model vit:'
has before
has behind
grep -q '^old' page.md && complain "the table of before is still there"
cp page.md first.md
table && cmp -s page.md first.md && pass || complain "writing it again changes the page"
sh "$tools/accuracy.sh" "$redpoll" --fast >out 2>err
[ $? -eq 2 ] && grep -q 'usage: tools/accuracy.sh' err && pass || complain "an unknown word: $(cat err)"
sh "$tools/accuracy.sh" "$folder/none" >out 2>err
[ $? -eq 2 ] && grep -q 'build first' err && pass || complain "no command: $(cat err)"
finish
