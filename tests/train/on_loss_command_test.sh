#!/bin/sh
# Ranks are killed in the middle of training that goes on without them. usage: on_loss_command_test.sh REDPOLL
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1
. "$(dirname "$0")/../harness/cases.sh"
mark="test-$$"
export REDPOLL_TEST_MARK="$mark" OMP_NUM_THREADS=1

says() {
    if grep -qE -e "$2" "$1"; then pass; else complain "no '$2' in $1: $(head -n 40 "$1") $(tail -n 20 err)"; fi
}
never_says() {
    if grep -qE -e "$2" "$1"; then complain "'$2' in $1"; else pass; fi
}
# find_ranks: "RANK PID" of each process that trains, into ./ranks
find_ranks() {
    for process in $(grep -lzx "REDPOLL_TEST_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3); do
        rank=$(tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | sed -n 's/^RANK=//p')
        [ -n "$rank" ] && echo "$rank $process"
    done >ranks
}
# behind STEP: until metrics.jsonl has it
behind() {
    tries=0
    while ! grep -q "\"step\":$1," run/metrics.jsonl 2>/dev/null && [ $tries -lt 600 ] && kill -0 $run; do
        sleep 0.05
        tries=$((tries + 1))
    done
}
# said PATTERN: until the run says so
said() {
    tries=0
    while ! grep -q "$1" out && [ $tries -lt 600 ] && kill -0 $run; do
        sleep 0.05
        tries=$((tries + 1))
    done
}
# kill_ranks RANKS: at once
kill_ranks() {
    processes=
    for rank in $1; do processes="$processes $(sed -n "s/^$rank //p" ranks)"; done
    # shellcheck disable=SC2086 # several
    kill -KILL $processes || complain "no ranks $1 to kill"
}
# start WORDS...: redpoll with these words and a small model that trains for 300 steps
start() {
    rm -rf run
    command=$1
    shift
    [ "$command" = run ] && command="run $1 $2 $3 $4 $5 train" && shift 6
    # shellcheck disable=SC2086 # words
    timeout 100 "$redpoll" $command --model mlp:hidden=32 --data synthetic --train-images 240 --test-images 40 --threads 1 \
        --global-batch-size 60 --steps "${steps:-300}" --log-every 5 --link 1Gbit,5ms --out run "$@" >out 2>err &
    run=$!
    behind 1
    find_ranks
}
# ends CODE
ends() {
    wait $run
    code=$?
    if [ $code -eq "$1" ]; then pass; else complain "ended with $code, not $1: $(tail -n 20 err)"; fi
}
# whole: every step is there once, in order
whole() {
    sed -n 's/^{"step":\([0-9]*\),.*/\1/p' run/metrics.jsonl >steps
    seq "${steps:-300}" >wanted
    if cmp -s steps wanted; then pass; else complain "steps of metrics.jsonl: $(diff steps wanted | head -n 5)"; fi
}

# ---- one of four, and the checkpoint of those that are left ----
start train -n 4 --strategy gossip:topology=ring --eval-every 50 --checkpoint-every 50 --on-loss continue
behind 20
kill_ranks 2
ends 0
says err 'rank 2 was killed by signal 9 .*; the others may go on'
says out 'rank 2 is lost after step [0-9]+ .*; ranks 0, 1 and 3 go on'
says out 'lost: rank 2 after step [0-9]+; 3 of 4 ranks have ended the run'
says out 'after step 300: test accuracy'
says run/metrics.jsonl '"lost_ranks":\[2\],"ranks_left":\[0,1,3\]'
says run/metrics.jsonl '"loss":[0-9]'
whole
if [ -e run/rank-2-of-3-step-300.safetensors ]; then pass; else complain "no part of rank 2 of 3: $(ls run)"; fi
"$redpoll" train --resume run -n 3 --steps 305 >out 2>err || complain "it does not go on: $(cat err)"
never_says out 'begins from their mean'
says out 'saved step 305'

# ---- rank 0 among the two of five that die, one after the other ----
start train -n 5 --strategy gossip:algorithm=exact-diffusion,on-loss=continue --codec q8 --checkpoint-every 40
behind 20
kill_ranks 0
said 'rank 0 is lost after step'
kill_ranks 3
ends 0
says out 'rank 0 is lost after step'
says out 'rank 3 is lost after step [0-9]+; ranks 1, 2 and 4 go on'
says out 'saved step 300'
whole

# ---- two at once, by redpoll run; one of two; the three kinds of local steps ----
start run -n 5 --on-loss continue "$redpoll" train --strategy gossip:topology=exponential,algorithm=choco --codec q4 --on-loss continue
behind 20
kill_ranks '1 4'
ends 0
says out 'lost: rank 1 after step [0-9]+, rank 4 after step'
whole
start train -n 2 --strategy gossip:algorithm=awc,on-loss=continue --eval-every 60
behind 20
kill_ranks 1
ends 0
says out 'rank 1 is lost after step [0-9]+ .*; rank 0 goes on'
whole

# ---- many local steps, in fragments and under way; all ranks but one die in turn ----
steps=2000
start train -n 4 --strategy local-sgd:outer=diloco,every=8,fragments=2,delay=1 --codec q8 --on-loss continue --checkpoint-every 100
behind 20
kill_ranks 0
said 'rank 0 is lost after step'
kill_ranks '2 3'
ends 0
says out 'rank 1 goes on'
says out 'after step 2000: test accuracy'
whole
start train -n 3 --strategy local-sgd:outer=noloco,every=4,inner-state=average,on-loss=continue
behind 20
kill_ranks 1
ends 0
says out 'ranks 0 and 2 go on'
whole
steps=300

# ---- what remembers: rows of those that are left are others than those of so many ranks ----
seq -f 'the quick brown fox %g jumps over the lazy dog' 400 >corpus.txt
"$redpoll" data tokenize --tokenizer byte --in corpus.txt --out corpus >out 2>err || complain "tokenize: $(cat err)"
start train -n 4 --strategy parameter-server:servers=1,staleness=2 --on-loss continue --no-eval --seq-length 16 \
    --model transformer-xl:layers=1,hidden=16,heads=2,head=8,inner=32,memory=8,vocabulary=257 --data tokens:corpus
behind 20
kill_ranks 2
ends 0
"$redpoll" train --resume run -n 3 --steps 305 >out 2>err || complain "it does not go on: $(cat err)"
says out 'its rows were others, and remember nothing now'

# ---- by default a death ends the run ----
start train -n 4 --strategy gossip:topology=ring
behind 20
kill_ranks 2
ends 137
says err 'rank 2 was killed by signal 9'

# ---- mistakes: code 2, and what to type ----
# refused PATTERN WORDS...
refused() {
    wanted=$1
    shift
    timeout 30 "$redpoll" train --model mlp --data synthetic --out refused "$@" >out 2>err
    code=$?
    if [ $code -eq 2 ]; then says err "$wanted"; else complain "$*: ends with $code: $(cat err)"; fi
}
refused 'all-reduce needs all of its ranks; async-local-sgd, gossip, local-sgd and parameter-server go on' -n 4 --on-loss continue
refused 'topology that 3 of 4 ranks have, too: .*torus' -n 4 --strategy gossip:topology=torus:shape=2x2,on-loss=continue
refused 'on-loss=perhaps; stop or continue' -n 4 --strategy gossip:on-loss=perhaps
refused "--on-loss: .*stop or continue" -n 4 --strategy gossip --on-loss perhaps
finish
