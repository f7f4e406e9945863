#!/bin/sh
# `redpoll plan scaling`: curves by strategy, beside what was published. usage: plan_scaling_test.sh REDPOLL
# shellcheck disable=SC2086,SC2154 # options are kept as words; $folder is that of cases.sh
set -u
redpoll=$1
# shellcheck disable=SC2034 # plan_cases.sh reads it
plan=scaling
. "$(dirname "$0")/plan_cases.sh"
. "$(dirname "$0")/../harness/cases.sh"

# is NUMBER TEST NUMBER
is() { awk "BEGIN { exit !($1 $2 $3) }"; }

# ---- the table: add a row. Published speed-ups (DistML, all-reduces at 1 Gbit/s of each GPU, gradients and seconds of a step
# of 128 images), which are met within 10 percent: ranks, what was measured ----

while read -r size step ranks measured; do
    shows "^ +$ranks " --size "$size" --step "$step" --backward 1us --ranks "$ranks" --link 1Gbit,50us --algorithm ring --bucket-mb 1000
    got=$(awk -v n="$ranks" '$1 == n { print $(NF - 3) }' out)
    if is "$got / $measured" '>' .9 && is "$got / $measured" '<' 1.1; then pass; else complain "$size on $ranks: $got, not $measured"; fi
done <<'END'
46.8MB 1.722s 2 1.79
46.8MB 1.722s 4 3.25
46.8MB 1.722s 8 6.3
46.8MB 1.722s 12 9.1
178MB 6.497s 2 1.6
178MB 6.497s 4 2.91
178MB 6.497s 8 5.45
178MB 6.497s 12 7.95
END

# ---- BlueFog's ResNet-50: averaging with one neighbour stays near the ideal, the ring falls off from 16 to 128 ----

job='--model resnet50 --step 183ms --samples 64 --jitter 9ms --ranks-per-host 8 --link 25Gbit,20us --local 10GB,15us --algorithm ring'
shows '^resnet50, 2.556e\+07 parameters as fp32; 8 ranks a host, link 25Gbit,20us$' $job --ranks 16,32..128 \
    --strategy all-reduce,gossip:algorithm=awc,topology=inner-outer-expo:local=8 --svg curves.svg
also '^a rank alone: 183.0 ms a step \(given\), of which 122.0 ms hide sums; deviation 9.000 ms$'
also '^gossip:algorithm=awc,topology=inner-outer-expo:local=8$'
awk '$1 == 16 || $1 == 32 || $1 == 64 || $1 == 128 { print $(NF - 1) }' out >shares
for row in "1 90.7 4" "2 86.1 5" "3 76.9 10" "4 66.6 3" "5 94.8 4" "6 94.8 4" "7 94.3 4" "8 95.8 4"; do
    # shellcheck disable=SC2034
    set -- $row
    got=$(sed -n "$1p" shares)
    if is "$got - $2" '<' "$3" && is "$2 - $got" '<' "$3"; then pass; else complain "row $1: $got %, not $2: $(cat out)"; fi
done
if grep -q '<svg' curves.svg && grep -q 'gossip:algorithm=awc' curves.svg && grep -q ideal curves.svg; then pass; else complain 'no picture'; fi

# ---- the table: add a row. When an exchange with a neighbour begins, by algorithm: 80 ms of the link beside a step of 150 ms, of which
# 100 ms are backward: the strategy, what it exchanges in ms, and what is left exposed ----

while read -r strategy exchange exposed; do
    shows "^ +2 +$exchange ms +$exposed " --size 10MB --step 150ms --backward 100ms --ranks 2 --link 1Gbit,1us --strategy "$strategy"
done <<'END'
gossip 80.02 80.02
gossip:algorithm=atc,topology=exponential 80.02 80.02
gossip:algorithm=exact-diffusion 80.02 80.02
gossip:algorithm=awc 80.02 0
END

# ---- what cannot be among so many is said, and others go on ----

shows '^ +4  .*4 ranks are no whole machines of 8$' $job --ranks 1,4,16 --strategy gossip:topology=inner-outer-expo:local=8
also '^ +16 .* %$'
also '^ +1 +0 s .* 100.0 %$'
shows '^ +2  2 servers leave no worker of 2 ranks$' --size 100MB --step 1s --ranks 2,4 --strategy parameter-server:servers=2

# ---- forecasts say how long a rank computes ----

shows '^a rank alone: [0-9.]+ (ms|s) a step \(forecast\)' --model llama:7b --device a100-80g --seq-length 2048 --ranks 8,16 --ranks-per-host 8 \
    --link 100Gbit,10us
if command -v python3 >noise; then
    cat >check.py <<'END'
import json, sys
plan = json.load(sys.stdin)
assert plan["op"] == "scaling" and plan["compute_kind"] == "given" and plan["parameters"] == 25e6, plan
names = [series["strategy"] for series in plan["strategies"]]
assert names == ["all-reduce", "gossip:topology=exponential", "local-sgd:every=20,fragments=2", "parameter-server"], names
for series in plan["strategies"]:
    assert [point["ranks"] for point in series["points"]] == [1, 2, 4, 8], series
    for point in series["points"]:
        assert abs(point["speedup"] - point["efficiency"] * point["ranks"]) < 1e-9, point
        assert abs(point["step_s"] - 1 - point["exposed_s"]) < 1e-9 and point["efficiency"] <= 1, point
        assert abs(point["samples_s"] - 32 * point["speedup"]) < 1e-9, point
    assert series["points"][0]["efficiency"] == 1, series
exact, gossip, local, server = ([p["efficiency"] for p in s["points"]] for s in plan["strategies"])
assert local[3] > exact[3] and plan["strategies"][2]["points"][3]["exchange_every_steps"] == 10, plan
END
    "$redpoll" plan scaling --size 100MB --step 1s --samples 32 --ranks 1,2..8 --link 1Gbit,50us --json \
        --strategy all-reduce,gossip:topology=exponential,local-sgd:every=20,fragments=2,parameter-server >out
    if python3 check.py <out 2>err; then pass; else complain "--json: $(tail -n 3 err)"; fi
else
    echo "skipped the JSON: there is no python3 here"
fi

# ---- mistakes ----

refused 'whose gradients\? --model resnet50, or --size 100MB' --step 1s
refused 'for how long does a rank alone compute' --size 1MB
refused 'one of them' --size 1MB --model resnet50 --step 1s
refused 'one of them' --model llama:7b --step 1s --device h100
refused 'resnet50 is no decoder of transformer blocks' --model resnet50 --device h100
refused '--backward is a part of --step' --size 1MB --step 1s --backward 2s
refused "unknown strategy 'gosip'.*did you mean 'gossip'" --size 1MB --step 1s --strategy gosip
refused "unknown strategy 'async-local-sgd'" --size 1MB --step 1s --strategy async-local-sgd
refused "local-sgd.*evry" --size 1MB --step 1s --strategy local-sgd:evry=3
refused "is no list of ranks: 1,2,4..128" --size 1MB --step 1s --ranks 1,x
refused "8 stands behind 16|numbers of ranks rise" --size 1MB --step 1s --ranks 16,8
refused "0 ranks; 1 to 4096 are allowed" --size 1MB --step 1s --ranks 0
refused " ranks; 1 to 4096 are allowed" --size 1MB --step 1s --ranks 1..10000
refused "numbers of ranks are the most" --size 1MB --step 1s --ranks 1,2,3..100
refused 'did you mean' --size 1MB --step 1s --algorithm rign

finish
