#!/bin/sh
# `redpoll plan spot` as its users meet it. usage: plan_spot_test.sh REDPOLL
# shellcheck disable=SC2086 # options are kept as words
set -u
redpoll=$1
traces=$(cd "$(dirname "$0")/../plan/traces" && pwd)
# shellcheck disable=SC2034 # plan_cases.sh reads it
plan=spot
. "$(dirname "$0")/plan_cases.sh"
. "$(dirname "$0")/../harness/cases.sh"

# ---- known answers of two published traces: useful shares, and what there was in them ----

# replay SHARE RESTART INTERVAL: of the first, by a world that restarts at each change of it, without the time of saves.
replay() { shows "^  restarts, yours +[0-9.]+ s +$1 % " "$traces/g4dn.csv" --save 0 --restart "$2" --interval "$3"; }
replay 45.89 60s 10min
replay 39.43 120s 10min
replay 9.58 5min 30min
replay 85.71 30s 1min
also '^.*g4dn.csv: 10\.63 h, 12\.8 nodes on average, 24 at most, 135\.7 node hours$'
also '^74 nodes were lost, 0\.545 a node and hour, at 48 times, 5 at once at most$'
also '^  elastic +60\.0 s +98\.49 % '
shows '^  elastic .* 99\.41 % ' "$traces/g4dn.csv" --save 0 --restart 60s --join 30s --stall 1s
shows '^518 nodes were lost, 0\.281 a node and hour, at 55 times, 40 at once at most$' "$traces/v100.csv" --save 20s --restart 2min
also '^  restarts, exact +[0-9.]+ s +[0-9.]+ % +[0-9.]+ %'

# ---- spares, a least, a notice, money ----

shows '^a notice of 30\.00 s is enough for a save: no work is lost$' "$traces/v100.csv" --save 20s --restart 2min --notice 30s --nodes 64 \
    --spot-price 0.91/node-hour --price 3.06/node-hour
also '^  restarts, exact .* 0\.00 % .* 17\.74 % +1\.329$'
also '^at 3\.06 a node and hour that is not taken back, spot nodes are cheaper below 2\.095 \(restarts, exact\), '
shows '^a notice of 10\.00 s is too short for a save$' "$traces/v100.csv" --save 20s --restart 2min --notice 10s --least 80
also '^  elastic .* [1-9][0-9]\.[0-9]+ % +0\.00 %$'

timeout 60 "$redpoll" plan spot "$traces/g4dn.csv" --save 10s --restart 1min --spot-price 1/node-hour --json >spot.json || complain 'json'
if command -v python3 >/dev/null; then
    python3 - <<'END' || complain "json: $(cat spot.json)"
import json
spot = json.load(open("spot.json"))
assert spot["op"] == "spot" and spot["node_seconds"] == 488460 and spot["lost"] == 74, spot
assert [way["way"] for way in spot["ways"]] == ["restarts, exact", "restarts, best", "elastic"]
for way in spot["ways"]:
    parts = sum(way[key + "_node_s"] for key in ("useful", "lost", "saving", "standing", "waiting", "spare"))
    assert abs(parts - 488460) < 1e-6, way
    assert abs(way["price_per_useful_node_hour"] * way["useful_share"] - 1) < 1e-9, way
    assert abs(way["full_world_s"] * spot["nodes"] / way["useful_node_s"] - 1) < 1e-9, way
assert spot["ways"][1]["useful_share"] >= spot["ways"][0]["useful_share"]
END
    pass
fi

# ---- mistakes: add a row ----

printf 'second,nodes\n0,4\n60,\n' >hole.csv
printf 'second,nodes\n0,4\n-60,3\n' >negative.csv
printf 'second,nodes\n0,4\n60,3\n' >good.csv
printf 'second,nodes\n0,0\n60,0\n' >none.csv
printf 'a,b\n0,0\n60,0\n' >columns.csv
times='--save 30s --restart 5min'
refused 'which trace of nodes that came and went' $times
refused 'missing\.csv is missing' missing.csv $times
refused 'hole\.csv: line 3: nodes is empty' hole.csv $times
printf 'second,nodes\n0,4\n60,2\n\0\n120,x\n' >nul.csv
refused 'nul\.csv: line 4: a NUL byte; a trace is text' nul.csv $times
refused "negative\.csv: line 3: second: '-60' is not from 0" negative.csv $times
refused 'columns\.csv: line 1: columns are second,nodes or second,event,node' columns.csv $times
refused 'none\.csv: it never has a node' none.csv $times
refused 'how long does a save take' good.csv --restart 5min
refused 'how long does a restart take' good.csv --save 5min
refused "'30'" good.csv --save 30 --restart 5min
refused 'interval 0 leaves no work' good.csv $times --interval 0
refused 'least 5: the trace has 4 nodes at most' good.csv $times --least 5
refused 'least 3 is more than --nodes 2' good.csv $times --least 3 --nodes 2
refused 'price' good.csv $times --price -3/node-hour
refused 'price' good.csv $times --spot-price 3

finish
