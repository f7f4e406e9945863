#!/bin/sh
# Ranks that share layers by the command line: what goes on with their runs and reads them, what does
# not go together, and what is said when a rank is killed. usage: tensor_command_test.sh REDPOLL
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1
examples=$(cd "$(dirname "$0")/../../../examples" && pwd)
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
trains serial --steps 5
trains run --steps 1 --tp 2 -n 2
says out '2 ranks share each layer: rank 0 has [0-9]+ of [0-9]+ parameters'
# goes_on PATTERN WORDS...
goes_on() {
    pattern=$1
    shift
    "$redpoll" train --resume run "$@" >out 2>err || complain "$*: $(cat err)"
    says out "$pattern"
}
goes_on 'layers were shared by 2 ranks, now by 1' --steps 2 --tp 1 -n 1
goes_on 'layers were shared by 1 rank, now by 4' --steps 3 --tp 4 -n 4
goes_on 'saved by 1 stage, continued by 2; layers were shared by 4 ranks, now by 2' --steps 4 --tp 2 --pp 2 -n 4
goes_on 'saved by 2 stages, continued by 1' --steps 5 --tp 2 --dp 2 -n 4 --zero 1 --pp 1
says out '2 replicas of 2 ranks that share each layer'
"$redpoll" report run --markdown >out 2>err || complain "$(cat err)"
says out '4: dp 2, tp 2'
if grep -q '"replicas":2,"tensor_ranks":2,"stages":1' run/metrics.jsonl; then pass; else complain "$(head -c 600 run/metrics.jsonl)"; fi
losses serial >wanted
losses run >had
near losses wanted had

# The same with a part of the tokens each between the layers: 15 tokens over 4 ranks, too.
trains sequence --steps 1 --tp 2 -n 2 --sequence-parallel
says out '2 ranks share each layer, and the tokens between them: rank 0 has [0-9]+ of [0-9]+ parameters'
# goes_on_sequence WORDS...
goes_on_sequence() {
    "$redpoll" train --resume sequence "$@" >out 2>err || complain "$*: $(cat err)"
}
goes_on_sequence --steps 2 --tp 4 -n 4 --recompute
goes_on_sequence --steps 3 --tp 2 --pp 2 -n 4 --schedule zb-h1
goes_on_sequence --steps 4 --tp 2 --pp 1 --dp 2 -n 4 --zero 1
goes_on_sequence --steps 5 --tp 2 --dp 1 -n 2 --no-sequence-parallel
losses sequence >had
near 'losses with --sequence-parallel' wanted had

# ---- what reads its checkpoint ----
for run in run sequence serial; do
    "$redpoll" eval --model $run 2>err | grep -o 'perplexity [0-9.]*' >$run.eval || complain "$(cat err)"
    "$redpoll" generate --model $run --prompt 'the red' --max-new-tokens 4 --temperature 0 >$run.text 2>err || complain "$(cat err)"
    "$redpoll" export --model $run --to hf:$run.hf >out 2>err || complain "$(cat err)"
done
for run in run sequence; do
    if [ -s $run.eval ] && cmp -s $run.eval serial.eval; then pass; else complain "$run: $(cat $run.eval serial.eval)"; fi
    if cmp -s $run.text serial.text; then pass; else complain "other texts: $(cat $run.text serial.text)"; fi
done
# Of 15 tokens some ranks have fewer than others; verify compares with one rank.
if "$redpoll" verify --model $model --data tokens:corpus --seq-length 15 --global-batch-size 4 --micro-batch-size 2 --optimizer sgd --threads 1 \
    --steps 2 --tp 4 -n 4 --sequence-parallel >out 2>err; then pass; else complain "$(cat out err)"; fi
says out '4 ranks that share each layer and'
# With ranks that share sequences, of whose pieces each rank of a layer has a part, and gradients that replicas share.
for words in '--cp 2 -n 4' '--dp 2 -n 4 --zero 3'; do
    # shellcheck disable=SC2086 # words
    if "$redpoll" verify --model gpt2:layers=1,hidden=8,heads=2,vocabulary=257,positions=16,dropout=0.2 --data tokens:corpus --seq-length 12 \
        --global-batch-size 4 --micro-batch-size 2 --optimizer sgd --threads 1 --steps 2 --tp 2 --sequence-parallel $words >out 2>err; then
        pass
    else
        complain "$words: $(cat out err)"
    fi
done
"$redpoll" info --model $model --seq-length 16 --batch-size 64 --tp 4 --json >whole.json 2>err || complain "$(cat err)"
"$redpoll" info --model $model --seq-length 16 --batch-size 64 --tp 4 --sequence-parallel --json >parts.json 2>err || complain "$(cat err)"
activations() {
    grep -o '"activations_bytes":[^,]*' "$1" | cut -d: -f2
}
if [ "$(activations parts.json)" -lt "$(activations whole.json)" ]; then pass; else complain "$(activations parts.json) $(activations whole.json)"; fi
# A folder of Hugging Face's is where tensor ranks start from.
for n in 1 2; do
    "$redpoll" train --model hf:serial.hf --data tokens:corpus --seq-length 16 --global-batch-size 8 --threads 1 --steps 1 --no-eval \
        --tp $n -n $n --out from$n >out 2>err || complain "hf: $(cat err)"
    losses from$n >from$n.loss
done
near 'from a folder' from1.loss from2.loss

# ---- nanotron's files ----
cat >tiny.yaml <<END
model: {dtype: float32, model_config: {hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2,
  intermediate_size: 32, vocab_size: 257, max_position_embeddings: 16}}
parallelism: {dp: 1, pp: 1, tp: 2, tp_mode: REDUCE_SCATTER, tp_linear_async_communication: true}
tokens: {sequence_length: 16, micro_batch_size: 4, batch_accumulation_per_replica: 2, train_steps: 1}
END
"$redpoll" train --config tiny.yaml --data tokens:corpus --threads 1 --no-eval --out tiny >out 2>err || complain "$(cat err)"
says out '2 ranks share each layer, and the tokens between them'
if grep -q 'tp_mode' out; then complain "$(cat out)"; else pass; fi
if grep -q 'the file says dp' out; then complain "$(cat out)"; else pass; fi
"$redpoll" train --config tiny.yaml --tp 1 --data tokens:corpus --threads 1 --no-eval --out other >out 2>err || complain "$(cat err)"
says out 'the file says dp: 1, and 2 ranks with --tp 1, --cp 1 and --pp 1 are 2 replicas; -n 1 makes as many as it says'

"$redpoll" train --config "$examples/llama-3d.yaml" --data tokens:corpus --seq-length 16 --threads 1 --no-eval --steps 1 --out three >out 2>err ||
    complain "$(cat err)"
says out '2 replicas of 2 stages, each of 2 ranks that share its layers'

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
refused 'tp 2 and 3 ranks: .*-n 2 or -n 4 would fit' --model gpt2 --tp 2 -n 3
refused 'tp 2 --pp 2 and 6 ranks: a replica takes 4 of them; -n 4 or -n 8 would fit' --model gpt2 --tp 2 --pp 2 -n 6
refused 'dp 3 x 2 ranks a replica is 6, and there are 4; -n 6 would fit' --model gpt2 --tp 2 --dp 3 -n 4
refused 'heads=12 over 5 tensor ranks: they divide over 1, 2, 3, 4, 6, 12' --model gpt2 --tp 5 -n 5
refused "unknown schedule 'foo'; there are afab, .*, auto" --model gpt2 --pp 2 -n 2 --schedule foo
refused "codec 'foo' is unknown; use fp32, .*or [^r]" --model gpt2 -n 2 --zero 1 --weights-codec foo
if grep -q 'topk\|randk' err; then complain "$(cat err)"; else pass; fi
refused "no stage can begin with '' there" --model gpt2:layers=2,hidden=16,heads=2,vocabulary=257,positions=16 --pp 2 -n 2 --stage-cut h.1,
refused 'kv-heads=4 over 6 tensor ranks' --model llama:layers=1,hidden=48,heads=12,kv-heads=4 --tp 6 -n 6
refused 'intermediate=3 over 6 tensor ranks: each has one at least; up to 3 fit' --model gpt2:hidden=12,heads=6,intermediate=3 --tp 6 -n 6
refused 'strategy gossip: .*all-reduce is for them' --model gpt2 --tp 2 -n 2 --strategy gossip
refused 'transformer-xl is held by one rank as a whole' --model transformer-xl --tp 2 -n 2
refused 'bits are chosen' --model gpt2 --tp 2 -n 2 --codec auto
refused 'sample-every with --tp 2' --model gpt2 --tp 2 -n 2 --sample-every 1 --prompt a
refused 'optimizer lamb with --tp 2' --model gpt2 --tp 2 -n 2 --optimizer lamb
refused 'algorithm ring with --tp 2 and 3 replicas' --model gpt2 --tp 2 -n 6 --algorithm ring
refused 'resnet20 is held by one rank as a whole' --model resnet20 --data synthetic --tp 2 -n 2
refused 'mlp is held by one rank as a whole' --model mlp --data synthetic --tp 2 -n 2
"$redpoll" info --model gpt2 --tp 5 >out 2>err && complain 'info takes five ranks'
says err 'they divide over 1, 2, 3, 4, 6, 12'

# ---- a rank is killed: all others say which one ----
# find_rank RANK: its process
find_rank() {
    for process in $(grep -lzx "REDPOLL_TEST_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3); do
        if tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | grep -qx "RANK=$1"; then echo "$process"; fi
    done
}
timeout 200 "$redpoll" train --model vit:patch=14,layers=2,hidden=12,heads=2 --data synthetic --train-images 240 --test-images 40 --threads 1 \
    --global-batch-size 24 --micro-batch-size 3 --tp 2 -n 4 --steps 1000000 --no-eval --no-checkpoint --log-every 1 --out killed >out 2>err &
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
    says err "^$begin.*lost: rank 3, tensor 1 of replica 1"
done

# ---- ranks of one model whose hosts have other data ----

mkdir elsewhere
sed 's/red/big/' text >elsewhere/text
(cd elsewhere && "$redpoll" data tokenize --tokenizer byte --in text --out corpus >out 2>err) || complain "$(cat elsewhere/err)"
# elsewhere_of WORDS...: the second of two ranks reads its own corpus
elsewhere_of() {
    # shellcheck disable=SC2016 # the ranks' own variables
    timeout 60 "$redpoll" run -n 2 sh -c '[ "$RANK" = 0 ] || cd elsewhere; exec "$0" train "$@"' "$redpoll" --model $model \
        --data tokens:corpus --seq-length 16 --global-batch-size 8 --steps 2 --no-eval --threads 1 --out "$folder/apart" "$@" >out 2>err
}
for words in '--tp 2:tensor' '--pp 2:stage' '--cp 2:context'; do
    # shellcheck disable=SC2086 # an option and its value
    if elsewhere_of ${words%:*} --overwrite; then complain "$words: learns from two texts"; else pass; fi
    name=${words#*:}
    says err "rank 1, $name 1 learns from other sequences than rank 0, $name 0, .* are the files of --data the same on their hosts"
done
finish
