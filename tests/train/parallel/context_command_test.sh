#!/bin/sh
# Ranks that share sequences by the command line: what goes on with their runs and reads them, what does
# not go together, and what is said when a rank is killed. usage: context_command_test.sh REDPOLL
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1
. "$(dirname "$0")/../../harness/cases.sh"
mark="test-$$"
export REDPOLL_TEST_MARK="$mark" OMP_NUM_THREADS=1

says() {
    if grep -qE -e "$2" "$1"; then pass; else complain "no '$2' in $1: $(tail -n 20 "$1") $(tail -n 20 err)"; fi
}
model=llama:layers=2,hidden=16,heads=4,kv-heads=2,vocabulary=257,positions=16
# trains OUT WORDS...: a few steps of a small LLaMA
trains() {
    to=$1
    shift
    if "$redpoll" train --model $model --data tokens:corpus,validation=5% --seq-length 16 \
        --global-batch-size 8 --micro-batch-size 2 --optimizer sgd --clip 0.5 --threads 1 --eval-images 8 --log-every 1 --out "$to" "$@" \
        >out 2>err; then pass; else complain "$*: $(cat err)"; fi
}
# near WHAT A B: numbers of two files, a line each, are within a millionth of each other
near() {
    if paste "$2" "$3" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-6 * $1) bad = 1; n++ } END { exit bad || !n }'; then
        pass
    else
        complain "$1: $(paste "$2" "$3")"
    fi
}
losses() {
    grep -o '"loss":[^,]*' "$1/metrics.jsonl" | cut -d: -f2
}

i=0
while [ $i -lt 200 ]; do
    echo "the red poll trains on seed $i."
    i=$((i + 1))
done >text
"$redpoll" data tokenize --tokenizer byte --in text --out corpus >out 2>err || complain "$(cat err)"

# ---- one training, in one layout and another ----
trains serial --steps 4
trains run --steps 1 --cp 2 -n 2
says out '2 ranks share each sequence: rank 0 has 8 of 16 tokens, in two pieces'
says out '1 replica of 2 ranks that share each sequence'
# goes_on PATTERN WORDS...
goes_on() {
    pattern=$1
    shift
    "$redpoll" train --resume run "$@" >out 2>err || complain "$*: $(cat err)"
    says out "$pattern"
}
goes_on '1 replica of 2 ranks that share each layer, times 2 ranks that share each sequence' --steps 2 --tp 2 -n 4
goes_on '2 replicas of 2 ranks that share each sequence' --steps 3 --tp 1 --dp 2 -n 4 --zero 1
"$redpoll" report run --markdown >out 2>err || complain "$(cat err)"
says out '4: dp 2, cp 2'
if grep -q '"replicas":2,"tensor_ranks":1,"stages":1,"context_ranks":2' run/metrics.jsonl; then pass; else complain "$(head -c 600 run/metrics.jsonl)"; fi
goes_on 'saved by 4 ranks, continued by 1' --steps 4 --cp 1 --dp 1 -n 1
losses serial >wanted
losses run >had
near losses wanted had

# ---- what reads its checkpoint ----
for run in run serial; do
    "$redpoll" eval --model $run 2>err | grep -o 'perplexity [0-9.]*' >$run.eval || complain "$(cat err)"
    "$redpoll" generate --model $run --prompt 'the red' --max-new-tokens 4 --temperature 0 >$run.text 2>err || complain "$(cat err)"
done
if [ -s run.eval ] && cmp -s run.eval serial.eval; then pass; else complain "$(cat run.eval serial.eval)"; fi
if cmp -s run.text serial.text; then pass; else complain "other texts: $(cat run.text serial.text)"; fi

# ---- labels that are left out: prompts, of which some ranks have nothing else ----
i=0
while [ $i -lt 40 ]; do
    echo "{\"prompt\": \"say $i and then more\", \"completion\": \"ok$i\"}"
    i=$((i + 1))
done >pairs.jsonl
for n in 1 4; do
    "$redpoll" train --model llama:layers=1,hidden=16,heads=4,vocabulary=257,positions=32 --data pairs:pairs.jsonl,tokenizer=byte --seq-length 32 \
        --global-batch-size 8 --micro-batch-size 2 --optimizer sgd --clip 0.5 --threads 1 --steps 3 --no-eval --log-every 1 --cp $n -n $n --out pairs$n \
        >out 2>err || complain "pairs: $(cat err)"
    losses pairs$n >pairs$n.loss
done
near 'labels that are left out' pairs1.loss pairs4.loss

# ---- against one rank, by the command that says so ----
"$redpoll" verify --model $model --data tokens:corpus --seq-length 16 --optimizer adamw --clip 1 --cp 2 -n 4 --global-batch-size 8 \
    --micro-batch-size 2 --threads 1 --steps 2 >out 2>err || complain "verify: $(cat out err)"
says out 'layout: 4 ranks: 2 replicas of 2 ranks that share each sequence'
says out 'ranks that share a sequence add up'
says out 'loss .* (within|bit-equal)'

# ---- nanotron's files ----
cat >tiny.yaml <<END
model: {dtype: float32, model_config: {hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2,
  intermediate_size: 32, vocab_size: 257, max_position_embeddings: 16}}
parallelism: {dp: 1, pp: 1, pp_engine: 1f1b, tp: 1, tp_mode: ALL_REDUCE, context_parallel_size: 2}
optimizer: {zero_stage: 0}
tokens: {sequence_length: 16, micro_batch_size: 4, batch_accumulation_per_replica: 2, train_steps: 1}
END
"$redpoll" train --config tiny.yaml --data tokens:corpus --threads 1 --no-eval --out tiny >out 2>err || complain "$(cat err)"
says out '2 ranks share each sequence'
if grep -q 'nothing' out; then complain "of what happens anyway: $(cat out)"; else pass; fi
# Replicas are of as many ranks as tp, pp and context_parallel_size make.
sed -i 's/tp: 1, tp_mode: ALL_REDUCE/tp: 2, tp_mode: REDUCE_SCATTER/' tiny.yaml
"$redpoll" train --config tiny.yaml --data tokens:corpus --threads 1 --no-eval --out both >out 2>err || complain "$(cat err)"
if grep -q 'the file says dp' out; then complain "$(cat out)"; else pass; fi
"$redpoll" train --config tiny.yaml --tp 1 --data tokens:corpus --threads 1 --no-eval --out other >out 2>err || complain "$(cat err)"
says out 'the file says dp: 1, and 4 ranks with --tp 1, --cp 2 and --pp 1 are 2 replicas; -n 2 makes as many as it says'
says out 'sequence-parallel changes nothing: no ranks share a layer'
if [ "$(grep -c 'changes nothing' out)" -eq 1 ]; then pass; else complain "not said once: $(cat out)"; fi

# ---- what a rank holds ----
"$redpoll" info --model gpt2:layers=2,hidden=64,heads=4,vocabulary=256,positions=1024 --seq-length 1024 --cp 4 >out 2>err || complain "$(cat err)"
says out 'a rank has 256 of 1024 tokens of each sequence'
"$redpoll" info --model bert:layers=2,hidden=64,heads=4,vocabulary=261 --seq-length 100 --cp 8 >out 2>err || complain "$(cat err)"
says out 'a rank has 14 of 100 tokens of each sequence, at most'

# ---- what does not go together: add a row ----
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
refused 'cp 2 and 3 ranks: .*-n 2 or -n 4 would fit' --model gpt2 --cp 2 -n 3
refused 'tp 2 --cp 2 --pp 2 and 12 ranks: a replica takes 8 of them; -n 8 or -n 16 would fit' --model gpt2 --tp 2 --cp 2 --pp 2 -n 12
refused 'dp 3 x 2 ranks a replica is 6, and there are 4; -n 6 would fit' --model gpt2 --cp 2 --dp 3 -n 4
refused 'sequences of 16 tokens over 9 context ranks, two pieces each: 18 tokens would fit, or --cp 8' --model gpt2 --cp 9 -n 9
short=gpt2:layers=1,hidden=16,heads=4,vocabulary=257,positions=16
refused 'sequences of 16 tokens over 9 context ranks, .*: --cp 8 with --seq-length 16, or positions=18 with --seq-length 18 would fit' --model $short --cp 9 -n 9
refused 'sequences of 32 tokens, and the model has 16 positions: use --seq-length 16 or less' --model $short --seq-length 32 --cp 2 -n 2
refused 'vit has its samples on one rank as wholes; .*gpt2, llama.*bert; --tp N with --sequence-parallel shares its tokens, of any number' \
    --model vit --data synthetic --cp 2 -n 2
refused 'transformer-xl has its samples' --model transformer-xl --cp 2 -n 2
refused 'resnet20 has its samples' --model resnet20 --data synthetic --cp 2 -n 2
refused 'strategy gossip: .*all-reduce is for them' --model gpt2 --cp 2 -n 2 --strategy gossip
refused 'strategy local-sgd' --model gpt2 --cp 2 -n 2 --strategy local-sgd:every=2
refused 'bits are chosen' --model gpt2 --cp 2 --tp 2 -n 4 --codec auto
refused 'cp: .0. is out of range' --model gpt2 --cp 0 -n 2
"$redpoll" info --model gpt2 --seq-length 12 --cp 8 >out 2>err && complain 'info takes 12 tokens over eight ranks'
says err 'sequences of 12 tokens over 8 context ranks, two pieces each: 16 tokens would fit, or --cp 6'

# What is offered is taken.
if "$redpoll" train --model $short --data tokens:corpus --seq-length 10 --global-batch-size 2 --threads 1 --steps 1 --no-eval --cp 5 -n 5 --out offered \
    >out 2>err; then pass; else complain "$(cat err)"; fi

# ---- a rank is killed: all others say which one ----
# find_rank RANK: its process
find_rank() {
    for process in $(grep -lzx "REDPOLL_TEST_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3); do
        if tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | grep -qx "RANK=$1"; then echo "$process"; fi
    done
}
timeout 200 "$redpoll" train --model $model --data tokens:corpus --seq-length 16 --threads 1 \
    --global-batch-size 8 --micro-batch-size 2 --cp 2 -n 4 --steps 1000000 --no-eval --no-checkpoint --log-every 1 --out killed >out 2>err &
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
    says err "^$begin.*lost: rank 3, context 1 of replica 1"
done
finish
