#!/bin/sh
# bench/straggler.sh runs: it must not rot while nobody measures. No time is asserted.
# usage: straggler_test.sh REDPOLL
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1
build=$(cd "$(dirname "$redpoll")/../.." && pwd)
bench=$(cd "$(dirname "$0")/../../bench" && pwd)
. "$(dirname "$0")/../harness/cases.sh"

has() { # FILE PATTERN
    if grep -qE -e "$2" "$1"; then pass; else complain "$1 lacks '$2': $(cat "$1" err)"; fi
}

sh "$bench/straggler.sh" "$build" '1 2' 4 2 --data synthetic --hidden 8 >out 2>err || complain "it fails: $(cat err)"
for mode in all-reduce gossip server async-local-sgd; do
    has out "^\\| $mode \\| [0-9]+ \\| [0-9]+ \\| [0-9]+ % \\| [0-9.]+ \\([0-9.]+-[0-9.]+\\) \\| [0-9.]+ \\([0-9.]+-[0-9.]+\\) \\|\$"
done

# What a run of its own prints. How much is learnt in so short a time is the machine's affair.
for mode in all-reduce gossip server async-local-sgd; do
    timeout 60 "$redpoll" run -n 3 "$build/bench/straggler" --mode $mode --data synthetic --steps 100 --step 1 \
        --slower 2 >out 2>err || complain "$mode: $(cat err)"
    has out "\"mode\":\"$mode\",\"ranks\":3,\"slower\":2,\"undisturbed_steps\":100,\"steps\":[0-9.]+,\"test_accuracy\":[01]\\.[0-9]+}"
done

"$build/bench/straggler" --mode gossip --data synthetic >out 2>err && complain "gossip with nobody"
has err 'mode gossip needs 2 ranks: redpoll run -n 2'
"$build/bench/straggler" --mode ring --data synthetic >out 2>err && complain "there is no mode ring"
has err "mode is 'ring'; all-reduce, gossip, server or async-local-sgd are allowed"
"$build/bench/straggler" --slowly 3 >out 2>err
code=$?
[ $code -eq 2 ] || complain "a wrong option ends with $code, not 2"
sh "$bench/straggler.sh" "$folder" >out 2>err && complain "no build, and it says nothing"
has err 'is missing: build first'
finish
