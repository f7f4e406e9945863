#!/bin/sh
# `redpoll plan train` as its users meet it. usage: plan_train_test.sh REDPOLL
# shellcheck disable=SC2086,SC2154 # options are kept as words; $folder is that of cases.sh
set -u
redpoll=$1
# shellcheck disable=SC2034 # plan_cases.sh reads it
plan=train
. "$(dirname "$0")/plan_cases.sh"
. "$(dirname "$0")/../harness/cases.sh"

job='--model llama:7b --hosts 8 --device a100-80g --link 200Gbit,5us --seq-length 4096 --global-batch-size 1024'

# ---- layouts, time, memory ----

shows '^llama:7b, 6\.738e\+09 parameters, on 64 ranks of a100-80g \(8 hosts\), link 200Gbit,5us$' $job
also '^a step has 1024 samples of 4096 tokens; gradients fp32, bf16$'
also '^[0-9]+ of [0-9]+ layouts fit; the fastest:$'
also '^\* +[0-9]+ +[0-9]+ +[0-9]+ .* to .* %  +[0-9.]+ GB$'
also '^  compute +[0-9.]+ (s|ms) +[0-9.]+ %$'
also '^memory of a rank of stage 0, of 80\.0 GB:$'
if [ "$(grep -cE '^[* ] +[0-9]+ +[0-9]+ +[0-9]+ ' out)" -eq 8 ]; then pass; else complain "not 8 layouts: $(cat out)"; fi
shows '^1 of 1 layouts fit' $job --tp 2 --pp 4 --zero 1 --micro-batch-size 1 --recompute none --top 1
also '^\* +2 +4 +8 +1 +1  none '
also '^  bubble '
also '^  hops '

shows '^llama:70b, .* on 1024 ranks of h100 \(128 hosts\)' --model llama:70b --hosts 128 --device h100 --link 3200Gbit,5us \
    --global-batch-size 2048
also '^[0-9]+ of [0-9]{3,} layouts fit; the fastest:$'
# Ranks share sequences where that is said, where these are long, and where nothing fits otherwise; else there is no column.
if grep -qE '^ +tp +cp ' out; then complain 'nobody shares sequences of 4096 tokens'; else pass; fi
shows '^ +tp +cp +pp +dp ' $job --cp 2 --top 1 --explain
also '^[*] +[0-9]+ +2 +[0-9]+ '
also '^  key gathers +[0-9.]+ (s|ms) '
also '^  keys +[0-9.]+ (us|ms|s)  gathered once: '
shows '^ +tp +cp +pp +dp ' $job --model llama:7b,positions=65536 --seq-length 65536 --global-batch-size 16
shows '^[*] +1 +2 +1 +4 ' --model llama:7b,positions=16000 --device a100-80g --global-batch-size 8 --seq-length 16000 --tp 1 --pp 1 --zero 3 --recompute none
if [ "$("$redpoll" plan train $job --cp 2 --top 1 --json | grep -c '"cp":2,')" -eq 1 ]; then pass; else complain 'JSON has no cp'; fi
# Lengths that --tp does not divide, as redpoll train takes them.
shows '^[*] +8 +' $job --seq-length 4095 --tp 8 --top 1
export REDPOLL_RECOMPUTE=on
shows '^[*] .* full ' $job --top 1
unset REDPOLL_RECOMPUTE
shows '^[*] .* none ' $job --top 1 --recompute off
# A CPU is a device like any other.
cat >cpu.txt <<'END2'
cpu like a100-80g assumed nothing better is known
cpu memory_bytes 64e9 measured here
cpu memory_bytes_s 40e9 measured here
cpu fp32_flops 0.56e12 measured here
END2
shows '^[*] +1 +1 +4 ' --device cpu --devices cpu.txt --precision fp32 --hosts 4 --ranks-per-host 1 --link 1Gbit,50us --global-batch-size 32
also 'on 4 ranks of cpu \(4 hosts\)'

# ---- every term, every fact with its source ----

shows '^  products +[0-9.]+ (us|ms)  sum of 2 m n k' $job --tp 2 --pp 4 --explain
also '^  a100-80g|^facts of a100-80g:$'
also '^  memory_bytes +8e\+10 +published +NVIDIA A100 datasheet, 80GB SXM$'
also '^  gemm_share '
also '^  link +200Gbit,5us +given$'
if grep -qE '^  [a-z_0-9]+ +[-0-9.e+]+ +(published|measured|fitted|assumed) *$' out; then complain 'a fact has no source'; else pass; fi

# ---- the whole training, failures, money; other machines beside it ----

shows '^3e\+11 tokens: [0-9.]+ h \(9 of 10 times [0-9.]+ to [0-9.]+\), [0-9.]+ node hours, [0-9.e+]+ at 24\.5 a node and hour, ' \
    $job --tokens 300B --price 24.5/node-hour --failures 6.5/1000-node-days --save 30s \
    --compare 'slow: --link 1Gbit,30us --price 10.4/node-hour' \
    --compare 'slow, 4 bits: --link 1Gbit,30us --price 10.4/node-hour --codec q4'
also '^it stops every 461\.5 h: save every '
also '^slow, 4 bits: llama:7b, .* link 1Gbit,30us$'
also '^  \(as it is\) .* 1\.00 x '
also '^  slow, 4 bits +[0-9.e+]+ +0\.[0-9]+ x +[0-9.]+ +[0-9.e+]+$'

# ---- JSON ----

if command -v python3 >noise; then
    cat >check.py <<'END2'
import json, sys
plan = json.load(sys.stdin)
first, slow, coded = plan["trainings"]
assert plan["op"] == "train" and first["ranks"] == 64 and first["parameters"] == 6738415616, plan
best = first["best"][0]
assert abs(sum(best["time_s"].values()) - best["step_s"]) < 1e-9, best
assert abs(sum(best["memory_bytes"].values()) / best["rank_memory_bytes"] - 1) < 1e-9, best
assert best["rank_memory_bytes"] <= 80e9 and 0 < best["mfu"] < 1, best
assert best["step_low_s"] < best["step_s"] < best["step_high_s"], best
assert abs(best["tokens_s"] * best["step_s"] - 1024 * 4096) < 1, best
assert all(a["step_s"] <= b["step_s"] for a, b in zip(first["best"], first["best"][1:])), first
assert abs(first["hours"] * 8 - first["node_hours"]) < 1e-6, first
assert abs(first["node_hours"] * 24.5 - first["cost"]) < 1e-6 * first["cost"], first
assert 0.9 < first["goodput"] < 1, first
assert all(fact["source"] for fact in first["facts"].values()), first
assert slow["name"] == "slow" and slow["best"][0]["step_s"] > best["step_s"], plan
assert coded["best"][0]["step_s"] < slow["best"][0]["step_s"], plan
END2
    "$redpoll" plan train $job --tokens 300B --price 24.5/node-hour --failures 6.5/1000-node-days --save 30s \
        --compare 'slow: --link 1Gbit,30us --tp 1 --pp 1' --compare 'coded: --link 1Gbit,30us --tp 1 --pp 1 --codec q4' --json >out
    if python3 check.py <out 2>err; then pass; else complain "--json: $(tail -n 1 err | cut -c 1-200) $(grep assert err)"; fi
else
    echo "skipped the JSON: there is no python3 here"
fi

# ---- a deadline, a budget, and from which rate a codec pays ----

long="$job --tokens 30B --price 24.5/node-hour --top 1"
shows '^\* \(as it is\) +[0-9]+ ' $long --within 60h
also '^within 60 hours, on as many hosts as there are, or fewer:$'
also '^  \(as it is\) +1 .* too late$'
also '^\* the cheapest within 60 hours(; not 9 of 10 times)?$'
also '^q4 shortens a step where a host.s link has less than [0-9.]+ Gbit/s$'
shows '^\* the fastest within a budget of 6000$' $long --budget 6000 --compare 'slow: --link 10Gbit,30us --price 10.4/node-hour --codec q4'
also '^  slow +8 '
shows '^nothing is within a budget of 10: ' $long --budget 10
shows '^q8 shortens a step' $job --codec q8 --top 1
shows '^llama:7b' --model llama:7b --device a100-80g --global-batch-size 64
if grep -q 'shortens a step' out; then complain 'one host has no link'; else pass; fi
if command -v python3 >noise; then
    cat >goal.py <<'END2'
import json, subprocess, sys
redpoll, *words = sys.argv[1:]
def plan(*more):
    return json.loads(subprocess.run([redpoll, "plan", "train", *words, *more, "--json"], capture_output=True, check=True).stdout)
for asked, key, other in (("--within", "hours", "cost"), ("--budget", "cost", "hours")):
    limit = {"--within": "60h", "--budget": "6000"}[asked]
    goal = plan(asked, limit, "--tokens", "30B", "--price", "24.5/node-hour")["goal"]
    rows = goal["rows"]
    assert [row["hosts"] for row in rows] == list(range(1, 9)), rows
    assert all(row["meets"] == (row[key] <= float(limit.rstrip("h"))) for row in rows), rows
    assert all(abs(row["hours"] * row["hosts"] * 24.5 / row["cost"] - 1) < 1e-9 for row in rows), rows
    best = rows[goal["best"]]
    assert best["meets"] and best[other] == min(row[other] for row in rows if row["meets"]), goal
# Solved: a thousandth on either side of it, by the same layout, the sign changes.
fixed = ["--tp", "1", "--pp", "1", "--dp", "64", "--zero", "1", "--micro-batch-size", "4", "--recompute", "full"]
rate = plan(*fixed)["trainings"][0]["codec_pays_below"]
assert rate["codec"] == "q4" and rate["link_bytes_s"] > 0, rate
for factor, pays in ((.998, True), (1.002, False)):
    link = f"{rate['link_bytes_s'] * factor * 8 / 1e6}Mbit,5us"
    exact, coded = (plan(*fixed, "--link", link, "--codec", codec)["trainings"][0]["best"][0]["step_s"] for codec in ("fp32", "q4"))
    assert (coded < exact) == pays, (factor, exact, coded)
END2
    if python3 goal.py "$redpoll" $job 2>err; then pass; else complain "the goal: $(tail -n 2 err)"; fi
fi

# ---- layouts that no other beats ----

shows '^no other layout is as fast with as little memory:$' $job --top 1 --frontier
also '^  \(as it is\) +8 +[0-9]+ .* GB +- +-$'
shows '^no other layout is as fast and as cheap with as little memory, on as many hosts as there are, or fewer:$' $long --frontier
also '^  \(as it is\) +1 .* GB +[0-9.]+ +[0-9.e+]+$'
if command -v python3 >noise; then
    cat >frontier.py <<'END2'
import json, subprocess, sys
redpoll, *words = sys.argv[1:]
def plan(*more):
    return json.loads(subprocess.run([redpoll, "plan", "train", *words, *more, "--json"], capture_output=True, check=True).stdout)
def bad(c, keys): return [c[key] if key != "tokens_s" else -c[key] for key in keys]
money = ["--tokens", "30B", "--price", "24.5/node-hour", "--compare", "slow: --link 1Gbit,30us --price 5/node-hour"]
for more, keys in (([], ["tokens_s", "rank_memory_bytes"]), (money, ["tokens_s", "rank_memory_bytes", "cost"])):
    made = plan(*more, "--frontier")
    frontier = made["frontier"]
    assert len(frontier) > 5 and frontier[0]["tokens_s"] == max(c["tokens_s"] for c in frontier), frontier
    assert all(a["tokens_s"] >= b["tokens_s"] for a, b in zip(frontier, frontier[1:])), frontier
    for a in frontier:
        assert not any(a is not b and all(x <= y for x, y in zip(bad(b, keys), bad(a, keys))) for b in frontier), a
    # The fastest of the ranking is in it, and so are fewer and cheaper hosts where money counts.
    assert frontier[0]["step_s"] <= made["trainings"][0]["best"][0]["step_s"] * (1 + 1e-12), made
    assert ({c["hosts"] for c in frontier} == {8}) == (not more), frontier
    assert ("cost" in frontier[0]) == bool(more) and ({c["name"] for c in frontier} == {""}) == (not more), frontier
assert "frontier" not in plan("--top", "1")
END2
    if python3 frontier.py "$redpoll" $job 2>err; then pass; else complain "the frontier: $(tail -n 2 err | cut -c 1-300)"; fi
fi

# ---- spot nodes, by a trace of them ----

traces=$(cd "$(dirname "$0")/../plan/traces" && pwd)
spot="$job --tokens 30B --save 30s --top 1 --spot $traces/g4dn.csv"
shows '^on spot nodes, by a trace of 10\.63 h, played [0-9.]+ times:$' $spot --elastic --price 24.5/node-hour --spot-price 7/node-hour
also '^\* elastic +[0-9.]+ s +[0-9.]+ .* to .* %'
also '^  restarts +[0-9.]+ s .* %'
also '^3e\+10 tokens: [0-9.]+ h .* at 7 a node and hour, '
also '^on hosts that are never taken back it takes [0-9.]+ h, [0-9.]+ at 24\.5 a node and hour$'
also '^spot nodes are cheaper below [0-9.]+ a node and hour$'
shows '^\* restarts +600\.0 s ' $spot --interval 10min
shows '^within 200 hours' $spot --spot-price 7/node-hour --elastic --within 200h
# Nodes that stay, and a world that needs them all: what it takes without a trace, and a start.
printf 'second,nodes\n0,8\n100000,8\n' >steady.csv
printf 'second,nodes\n0,4\n100000,4\n' >four.csv
if command -v python3 >noise; then
    cat >spot.py <<'END2'
import json, subprocess, sys
redpoll, *words = sys.argv[1:]
def plan(*more):
    return json.loads(subprocess.run([redpoll, "plan", "train", *words, *more, "--json"], capture_output=True, check=True).stdout)["trainings"][0]
whole = ["--tokens", "30B", "--save", "30s", "--price", "24.5/node-hour", "--spot-price", "7/node-hour"]
alone = plan("--tokens", "30B", "--price", "24.5/node-hour")
for elastic in ([], ["--elastic"]):
    bill = plan(*whole, "--spot", "steady.csv", *elastic, "--interval", "2000h", "--join", "0", "--restart", "0")
    spot, chosen = bill["spot"], bill["spot"]["ways"][1 if elastic else 0]
    assert spot["chosen"] == chosen["way"] == ("elastic" if elastic else "restarts"), spot
    assert abs(bill["hours"] / alone["hours"] - 1) < 1e-4 and abs(chosen["goodput"] - 1) < 1e-4, (bill["hours"], alone["hours"])
    assert abs(bill["cost"] / (8 * bill["hours"] * 7) - 1) < 1e-9 and bill["cost"] == chosen["cost"], bill
    assert abs(chosen["spot_pays_below_per_node_hour"] / 24.5 - 1) < 1e-4, chosen
    assert abs(bill["hours_low"] / alone["hours_low"] - 1) < 1e-4 and abs(bill["hours_high"] / alone["hours_high"] - 1) < 1e-4
# Half of the hosts, by the layout with half of the replicas, are as fast as a forecast of them says.
fixed = ["--tp", "1", "--pp", "2", "--zero", "1", "--micro-batch-size", "1", "--recompute", "none"]
half = plan(*fixed, "--hosts", "4", "--tokens", "30B")
bill = plan(*fixed, *whole, "--spot", "four.csv", "--interval", "2000h", "--restart", "0")
assert abs(bill["hours"] / half["hours"] - 1) < 1e-4, (bill["hours"], half["hours"])
for way in plan(*whole, "--spot", sys.argv[0].replace("spot.py", "") + "steady.csv", "--hosts", "6", "--global-batch-size", "960")["spot"]["ways"]:
    shares = sum(way[key + "_share"] for key in ("useful", "lost", "saving", "standing", "waiting", "spare"))
    assert abs(shares - 1) < 1e-9 and abs(way["spare_share"] - 0.25) < 1e-9, way
paid = plan(*whole, "--spot", "steady.csv", "--hosts", "6", "--global-batch-size", "960", "--no-pay-spares")
assert abs(paid["node_hours"] / (6 * paid["hours"]) - 1) < 1e-9, paid
END2
    if python3 spot.py "$redpoll" $job 2>err; then pass; else complain "spot nodes: $(tail -n 2 err)"; fi
fi
refused 'sequences of 8192 tokens, and the model has 1024 positions: use --seq-length 1024 or less, or positions=8192' \
    --model gpt2 --device h100 --global-batch-size 16 --seq-length 8192
refused "price: '1e308/node-hour' is too large" $job --tokens 1B --price 1e308/node-hour
refused 'spot is of a whole training: how many tokens' $job --spot steady.csv --save 30s
refused 'elastic is of spot nodes' $job --tokens 1B --elastic
refused 'spot-price is of spot nodes' $job --tokens 1B --spot-price 3/node-hour
refused 'interval is of spot nodes' $job --tokens 1B --interval 3min
refused 'spot and --failures: the trace has all' $spot --failures 1/3h
refused 'how long does a save take' $job --tokens 1B --spot steady.csv
refused 'missing\.csv is missing' $job --tokens 1B --save 30s --spot missing.csv
refused 'least 9 is more than --hosts 8' $spot --least 9
refused 'least 5: the trace has 4 nodes at most' $job --tokens 1B --save 30s --spot four.csv --least 5
refused 'interval 0 leaves no work' $spot --interval 0
refused 'with the nodes of four\.csv the training is never done: there are 4 at most, a replica takes 8, .*, or --elastic$' \
    $job --tokens 1B --save 30s --spot four.csv --tp 8 --pp 8

# ---- devices of the user's own ----

cat >mine.txt <<'END2'
# the same card, in a box that is cool
mine like a100-80g assumed the same chip
mine bf16_flops 400e12 measured here
END2
shows 'on 64 ranks of mine ' $job --device mine --devices mine.txt --explain
also '^  bf16_flops +4e\+14 +measured +here$'

# ---- mistakes ----

small='--device a100-80g --global-batch-size 64'
refused 'which device does a rank have\? .*there are a100-80g, ' --global-batch-size 64
refused "unknown device 'a100'; there are .*" --device a100 --global-batch-size 64
refused "unknown device 'a100-80gb'.*did you mean 'a100-80g'" --device a100-80gb --global-batch-size 64
refused 'of how many samples is a step' --device a100-80g
refused 'how fast is the link of a host\? --link 200Gbit,5us' $small --hosts 2
refused "no layout of 8 ranks is legal: --tp 3 does not divide them" $small --tp 3
refused 'cp 3 does not divide them' $small --cp 3
refused 'cp 8: sequences of 12 tokens over 8 context ranks, two pieces each: 16 tokens would fit, or --cp 6' $small --cp 8 --seq-length 12
refused 'cp' $small --cp 0
refused '--dp 8 does not divide the global batch of 63' --device a100-80g --global-batch-size 63 --tp 1 --pp 1
refused '--tp 8 does not divide the 12 heads' $small --tp 8
refused '13 stages are more than the 12 layers|no layout' $small --tp 1 --ranks-per-host 13 --pp 13 --global-batch-size 13
refused 'it does not fit: of [0-9]+ layouts the smallest .* needs [0-9.]+ GB of a rank.s 11\.0 GB, .* what helps: ' \
    --model llama:70b --device rtx2080ti --precision fp16 --global-batch-size 64 --seq-length 2048
# More hosts on which it fits are named, and true; the layout that was asked for may fit on none.
large='--model llama:70b --device a100-40g --global-batch-size 64'
refused 'more hosts; it fits on 4 hosts \(tp 4, pp 8, dp 1, zero 0, recompute full\)$' $large
shows '^1 of 1 layouts fit' $large --hosts 4 --link 1Gbit,1us --tp 4 --pp 8 --dp 1 --zero 0 --recompute full --micro-batch-size 1
refused 'what helps: --zero 1, more --tp or --pp, or more hosts; it fits on 4 hosts ' $large --hosts 2 --link 1Gbit,1us
refused 'what helps: --zero 1, more --tp or --pp, or more hosts$' $large --tp 8 --pp 1 --dp 1
refused 'v100 has no bf16_flops: it does not multiply in bf16; --precision fp16 or fp32' --device v100 --global-batch-size 64
refused "resnet50 is no decoder of transformer blocks" --model resnet50 $small
refused "hidden=770 is no multiple of heads=12" --model gpt2:hidden=770 $small
refused "zero: '4' is not 0, 1, 2 or 3" $small --zero 4
refused "did you mean 'selective'" $small --recompute selektive
refused "unknown precision 'bf17'" $small --precision bf17
refused "'10' has no unit" $small --tokens 1T --price 10
refused 'is negative' $small --tokens 1T --price=-1/node-hour
refused 'price is of a whole training: how many tokens' $small --price 1/node-hour
refused 'one of them is to be met' $small --tokens 1T --price 1/node-hour --within 1h --budget 3
refused 'within is of a whole training: how many tokens' $small --within 1h
refused 'budget: what does a host cost' $small --tokens 1T --budget 5000
refused "'48' has no unit" $small --tokens 1T --price 1/node-hour --within 48
refused 'budget' $small --tokens 1T --price 1/node-hour --budget=-3
refused 'how long does a save take' $small --tokens 1T --failures 1/3h
refused 'tokens are above 0' $small --tokens 0
refused 'missing.txt is missing' $small --devices missing.txt
echo 'mine watts 3' >bad.txt
refused 'bad.txt, line 1: a line is DEVICE FACT VALUE KIND SOURCE' $small --devices bad.txt
refused "has no name of at most 31 letters in front" $small --compare '--link 1Gbit,1us'
refused "compare slow: --lnik .*did you mean" $small --compare 'slow: --lnik 1Gbit,1us'
refused 'link' $small --link 10
refused 'did you mean' $small --glob-batch-size 3

finish
