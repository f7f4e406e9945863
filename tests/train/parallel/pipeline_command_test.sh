#!/bin/sh
# Pipelines by the command line: what reads their runs, and what is said when a rank is killed. usage: pipeline_command_test.sh REDPOLL
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1
. "$(dirname "$0")/../../harness/cases.sh"
mark="test-$$"
export REDPOLL_TEST_MARK="$mark" OMP_NUM_THREADS=1

says() {
    if grep -qE -e "$2" "$1"; then pass; else complain "no '$2' in $1: $(tail -n 20 "$1") $(tail -n 20 err)"; fi
}
# trains OUT WORDS...: a few steps of a small LLaMA
trains() {
    to=$1
    shift
    if "$redpoll" train --model llama:layers=3,hidden=16,heads=2,vocabulary=257,positions=16 --data tokens:corpus,validation=5% --seq-length 16 \
        --global-batch-size 8 --micro-batch-size 2 --optimizer adamw --clip 0.5 --threads 1 --eval-images 8 --log-every 1 --out "$to" "$@" \
        >out 2>err; then pass; else complain "$*: $(cat err)"; fi
}
losses() {
    grep -o '"loss":[^,]*' "$1/metrics.jsonl"
}

i=0
while [ $i -lt 200 ]; do
    echo "the red poll trains on seed $i."
    i=$((i + 1))
done >text
"$redpoll" data tokenize --tokenizer byte --in text --out corpus >out 2>err || complain "$(cat err)"

# ---- one training, in one layout and another ----
trains serial --steps 7
trains run --steps 2 --pp 3 -n 3 --schedule zb-h1
"$redpoll" train --resume run --steps 3 --pp 1 -n 1 >out 2>err || complain "$(cat err)"
says out 'saved by 3 stages, continued by 1'
"$redpoll" train --resume run --steps 4 --pp 2 -n 2 --schedule 1f1b >out 2>err || complain "$(cat err)"
says out 'a step .*MB sent'
"$redpoll" train --resume run --steps 5 --pp 2 -n 2 --schedule auto >out 2>err || complain "$(cat err)"
says out 'schedule auto takes [a-z0-9-]*: a step of .* ms by its price'
says out 'over 2 stages: .* of the time'
"$redpoll" train --resume run --steps 6 >out 2>err || complain "$(cat err)"
says out 'schedule auto goes on with [a-z0-9-]*, which this run took before'
"$redpoll" train --resume run --steps 7 --schedule 1f1b --stage-cut model.layers.1 >out 2>err || complain "$(cat err)"
says out '1f1b over 2 stages: model.embed_tokens to model.layers.0'
losses serial >wanted
losses run >had
if cmp -s wanted had; then pass; else complain "losses: $(diff wanted had)"; fi

# ---- activations travel encoded, whatever else ranks share ----
for layout in '--pp 2 --cp 2 -n 4' '--pp 2 --zero 3 -n 4'; do
    # shellcheck disable=SC2086 # several words
    trains coded --steps 2 --overwrite --activations-codec q8 $layout
    says out 'activations travelled by q8: off by 0\.[0-9]* %, their gradients by [01]\.[0-9]* %'
    if grep -q '"picture_step":2,' coded/metrics.jsonl; then pass; else complain "$layout: no picture of a step"; fi
    losses coded >had
    if paste -d: wanted had | head -n 2 | awk -F: '{ d = $2 - $4; exit !(d < 0.01 && d > -0.01) }'; then pass; else complain "$layout: $(cat had)"; fi
done

# ---- nothing is left to train: what there is is evaluated, in any layout ----
"$redpoll" train --resume run --steps 7 --pp 1 -n 1 >a 2>err || complain "$(cat err)"
for layout in '--steps 7' '--steps 3' '--steps 7 --schedule zb-v' '--steps 7 --schedule zb-h1 -n 4' '--steps 7 --pp 3 -n 3'; do
    cp -r run finished
    # shellcheck disable=SC2086 # several words
    "$redpoll" train --resume finished --pp 2 -n 2 --stage-cut= $layout >out 2>err || complain "$layout: $(cat out err)"
    says out 'nothing was left to train'
    if [ "$(grep 'after step 7' a)" = "$(grep 'after step 7' out)" ]; then pass; else complain "$layout: $(cat a out)"; fi
    rm -r finished
done

# ---- what reads its checkpoint ----
"$redpoll" eval --model run >a 2>err || complain "$(cat err)"
"$redpoll" eval --model serial >b 2>err || complain "$(cat err)"
says a 'perplexity'
if [ "$(grep perplexity a)" = "$(grep perplexity b)" ]; then pass; else complain "$(cat a b)"; fi
"$redpoll" generate --model run --prompt 'the red' --max-new-tokens 4 --temperature 0 >a 2>err || complain "$(cat err)"
"$redpoll" generate --model serial --prompt 'the red' --max-new-tokens 4 --temperature 0 >b 2>err || complain "$(cat err)"
if cmp -s a b; then pass; else complain "other texts: $(cat a b)"; fi
# exports RUN FOLDER: all of its parameters
exports() {
    "$redpoll" export --model "$1" --to "hf:$2" >out 2>err || complain "$(cat err)"
    says out 'LlamaForCausalLM of 48272 parameters after 7 steps'
}
"$redpoll" train --resume serial --steps 7 >a 2>err || complain "$(cat err)"
exports serial serial.hf
exports run hf
same serial.hf/model.safetensors hf/model.safetensors
# Such a folder is where ranks of any layout start from.
for layout in '-n 1' '-n 2 --pp 2' '-n 4 --pp 2 --tp 2' '-n 4 --pp 2 --tp 2 --schedule zb-v' '-n 2 --zero 3' '-n 2 --pp 2 --zero 1'; do
    # shellcheck disable=SC2086 # several words
    "$redpoll" train --model hf:hf --data tokens:corpus,validation=5% --seq-length 16 --global-batch-size 8 --threads 1 --steps 1 --eval-images 8 \
        --out from $layout >out 2>err || complain "$layout: $(cat out err)"
    losses from >"from.loss"
    [ -s first.loss ] || cp from.loss first.loss
    if paste -d: first.loss from.loss | awk -F: '{ d = $2 - $4; exit !(d < 1e-4 && d > -1e-4) }'; then pass; else complain "$layout: $(cat first.loss from.loss)"; fi
    rm -rf from
done

# ---- what does not go together ----
# refused WHAT WORDS...: it is said once, whatever the number of ranks
refused() {
    what=$1
    shift
    "$redpoll" train --data tokens:corpus --seq-length 16 --steps 1 --out refused "$@" >out 2>err
    code=$?
    if [ $code -eq 2 ]; then pass; else complain "$*: exit code $code, not 2"; fi
    says err "$what"
    if [ "$(grep -cE "^(\[[0-9]+\] )?redpoll: [^']" err)" -eq 1 ]; then pass; else complain "$*: not said once: $(cat err)"; fi
}
refused 'pp 2 and 3 ranks: .*-n 2 or -n 4 would fit' --model gpt2 --pp 2 -n 3
refused 'pp 2 and 1 rank: .*-n 2 would fit' --model gpt2 --pp 2 -n 1
refused 'can be cut into 4 parts; --pp 4 would fit' --model llama:layers=3,hidden=16,heads=2,vocabulary=257,positions=16 --pp 5 -n 5
refused 'can be cut into 4 parts' --model llama:layers=3,hidden=16,heads=2,vocabulary=257,positions=16 --pp 5 -n 5 --schedule auto
refused 'makes 3 parts, and 1f1b over 2 stages has 2: name 1 layer' --model llama:layers=3,hidden=16,heads=2,vocabulary=257,positions=16 --pp 2 -n 2 \
    --stage-cut model.layers.1,model.layers.2
refused "strategy gossip: .*all-reduce is for them" --model gpt2 --pp 2 -n 2 --strategy gossip
refused 'its memory of segments' --model transformer-xl --pp 2 -n 2
refused 'bits are chosen' --model gpt2 --pp 2 -n 2 --codec auto
refused 'sample-every with --pp 2' --model gpt2 --pp 2 -n 2 --sample-every 1 --prompt a
refused 'with --tp 1 --pp 1 that is nothing' --model gpt2 -n 2 --cp 2 --activations-codec q8
refused 'zeros for all other activations' --model gpt2 --pp 2 -n 2 --activations-codec topk
refused 'schedule' --model gpt2 --pp 2 -n 2 --schedule zb-h3
refused "no stage can begin with 'h.9' there; in this order can h.1, ln_f" --model gpt2:layers=2,hidden=16,heads=2,vocabulary=257,positions=16 --pp 2 -n 2 --stage-cut h.9
refused 'not made of micro-batches of 3 on 2 replicas; --global-batch-size 24 is' --model gpt2 --pp 2 -n 4 --global-batch-size 20 --micro-batch-size 3
refused 'a global batch of 5 is not divisible by 2 replicas; --global-batch-size 6 is' --model gpt2 --pp 2 -n 4 --global-batch-size 5
refused 'a global batch of 5 is not divisible by 1 replica x 2 micro-batches; --global-batch-size 6 is' --model gpt2 --tp 2 -n 2 --global-batch-size 5 --accumulate 2

# ---- what no host has memory for ----
# lacks WORDS...: refused on every rank, before anything is allocated, and said once
lacks() {
    "$redpoll" train --model gpt2:layers=24,hidden=65536,heads=1024,vocabulary=257,positions=16 --data tokens:corpus --seq-length 16 --steps 1 --no-eval \
        --no-checkpoint --optimizer adamw --threads 1 --global-batch-size 8 --out lacks "$@" >out 2>err
    code=$?
    if [ $code -eq 1 ]; then pass; else complain "$*: exit code $code, not 1"; fi
    says err "needs [0-9.]* GB, of which [0-9.]* GB for (optimizer's state|parameters|gradients); the [0-9] ranks? of its host need [0-9.]* GB more than"
    says err 'no-memory-check starts all the same'
    if [ "$(grep -c 'no-memory-check' err)" -eq 1 ]; then pass; else complain "$*: not said once: $(cat err)"; fi
}
lacks -n 1
lacks -n 2 --zero 1
lacks -n 2 --pp 2 --micro-batch-size 2
says err 'rank [01], stage [01] needs'
lacks -n 2 --pp 2 --micro-batch-size 2 --schedule auto

# ---- a rank is killed: all others say which one ----
# find_rank RANK: its process
find_rank() {
    for process in $(grep -lzx "REDPOLL_TEST_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3); do
        if tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | grep -qx "RANK=$1"; then echo "$process"; fi
    done
}
timeout 200 "$redpoll" train --model vit:patch=14,layers=2,hidden=12,heads=3 --data synthetic --train-images 240 --test-images 40 --threads 1 \
    --global-batch-size 24 --micro-batch-size 3 --pp 2 -n 4 --steps 1000000 --no-eval --no-checkpoint --log-every 1 --out killed >out 2>err &
run=$!
tries=0
while ! grep -q '"step":3,' killed/metrics.jsonl 2>/dev/null && [ $tries -lt 1000 ] && kill -0 $run; do
    sleep 0.05
    tries=$((tries + 1))
done
process=$(find_rank 3)
# shellcheck disable=SC2086 # one, or none
kill -KILL $process || complain 'no rank 3 to kill'
wait $run
says err 'rank 3 was killed by signal 9'
for rank in 0 1 2; do
    if [ $rank -eq 0 ]; then begin='redpoll: '; else begin="\\[$rank\\] redpoll: "; fi
    says err "^$begin.*lost: rank 3, stage 1 of replica 1"
done
finish
