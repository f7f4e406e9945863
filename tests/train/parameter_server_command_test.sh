#!/bin/sh
# Training with parameter servers as its users meet it. usage: parameter_server_command_test.sh REDPOLL
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1
. "$(dirname "$0")/../harness/cases.sh"

# train CODE WORDS...: ends with this code
train() {
    wanted=$1
    shift
    timeout 100 "$redpoll" train --model mlp:hidden=16 --data synthetic --train-images 120 --test-images 20 --threads 1 \
        --global-batch-size 24 "$@" >out 2>err
    code=$?
    if [ $code -eq "$wanted" ]; then pass; else complain "$*: ends with $code: $(cat err)"; fi
}
says() {
    if grep -qE -e "$2" "$1"; then pass; else complain "no '$2' in $(cat "$1")"; fi
}

# ---- the same model as all-reduce, whoever serves ----
train 0 --steps 8 -n 3 --algorithm sra --strategy all-reduce --out all
train 0 --steps 8 -n 5 --strategy parameter-server:servers=2 --out served
# The header with the step and the strategy is another; tensors are not.
tensors() { tail -c 20000 "$1/model.safetensors" >"$1.tensors"; }
tensors all
tensors served
same all.tensors served.tensors
cat >servers.yaml <<'YAML'
parallelism:
  strategy:
    parameter-server: {servers: 1, staleness: inf}
YAML
train 0 --steps 8 -n 4 --config servers.yaml --out stale
says stale/metrics.jsonl '"staleness_max":[0-9]'
train 0 --steps 12 -n 3 --strategy parameter-server --resume stale # without servers of their own

# ---- mistakes: code 2, and what to type ----
train 2 -n 2 --strategy parameter-server:servers=2
says err 'take at most 1, or shared'
train 2 -n 4 --strategy parameter-server:servers=1,staleness=inf,quorum=4
says err 'a quorum of 4 of 3 workers'
train 2 -n 4 --strategy all-reduce:staleness=4
says err 'has no options'
train 2 -n 4 --strategy parameter-server:staleness=soon
says err 'inf, or a whole number'

# ---- a worker is killed ----
# kill_rank_3 STRATEGY WORDS...: the run's exit code into $code
kill_rank_3() {
    rm -rf killed
    timeout 100 "$redpoll" train --model mlp --data synthetic --threads 1 --global-batch-size 24 -n 5 \
        --out "$folder/killed" --overwrite --link 500Mbit,50us --strategy "$@" >out 2>err &
    run=$!
    tries=0
    while ! grep -q '"step":3,' killed/metrics.jsonl 2>/dev/null && [ $tries -lt 300 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    victim=$(pgrep -f -- "--out $folder/killed" | while read -r process; do
        tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | grep -qx 'RANK=3' && echo "$process"
    done | head -n 1)
    [ -n "$victim" ] && kill -KILL "$victim"
    wait $run
    code=$?
}
kill_rank_3 parameter-server:servers=2,on-loss=continue --steps 150 --no-eval
if [ $code -eq 0 ]; then pass; else complain "ended with $code: $(cat err)"; fi
says err 'rank 3, a worker, is gone \(connection closed by peer\); 2 workers go on'
says killed/metrics.jsonl '"step":150,'
# Most of the time is of evaluations and checkpoints.
kill_rank_3 parameter-server:servers=2 --on-loss continue --steps 12 --test-images 8000 --eval-every 1 --checkpoint-every 1
if [ $code -eq 0 ]; then pass; else complain "ended with $code: $(cat err)"; fi
says err 'rank 3, a worker, is gone \(connection closed by peer\); 2 workers go on'
says out 'saved step 12'
says out 'note: rank 3 is lost after step [0-9]+ \(rank 3, a worker, is gone \(connection closed by peer\)\); ranks 0, 1, 2 and 4 go on'
says out 'lost: rank 3 after step [0-9]+; 4 of 5 ranks have ended the run'
says killed/metrics.jsonl '"lost_ranks":\[3\],"ranks_left":\[0,1,2,4\]'
for step in 3 8 12; do says killed/metrics.jsonl "\"evaluated_step\":$step,"; done
kill_rank_3 async-local-sgd:servers=2,every=3,on-loss=continue --steps 90 --eval-every 10
if [ $code -eq 0 ]; then pass; else complain "ended with $code: $(cat err)"; fi
says err 'rank 3, a worker, is gone \(connection closed by peer\); 2 workers go on'
says out 'after step 90: test accuracy'
grep -o '^{"step":[0-9]*' killed/metrics.jsonl | cut -d: -f2 >steps
seq 90 >wanted
same steps wanted
kill_rank_3 parameter-server:servers=2 --steps 150 --no-eval
if [ $code -ne 0 ]; then pass; else complain "succeeded without rank 3"; fi
says err 'rank 3, a worker, is gone'
finish
