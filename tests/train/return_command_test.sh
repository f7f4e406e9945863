#!/bin/sh
# Workers that are killed are started again and come back into the run. usage: return_command_test.sh REDPOLL
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1
. "$(dirname "$0")/../harness/cases.sh"
mark="test-$$"
export REDPOLL_TEST_MARK="$mark" OMP_NUM_THREADS=1 REDPOLL_LOG=info

says() {
    if grep -qE -e "$2" "$1"; then pass; else complain "no '$2' in $1: $(head -n 40 "$1") $(tail -n 20 err)"; fi
}
# never_says FILE PATTERN BUT: no line of this pattern, but for those of the other
never_says() {
    if grep -E -e "$2" "$1" | grep -vE -e "$3" >lines; then complain "in $1: $(cat lines)"; else pass; fi
}
# pids RANK GENERATION: of the process that trains in this place; 0: the first
pids() {
    for process in $(grep -lzx "REDPOLL_TEST_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3); do
        tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" >environ.$$ || continue
        grep -qx "RANK=$1" environ.$$ || continue
        generation=$(sed -n 's/^REDPOLL_GENERATION=//p' environ.$$)
        [ "${generation:-0}" = "$2" ] && echo "$process"
    done
}
# until_true COMMAND...: as long as the run goes on, two minutes at most
until_true() {
    tries=0
    while ! "$@" && [ $tries -lt 2400 ] && kill -0 $run 2>/dev/null; do
        sleep 0.05
        tries=$((tries + 1))
    done
}
behind() { until_true grep -q "\"step\":$1," run/metrics.jsonl 2>/dev/null; }
# kill_rank RANK GENERATION: as soon as there is such a process
kill_rank() {
    until_true has_process "$1" "$2"
    # shellcheck disable=SC2086 # several
    kill -KILL $victims || complain "no rank $1 of generation $2 to kill"
}
has_process() {
    victims=$(pids "$1" "$2")
    [ -n "$victims" ]
}
# start WORDS...: redpoll with these words and a small model
start() {
    rm -rf run
    command=$1
    shift
    [ "$command" = run ] && command="run $1 $2 $3 $4 $5 $6 $7 train" && shift 8
    # shellcheck disable=SC2086 # words
    timeout 280 "$redpoll" $command --model mlp:hidden=16 --data synthetic --train-images 240 --test-images 40 --threads 1 \
        --global-batch-size 24 --steps "$steps" --link 1Gbit,2ms --out run "$@" >out 2>err &
    run=$!
    behind 3
}
# is_back RANK GENERATION
is_back() { grep -q "rank $1, started again for time $2, goes on" out err; }
# has_more: steps behind the last return
has_more() {
    more=$(awk '/^\{"returned_step"/ { n = 0 } /^\{"(step|evaluated_step)":/ { n++ } END { print n + 0 }' run/metrics.jsonl)
    [ "$more" -ge 20 ]
}
# stops: some steps behind the last return, all of which are there, once and in order
stops() {
    until_true has_more
    if has_more; then pass; else complain "$more steps and evaluations behind the last return"; fi
    pkill -TERM -P $run # timeout would pass it on twice
    wait $run
    code=$?
    if [ $code -eq 143 ]; then pass; else complain "ended with $code, not 143: $(tail -n 20 err)"; fi
    says out "$1 ranks have ended the run"
    sed -n 's/^{"step":\([0-9]*\),.*/\1/p' run/metrics.jsonl >steps
    if [ -s steps ]; then pass; else complain "no steps in metrics.jsonl"; fi
    seq "$(tail -n 1 steps)" >wanted
    if cmp -s steps wanted; then pass; else complain "steps of metrics.jsonl: $(diff steps wanted | head -n 5)"; fi
}

steps=1000000 # more than there is time for: these runs are told to end
# ---- one worker, twice, with evaluations and checkpoints all the time ----
start train -n 5 --strategy parameter-server:servers=2,on-loss=continue --restart 2 --codec q8 --eval-every 5 --checkpoint-every 10 --test-images 400
kill_rank 3 0
until_true is_back 3 1
kill_rank 3 1
until_true is_back 3 2
stops "5 of 5"
says err 'rank 3 was killed by signal 9 \(Killed\); it is started again, and the others may go on'
says out 'rank 3 is lost after step [0-9]+ .*; ranks 0, 1, 2 and 4 go on'
says out 'rank 3 is back behind step [0-9]+; ranks 0, 1, 2, 3 and 4 go on'
says out 'back: rank 3 behind step [0-9]+, rank 3 behind step [0-9]+'
says run/metrics.jsonl '"returned_ranks":\[3\],"ranks_left":\[0,1,2,3,4\]'
last=$(tail -n 1 steps)
if [ -e "run/rank-3-of-5-step-$last.safetensors" ]; then pass; else complain "no part of rank 3 of 5: $(ls run)"; fi
timeout 60 "$redpoll" train --resume run -n 5 --steps $((last + 5)) >out 2>err || complain "it does not go on: $(cat err)"
says out "saved step $((last + 5))"

# ---- the last workers: servers wait for those that are started again, and for nobody else ----
start train -n 4 --strategy parameter-server:servers=2,on-loss=continue --restart 1 --eval-every 5
kill_rank 2 0
kill_rank 3 0
until_true is_back 2 1
until_true is_back 3 1
until_true has_more
kill_rank 2 1
kill_rank 3 1
wait $run
code=$?
if [ $code -eq 1 ]; then pass; else complain "ended with $code: $(tail -n 20 err)"; fi
says out 'rank 3 is back behind step [0-9]+|ranks (2 and 3|3 and 2) are back behind step [0-9]+'
says err 'no worker is left: rank [23], a worker, is gone'

start train -n 2 --strategy async-local-sgd:servers=1,every=5,outer-momentum=.5,on-loss=continue --restart 1 --checkpoint-every 10
kill_rank 1 0
until_true is_back 1 1
stops "2 of 2"

# start_late TIMEOUT WORDS...: a worker that does as these words say when it is started again
start_late() {
    rm -rf run
    # shellcheck disable=SC2016 # the ranks' shells expand it
    timeout 280 "$redpoll" run -n 2 --no-prefix --on-loss continue --restart 1 sh -c 'test -z "$REDPOLL_GENERATION" || '"$2"'; exec "$0" train "$@"' \
        "$redpoll" --model mlp:hidden=16 --data synthetic --train-images 240 --test-images 40 --threads 1 --global-batch-size 24 --link 1Gbit,2ms \
        --out run --strategy parameter-server:servers=1 --on-loss continue --steps "$steps" --timeout "$1" >out 2>err &
    run=$!
    behind 3
    kill_rank 1 0
}
fails() {
    wait $run
    code=$?
    if [ $code -eq 1 ]; then pass; else complain "ended with $code: $(cat out err)"; fi
}
start_late 60 'sleep 1'
until_true is_back 1 1
stops "2 of 2"
if [ "$(grep -c 'no worker is left' out)" -eq 1 ]; then pass; else complain "said once: $(cat out)"; fi
says out 'no worker is left; waiting for rank 1, which is started again'
start_late 1 'sleep 60'
fails
says err 'timed out: no worker is left \(rank 1, a worker, is gone .*\), and none that was started again has asked for its place in 1 s \(--timeout\)'
start_late 60 'exit 7'
fails
says err 'rank 1 ended with exit code 7; the others may go on'
says err 'no worker is left: rank 1, a worker, is gone'

# ---- one of two that were lost, by redpoll run: the other has used up its restarts ----
start run -n 5 --on-loss continue --restart 1 "$redpoll" train --strategy parameter-server:servers=1 --on-loss continue
kill_rank 1 0
until_true is_back 1 1
kill_rank 1 1
kill_rank 3 0
until_true is_back 3 1
kill_rank 4 0
until_true is_back 4 1
stops "4 of 5"
says err 'rank 1 was killed by signal 9 \(Killed\); the others may go on'
says out 'rank 4 is lost .*; ranks 0, 2 and 3 go on'
says out 'rank 4 is back behind step [0-9]+; ranks 0, 2, 3 and 4 go on'
never_says out 'rank [0-9] is lost .*\(rank [0-9], a worker, is gone \(connection closed by peer\)\)' 'rank ([0-9]) is lost .*\(rank \1, a worker, is gone \(connection closed by peer\)\)'

# ---- who comes back with other options, or too late ----
# start_changed WORDS...: of which those behind the program are said by ranks that were started again
start_changed() {
    change=$1
    rm -rf run
    # shellcheck disable=SC2016 # the ranks' shells expand it
    timeout 280 "$redpoll" run -n 3 --no-prefix --on-loss continue --restart 1 sh -c "$change"'; exec "$0" train "$@" $more' "$redpoll" \
        --model mlp:hidden=16 --data synthetic --train-images 240 --test-images 40 --threads 1 --global-batch-size 24 --link 1Gbit,2ms --out run \
        --strategy parameter-server:servers=1 --on-loss continue --steps "$steps" >out 2>err &
    run=$!
    behind 3
    kill_rank 2 0
}
start_changed 'more=${REDPOLL_GENERATION:+--lr 0.1}'
until_true grep -q 'nobody has come back' out
until_true grep -q 'rank 2 ended with exit code' err
pkill -TERM -P $run
wait $run
says err "rank 2 has '--lr 0.1', rank 0 has '--lr 0.05'; start all ranks alike"
says err 'rank 2 ended with exit code 1; the others may go on'
says out "note: nobody has come back: .*--lr 0.1"
says out '2 of 3 ranks have ended the run'

# ---- mistakes: code 2, and what to type ----
# refused PATTERN WORDS...
refused() {
    wanted=$1
    shift
    timeout 30 "$redpoll" "$@" >out 2>err
    code=$?
    if [ $code -eq 2 ]; then says err "$wanted"; else complain "$*: ends with $code: $(cat err)"; fi
}
refused 'gossip takes back no rank .*; async-local-sgd and parameter-server take' train --data synthetic -n 4 --strategy gossip:on-loss=continue --restart 1
refused 'the death of a worker ends the run; say --on-loss continue' train --data synthetic -n 4 --strategy parameter-server:servers=1 --restart 1
refused 'say --on-loss continue, too' run -n 2 --restart 1 true
if [ -z "${REDPOLL_LONG_TESTS:-}" ]; then
    finish
    exit
fi

# ---- too late ----
steps=200
start_changed 'while [ -n "$REDPOLL_GENERATION" ] && ! grep -q "results are in" out; do sleep .1; done'
wait $run
code=$?
if [ $code -eq 0 ]; then pass; else complain "ended with $code: $(tail -n 20 err)"; fi
says err 'rank 2 came back when the run was over'

steps=1000000
# ---- again while it is taken back, where nobody waits for anybody ----
start train -n 4 --strategy async-local-sgd:servers=1,every=5,outer-momentum=.5,on-loss=continue --restart 2 --codec q8
kill_rank 2 0
kill_rank 2 1
until_true is_back 2 2
stops "4 of 4"

# ---- ten times: of what a return opens nothing stays but that of the latest ----
open_files() { find "/proc/$(pids 0 0 | tail -n 1)/fd" | wc -l; }
start train -n 4 --strategy parameter-server:servers=1,staleness=inf,on-loss=continue --restart 10
generation=0
while [ $generation -lt 10 ]; do
    kill_rank 3 $generation
    generation=$((generation + 1))
    until_true is_back 3 $generation
    [ $generation -eq 2 ] && files=$(open_files)
done
now=$(open_files)
if [ "$now" -le "$((files + 2))" ]; then pass; else complain "rank 0 has $now open files, and had $files after two returns"; fi
stops "4 of 4"
finish
