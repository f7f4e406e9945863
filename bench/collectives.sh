#!/bin/sh
# Every collective over a sweep of sizes on one machine, each result compared with the serial answer.
# usage: bench/collectives.sh BUILD [RANKS] [SIZES] [OPTIONS of redpoll bench ...]
set -eu
redpoll=$1/src/cli/redpoll ranks=${2:-2} sizes=${3:-64KiB,1MiB,4MiB,16MiB,64MiB}
shift "$(($# < 3 ? $# : 3))"

for collective in $("$redpoll" --help | awk '$1 == "bench" && $2 != "codec" {print $2}'); do
    case $collective in barrier) set_sizes= ;; *) set_sizes="--sizes $sizes" ;; esac
    # shellcheck disable=SC2086 # words, or none
    "$redpoll" bench "$collective" -n "$ranks" $set_sizes --iters 11 --warmup 3 "$@" | grep -v '^rank '
    echo
done
