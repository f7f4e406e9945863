#!/bin/sh
# Three ranks, each on a host of its own (a network namespace on a bridge), of which one is stopped
# or cut off: the others say so and end, also when it was rank 0, which serves the store. A path that
# is cut between two ranks is named as what it is by all.
# usage: network_test.sh REDPOLL
# shellcheck disable=SC2086 # options are kept as words
set -u
redpoll=$1

tests=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=bench/netns.sh
. "$tests/../../bench/netns.sh"
if ! netns_possible; then
    echo "skipped: no network namespaces with a bridge here (they need root, ip and tc)"
    exit 77
fi
# shellcheck source=tests/cli/processes.sh
. "$tests/processes.sh"
nothing_left() {
    within 5 none_running || complain "processes are left: $(running | tr '\n' ' ')"
}

# ---- hosts ----

hosts="0 1 2"
# shellcheck disable=SC2154 # of netns.sh
cut_off() { ip -n "$netns_switch" link set "v$$-$1" down; }
# Nothing gets from one host to the other, which hear everybody else: frames go to a station that
# is not there.
cut_path() {
    deafen "$1" "$2"
    deafen "$2" "$1"
}
deafen() {
    netns_exec "$1" ip neighbour replace "$(netns_address "$2")" lladdr 02:00:00:00:00:99 \
        dev eth0 nud permanent
}
mend() {
    for each in $hosts; do
        ip -n "$netns_switch" link set "v$$-$each" up
        netns_exec "$each" ip neighbour flush dev eth0 nud permanent
        netns_exec "$each" ip neighbour flush dev eth0
    done
    port=$((port + 1))
}

# ---- ranks ----

# on_hosts WORDS...: a rank of the command on each host
on_hosts() {
    for rank in $hosts; do on_host "$rank" "$@"; done
}
on_host() {
    rank=$1
    shift
    start ip netns exec "$(netns_host "$rank")" env "RANK=$rank" WORLD_SIZE=3 "MASTER_ADDR=$(netns_address 0)" \
        "MASTER_PORT=$port" "$redpoll" "$@" >"out.$rank" 2>"err.$rank"
    eval "by_hand_$rank=\$!"
}
steps_done() { [ -s run/metrics.jsonl ] && [ "$(wc -l <run/metrics.jsonl)" -gt "$1" ]; }
is_in_loops() { grep -q 'rank 0 of 3' out.0 && sleep 1.5; }
limits="--timeout 3s --warn-after 3s --connect-timeout 5s"
start_training() {
    on_hosts train --model mlp --data synthetic --global-batch-size 48 --steps 1000000 --out run \
        --no-eval $limits
    within 30 steps_done 5 || { complain "the run does not get going:" && show out.? err.?; }
}
start_bench() {
    on_hosts bench all-reduce --count 300000 --iters 100000 $limits
    within 30 is_in_loops || { complain "the bench does not get going:" && show out.? err.?; }
}
# A survivor has its error after the timeout, and ends soon after: far below the half minute in
# which rank 0 might still answer.
survivors_end() {
    for rank in "$@"; do
        eval "launcher=\$by_hand_$rank"
        within 15 has_ended "$launcher" || complain "rank $rank has not ended:"
        ends 1
    done
}

# ---- cases ----

# lose_rank_0 COMMAND HOW
lose_rank_0() {
    start_"$1"
    case $2 in
    stopped) kill -STOP "$(pid_of 0)" ;;
    cut) cut_off 0 ;;
    esac
    survivors_end 1 2
    for rank in 1 2; do said_once "err.$rank" '' '.*no progress.*rank 0 '; done
    if [ "$2" = cut ]; then
        survivors_end 0
        said_once err.0 '' '.*no progress.*rank [12] '
    fi
    kill_all
    mend
}

pair='rank 1 has heard nothing from rank 2|rank 2 has heard nothing from rank 1'
# Rank 0 hears both ends of the path: it may not name itself, nor only one of them.
a_path_is_cut() {
    start_"$1"
    cut_path 1 2
    survivors_end $hosts
    for rank in $hosts; do
        said_once "err.$rank" '' ".*no progress.*($pair), though both are alive.*network"
        grep -q 'from rank 0' "err.$rank" && complain "rank 0 is accused:" && show "err.$rank"
    done
    mend
}
a_path_is_cut_while_joining() {
    cut_path 1 2
    on_hosts bench all-reduce $limits
    survivors_end $hosts
    for rank in $hosts; do
        said_once "err.$rank" '' '.*ranks 1 and 2 did not connect to each other.*network'
        grep -q 'did not arrive' "err.$rank" && complain "who is here is accused:" && show "err.$rank"
    done
    mend
}

netns_up 3 unlimited
trap 'kill_all; netns_down; cd /; rm -rf "$folder"' EXIT
for how in stopped cut; do
    for command in bench training; do
        check "rank 0 of a $command is $how" lose_rank_0 $command $how
    done
done
for command in bench training; do
    check "a path between two ranks of a $command is cut" a_path_is_cut $command
done
check 'a path is cut while ranks join' a_path_is_cut_while_joining

[ $failed -eq 0 ] || echo "$failed cases failed"
[ $failed -eq 0 ]
