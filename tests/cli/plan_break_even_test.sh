#!/bin/sh
# `redpoll plan break-even` as its users meet it. usage: plan_break_even_test.sh REDPOLL
# shellcheck disable=SC2086,SC2154 # options are kept as words; $folder is that of cases.sh
set -u
redpoll=$1
# shellcheck disable=SC2034 # plan_cases.sh reads it
plan=break-even
. "$(dirname "$0")/plan_cases.sh"
. "$(dirname "$0")/../harness/cases.sh"

# ---- by hand: n ranks send 2 (n - 1) / n vectors each; what the backward pass covers is free, so
# that 4 bits pay below 2 (n - 1) / n bytes / backward. Seconds are long, so that it hardly counts
# how fast this machine adds. ----

while read -r ranks size backward below; do
    shows "^q4 shortens a step where a host's link has less than $below Mbit/s$" -n "$ranks" --size "$size" \
        --step 100s --backward "$backward" --link 10Mbit,0us
done <<'END'
8 100MB 20s (69|7[01])(\.[0-9]+)?
2 100MB 20s (39|4[01])(\.[0-9]+)?
4 250MB 50s (59|6[01])(\.[0-9]+)?
END

# Twice as dear, and as fast but for the link, which takes no time: slow hosts are the cheaper ones
# while a step of 20 s is at most twice as long, and 1.75 * 100 MB / 20 s is 70 Mbit/s.
prices='--price 10/node-hour --fast-link 1000Gbit,0us --fast-price 20/node-hour'
shows '^cheaper than 1000Gbit,0us at 20/node-hour:$' -n 8 --size 100MB --step 20s --link 10Mbit,0us $prices
also '^  with the codec: from (8\.[5-9]|9\.[0-3])[0-9]* Mbit/s on$'
also '^  with fp32: from (6[6-9]|70)(\.[0-9]+)? Mbit/s on$'
also '^1000Gbit,0us is the cheaper one below 1[89](\.[0-9]+)? a node and hour$'
shows '^  with the codec: over no link$' -n 8 --size 100MB --step 1s $prices --fast-step 0.1s
shows '^  with the codec: over every link$' -n 2 --size 4 --step 1h --backward 1h $prices
shows 'q4 shortens no step' -n 2 --size 4 --step 1h --backward 1h

# ---- JSON ----

if command -v python3 >noise; then
    cat >check.py <<'END'
import json, sys
plan = json.load(sys.stdin)
assert plan["op"] == "break-even" and plan["hosts"] == 8 and plan["bytes"] == 1e8, plan
assert abs(plan["codec_pays_below_bytes_s"] / 8.75e6 - 1) < 0.03, plan
slow, q4, fast = plan["fp32"], plan["compressed"], plan["fast"]
assert abs(slow["all_reduce_s"] / 140 - 1) < 0.01 and abs(slow["exposed_s"] - slow["all_reduce_s"] + 20) < 1e-9, plan
assert abs(slow["step_s"] - 100 - slow["exposed_s"]) < 1e-9 and q4["step_s"] == fast["step_s"] == 100, plan
assert abs(plan["fast_pays_below_per_node_hour"] - 1) < 1e-9 and plan["compressed_cheaper_from_bytes_s"] is None, plan
END
    "$redpoll" plan break-even -n 8 --size 100MB --step 100s --backward 20s --link 10Mbit,0us --json \
        --fast-link 10Gbit,0us --price 1/node-hour --fast-price .9/node-hour >out
    if python3 check.py <out 2>err; then pass; else complain "--json: $(tail -n 1 err)"; fi
else
    echo "skipped the JSON: there is no python3 here"
fi

# ---- mistakes ----

refused 'codec fp32 saves nothing' --codec fp32
refused 'backward is a part of --step' --step 1s --backward 2s
refused 'hosts 9 is more than the 4 ranks' --hosts 9
refused 'on one host nothing travels' --hosts 1
refused 'fast-price of hosts with which link' --fast-price 1/node-hour
refused "'10' has no unit; write 10.4/node-hour" --price 10
refused 'is negative' --price=-1/node-hour
refused "ranks: '1' is out of range" -n 1
refused 'link' --link 0Gbit
refused 'fast-link' --fast-link 10

finish
