#!/bin/sh
# `redpoll verify`: layouts that are the training of one rank, layouts that are spoiled on purpose,
# and what it refuses. usage: verify_test.sh REDPOLL
# shellcheck disable=SC2086,SC2154 # options are kept as words; $folder is that of cases.sh
set -u
redpoll=$1
. "$(dirname "$0")/../harness/cases.sh"
mkdir temporary
TMPDIR=$folder/temporary
export TMPDIR

awk 'BEGIN {for (i = 0; i < 60; i++) print "the cat sat on the mat and the dog ran home"}' >text.txt
timeout 60 "$redpoll" data tokenize --tokenizer byte --in text.txt --out text >/dev/null || complain 'tokens'

sizes='layers=4,hidden=32,heads=2,vocabulary=257,positions=16'
text='--data tokens:text --seq-length 16 --global-batch-size 16 --optimizer adamw --lr-warmup-steps 2'
pictures='--data synthetic --train-images 64 --test-images 8 --global-batch-size 16'

# ---- layouts: add a row ----

# expects CODE PATTERN WORDS...: it ends so, and says the pattern on a line of its output, in which
# a broken line is one.
expects() {
    wanted=$1 pattern=$2
    shift 2
    timeout 240 "$redpoll" verify "$@" >out 2>err
    code=$?
    awk '/^  [^ ]/ && !/bit-equal|within|differs|DIFFERS/ { printf "%s", substr($0, 2); next }
         { printf "\n%s", $0 } END { print "" }' out >lines
    if [ $code -eq "$wanted" ] && grep -qE -e "$pattern" lines; then pass; else
        complain "$*: ends with $code, not $wanted, or does not say '$pattern': $(cat out err)"
    fi
    if [ -z "$(ls temporary)" ]; then pass; else complain "$*: leaves $(ls temporary)"; fi
}
equal='^this layout is the training of one rank, bit for bit'
within='^this layout is the training of one rank, within its bounds'
spoiled='^this layout is NOT the training of one rank'

llama="--model llama:$sizes,kv-heads=1 $text"
expects 0 "$equal" $llama -n 1 --steps 2
expects 0 "$equal" $llama -n 4 --zero 1 --clip 1 --steps 2
expects 0 "$equal" $llama -n 4 --zero 3 --clip 1 --steps 2
expects 0 'each micro-batch are summed over the replicas, and then' $llama -n 2 --zero 2 --micro-batch-size 4 --steps 2
expects 0 "$equal" $llama --pp 2 -n 2 --micro-batch-size 4
expects 0 "$equal" $llama --pp 3 -n 3 --micro-batch-size 4 --schedule zb-h1 --recompute
expects 0 'each replica adds up the gradients of its own micro-batches first' $llama --pp 2 -n 4 --micro-batch-size 4
expects 0 'a table is used at both ends of the model' --model gpt2:$sizes $text --pp 2 -n 2 --micro-batch-size 8
expects 0 'a parameter is used at several places' --model gpt2:$sizes $text -n 2
expects 0 'the named all-reduce does not add up in the order of ranks' $llama -n 4 --algorithm ring --steps 2
expects 0 'ranks that share a layer add up' $llama --tp 2 -n 2 --clip 1 --micro-batch-size 4
expects 0 '^layout: 4 ranks: 2 replicas of 2 ranks that share each layer' --model gpt2:$sizes,dropout=0.1 $text --tp 2 -n 4 --zero 1 --steps 2
expects 0 "$within" --model bert:layers=4,hidden=32,heads=2,vocabulary=261,positions=16 --data masked:text --seq-length 16 --global-batch-size 16 --tp 2 --pp 2 -n 4 --micro-batch-size 4 --steps 2
expects 0 'ranks that share a sequence add up' --model bert:layers=2,hidden=16,heads=2,vocabulary=261,positions=15,dropout=0.1 --data masked:text --seq-length 15 --global-batch-size 8 --cp 2 -n 2 --micro-batch-size 4 --steps 2
expects 0 "$equal" --model resnet20:width=2 $pictures --pp 2 -n 2 --micro-batch-size 8 --steps 2
expects 0 'running statistics .* none  differs' --model resnet20:width=2 $pictures -n 2 --steps 2
expects 0 'promises no bound' --model mlp:hidden=32 $pictures -n 2 --codec q4
expects 0 "$within" --model mlp:hidden=32 $pictures -n 2 --codec q8 --tolerance 0.5
# The data end with 6 pictures, of which replicas have three each.
expects 0 'is short, and replicas divide it into other parts' --model mlp:hidden=32 --data synthetic --train-images 22 \
    --test-images 8 --global-batch-size 16 -n 2 --steps 3

# ---- spoiled on purpose ----

expects 1 "$spoiled: the loss of step 1 differs by" $llama -n 2 --against=--seed=2
# Weight decay leaves biases and scales alone on one rank: the first of them is named.
expects 1 'first tensor that differs: model.layers.0.input_layernorm.weight after step 1: element [0-9]+ is [-0-9.e]+, and .* \(on rank 0, stage 0\)' \
    $llama --pp 2 -n 2 --micro-batch-size 8 --against=--decay=weights
expects 1 "first tensor that differs: model.embed_tokens.weight after step 1: .* \(on rank [01], stage 0\)" $llama --pp 2 -n 2 --micro-batch-size 4 \
    --against=--lr-warmup-steps=3
expects 1 "$spoiled" --model mlp:hidden=32 $pictures -n 2 --codec q2 --steps 2 --tolerance 1e-6
expects 1 "$spoiled" $llama --pp 2 -n 4 --micro-batch-size 4 --tolerance 0
expects 1 "$spoiled: the optimizer's state of step 1" $llama --pp 2 -n 4 --micro-batch-size 4 --against=--beta1=0.8

# ---- a file, folders, programs ----

cat >small.yaml <<END
model: {name: "mlp:hidden=32"}
data: {dataset: synthetic, train_images: 64, test_images: 8}
tokens: {global_batch_size: 16, train_steps: 100}
parallelism: {dp: 2}
checkpoints: {checkpoints_path: elsewhere, checkpoint_interval: 2}
END
expects 0 '^  parameters +8 +0 .* bit-equal' --config small.yaml --steps 3 --out kept
for file in kept/layout/metrics.jsonl kept/one-rank/model.safetensors kept/layout-logs/rank-1.log; do
    if [ -f $file ]; then pass; else complain "--out: no $file"; fi
done
if [ ! -e elsewhere ]; then pass; else complain 'the folder of the file was written to'; fi
expects 0 '"bit_equal":true,"within":true' --config small.yaml --steps 1 --json
expects 1 '"first_tensor":.*"name":"[a-z0-9.]*".*"rank":[01]' --config small.yaml --steps 1 --json --against=--seed=5
# Runs that diverge are compared up to there, if they do at the same step; what their ranks have
# printed stays. diverges PATTERN WORDS...
diverges() {
    pattern=$1
    shift
    timeout 240 "$redpoll" verify $llama -n 2 --optimizer sgd --steps 4 "$@" >out 2>err
    code=$?
    tr -s '\n ' ' ' <out >lines
    if [ $code -eq 1 ] && grep -qE -e "$pattern" lines && grep -q 'diverged' err && [ "$(cd temporary/* && echo *)" = 'layout-logs one-rank-logs' ]; then pass; else
        complain "runs that diverge, $*: ends with $code, leaves $(ls temporary/*): $(cat out err)"
    fi
    rm -rf temporary/*
}
diverges 'parameters [1-9].* tensors of 1 step;.*is the training of one rank, bit for bit both runs end at the same step: training has diverged at step 2: ' --lr 1e30
diverges 'nothing was compared: both runs end at the same step: training has diverged at step 1: ' --lr 1e30 --weight-decay 1e12
diverges "${spoiled#^}: its training has diverged at step 2: .*, and that of one rank has not diverged" --lr 1e30 --against=--lr=.01
diverges "${spoiled#^}: it has not diverged, and on one rank training has diverged at step 2: " --lr .01 --against=--lr=1e30
diverges "${spoiled#^}: its training has diverged at step 2: .*, and that of one rank at step 1" --lr 1e30 --against=--weight-decay=1e12

# ---- refused by the ranks: the reason is shown whichever of them ends first ----

for turn in 1 2 3; do
    timeout 60 "$redpoll" verify --model llama:layers=1,hidden=32,heads=2,vocabulary=50,positions=16 $text -n 4 --out "refused-$turn" >out 2>err
    code=$?
    if [ $code -eq 2 ] && grep -qE 'have a vocabulary of .* tokens, the model one of 50' err; then pass; else
        complain "a refusal of ranks ends with $code and '$(cat err)'"
    fi
done

# ---- refused before anything starts ----

refused() {
    pattern=$1
    shift
    timeout 60 "$redpoll" verify "$@" >out 2>err
    code=$?
    if [ $code -eq 2 ] && head -n 1 err | grep -qE -e "$pattern" && [ -z "$(ls temporary)" ]; then pass; else
        complain "$*: ends with $code and '$(cat err)', not '$pattern'"
    fi
}
refused '-n N is missing: the number of ranks' $llama
refused 'strategy gossip is another method .* verify compares all-reduce' $llama -n 2 --strategy gossip:topology=ring
refused 'strategy local-sgd is another method' $llama -n 2 --strategy local-sgd
refused 'leave it out' $llama -n 2 --resume kept/layout
refused 'split by-label gives ranks samples of their own' --model mlp $pictures -n 2 --split by-label
refused 'mixup blends .* leave it out' --model mlp $pictures -n 2 --mixup 0.2
refused 'not divisible by 3 ranks' $llama -n 3
refused 'can be cut into 5 parts; --pp 5 would fit' $llama -n 8 --pp 8 --micro-batch-size 2
refused "unknown option '--stepps'" $llama -n 2 --stepps 3
refused '--tolerance' $llama -n 2 --tolerance=-1
refused '--steps' $llama -n 2 --steps 0
refused "unexpected word 'layout'" $llama -n 2 layout
refused 'kept/layout holds a run already' --config small.yaml --steps 1 --out kept

finish
