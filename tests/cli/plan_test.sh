#!/bin/sh
# `redpoll plan` against `redpoll bench`: what one refuses the other refuses in the same words, and
# of the same words on a shaped link, where the shaping sets the time, prediction and measurement
# agree within a tenth. usage: plan_test.sh REDPOLL
# shellcheck disable=SC2086 # options are kept as words
set -u
redpoll=$1
. "$(dirname "$0")/../harness/cases.sh"
collectives="all-reduce reduce-scatter all-gather broadcast reduce gather scatter all-to-all send-recv barrier"

# ---- what is refused ----

# both WORDS...: plan and bench take these words, or both refuse them with the same first line
both() {
    timeout 60 "$redpoll" plan "$@" --brief >out 2>plan.err
    plan=$?
    timeout 60 "$redpoll" bench "$@" --iters 1 --warmup 0 >out 2>bench.err
    bench=$?
    if [ $plan -ne $bench ] || [ $plan -gt 2 ]; then
        complain "$*: plan ends with $plan, bench with $bench: $(head -qn 1 plan.err bench.err)"
    elif [ $plan -ne 0 ] && [ "$(head -n 1 plan.err)" != "$(head -n 1 bench.err)" ]; then
        complain "$*: plan says '$(head -n 1 plan.err)', bench '$(head -n 1 bench.err)'"
    else
        pass
    fi
}
# refused PATTERN WORDS...: by both
refused() {
    pattern=$1
    shift
    both "$@"
    if [ $plan -eq 2 ] && grep -qE -e "$pattern" plan.err; then pass; else
        complain "plan $* is not refused with '$pattern': $(head -n 1 plan.err)"
    fi
}
for op in $collectives; do
    short='--count 10'
    [ $op != barrier ] || short=
    for words in '--count 10' '--codec q4' '--codec fp32' '--root 0' '--reduce max' '--dtype i8' \
        '--algorithm ring' '--algorithm direct' '--algorithm nosuch'; do
        both "$op" -n 2 $words $short
    done
done
refused '--hosts 3 is more than the 2 ranks; say -n, too' all-reduce -n 2 --hosts 3
refused 'barrier takes no --count' barrier -n 2 --count 10
refused 'all-to-all takes no --codec: leave it out' all-to-all -n 2 --codec q4
refused 'all-reduce takes no --root' all-reduce -n 2 --root=1
refused 'send-recv is between two ranks' send-recv -n 1
refused 'root 5 is not in a world of 3' gather -n 3 --root 5
refused 'q4:bucket=512 does not take i32' all-gather -n 2 --dtype i32 --codec q4
refused 'it takes sum, avg and premul-sum, not max' all-reduce -n 2 --codec q4 --reduce max
refused 'min of c64 is not defined' reduce -n 2 --dtype c64 --reduce min
"$redpoll" plan barrier --size 1MB >out 2>err && complain "plan barrier takes a size"
# A variable is for those who have the option.
if REDPOLL_CODEC=q4 "$redpoll" plan broadcast --count 1000 --json >out && grep -q '"encoded_bytes":4000' out; then pass; else
    complain "REDPOLL_CODEC=q4 plan broadcast: $(cat out)"
fi
"$redpoll" plan all-reduce --size 0 --json >out && grep -q '"bytes":0,' out || complain "--size 0: $(cat out)"
"$redpoll" plan all-reduce --count 0 --json >out && grep -q '"bytes":0,' out || complain "--count 0: $(cat out)"
"$redpoll" plan barrier --json >out && grep -q '"bytes":0,.*"frames":2}' out || complain "barrier: $(cat out)"

# Codec auto: few bits on a slow link, exact where nothing is as fast as the link (a sanitizer makes sums slower than encoding).
"$redpoll" plan all-reduce --count 3000000 --codec auto --link 10Mbit,1ms --json >out && grep -q '"codec":"v4:.*"other_codec":"fp32"' out || complain "auto, slow: $(cat out)"
sanitized() { "$redpoll" info --json | grep -q '"sanitizers":"[^"]'; }
"$redpoll" plan all-reduce --count 3000000 --codec auto --link 100000Gbit,0us --json >out && grep -q '"codec":"fp32".*"other_codec":"v4:' out || sanitized || complain "auto, fast: $(cat out)"
"$redpoll" plan all-reduce --count 3000000 --codec auto:like=q4 --link 100000Gbit,0us --brief >out && grep -q 'as v4:bucket' out && ! grep -q 'codec auto' out || complain "auto:like: $(cat out)"
# Cores that many ranks share.
"$redpoll" plan all-reduce -n 64 --hosts 1 --cores 2 --count 1000 --json >out && grep -q '"algorithm":"star".*"cores":2' out || complain "64 ranks, 2 cores: $(cat out)"
"$redpoll" plan all-reduce -n 64 --hosts 1 --count 1000 --brief >out && grep -q 'by doubling, 64 ranks on 1 host,' out || complain "64 ranks, 64 cores: $(cat out)"
"$redpoll" plan all-reduce -n 64 --hosts 1 --cores 0 >out 2>&1 && complain "--cores 0 is taken"

# ---- what is predicted ----

value() { sed "s/.*\"$1\":\([^,}]*\).*/\1/" "$2"; }
ratio() { awk "BEGIN { print $(value time_s plan) / $(value time_min_s bench) }"; }
near_one() { awk "BEGIN { exit !($1 > 0.9 && $1 < 1.1) }"; }
# agrees WORDS...: on this machine others may take the cores for a while; the fastest of a few
# benches counts, and there are several attempts
agrees() {
    "$redpoll" plan "$@" --json >plan 2>err || { complain "plan $*: $(cat err)" && return; }
    for attempt in 1 2 3 4 5; do
        timeout 100 "$redpoll" bench "$@" --iters 3 --json >bench 2>err || { complain "bench $*: $(cat err)" && return; }
        [ "$(value bytes plan)" -eq "$(value bytes bench)" ] || break
        got=$(ratio)
        if near_one "$got"; then
            pass
            return
        fi
    done
    complain "$*: predicted $(value time_s plan) s for $(value bytes plan) bytes, measured" \
        "$(value time_min_s bench) s for $(value bytes bench), attempt $attempt"
}
if sanitized; then
    echo "skipped the predictions: with sanitizers it is not the link that sets the time"
else
    link="--link 100Mbit,2ms"
    for algorithm in sra ring; do agrees all-reduce -n 3 --count 300000 --algorithm $algorithm $link; done
    agrees all-reduce -n 4 --count 2000000 --codec q4 $link
    for algorithm in direct ring; do
        agrees reduce-scatter -n 3 --count 150000 --algorithm $algorithm $link
        agrees all-gather -n 3 --count 150000 --algorithm $algorithm $link
    done
    # Two hosts of two: their ranks share a link, and inside a host there is none.
    for algorithm in sra two-level; do agrees all-reduce -n 4 --hosts 2 --count 400000 --algorithm $algorithm $link; done
    agrees all-reduce -n 4 --hosts 2 --count 4000000 --codec q4 $link
    for op in reduce-scatter all-gather broadcast; do
        agrees $op -n 4 --hosts 2 --count 200000 --algorithm two-level $link
    done
    agrees all-gather -n 4 --count 300000 --dtype bf16 --codec q8 $link
    for algorithm in tree scatter; do agrees broadcast -n 4 --count 250000 --root 1 --algorithm $algorithm $link; done
    for algorithm in direct scatter; do agrees reduce -n 3 --count 200000 --root 2 --algorithm $algorithm $link; done
    # A latency counts as much as the data here: who starts early must not win by it.
    for op in gather scatter; do agrees $op -n 3 --count 50000 --root 1 --link 100Mbit,20ms; done
    agrees broadcast -n 2 --count 1000 --link 20Mbit,40ms
    agrees all-to-all -n 4 --count 60000 --dtype f64 $link
    agrees send-recv -n 3 --count 600000 --link 100Mbit,20ms
    agrees barrier -n 4 --link 100Mbit,50ms
fi

finish
