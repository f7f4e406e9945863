#!/bin/sh
# `redpoll plan pipeline` as its users meet it. usage: plan_pipeline_test.sh REDPOLL
# shellcheck disable=SC2086,SC2154 # options are kept as words; $folder is that of cases.sh
set -u
redpoll=$1
# shellcheck disable=SC2034 # plan_cases.sh reads it
plan=pipeline
. "$(dirname "$0")/plan_cases.sh"
. "$(dirname "$0")/../harness/cases.sh"

# ---- answers that are known: schedule, hop, chunks; the step of 4 stages and 8 micro-batches whose
# passes take 10 ms each, the bubble in percent, most kept, messages: add a row ----

while read -r schedule hop chunks step bubble kept messages; do
    shows "^\* $schedule +$chunks +$step m?s +$bubble % .* $kept +$messages\$" \
        --schedule "$schedule" --link "1000GB,$hop" --activations 0
done <<'END'
afab 0us 1 330.0 27.27 8 48
1f1b 0us 1 330.0 27.27 4 48
eager-1f1b 0us 1 330.0 27.27 7 48
interleaved 0us 2 285.0 15.79 11 112
zb-h1 0us 1 270.0 11.11 4 48
zb-h2 0us 1 270.0 11.11 7 48
zb-v 0us 2 255.0 5.88 8 96
afab 2500us 1 345.0 30.43 8 48
1f1b 2500us 1 370.0 35.14 4 48
zb-h1 2500us 1 300.0 20.00 4 48
zb-h2 2500us 1 277.5 13.51 7 48
1f1b 10ms 1 490.0 51.02 4 48
eager-1f1b 10ms 1 390.0 38.46 7 48
END
shows '^\* 1f1b .* 1\.570 s' -s 1f1b -m 32 --link 1000GB,10ms --activations 0
shows '^\* zb-h1 .* 1\.140 s' -s zb-h1 --forward 40ms --backward 80ms --weights 30ms
shows '^\* zb-v .* 103\.5 ms' -s zb-v --forward 4ms --backward 8ms --weights 3ms

# ---- what is printed ----

shows '^1f1b over 4 stages, 8 micro-batches: a step takes 330\.0 ms, and stages are idle for 27\.27 % of it' -s 1f1b
also '^links take no time; --link 1Gbit,5ms shows what they cost$'
also '^  0     F0 F1 F2 F3                   D0--- F4 D1--- F5 D2--- F6 D3--- F7 D4---    D5---    D6---    D7---$'
also '^  3              F0 D0--- F1 D1--- .* F7 D7---$'
also '^  a column is 3\.333 ms'
also '^  0 +240\.0 ms +90\.00 ms +27\.27 % +0 s +4$'
also '^  3 +240\.0 ms +90\.00 ms +27\.27 % +0 s +1$'
also '^best without a link: zb-v, a step of 255\.0 ms, 1\.29 times as fast as 1f1b'
grep -qE 'memory|messages of' out && complain "unasked: $(cat out)"
shows '^zb-h1 over 4 stages' --schedule zb-h1 --stages 4 --micro-batches 8 --link 1Gbit,5ms \
    --forward 10ms --backward 20ms --weights 10ms --activations 4MiB
also '^link 1Gbit,5ms: a message of 4\.19 MB from stage to stage takes 38\.55 ms$'
also '^best for this link: zb-h2, '
shows '^\* zb-h2 ' --link 1Gbit,5ms # auto: what is best is what is shown
also '^best for this link: zb-h2, a step of 764\.0 ms$'
shows '^link 1Gbit,5ms: .*; 2 hosts, inside 5GB,2us' --link 1Gbit,5ms --hosts 2
shows '^\* interleaved +3 ' -s interleaved --chunks 3
shows '^  up to 3 messages of a link are under way at once; with 8 micro-batches only one would be$' -s interleaved -m 6
shows '^\* zb-v .* 8 +400 MB +96$' -s zb-v --kept 100MB
shows '^  afab .* 8 +800 MB +48  too much memory$' --kept 100MB --memory 500MB
also '^\* zb-v '
shows '^  zb-h1 .* 4 +400 MB' --kept 100MB,50MB
shows '^\* afab .* too much memory' -s afab --kept 100MB --memory 500MB # shown all the same
shows '^a micro-batch on a stage: forward 10\.00 ms to 14\.00 ms' --stages 3 --forward 10ms,10ms,14ms
shows '^1f1b over 1 stage, 1 micro-batch: ' --stages 1 --micro-batches 1 -s 1f1b
also '^  0     F0 D0---$'
shows '^  0     F0-- F1-- .* \.\.\. .* D999-----$' -m 1000 -s 1f1b --width 60
also '; the beginning and the end of the step'
if awk '/^  [0-9]/ && $2 ~ /^F/ && length > 68 { exit 1 }' out; then pass; else complain "wide: $(cat out)"; fi

# ---- layers ----

layers='embedding:table=1ms,24*block=2ms,head:table=12ms'
shows '^  0 +0 +embedding, 7 block +45\.00 ms$' --layers "$layers" -s 1f1b
also '^  3 +3 +2 block, head +48\.00 ms$'
also "^  'table' is on stages 0 and 3, whose gradients are added up"
also '^a micro-batch on a stage: forward 14\.00 ms to 16\.00 ms'
shows '^  7 +0 +.*head ' --layers "$layers" -s zb-v
grep -q gradients out && complain "both are on stage 0: $(cat out)"
shows '^  interleaved +2  too few layers$' --layers '5*1ms'
shows '^  0 +0 +3 block +45\.00 ms' --layers '3*block=1ms/14ms/4ms' --stages 1 -m 1 -s 1f1b
also 'backward 30\.00 ms for inputs and 12\.00 ms for weights'
shows '^\* 1f1b .* 60\.0 MB ' --layers '6*1ms' --kept 10MB --stages 2 -s 1f1b # 3 layers, 2 micro-batches

# ---- pictures and JSON ----

if command -v python3 >noise; then
    cat >check.py <<'END'
import json, sys
plan = json.load(sys.stdin)
assert plan["op"] == "pipeline" and plan["schedule"] == "zb-h1", plan
assert plan["stages"] == 4 and plan["micro_batches"] == 8 and plan["chunks"] == 1, plan
assert abs(plan["step_s"] - 0.300) < 1e-9 and abs(plan["exposed_s"] - 0.030) < 1e-9, plan
assert plan["forward_s"] == [0.01] * 4 and plan["weights_s"] == [0.01] * 4, plan
assert plan["link_latency_s"] == 0.0025 and plan["hosts"] == 4, plan
assert len(plan["stage"]) == 4 and plan["messages"] == 48 and plan["messages_under_way"] == 1, plan
for stage in plan["stage"]:
    passes = stage["passes"]
    assert len(passes) == 24, stage
    assert abs(stage["busy_s"] + stage["idle_s"] - plan["step_s"]) < 1e-9, stage
    assert abs(sum(p["end_s"] - p["start_s"] for p in passes) - stage["busy_s"]) < 1e-9, stage
    assert all(a["end_s"] <= b["start_s"] + 1e-12 for a, b in zip(passes, passes[1:])), stage
    assert {p["kind"] for p in passes} == {"forward", "inputs", "weights"}, stage
    assert stage["kept"] == 4 and stage["kept_bytes"] == 4e8, stage
    assert stage["first_s"] == passes[0]["start_s"] and stage["last_s"] == passes[-1]["end_s"]
rows = {row["schedule"]: row for row in plan["schedules"]}
assert len(rows) >= 6 and rows["zb-h1"]["step_s"] == plan["step_s"], plan
assert rows[plan["best"]]["step_s"] == min(row["step_s"] for row in rows.values()), plan
END
    "$redpoll" plan pipeline -s zb-h1 --link 1000GB,2500us --activations 0 --kept 100MB --json >out
    if python3 check.py <out 2>err; then pass; else complain "--json: $(tail -n 1 err)"; fi
    cat >check_layers.py <<'END'
import json, sys
plan = json.load(sys.stdin)
parts = plan["parts"]
assert [p["stage"] for p in parts] == [0, 1, 2, 3, 3, 2, 1, 0], plan
assert sum(p["layers"] for p in parts) == 26 and len(plan["forward_s"]) == 8, plan
assert all(a["first_layer"] + a["layers"] == b["first_layer"] for a, b in zip(parts, parts[1:]))
assert plan["ties"] == [] and abs(sum(plan["forward_s"]) - 0.061) < 1e-9, plan
END
    "$redpoll" plan pipeline -s zb-v --layers "$layers" --json >out
    if python3 check_layers.py <out 2>err; then pass; else complain "--layers --json: $(tail -n 1 err)"; fi
    cat >check_svg.py <<'END'
import sys
import xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
bars = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if len(e)]
assert len(bars) == 4 * 8 * 2 * int(sys.argv[2]), len(bars)
assert all(float(bar.get("width")) > 0 for bar in bars)
END
    "$redpoll" plan pipeline -s 1f1b --svg step.svg >out 2>err || complain "--svg: $(cat err)"
    if python3 check_svg.py step.svg 1 2>err; then pass; else complain "--svg: $(tail -n 1 err)"; fi
    "$redpoll" plan pipeline -s interleaved --svg step.svg --json >out 2>err || complain "--svg: $(cat err)"
    if python3 check_svg.py step.svg 2 2>err; then pass; else complain "--svg: $(tail -n 1 err)"; fi
else
    echo "skipped the JSON and the pictures: there is no python3 here"
fi

# ---- mistakes ----

refused "unknown schedule '1f1'; there are afab, 1f1b, .*; did you mean '1f1b'" -s 1f1
refused "unknown schedule 'gpipe'; there are afab" -s gpipe
refused 'zb-v has 2 chunks a stage, not 3; interleaved takes more' -s zb-v --chunks 3
refused '1f1b has 1 chunk a stage, not 2' -s 1f1b --chunks 2
refused '1 chunk a stage in interleaved; 2 to 64 are allowed' -s interleaved --chunks 1
refused 'all schedules except interleaved and zb-v have one chunk; leave --chunks out' --chunks 1
refused "stages: '0' is out of range" --stages 0
refused "micro-batches: '0' is out of range" --micro-batches 0
refused 'at most 1365 micro-batches' --stages 1024 --micro-batches 65536 -s zb-h1
refused 'forward has 3 times for 4 stages; give one time, or 4' --forward 1ms,2ms,3ms
refused 'backward has 2 times for 1 stage; give one time, or 1' --stages 1 --backward 1ms,2ms
refused "'10' has no unit" --forward 10
refused "'-1ms' is not a duration" --forward=-1ms
refused "'' is not a duration" --forward 1ms,,2ms
refused 'weights takes 0.03 s on stage 0, whose whole backward pass takes 0.02 s' --weights 30ms
refused 'hosts 5 is more than the 4 stages' --hosts 5 --link 1Gbit,5ms
refused 'hosts needs the link between them: --link' --hosts 2
refused 'memory needs --kept 100MB' --memory 1GB
refused 'no schedule fits into --memory, 100 MB; 1f1b keeps the least, 400 MB: take more stages' --kept 100MB --memory 100MB
refused 'weights need no more than what is kept' --kept 1MB,2MB
refused "'1MB,2MB,3MB' is more than what is kept" --kept 1MB,2MB,3MB
refused 'layers gives times of layers, and --forward times of stages' --layers '8*1ms' --forward 1ms
refused '3 layers cannot be cut into 4 stages; 1 to 3 are possible' --layers '3*1ms'
refused '9 layers cannot be cut into 12 parts; 1 to 9 are possible' --layers '9*1ms' -s interleaved --chunks 3
refused "'block=2': '2' has no unit" --layers block=2
refused "'8\*=1ms': a layer without a name" --layers '8*=1ms'
refused "'a:=1ms': a layer without a name, or a tie" --layers a:=1ms
refused "'0\*1ms': 0 layers; 1 to 4096" --layers '0*1ms'
refused 'more than 4096 layers' --layers '4096*1ms,1ms'
refused "'x' is not a whole number" --layers 'x*1ms'
refused '3ms for weights are more than the whole backward pass' --layers a=1ms/2ms/3ms
refused "'' is not a duration" --layers 1ms,
refused 'bit' --link fast
refused "unexpected word" zb-v
refused "did you mean" --schedul zb-v
"$redpoll" plan pipeline --svg none/step.svg >out 2>err && complain 'a folder that is not there works'
grep -q 'none/step.svg' err || complain "--svg none/step.svg: $(cat err)"
"$redpoll" plan pipelin 2>err && complain 'plan pipelin works'
grep -q "did you mean 'pipeline'" err || complain "plan pipelin: $(cat err)"

finish
