#!/bin/sh
# Whole runs of `redpoll train` over processes: resuming, repeating, dying. usage: ... REDPOLL EXAMPLES
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1 examples=$2
. "$(dirname "$0")/../harness/ports.sh"
. "$(dirname "$0")/../harness/cases.sh"

bad() {
    complain "$*"
    tail -n 5 out err
}
# train FOLDER WORDS...: a model that costs nothing, or $model; must succeed
model=
train() {
    to=$1
    shift
    if timeout 100 "$redpoll" train --model "${model:-mlp:hidden=48}" --data synthetic --train-images 80 \
        --test-images 40 --global-batch-size 16 --seed 3 --out "$to" "$@" >out 2>err; then pass
    else bad "train $to $*"; fi
}
says() {
    if grep -qE -e "$2" "$1"; then pass; else bad "$1 lacks '$2'"; fi
}

# The same run twice, over processes and the fastest backend, gives the same bytes.
model=resnet20
train one -n 2 --codec q4:rounding=stochastic --steps 6 --trace
says out 'rank 0 of 2, found by redpoll run'
says out 'step 6/6'
says out 'test accuracy'
train two -n 2 --codec q4:rounding=stochastic --steps 6
same one/model.safetensors two/model.safetensors
says one/trace.json '"name":"bucket 0"'
says one/trace.json '"name":"rank 1"'
[ "$(wc -l <one/metrics.jsonl)" -eq 9 ] && pass || bad "one/metrics.jsonl has not 9 lines"

# Half a last line, as a killed run leaves it, counts for nothing.
mkdir torn
{ cat one/metrics.jsonl && printf '{"step":7,"loss":9.5,"ste'; } >torn/metrics.jsonl
awk -v WARMUP=1 -f "$examples/../tools/compare_runs.awk" one/metrics.jsonl | sed 1d | cut -c 15- >out
awk -v WARMUP=1 -f "$examples/../tools/compare_runs.awk" torn/metrics.jsonl | sed 1d | cut -c 15- >err
same out err

# Stopping and going on gives the same bytes; another number of ranks goes on too.
train three -n 2 --codec q4:rounding=stochastic --steps 3
train three -n 2 --codec q4:rounding=stochastic --steps 6 --resume three
same one/model.safetensors three/model.safetensors
same one/rank-1-of-2-step-6.safetensors three/rank-1-of-2-step-6.safetensors
train four -n 4 --codec q4 --steps 8 --resume three
says out 'saved by 2 ranks, continued by 4'
train alone -n 1 --steps 8 --resume three
says out 'found by'
model=

# Who gives no rate has the optimizer's. A link of a rank that has nobody to send to is noted.
train adam -n 1 --steps 1 --optimizer adamw --link 1Gbit,1ms
says out '--link 1Gbit,1ms changes nothing: one rank sends nothing \(-n 2\)'
says adam/settings.json '"lr":0.001[,}]'
printf 'tokens: {val_check_interval: -1}\noptimizer: {optimizer_factory: {name: adamW}}\n' >nanotron.yaml
train adamW -n 1 --steps 1 --config nanotron.yaml
says adamW/settings.json '"optimizer":"adamw"'
says adamW/settings.json '"lr":0.001[,}]'
train adamW -n 1 --steps 2 --config nanotron.yaml --resume adamW
says out 'note: --steps was 1, now 2'
grep -qE -e '--(optimizer|eval-every) was' out && bad "resume notes what only has another name: $(cat out)" || pass
train none -n 1 --steps 1 --optimizer adamw --lr 0
says none/settings.json '"lr":0[,}]'

# --resume alone takes everything from the run; what is said besides is noted, or refused.
# go_on CODE WORDS...
go_on() {
    code=$1
    shift
    timeout 100 "$redpoll" train "$@" >out 2>err
    [ $? -eq "$code" ] && pass || bad "train $* has not ended with $code"
}
silent() {
    if grep -q 'note:' out; then bad 'a run that goes on as it was has notes'; else pass; fi
}
train five -n 2 --codec q4:rounding=stochastic --link 1Gbit,50us --steps 6 --checkpoint-every 3 --keep 2 \
    --momentum 0.8 --lr-schedule cosine --no-eval
cp -r five six
mv six/model-step-3.safetensors six/model.safetensors
go_on 0 --resume six
silent
says out 'rank 0 of 2'
says out 'steps 4 to 6'
same five/model.safetensors six/model.safetensors
same five/rank-1-of-2-step-6.safetensors six/rank-1-of-2-step-6.safetensors
says six/metrics.jsonl '"link":"1Gbit,50us"'
go_on 0 --resume six
silent
says out 'nothing was left to train'
go_on 0 --resume six --steps 8 --lr 0.02 --link= --data-dir .
for change in 'steps was 6, now 8' 'lr was 0.05, now 0.02' 'link was 1Gbit,50us, now absent' 'data-dir was absent, now .'; do
    says out "note: --$change"
done
go_on 0 --resume six --batch-size 4 --epochs 2
says out 'note: --steps was 8, now absent'
says out 'the global batch was 16, now 8'
go_on 1 --resume six --model resnet20
says err 'six/model.safetensors holds the model mlp:hidden=48, not resnet20'
go_on 2 --resume six --overwrite
says err 'resume goes on with the run in six, --overwrite starts over in it'
timeout 100 "$redpoll" run -n 2 "$redpoll" train --resume six --steps 21 >out 2>err || bad 'a launcher cannot go on'
says out '\[0\] rank 0 of 2'
timeout 100 "$redpoll" run -n 4 "$redpoll" train --resume six --steps 22 >out 2>err || bad 'another launch cannot go on'
says out 'saved by 2 ranks, continued by 4'
go_on 2 --resume six
says err 'had 4 ranks, which a launcher had started.* -n N'
printf 'optimizer:\n  weight_decay: 0.001\n' >other.yaml
go_on 0 --resume six -n 2 --config other.yaml --steps 22
says out 'note: --weight-decay was 0.0005, now 0.001'
rm six/settings.json
go_on 1 --resume six -n 2
says err 'six/model.safetensors holds the model mlp:hidden=48, not resnet18'
go_on 0 --resume six -n 2 --model mlp:hidden=48 --data synthetic --train-images 80 --steps 22 --no-eval
says out 'note: six/settings.json is missing'
go_on 2 --resume six/model.safetensors
says err 'six/model.safetensors is not a folder'
mkdir nothing
go_on 1 --resume nothing --data synthetic
says err 'nothing/model.safetensors is missing: there is no checkpoint to go on from'

# A file of settings; the command line wins over it.
cat >settings.yaml <<'END'
parallelism: {dp: 2}
tokens: {train_steps: 50, micro_batch_size: 8}
communication: {codec: q4, error_feedback: false}
evaluation: {enabled: false}
END
train yaml --config settings.yaml --steps 2
says yaml/metrics.jsonl '"codec":"q4:bucket=512"'
says yaml/metrics.jsonl '"last_step":2,'
says yaml/metrics.jsonl '"error-feedback":"off"'

train example --config "$examples/fashion-mnist.yaml" --model resnet20 --data synthetic --steps 2
says example/metrics.jsonl '"link":"200Mbit,50us"'

# A finished run is not overwritten by accident.
timeout 60 "$redpoll" train --model mlp --data synthetic --steps 1 --out one >out 2>err
[ $? -eq 2 ] && pass || bad "an old run was overwritten"
says err 'holds a run already'

# Runs of one second, whose folders nobody has named, each have their own.
mkdir unnamed && (
    cd unnamed || exit
    for run in 1 2 3 4; do "$redpoll" train --model mlp --data synthetic --steps 1 --no-eval --no-checkpoint; done
) >out 2>err
[ "$(find unnamed/runs -name metrics.jsonl | wc -l)" -eq 4 ] && pass || bad "not four runs: $(ls unnamed/runs) $(cat err)"

# A rank that is killed is named, within seconds, and the run goes on from its checkpoint.
timeout 100 "$redpoll" train --model resnet20 --data synthetic --train-images 80 --test-images 40 \
    --global-batch-size 16 --seed 3 -n 2 --codec q4 --steps 100000 --checkpoint-every 5 --out "$folder/killed" >out 2>err &
run=$!
tries=0
while [ ! -e killed/model.safetensors ] && [ $tries -lt 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
victim=$(pgrep -f -- "--out $folder/killed" | while read -r process; do
    tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | grep -qx 'RANK=1' && echo "$process"
done | head -n 1)
if [ -n "$victim" ]; then
    kill -KILL "$victim"
    wait $run
    [ $? -ne 0 ] && pass || bad "a run with a dead rank succeeded"
    says err 'rank 1'
    if pgrep -f -- "--out $folder/killed" >/dev/null; then bad "processes are left"; else pass; fi
    last=$(sed -n 's/^{"step":\([0-9]*\),.*/\1/p' killed/metrics.jsonl | tail -n 1)
    model=resnet20
    train killed -n 2 --codec q4 --steps $((last + 3)) --resume killed
else
    kill $run
    wait $run
    bad "rank 1 was not found"
fi

# Preempted: SIGUSR1 saves and goes on, SIGTERM and Ctrl-C save and end with 143 and 130, whether the launcher gets
# them, a rank of `redpoll run`, or ranks that nobody of ours has started. What goes on ends in the same bytes.
endless="train --model mlp --data synthetic --train-images 96 --test-images 16 --global-batch-size 12 --seed 5
    --codec q4:rounding=stochastic --checkpoint-time 0s --no-eval"
start() { env --default-signal=INT "$@" >out 2>err & }
steps_of() { sed -n 's/^{"step":\([0-9]*\),.*/\1/p' "$1/metrics.jsonl" 2>/dev/null | tail -n 1; }
has_steps() { # FOLDER N: within half a minute
    tries=0
    while [ "$(steps_of "$1" || true)" = "" ] || [ "$(steps_of "$1")" -lt "$2" ]; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || return 1
        sleep 0.1
    done
}
rank_1_of() { # the process of rank 1 among those with --out FOLDER
    for process in $(pgrep -f -- "--out $1"); do
        [ "$(cat "/proc/$process/comm" 2>/dev/null)" = redpoll ] &&
            tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | grep -qx 'RANK=1' && echo "$process"
    done | head -n 1
}
ends() { # PID CODE NAME
    wait "$1"
    code=$?
    [ $code -eq "$2" ] && pass || bad "$3 ended with $code, not $2"
}
# goes_on FOLDER: three steps further, beside a run that nobody stopped
goes_on() {
    until=$(($(steps_of "$1") + 3))
    go_on 0 --resume "$1" --steps $until
    says out "steps $((until - 2)) to $until"
    timeout 100 "$redpoll" $endless -n 2 --steps $until --out "$1-unbroken" >out 2>err || bad "no unbroken run"
    same "$1/model.safetensors" "$1-unbroken/model.safetensors"
    same "$1/rank-1-of-2-step-$until.safetensors" "$1-unbroken/rank-1-of-2-step-$until.safetensors"
}

start "$redpoll" $endless --steps 1000000000000 -n 2 --out term
launcher=$!
has_steps term 5 && [ ! -e term/model.safetensors ] && pass || bad 'the run for SIGTERM does not get going'
kill -USR1 $launcher
tries=0
while [ ! -e term/model.safetensors ] && [ $tries -lt 300 ]; do sleep 0.1 && tries=$((tries + 1)); done
has_steps term $(($(steps_of term) + 5)) && pass || bad 'SIGUSR1 stops the run'
says out 'saved step [0-9]* to term/model.safetensors'
kill -TERM $launcher
ends $launcher 143 'a run with SIGTERM'
says out "stopped by SIGTERM after step $(steps_of term); go on with: redpoll train --resume term"
says out "saved step $(steps_of term) to term/model.safetensors"
says term/metrics.jsonl '"stopped":true'
goes_on term

start "$redpoll" $endless --steps 1000000000000 -n 2 --out "$folder/int"
launcher=$!
has_steps int 5 && pass || bad 'the run for SIGINT does not get going'
kill -INT $launcher
ends $launcher 130 'a run with SIGINT'
says out "stopped by SIGINT after step $(steps_of int); go on with: redpoll train --resume $folder/int"

start "$redpoll" run -n 2 "$redpoll" $endless --steps 1000000000000 --out "$folder/ranks"
launcher=$!
has_steps ranks 5 && pass || bad 'the run for a signal to one rank does not get going'
one=$(rank_1_of "$folder/ranks")
[ -n "$one" ] && kill -TERM "$one" && pass || bad "rank 1 was not found"
ends $launcher 143 'a run with SIGTERM for rank 1'
says out 'go on by starting it in the same way with --resume'
go_on 2 --resume ranks
until=$(($(steps_of ranks) + 2))
timeout 100 "$redpoll" run -n 2 "$redpoll" train --resume ranks --steps $until >out 2>err && pass ||
    bad 'a launched run does not go on'
[ "$(steps_of ranks)" = $until ] && pass || bad 'a launched run goes on elsewhere'

# As torchrun, mpirun or a batch system signals: every rank, or one of them after the other.
pids=
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        env --default-signal=INT "$redpoll" $endless --steps 1000000000000 --out alone-together >out.$rank 2>err.$rank &
    pids="$pids $!"
done
pid0=${pids% *} pid1=${pids##* }
has_steps alone-together 5 && pass || bad 'two ranks of no launcher do not get going'
kill -TERM $pid0 $pid1
ends $pid0 143 'rank 0 with SIGTERM'
ends $pid1 143 'rank 1 with SIGTERM'
says out.0 'go on by starting it in the same way'

start "$redpoll" $endless --steps 1000000000000 --out "it's mine"
launcher=$!
has_steps "it's mine" 5 && pass || bad 'the run alone does not get going'
for _ in 1 2 3 4 5 6 7 8 9 10; do kill -USR1 $launcher; done
kill -INT $launcher
ends $launcher 130 'a run alone with SIGINT'
says out "redpoll train --resume 'it'.''s mine'"
says err 'ending after this step, with a checkpoint; once more ends it at once'
start "$redpoll" $endless --steps 1000000000000 --no-checkpoint --out unsaved
launcher=$!
has_steps unsaved 5 && pass || bad 'the run without checkpoints does not get going'
kill -INT $launcher
ends $launcher 130 'a run without checkpoints with SIGINT'
says err 'ending after this step, without a checkpoint, as --no-checkpoint says'

# What products multiply: refused before anything starts where the processor has no bf16; a run goes on as it began.
go_on 0 --model mlp --data synthetic --train-images 80 --steps 2 --dtype bf16 --backend reference --no-eval --out rounded
says rounded/metrics.jsonl '"dtype":"bf16"'
go_on 0 --resume rounded --steps 3
says rounded/settings.json '"dtype": *"bf16"'
go_on 0 --resume rounded --steps 4 --dtype fp32
says out 'note: --dtype was bf16, now fp32'
go_on 2 --model mlp --data synthetic --dtype fp16
says err "unknown dtype 'fp16'; there are fp32, bf16"
if "$redpoll" info | grep -q '^  *cpu '; then
    ONEDNN_MAX_CPU_ISA=AVX2 go_on 1 --model mlp --data synthetic --dtype bf16 --out never
    says err '--dtype bf16: bf16 needs a processor with AVX512-BF16 or AMX .* use fp32'
    [ ! -e never ] && pass || bad 'a refused run has left a folder'
fi

# From text to a language model: tokens, two ranks, the fastest backend, stopped and gone on with.
cat "$(dirname "$0")"/*.c >corpus.txt
"$redpoll" data tokenize --tokenizer byte --in corpus.txt --out tokens/corpus >out 2>err && pass || bad tokenize
# learn FOLDER WORDS...
learn() {
    to=$1
    shift
    train "$to" -n 2 --model gpt2:layers=1,hidden=32,heads=2,vocabulary=257,positions=64 --data tokens:tokens \
        --seq-length 32 --global-batch-size 8 --accumulate 2 --optimizer adamw --lr 1e-2 --clip 1 --eval-images 16 "$@"
}
learn text --codec q4 --steps 6
says out '[0-9] tokens/s'
says out 'after step 6: test accuracy .*, perplexity [0-9.]+ \(512 tokens\)'
says text/metrics.jsonl '"tokens_s_median":'
learn half --codec q4 --steps 3
go_on 0 --resume half --steps 6
same text/model.safetensors half/model.safetensors
same text/rank-1-of-2-step-6.safetensors half/rank-1-of-2-step-6.safetensors
go_on 0 --config "$examples/gpt2-kjv.yaml" --model gpt2:layers=1,hidden=32,heads=2 --data tokens:tokens --steps 2 \
    --eval-images 8 --out kjv
says kjv/metrics.jsonl '"clip":1,'
says kjv/metrics.jsonl '"global_batch_size":32,'
go_on 0 --config "$examples/bert-kjv.yaml" --data masked:tokens --steps 2 --eval-images 8 --out bert-kjv
says out 'after step 2: test accuracy .*, nsp accuracy [0-9.]+ %, nsp loss [0-9.]+ \([0-9]+ tokens\)'
says bert-kjv/metrics.jsonl '"global_batch_size":16,'
"$redpoll" eval --model bert-kjv >out 2>err && pass || bad 'a BERT is not evaluated'
says out '^nsp         loss [0-9.]+, accuracy'
if command -v python3 >/dev/null; then
    python3 "$examples/make_questions.py" birds --texts 30 --validation 10 && pass || bad 'no questions are written'
    go_on 0 --config "$examples/bert-spans.yaml" --steps 2 --out spans
    says out 'after step 2: test accuracy .*, exact match [0-9.]+ %, F1 [0-9.]+ % of 30 questions \(60 tokens\)'
    "$redpoll" eval --model spans >out 2>err && pass || bad 'answers are not evaluated'
    says out '^exact match [0-9.]+ % of 30 questions'
    sed 's/"answer_start": /"answer_start": 9/' birds/train.json >birds/broken.json
    go_on 1 --config "$examples/bert-spans.yaml" --data spans:birds/broken.json,tokenizer=bert:birds
    says err 'birds/broken.json: question [0-9]+-[0-9]: its answer .* does not stand at character 9[0-9]+ of its context'
fi
go_on 2 --model bert:spans=on --data masked:tokens
says err 'model bert learns from questions with spans of texts, .* say --data spans:FILE.json,tokenizer=NAME'
go_on 2 --model bert --data tokens:tokens
says err 'model bert learns from pairs of texts with hidden tokens, .* say --data masked:PATH'
awk 'BEGIN { for (i = 0; i < 60; i++) printf "{\"prompt\": \"%d + %d = \", \"completion\": \"%d\"}\n", i, i, 2 * i }' \
    >sums.jsonl
go_on 0 --config "$examples/llama-sums.yaml" --model llama:layers=1,hidden=32,heads=2,vocabulary=257 --steps 2 --out sums
says out 'after step 2: test accuracy .*, perplexity [0-9.]+ \(12 tokens\)'
go_on 2 --model gpt2 --data synthetic
says err 'model gpt2 learns from tokens, and --data synthetic has images; say --data tokens:PATH'
go_on 2 --model gpt2 --data tokens:tokens --seq-length 1000000
says err 'too few for one sequence of 1000000 and the token behind it'

finish
