#!/bin/sh
# `redpoll plan gossip` as its users meet it. usage: plan_gossip_test.sh REDPOLL
# shellcheck disable=SC2086,SC2154 # options are kept as words; $folder is that of cases.sh
set -u
redpoll=$1
guide=$(cd "$(dirname "$0")/../../docs" && pwd)/topologies.md
. "$(dirname "$0")/../harness/cases.sh"

# shows PATTERN WORDS...: the output has a line like this
shows() {
    pattern=$1
    shift
    timeout 60 "$redpoll" plan gossip --size 1MB "$@" >out 2>err || complain "$*: $(cat err)"
    if grep -qE -e "$pattern" out; then pass; else complain "$*: no '$pattern' in $(cat out)"; fi
}
also() {
    if grep -qE -e "$1" out; then pass; else complain "no '$1' in $(cat out)"; fi
}
# refused PATTERN WORDS...: exit code 2 and one line that says why
refused() {
    pattern=$1
    shift
    timeout 60 "$redpoll" plan gossip "$@" >out 2>err
    code=$?
    if [ $code -eq 2 ] && [ ! -s out ] && head -n 1 err | grep -qE -e "$pattern"; then pass; else
        complain "$*: ends with $code and '$(head -n 1 err)', not '$pattern'"
    fi
}

# ---- what is printed ----

shows '^gossip by base, 5 ranks, 1.0 MB as fp32' --topology base -n 5
also '^ +2  4/5 +3-4$'
also '^ +1/2 +0-1$'
also '^ +4  1/2 +0-2 1-3$'
also 'doubly stochastic'
also '^  exact average after 5 rounds, proved by fractions$'
also '^  algorithms    awc, atc, gradient-tracking, push-sum, push-diging; not'
also 'exact-diffusion \(diverges\), choco \(changes\)$'
also '^predicted: a round .* 1\.00 MB sent by the busiest rank'
also 'an all-reduce by [a-z-]+ .*, 1\.60 MB$'
shows '^ +0 +16 +1 +8  0\.5$' --topology base --ranks 24 # a summary, 8 ranks idle
also '^--all lists every edge$'
shows '^    3  1/2 +0-3 1-4 2-5 6-9 7-10 8-11 12-15 13-16 14-17 18-21 19-22 20-23$' -t base -n 24 --all
grep -q 'lists every edge' out && complain '--all still offers --all'
shows '^ +kept +0:1/5 1:1/2' -t star:weights=sender -n 5
also 'columns are 1, rows are not'
also '^    0  1/2 +1>0 2>0 3>0 4>0$'
shows 'biased' -t star:weights=uniform -n 5
also 'push-sum \(biased\)'
shows 'not exact-diffusion \(diverges\),$' -t ring:direction=left -n 16
also 'gradient-tracking \(unstable\), push-diging \(unstable\)$'
shows '^  algorithms    awc, atc, exact-diffusion, choco, gradient-tracking, push-sum,$' -t ring -n 5
shows 'A to B' -t ceca -n 5
shows 'drawn anew in each step' -t equi -n 5
shows 'not computed for more than 256 ranks' -t base -n 300
also 'not looked at for more than 256 ranks'
shows 'nobody sends' -n 1
shows '12.*MB encoded' -n 4 --codec q4 --size 100MB
shows 'on 2 hosts.*inside 5GB,2us' -n 8 --hosts 2 -t hierarchical:local=4,machines=ring

# ---- JSON ----

if command -v python3 >noise; then
    cat >check.py <<'END'
import json, sys
from fractions import Fraction
plan = json.load(sys.stdin)
n = plan["ranks"]
x = [[Fraction(int(i == j)) for j in range(n)] for i in range(n)]
for edges in plan["rounds"]:
    y = [[Fraction(0)] * n for _ in range(n)]
    for e in edges:
        for j in range(n):
            y[e["to"]][j] += Fraction(e["weight"]) * x[e["from"]][j]
    x = y
exact = all(v == Fraction(1, n) for row in x for v in row)
assert exact == (plan["exact_rounds"] == len(plan["rounds"])), plan
assert plan["row_stochastic"] and plan["column_stochastic"] and plan["connected"]
fits = {name: each["fits"] for name, each in plan["algorithms"].items()}
assert fits["atc"] and fits["awc"] and fits["gradient-tracking"], fits
assert all(each["fits"] == (each["verdict"] in ("fits", "small rates")) for each in plan["algorithms"].values())
assert fits["choco"] == (plan["period"] == 1), fits
assert not fits["exact-diffusion"] or plan["algorithms"]["exact-diffusion"]["factor_per_step"] < 1
assert plan["round_s"] > 0 and plan["all_reduce_s"] > 0 and plan["spectral_gap"] > 0
END
    for words in 'base -n 7' 'base:k=2 -n 24 --all' 'one-peer-exponential -n 8' 'one-peer-exponential -n 6' \
        'ring -n 5' 'hierarchical:local=2 -n 10'; do
        "$redpoll" plan gossip --size 1MB --json -t $words >out
        if python3 check.py <out 2>err; then pass; else complain "--json -t $words: $(tail -n 1 err)"; fi
    done
    "$redpoll" plan gossip --size 1MB --json -n 40 >out
    grep -q '"rounds"' out && complain 'edges of 40 ranks are listed unasked'
    "$redpoll" plan gossip --size 1MB --json -n 300 >out
    also '"spectral_gap":null,"factor_per_round":null,"exact_rounds":null,"algorithms":null'
else
    echo "skipped the JSON: there is no python3 here"
fi

# ---- the files that the documentation shows ----

# The indented lines from the one that begins with $1 on.
example() { awk -v first="    $1" 'index($0, first) == 1 { on = 1 } on && !/^    / { exit } on' "$guide"; }
example '# graph.txt' >graph.txt
example matrix >matrix.txt
shows 'symmetric: averages' -t file:graph.txt -n 4
also '0-1 1-2 0-3 2-3|0-1 0-3 1-2 2-3'
shows '1>0 2>1 0>2|0>2 1>0 2>1' -t file:matrix.txt -n 3

# ---- what is refused ----

printf 'undirected\nedges\n0 1\n2 3\n' >apart.txt
printf 'edges\n0 1 -1/2\n1 0\n' >negative.txt
printf 'ranks 4\nedges\n0 1\n' >four.txt
printf 'ring\n' >word.txt
refused "did you mean 'ring'" -t rnig
refused 'nothing of rank 0 ever reaches rank 2' -t file:apart.txt -n 4
refused "line 2: the weight -1/2 is negative" -t file:negative.txt -n 2
refused 'line 1: the graph is of 4 ranks; the world has 5' -t file:four.txt -n 5
refused "'ring' is none of: ranks N" -t file:word.txt -n 5
refused 'missing' -t file:nowhere.txt -n 5
refused "$folder/?" -t "file:$folder" -n 5
refused '7 ranks do not go in pairs' -t ceca:ports=1 -n 7
refused 'no whole machines of 4' -t hierarchical:local=4 -n 6
refused "k: '0' is out of range" -t base:k=0
refused 'is too large; 1 to 4096' -n 5000
refused 'more than 4194304 edges' -t full -n 4096
refused '--hosts 9 is more than the 8 ranks' --hosts 9
refused 'link' --link 0Gbit
refused "unexpected word 'base'" base
refused 'codec' --codec q9

# Whoever mistypes `gossip` is told, and a variable is heard.
"$redpoll" plan gosip 2>err && complain 'plan gosip works'
grep -q "did you mean 'gossip'" err || complain "plan gosip: $(cat err)"
REDPOLL_TOPOLOGY=ring "$redpoll" plan gossip --size 1MB >out && also '^gossip by ring, 8 ranks'
"$redpoll" info >out && also '^  one-peer-exponential'
"$redpoll" info --json >out && also '"topologies":\["ring","mesh",'

finish
