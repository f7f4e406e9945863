#!/bin/sh
# `redpoll train --machine`: what a run will take, said before it runs, and compared with what it took. usage: train_forecast_test.sh REDPOLL
# shellcheck disable=SC2086 # options are kept as words
set -u
redpoll=$1
. "$(dirname "$0")/../harness/cases.sh"

# A machine as redpoll bench machine -o writes one, without the minute that it takes.
times='"low": 9e9, "high": 2e11, "repeats": 5'
cat >here.json <<END
{"op": "machine", "cpu": "made up", "ranks": 2, "threads": 1, "rank_memory_bytes": 8e9, "items": [
{"what": "product", "name": "fp32", "m": 64, "n": 64, "k": 64, "unit": "flop/s", "value": 2e10, $times},
{"what": "product", "name": "fp32", "m": 512, "n": 512, "k": 512, "unit": "flop/s", "value": 1e11, $times},
{"what": "copy", "bytes": 1e8, "unit": "bytes/s", "value": 1e10, $times}]}
END
awk 'BEGIN {for (i = 0; i < 400; i++) print "the cat sat on the mat and the dog ran home"}' >text.txt
timeout 60 "$redpoll" data tokenize --tokenizer byte --in text.txt --out text >/dev/null || complain 'tokens'

job='--data tokens:text --seq-length 32 --global-batch-size 8 --steps 3 --optimizer adamw --no-eval --no-checkpoint --overwrite'
gpt='gpt2:layers=2,hidden=64,heads=2,vocabulary=257,positions=32'

# runs NAME WORDS...: a run that says what it will take behind its first line.
runs() {
    name=$1
    shift
    timeout 240 "$redpoll" train $job --out "$name" "$@" >out 2>err || complain "$name: $(cat err)"
    if grep -A 1 ' parameters, steps ' out | grep -qE '^predicted: a step in [0-9.]+ [mu]?s \(9 of 10 times .* tokens/s; .* all steps in '; then pass; else
        complain "$name says: $(cat out)"
    fi
    if [ -f "$name/machine.json" ]; then pass; else complain "$name: no machine.json"; fi
}
# sends NAME: what a rank sends in a step is as predicted, to a hundredth.
sends() {
    timeout 60 "$redpoll" report "$1" --json >report.json 2>err || complain "report $1: $(cat err)"
    error=$(sed 's/.*"wire_bytes","unit":"bytes",\([^}]*\)}.*/\1/' report.json | sed 's/.*"error"://')
    if awk -v error="$error" 'BEGIN {exit !(error == "null" || (error < 0.01 && error > -0.01))}'; then pass; else
        complain "$1: bytes sent err by $error: $(cat report.json)"
    fi
}

runs exact --model $gpt -n 2 --link 1Gbit,50us --machine here.json
sends exact
runs q4 --model $gpt -n 2 --link 1Gbit,50us --codec q4 --machine here.json
sends q4
runs neighbours --model $gpt -n 2 --link 1Gbit,50us --strategy gossip:topology=ring --machine here.json
sends neighbours
runs servers --model $gpt -n 2 --link 1Gbit,50us --strategy parameter-server --machine here.json
sends servers
# Stages hand micro-batches on, and share a table; ranks of a layer add up: add a row.
deep='gpt2:layers=5,hidden=64,heads=2,vocabulary=257,positions=32'
while read -r name words; do
    runs "$name" --model $deep -n 2 --link 1Gbit,50us --machine here.json $words
    sends "$name"
done <<'END'
owned --zero 1
parts --micro-batch-size 2
staged --pp 2 --micro-batch-size 2
shared --tp 2
remade --tp 2 --micro-batch-size 2 --recompute
halves --pp 2 --micro-batch-size 2 --schedule zb-h1
folded --pp 2 --micro-batch-size 2 --schedule zb-v
chunks --pp 2 --micro-batch-size 2 --schedule interleaved
layers --tp 2 --micro-batch-size 2
sequences --cp 2
gathered --cp 2 --micro-batch-size 2 --recompute --zero 1
uneven --tp 2 --sequence-parallel --seq-length 31
END
# Ranks that share layers, four of them, and two with replicas or stages.
while read -r name words; do
    runs "$name" --model gpt2:layers=4,hidden=64,heads=4,vocabulary=257,positions=32 -n 4 --machine here.json $words
    sends "$name"
done <<'END'
wide --tp 4
replicas --tp 2 --clip 1
both --tp 2 --pp 2 --micro-batch-size 2
quarters --cp 4
sequences-layers --cp 2 --tp 2 --sequence-parallel
sequences-stages --cp 2 --pp 2 --micro-batch-size 2
END
# A pipeline waits where it fills and drains, and the less where backward passes come in halves.
exposed() { timeout 60 "$redpoll" report "$1" --json | sed 's/.*"exposed_s","unit":"s","predicted":\([^,]*\),.*/\1/'; }
if [ "$(awk "BEGIN { print ($(exposed halves) < $(exposed staged) && $(exposed staged) > 0) }")" = 1 ]; then pass; else
    complain "exposed: staged $(exposed staged), halves $(exposed halves)"
fi

runs alone --model $gpt -n 1 --machine here.json --checkpoint
if grep -q 'the machine was measured with 2 ranks at the same time, and the run has 1' out; then pass; else complain "alone says: $(cat out)"; fi

# It goes on as it began; the machine is a part of its settings.
timeout 240 "$redpoll" train --resume alone --steps 5 >out 2>err
if grep -q '^predicted: a step in ' out; then pass; else complain "--resume says: $(cat out err)"; fi

# ---- nothing is predicted, and nothing starts ----

refused() {
    pattern=$1
    shift
    timeout 60 "$redpoll" train --data synthetic --steps 1 --out none "$@" >out 2>err
    code=$?
    if [ $code -ne 0 ] && head -n 1 err | grep -qE -e "$pattern" && [ ! -e none ]; then pass; else
        complain "$*: ends with $code and '$(cat err)', not '$pattern'"
    fi
}
echo '{"op": "train"}' >other.json
refused 'predicts decoders of transformer blocks, gpt2 and llama; mlp is none' --model mlp --machine here.json
refused 'predicts decoders .* mlp is none' --model mlp -n 2 --machine here.json
refused 'missing.json is missing; redpoll bench machine -o missing.json measures it' --model $gpt --data tokens:text --machine missing.json
refused 'other.json: it is no machine' --model $gpt --data tokens:text -n 2 --machine other.json
refused "machine: .*async-local-sgd" --model $gpt --data tokens:text -n 2 --strategy async-local-sgd --machine here.json

finish
