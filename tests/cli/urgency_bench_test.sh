#!/bin/sh
# bench/urgency.sh runs: it must not rot while nobody measures. No time is asserted.
# usage: urgency_bench_test.sh REDPOLL
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
redpoll=$1
build=$(cd "$(dirname "$redpoll")/../.." && pwd)
bench=$(cd "$(dirname "$0")/../../bench" && pwd)
. "$(dirname "$0")/../harness/cases.sh"

has() { # FILE PATTERN
    if grep -qE -e "$2" "$1"; then pass; else complain "$1 lacks '$2': $(cat "$1" err)"; fi
}

ROUNDS=1 LINK=10Gbit,10us MORE='--rounds 4 --bulk 64K --every 0' sh "$bench/urgency.sh" "$build" >out 2>err ||
    complain "it fails: $(cat err)"
for transport in shm tcp; do has out ", $transport at 10Gbit,10us:\$"; done
for row in alone beside declared; do
    has out "^  $row +median +[0-9.]+ ms   99 % +[0-9.]+ ms   bulk +[0-9.]+ MB/s\$"
done

timeout 60 "$redpoll" run -n 2 "$build/bench/urgency" --bulk 64K --queued 2 --rounds 4 --codec q4 --every 0 >out 2>err ||
    complain "$(cat err)"
has out '"small":[0-9]+,"median_us":[0-9.]+,.*"bulk_bytes_s":[0-9.e+]+}'

"$build/bench/urgency" --priority high >out 2>err && complain "there is no priority high"
has err "priority 'high' is none; bulk, normal and urgent are"
"$build/bench/urgency" --hurry >out 2>err
code=$?
[ $code -eq 2 ] || complain "a wrong option ends with $code, not 2"
sh "$bench/urgency.sh" "$folder" >out 2>err && complain "no build, and it says nothing"
has err 'is missing: build first'
finish
