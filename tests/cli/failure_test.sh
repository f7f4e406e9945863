#!/bin/sh
# Ranks that die, stop, disagree or never come, as real processes: every survivor says which rank,
# which operation and which phase, and nothing stays behind. usage: failure_test.sh REDPOLL
# shellcheck disable=SC2046,SC2086 # options are kept as words
set -u
redpoll=$1

# A network, /dev/shm and process ids of our own, where they can be had, make it easy to see what
# is left; without them only processes and files are looked at.
own_world="unshare --net --mount --pid --fork --kill-child --mount-proc"
if [ -z "${FAILURE_TEST_WORLD:-}" ]; then
    FAILURE_TEST_WORLD=shared
    for user in "" "--user --map-root-user"; do
        if $own_world $user sh -c 'ip link set lo up && mount -t tmpfs none /dev/shm' 2>/dev/null; then
            FAILURE_TEST_WORLD=own
            break
        fi
    done
    export FAILURE_TEST_WORLD
    [ $FAILURE_TEST_WORLD = own ] && exec $own_world $user sh "$0" "$@"
elif [ "$FAILURE_TEST_WORLD" = own ]; then
    ip link set lo up && mount -t tmpfs none /dev/shm || exit 1
fi

tests=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/processes.sh
. "$tests/processes.sh"

in_state() { awk -v states="$1" 'FNR > 1 && index(states, $4) { n++ } END { exit n > 0 }' /proc/net/tcp; }
no_sockets() {
    [ "$FAILURE_TEST_WORLD" = shared ] && return 0
    in_state '01 08 0A' && [ "$(wc -l </proc/net/unix)" -le 1 ] # established, half closed, listening
}
no_files() {
    [ -z "$(ls -A temporary)" ] || return 1
    [ "$FAILURE_TEST_WORLD" = shared ] || [ -z "$(ls -A /dev/shm)" ]
}
nothing_left() {
    within 5 none_running || complain "processes are left: $(running | tr '\n' ' ')"
    within 5 no_sockets || complain "sockets are left: $(cat /proc/net/tcp /proc/net/unix)"
    no_files || complain "files are left: $(ls -A temporary /dev/shm)"
}

# ---- starting ranks ----

train="train --model mlp --data synthetic --global-batch-size 48 --steps 1000000 --out run --no-eval"
# launch WORDS...: three ranks of a command behind prefixes; $launcher
launch() {
    start "$redpoll" run -n 3 --grace 1s "$redpoll" "$@" >out 2>err
    launcher=$!
}
steps_done() { [ -s run/metrics.jsonl ] && [ "$(wc -l <run/metrics.jsonl)" -gt "$1" ]; }
# A run that has saved a checkpoint or two.
launch_training() {
    launch $train --checkpoint-every 20 "$@"
    within 30 steps_done 30 || { complain "the run does not get going:" && show out err; }
}
# ---- cases ----

# In what it was; with the round where it had begun to move data, which a rank that has just posted has not.
phase='(all-reduce|barrier|broadcast|all-gather|receive|send) [0-9]+'
survivors() { for rank in 0 1 2; do [ $rank -ne "$1" ] && echo $rank; done; }
# names_the_dead RANK: the launcher and each survivor do
names_the_dead() {
    has err "rank $1 was killed by signal 9"
    for survivor in $(survivors "$1"); do
        said_once err "\[$survivor\] " ".*rank $1 .*$phase|.*$phase.*rank $1 "
    done
}
a_rank_of_a_run_dies() {
    victim=$1
    shift
    launch_training "$@"
    kill -9 "$(pid_of "$victim")"
    ends 137
    names_the_dead "$victim"
}
is_in_loops() { grep -q 'rank 0 of 3' out && sleep 1.5; }
a_rank_of_a_bench_dies() {
    victim=$1
    shift
    launch bench all-reduce --count 300000 --iters 100000 "$@"
    within 20 is_in_loops
    kill -9 "$(pid_of "$victim")"
    ends 137
    names_the_dead "$victim"
}
the_launcher_dies() {
    launch_training
    kill -9 $launcher
    ends 137
}
# Ranks below shells, and a launcher below a rank, which must be gone as well.
the_launcher_of_shells_dies() {
    start "$redpoll" run -n 3 sh -c "$1" >out 2>err
    launcher=$!
    within 20 is_in_loops || { complain "the ranks do not get going:" && show out err; }
    kill -9 $launcher
    ends 137
}
all_die() {
    launch_training "$@"
    kill_all
    ends 137
}
ctrl_c() {
    start "$redpoll" $train -n 3 >out 2>err
    launcher=$!
    within 30 steps_done 30 || { complain "the run does not get going:" && show out err; }
    kill -INT $launcher
    ends 130
    has err 'stopping the ranks: signal 2'
}

a_rank_stops() {
    victim=$1
    shift
    launch_training --warn-after 1s --timeout 3s "$@"
    kill -STOP "$(pid_of "$victim")"
    ends 1
    for survivor in $(survivors "$victim"); do
        has err "\[$survivor\] redpoll: warning: .*$phase.*rank $victim "
        said_once err "\[$survivor\] " ".*$phase.*rank $victim "
    done
}
# Rank 0 waits for several times the timeout, but rank 1 is alive and computes.
a_rank_computes_long() {
    common="train --model mlp:hidden=512x512 --data synthetic --global-batch-size 1024 --no-eval
        --steps 1 --timeout 200ms --warn-after 100ms --no-checkpoint --threads 1"
    by_hand 0 2 $common --out run
    by_hand 1 2 $common --out run --backend reference
    rank_ends 0 0
    rank_ends 1 0
    has err.0 'warning: .*rank 1 '
}

bench="bench all-reduce --count 1000 --connect-timeout 2s --timeout 5s --warn-after 2s"
a_peer_never_comes() {
    for rank in 0 1 2; do
        [ $rank -eq "$1" ] || by_hand $rank 3 $bench
    done
    for rank in $(survivors "$1"); do
        rank_ends "$rank" 1
        said_once "err.$rank" '' ".*rank $1[ :].*"
    done
}
a_wrong_world() {
    by_hand 0 3 $bench
    by_hand 1 3 $bench
    by_hand 2 4 $bench
    for rank in 0 1 2; do
        rank_ends $rank 1
        said_once "err.$rank" '' ".*size of the world.*'[34]'.*'[34]'"
    done
}
a_taken_port() {
    start perl -MIO::Socket::INET -e \
        "\$s = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 5) or exit 1;
         print \"listening\n\"; \$| = 1; print ''; sleep 60" >out 2>err
    within 10 grep -q listening out || complain "nobody takes the port"
    by_hand 0 2 $bench
    by_hand 1 2 $bench
    rank_ends 0 1
    said_once err.0 '' ".*port $port .*is taken"
    rank_ends 1 1
    said_once err.1 '' ".*(rank 0|$port)"
    kill_all
}
# ranks_differ PATTERN WORDS OF RANK 0 / WORDS OF RANK 1
ranks_differ() {
    by_hand 0 2 $bench $2
    by_hand 1 2 $bench $3
    for rank in 0 1; do
        rank_ends $rank 1
        said_once err.$rank '' "$1"
    done
}
runs_differ() {
    by_hand 0 2 $train --lr 0.1
    by_hand 1 2 $train --lr 0.2
    for rank in 0 1; do
        rank_ends $rank 1
        said_once err.$rank '' ".*--lr 0.2.*--lr 0.1"
    done
}

# resumes WORDS...: the run goes on to its end
resumes() {
    if ! timeout 60 "$redpoll" run -n 3 "$redpoll" $train "$@" --resume run >out 2>err; then
        complain "the run cannot be resumed:" && show err
    fi
}
# holds_checkpoints STEP: the newest is of this step, one or two stand before it, each with the parts of its ranks;
# and nothing of one that went or was never finished
holds_checkpoints() {
    earlier=$(ls run | sed -n 's/^model-step-\([0-9]*\)\.safetensors$/\1/p')
    wanted=$(
        printf '%s\n' metrics.jsonl model.safetensors settings.json
        for step in $1 $earlier; do
            [ "$step" = "$1" ] || echo "model-step-$step.safetensors"
            for rank in 0 1 2; do echo "rank-$rank-of-3-step-$step.safetensors"; done
        done
    )
    [ "$(ls run | sort)" = "$(echo "$wanted" | sort)" ] || complain "files of no checkpoint are left: $(ls run | tr '\n' ' ')"
    case $(echo "$earlier" | wc -w) in 1 | 2) ;; *) complain "before the newest are: $earlier" ;; esac
}
after_a_death_the_run_goes_on() {
    a_rank_of_a_run_dies 1 --codec q4
    steps=$(grep -c '"step":' run/metrics.jsonl)
    resumes --codec q4 --steps $((steps + 25)) --checkpoint-every 10
    has out "saved step $((steps + 25)) "
    holds_checkpoints $((steps + 25))
}
death_while_saving() {
    words="--model mlp:hidden=768x768 --codec q4 --checkpoint-every 1"
    launch $train $words
    within 30 steps_done 3 || complain "the run does not get going"
    for pause in 0.01 0.07 0.13 0.02 0.05 0.11 0.03 0.09; do
        sleep $pause
        kill_all
        ends 137
        within 5 none_running
        steps=$(wc -l <run/metrics.jsonl)
        launch $train $words --resume run
        within 30 steps_done $((steps + 3)) || { complain "the run cannot be resumed:" && show err; }
    done
    kill_all
    ends 137
    within 5 none_running
    step=$(grep -c '"step":' run/metrics.jsonl)
    touch run/rank-1-of-3-step-7.safetensors.tmp # as a death at step 7 leaves it
    resumes $words --steps $((step + 2))
    last=$(grep -o 'saved step [0-9]*' out | tail -n 1)
    holds_checkpoints "${last#saved step }"
}

for transport in '--transport shm' '--transport tcp' '--link 1Gbit,50us'; do
    for victim in 0 1 2; do
        check "train $transport: rank $victim is killed" a_rank_of_a_run_dies $victim $transport
    done
    check "bench $transport: rank 1 is killed" a_rank_of_a_bench_dies 1 $transport
    check "train $transport: all processes are killed" all_die $transport
done
check 'the launcher is killed' the_launcher_dies
check 'the launcher of shells is killed' the_launcher_of_shells_dies \
    "'$redpoll' bench all-reduce --count 300000 --iters 100000; true"
check 'the launcher of launchers is killed' the_launcher_of_shells_dies \
    "env -u REDPOLL_STORE '$redpoll' run -n 3 -- sh -c \"'$redpoll' bench all-reduce --count 30000 --iters 100000; true\""
check 'Ctrl-C ends all' ctrl_c
check 'rank 1 is stopped, shm' a_rank_stops 1
check 'rank 0 is stopped, tcp' a_rank_stops 0 --transport tcp
check 'a rank that computes long is left in peace' a_rank_computes_long
for missing in 0 2; do
    port=$((port + 1))
    check "rank $missing never comes" a_peer_never_comes $missing
done
port=$((port + 1))
check 'one rank has another world size' a_wrong_world
port=$((port + 1))
if perl -MIO::Socket::INET -e 1 2>/dev/null; then
    check 'another program has the port' a_taken_port
else
    echo 'skipped another program has the port: no perl'
fi
port=$((port + 1))
check 'ranks differ in --count' ranks_differ '.*1000 f32.*1001 f32|.*1001 f32.*1000 f32' '' '--count 1001'
port=$((port + 1))
check 'ranks differ in --codec' ranks_differ '.*q8.*q4|.*q4.*q8' '--codec q4' '--codec q8'
port=$((port + 1))
check 'ranks differ in --dtype' ranks_differ '.*bf16.*f32|.*f32.*bf16' '' '--dtype bf16'
port=$((port + 1))
check 'ranks differ in --transport' ranks_differ ".*'shm'.*'tcp'|.*'tcp'.*'shm'" '--transport tcp' '--transport shm'
port=$((port + 1))
check 'ranks differ in --lr' runs_differ
check 'after a death the run goes on' after_a_death_the_run_goes_on
check 'death while a checkpoint is written' death_while_saving

[ $failed -eq 0 ] || echo "$failed cases failed"
[ $failed -eq 0 ]
