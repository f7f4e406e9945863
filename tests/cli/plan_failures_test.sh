#!/bin/sh
# `redpoll plan failures` as its users meet it. usage: plan_failures_test.sh REDPOLL
# shellcheck disable=SC2086,SC2154 # options are kept as words; $folder is that of cases.sh
set -u
redpoll=$1
# shellcheck disable=SC2034 # plan_cases.sh reads it
plan=failures
. "$(dirname "$0")/plan_cases.sh"
. "$(dirname "$0")/../harness/cases.sh"

# ---- answers that are known: between failures, to save, to restart; the work between two saves
# by each rule, and the goodput in percent at the exact one ----

while read -r mean save restart exact young daly availability goodput; do
    shows "^\* exact +$exact s +$goodput %" --failures "1/$mean" --save "$save" --restart "$restart"
    also "^  young +$young s"
    also "^  daly +$daly s"
    also "^  availability +$availability s" # 30 s less than with the save
done <<'END'
10800s 30s 300s 785.1 805.0 785.1 816.6 90.190
10800s 300s 600s 2349.6 2545.6 2349.5 2632.5 74.016
1h 30s 2min 445.0 464.8 445.0 473.4 84.766
1d 1min 10min 3180.1 3219.9 3180.1 3231.7 95.653
1800s 60s 180s 425.6 464.8 425.6 491.1 69.087
END

# ---- what is printed ----

job='--nodes 128 --failures 6.5/1000-node-days --save 30s --restart 5min'
shows '^the job stops every 28\.85 h' $job
also '^720\.0 h of work:'
grep -qE 'costs|simulated|elastic' out && complain "unasked: $(cat out)"
shows '^the job stops every 1\.803 h' $job --nodes 2048
shows '^the job stops every 3\.093 h' --failures 419/54d --save 30s --restart 5min
shows '^\* yours +3600\.0 s' $job --interval 1h --price 10.4/node-hour --simulate 2000
also '^simulated 2000 times: 10 % .* 50 % .* 90 %'
also '^costs 986387 at 10\.4 a node and hour, 27923 of it'
shows '^  availability +360\.0 s .* 24$' --failures 1/6000s --save 10s --restart 600s --step 15s
shows '^  5\.17 away on average, 83\.832 %' --nodes 32 --replicas 32 --failures 1/28.8s --save 1s --restart 149s
shows ' 10:00 to restart$' --failures 1/3h --save 30s --restart 5min --detect 5min

spot='--nodes 8 --failures 1/node-year --save 20s --restart 3min --preemptions 2/100-node-hours'
shows 'enough for a save: no work is lost' $spot --notice 2min --spot-price 3.1/node-hour --price 10.4/node-hour
also 'cheaper below 10\.32 a node'
shows 'too short for a save' $spot --notice 15s
shows '^\* on-notice .* 0\.00 h +0\.70 h' --preemptions 1/2h --save 1s --notice 30s --restart 7s # 720 (e^(7/7200) - 1)

# ---- JSON ----

if command -v python3 >noise; then
    cat >check.py <<'END'
import json, sys
plan = json.load(sys.stdin)
assert plan["op"] == "failures" and plan["nodes"] == 128, plan
assert abs(plan["stop_every_s"] - 86400 * 1000 / 6.5 / 128) < 1e-6, plan
rows = {row["interval"]: row for row in plan["intervals"]}
assert list(rows) == ["exact", "young", "daly", "availability", "yours"], plan
assert plan["chosen"] == "yours" and rows["yours"]["interval_s"] == 3600, plan
for row in rows.values():
    parts = plan["work_s"] + row["saving_s"] + row["lost_s"] + row["restarting_s"]
    assert abs(parts - row["expected_s"]) < 1e-3, row
    assert row["goodput"] <= rows["exact"]["goodput"] < 1, row
    assert abs(row["cost"] - 128 * 10.4 * row["expected_s"] / 3600) < 1e-3, row
simulated = plan["simulated"]
assert abs(simulated["mean_s"] - rows["yours"]["expected_s"]) < 2 * simulated["error_s"], plan
assert simulated["p10_s"] < simulated["p50_s"] < simulated["p90_s"], plan
END
    "$redpoll" plan failures $job --interval 1h --price 10.4/node-hour --simulate 2000 --json >out
    if python3 check.py <out 2>err; then pass; else complain "--json: $(tail -n 1 err)"; fi
else
    echo "skipped the JSON: there is no python3 here"
fi

# ---- mistakes ----

refused 'how often does it fail\? --failures 6.5/1000-node-days' --save 30s --restart 5min
refused 'how long does a save take' --failures 1/3h --restart 5min
refused 'how long does a restart take' --failures 1/3h --save 30s
refused "'6.5' has no unit; write 6.5/1000-node-days" $job --failures 6.5
refused "'30' has no unit; did you mean '30s'" $job --save 30
refused "'-30s' is negative" $job --save=-30s
refused "'10.4' has no unit; write 10.4/node-hour" $job --price 10.4
refused "'-10.4/node-hour' is negative" $job --price=-10.4/node-hour
refused "'-6.5/node-day' is negative" $job --failures=-6.5/node-day
refused "'0/node-day' is no rate" $job --failures 0/node-day
refused 'interval 20s is shorter than the save of 30' $job --interval 20s
refused 'interval 1min is over before the last save is safe, after 5:00' $job --interval 1min --durable 5min
refused 'so often that nothing is ever done: one every 3 s' --failures 1/3s --save 30s --restart 5min
refused 'interval 30d: .*nothing is ever done' --failures 1/1h --save 30s --restart 5min --interval 30d
refused 'of 4 replicas 5.17' --nodes 4 --replicas 4 --failures 1/28.8s --save 1s --restart 149s
refused 'replicas 4 is more than the 1 nodes' --replicas 4 --failures 1/3h --save 1s --restart 1s
refused 'save of 0 s costs nothing' $job --save 0
refused 'work 0' $job --work 0
refused 'step 0' $job --step 0
refused 'spot-price is of spot nodes' $job --spot-price 1/node-hour
refused 'notice is of spot nodes' $job --notice 1min
refused "nodes: '0' is out of range" $job --nodes 0
refused 'would take long to simulate' $job --nodes 10000 --work 1000d --simulate 1000000
refused 'did you mean' $job --intervl 1h
refused "unexpected word" 1h $job

"$redpoll" plan failure 2>err && complain 'plan failure works'
grep -q "did you mean 'failures'" err || complain "plan failure: $(cat err)"

finish
