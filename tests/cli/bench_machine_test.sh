#!/bin/sh
# `redpoll bench machine`, and a plan by what it measured: which items there are, that forecasts take them, and what is
# refused. No time is compared with any other. usage: bench_machine_test.sh REDPOLL
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1
# shellcheck disable=SC2034 # plan_cases.sh reads it
plan=train
. "$(dirname "$0")/plan_cases.sh"
. "$(dirname "$0")/../harness/cases.sh"

measured() { # FILE WORDS...
    file=$1
    shift
    timeout 280 "$redpoll" bench machine --iters 1 -o "$file" "$@" >out 2>err || complain "bench machine $*: $(cat err)"
}

measured here.json -n 2
also '^measures, 1 times:$'
also '^.*, 2 ranks at the same time, [0-9]+ threads? each, median of 1 rounds, [0-9.]+ s$'
also '^  product +fp32 +m=64 n=192 k=64 +[0-9.]+ GFLOP/s +[0-9.]+ GFLOP/s to [0-9.]+ GFLOP/s$'
also '^  attention +backward +sequence=64 head=32 heads=2 '
also '^  (rest|head) +forward '
also '^  codec +q4:bucket=512 +encode +[0-9.]+ GB/s '
also '^  sum +bytes=4194304 +[0-9.e+-]+ GB/s '
also '^  disk +write +[0-9.e-]+ GB/s '
also '^  program +[0-9.]+ MB +[0-9.]+ MB to [0-9.]+ MB$'
also '^written to here.json; redpoll plan train --machine here.json$'
if ls .redpoll-bench-* >noise 2>&1; then complain 'the file of the disk is left'; else pass; fi

# ---- a plan ----

small='--model gpt2:layers=4,hidden=256,heads=4,vocabulary=257,positions=64 --global-batch-size 16'
# shellcheck disable=SC2086 # options are kept as words
shows 'on 2 ranks of here \(1 host\)$' $small --machine here.json --explain
also 'gradients fp32, fp32$'
also '^  products .* over the rate measured at m, n and k'
also '^  fp32_flops +[0-9.e+]+ +measured +here.json, 2 ranks at the same time$'
also '^  link_share +0.97 +assumed '
also '^  context_bytes +[0-9.e+]+ +measured +here.json, 2 ranks at the same time$'
# shellcheck disable=SC2086
shows 'on 4 ranks of here \(4 hosts\), link 1Gbit,50us$' $small --machine here.json --hosts 4 --ranks-per-host 1 --link 1Gbit,50us --codec q4 --explain
also '^  codec .* of that: as measured$'
also '^  link +1Gbit,50us +given$'
# The disk says how long a save takes.
# shellcheck disable=SC2086
shows '^it stops every 3 h: save every ' $small --machine here.json --tokens 10B --failures 1/3h

if command -v python3 >noise; then
    cat >check.py <<'END'
import json, sys
machine, plan = json.load(open("here.json")), json.load(sys.stdin)["trainings"][0]
assert machine["op"] == "machine" and machine["ranks"] == 2 and machine["rank_memory_bytes"] > 1e6, machine
works = {}
for item in machine["items"]:
    works.setdefault(item["what"], []).append(item)
    assert 0 < item["low"] <= item["value"] <= item["high"] and item["repeats"] >= 1, item
    assert item["unit"] == ("bytes" if item["what"] == "program" else "s" if item["what"] in ("layer", "step") else
                            "flop/s" if item["what"] in ("product", "attention", "head") else "bytes/s"), item
assert set(works) == {"product", "attention", "rest", "head", "layer", "step", "gradients", "optimizer", "copy", "sum", "layer-sum", "codec", "disk", "program"}, works
assert {"fp32"} <= {item["name"] for item in works["product"]} <= {"fp32", "bf16"} and len(works["product"]) >= 30
fp32 = max(item["value"] for item in works["product"] if item["name"] == "fp32")
assert abs(plan["facts"]["fp32_flops"]["value"] / fp32 - 1) < 1e-6, plan["facts"]
kinds = {name: fact["kind"] for name, fact in plan["facts"].items()}
assert kinds["gemm_share"] == kinds["memory_bytes_s"] == "measured" and kinds["overlap"] == "assumed", kinds
assert kinds["link_bytes_s"] == "given" and plan["machine"]["items"] == len(machine["items"]), plan
# Half the rates, twice the time; of a step nearly all is computed.
json.dump({**machine, "items": [{**item, **{key: item[key] / 2 if item["unit"] != "s" else item[key] * 2
           for key in ("value", "low", "high")}} for item in machine["items"]]}, open("half.json", "w"))
END
    layout='--tp 1 --pp 1 --dp 2 --zero 0 --micro-batch-size 8 --recompute none'
    # shellcheck disable=SC2086
    "$redpoll" plan train $small --machine here.json --hosts 2 --ranks-per-host 1 --link 1Gbit,50us $layout --json >out
    if python3 check.py <out 2>err; then pass; else complain "--json: $(tail -n 3 err)"; fi
    for name in here half; do
        # shellcheck disable=SC2086
        "$redpoll" plan train $small --machine $name.json $layout --json >$name.out
    done
    if python3 -c '
import json
whole, half = (json.load(open(name))["trainings"][0]["best"][0]["step_s"] for name in ("here.out", "half.out"))
assert abs(half / whole - 2) < 1e-6, (half, whole)' 2>err; then pass; else complain "$(tail -n 1 err)"; fi
else
    echo "skipped the JSON: there is no python3 here"
fi

# ---- one rank ----

measured alone.json
if grep -q '"what":.*sum"' alone.json; then complain 'one rank has no sums'; else pass; fi
# shellcheck disable=SC2086
shows '^  local_bytes_s +[0-9.e+]+ +assumed +one rank was measured' $small --machine alone.json --explain

# ---- mistakes ----

wrong() { # PATTERN FILE: refused, with one line that says why
    refused "$1" --global-batch-size 16 --machine "$2"
}
echo '{"op": "machine"' >broken.json
echo '{"op": "train"}' >other.json
echo '{"op": "machine", "cpu": "x", "ranks": 1, "threads": 1, "rank_memory_bytes": 1e9, "items": []}' >empty.json
echo '{"op": "machine", "cpu": "x", "ranks": 0, "threads": 1, "rank_memory_bytes": 1e9, "items": []}' >none.json
item='"what": "product", "name": "fp32", "m": 1, "n": 1, "k": 1, "low": 1, "high": 1, "repeats": 1'
echo "{\"op\": \"machine\", \"cpu\": \"x\", \"ranks\": 1, \"threads\": 1, \"rank_memory_bytes\": 1e9, \"items\": [{$item, \"unit\": \"flop/s\", \"value\": -1}]}" >negative.json
echo "{\"op\": \"machine\", \"cpu\": \"x\", \"ranks\": 1, \"threads\": 1, \"rank_memory_bytes\": 1e9, \"items\": [{$item, \"unit\": \"s\", \"value\": 1}]}" >unit.json
wrong 'missing.json is missing' missing.json
wrong 'broken.json: it is no JSON; redpoll bench machine -o writes it' broken.json
wrong 'other.json: it is no machine; redpoll bench machine -o writes one' other.json
wrong 'empty.json: it has no product' empty.json
wrong 'none.json: ranks of 0 is none' none.json
wrong 'negative.json: item 0: product: -1, from 1 to 1, is no measurement' negative.json
wrong 'unit.json: item 0: product is in flop/s, not in s' unit.json
refused 'one of them' --global-batch-size 16 --machine here.json --device h100
refused 'here has no fp16_flops: it does not multiply in fp16' --global-batch-size 16 --machine here.json --precision fp16
timeout 60 "$redpoll" bench machine --link 1Gbit,1us >out 2>err
if [ $? -eq 2 ] && grep -q 'link is not of this machine' err; then pass; else complain "--link: $(cat err)"; fi
timeout 60 "$redpoll" bench machine --iters 1 --folder missing >out 2>err
if [ $? -eq 2 ] && grep -q 'folder missing: ' err; then pass; else complain "--folder missing: $(cat err)"; fi

finish
