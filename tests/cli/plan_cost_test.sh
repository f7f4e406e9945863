#!/bin/sh
# `redpoll plan cost` as its users meet it. usage: plan_cost_test.sh REDPOLL
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1
# shellcheck disable=SC2034 # plan_cases.sh reads it
plan=cost
. "$(dirname "$0")/plan_cases.sh"
. "$(dirname "$0")/../harness/cases.sh"

# ---- what is published: 188 node hours; 3.32 times as fast and 2.6 times as cheap ----

steps=steps=100000,batch=4096,measured-batch=1024,iterations-per-s=1.18
shows '^  offer +94\.16 +188\.3 +1958\.57$' --nodes 2 --price 10.4/node-hour --offer $steps
shows '^offer: 9\.339 a 1e9 tokens' --nodes 2 --price 10.4/node-hour --offer $steps,sequence=512
shows '^  slow +5\.93 +5\.9 +61\.70 +1\.00 x +3\.32 x +3\.135$' --offer 'slow: price=10.4/node-hour,cost=61.7' \
    --offer 'q4: price=10.4/node-hour, cost=18.6' --offer 'fast: price=24.5/node-hour, cost=49'
also '^\* q4 +1\.79 +1\.8 +18\.60 +3\.32 x +1\.00 x +27\.4$'
also '^  fast +2\.00 +2\.0 +49\.00 +2\.97 x +2\.63 x +9\.3$'
shows '^  offer +82432\.00 +82432\.0 +-$' --offer hours=82432,watts=400,pue=1.1
also '^offer: 36\.27 MWh$'
shows '^  b +1\.00 +1\.0 +- +2\.00 x +- +3$' --offer 'a:hours=2,price=1.5/node-hour' --offer b:hours=1

# ---- JSON ----

if command -v python3 >noise; then
    cat >check.py <<'END'
import json, sys
plan = json.load(sys.stdin)
slow, fast = plan["offers"]
assert plan["op"] == "cost" and plan["cheapest"] == 0, plan
assert slow["name"] == "slow" and fast["name"] == "", plan
assert abs(slow["node_hours"] - 2 * 1.79) < 1e-9 and abs(slow["cost"] - 37.232) < 1e-9, plan
assert abs(slow["energy_kwh"] - 1.432) < 1e-9, plan
assert abs(slow["break_even_price_per_node_hour"] * slow["node_hours"] - fast["cost"]) < 1e-9, plan
assert fast["hours"] == 3 and abs(fast["cost_per_token"] * 1.08e7 - 147) < 1e-9, plan
END
    "$redpoll" plan cost --nodes 2 --price 10.4/node-hour --offer slow:hours=1.79,watts=400 \
        --offer 'price=24.5/node-hour, tokens=3.6e6, tokens-per-s=1000; tokens=7.2e6,tokens-per-s=1000' \
        --json >out
    if python3 check.py <out 2>err; then pass; else complain "--json: $(tail -n 1 err) $(cat out)"; fi
else
    echo "skipped the JSON: there is no python3 here"
fi

# ---- mistakes: tests/plan/foresight/offer_test.c has all of an offer ----

refused 'what is offered' --price 10.4/node-hour
refused "'10.4' has no unit" --price 10.4 --offer hours=1
refused 'is negative' --price=-1/node-hour --offer hours=1
refused "'huors=1': an offer has no 'huors'; did you mean 'hours'" --offer huors=1
refused "nodes: '0' is out of range" --nodes 0 --offer hours=1
refused 'did you mean' --ofer hours=1

finish
