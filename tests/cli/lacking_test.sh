#!/bin/sh
# Too few open files, too little memory: a launch works, or ends at once and says what to raise.
# It never waits for a deadline that says something else. usage: lacking_test.sh REDPOLL
# shellcheck disable=SC2086 # options are kept as words
set -u
redpoll=$1
. "$(dirname "$0")/../harness/cases.sh"

# The test's own descriptors would count.
for fd in 3 4 5 6 7 8 9; do eval "exec $fd>&-"; done

# open_files LIMIT OPTIONS...
open_files() {
    limit=$1 && shift
    sh -c "ulimit -n $limit; exec timeout 60 '$redpoll' bench all-reduce --count 1000 --iters 1 --connect-timeout 20 $*" >out 2>err
    code=$?
    if [ $code -eq 0 ] && grep -q equal out; then
        pass
    elif [ $code -ne 0 ] && grep -q "ulimit -n" err && ! grep -q "timed out" err; then
        pass
    else
        complain "with $limit open files ($*): exit code $code, $(cat out err)"
    fi
}
for limit in 5 6 7 8 9 11 13 16 19 22 24 25 26 27 28 30 32 34 36; do open_files $limit -n 2; done
for limit in 12 20 24 28 32 36 40; do open_files $limit -n 3 --transport tcp; done
for limit in 25 27 29 31; do REDPOLL_CONNECT=need open_files $limit -n 2; done
# What was needed is said, and for which world.
open_files 20 -n 2
if grep -q "rank [01] of 2 needs about [0-9]* more open files" err; then pass; else complain "$(cat err)"; fi

# ---- memory ----

sh -c "ulimit -v 600000; exec '$redpoll' bench all-reduce -n 2 --sizes 8GB --iters 1 --connect-timeout 20" >out 2>err
code=$?
if [ $code -ne 0 ] && grep -q "ulimit -v" err && ! grep -q "timed out" err; then
    pass
else
    complain "with too little memory: exit code $code, $(cat out err)"
fi
finish
