#!/bin/sh
# redpoll run -H over a stand-in for ssh, which runs the command here, in another folder and with
# none of our environment, or fails as ssh and other hosts do: ranks find their places, what is wrong
# with hosts is said of all at once, and nothing stays behind. usage: hosts_test.sh REDPOLL
# shellcheck disable=SC2016,SC2046,SC2086 # scripts are for the ranks; options are kept as words
set -u
redpoll=$1
tests=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/processes.sh
. "$tests/processes.sh"
unset SLURM_JOB_NODELIST SLURM_STEP_ID SLURM_TASKS_PER_NODE PBS_NODEFILE
mkdir home work && : >calls

cat >ssh-here <<'EOF'
#!/bin/sh
# ssh [OPTIONS] HOST COMMAND: what a host does goes by the first word of its name.
words="$*"
while [ "${1#-}" != "$1" ]; do
    [ "$1" = -o ] && shift
    shift
done
host=$1 command=$2
echo "$words" >>"$STAND_IN/calls"
case $host in
refused*) echo "ssh: connect to host $host port 22: Connection refused" >&2 && exit 255 ;;
password*) echo "$host: Permission denied (publickey,password)." >&2 && exit 255 ;;
unknown*) echo "Host key verification failed." >&2 && exit 255 ;;
nowhere*) echo "ssh: Could not resolve hostname $host: Name or service not known" >&2 && exit 255 ;;
hang*) exec sleep 100 ;;
prompt*) echo "me@$host's password: " >&2 && exec sleep 100 ;;
older*) printf 'welcome\n\nredpoll-agent 1 0.0.1\n' && exec sleep 100 ;;
ancient*) echo "redpoll: unknown option '--agent'; --help lists the options" >&2 && exit 2 ;;
bare*) echo "sh: 1: exec: redpoll: not found" >&2 && exit 127 ;;
crash*) echo "Connection closed by remote host" >&2 && exit 3 ;;
noisy*) echo "stty: standard input: Inappropriate ioctl" >&2 && echo "Welcome to $host!" ;;
esac
cd "$STAND_IN/home" || exit 1
exec env -i "HOME=$STAND_IN/home" PATH=/usr/bin:/bin "REDPOLL_TEST_MARK=$REDPOLL_TEST_MARK" \
    "AT_HOME=$host" sh -c "$command"
EOF
chmod +x ssh-here
export STAND_IN="$folder" REDPOLL_SSH="$folder/ssh-here"
cd work || exit 1

nothing_left() { within 10 none_running || complain "processes are left: $(ps -fp $(running))"; }
# launch WORDS...: in the background; on_hosts CODE WORDS...: to its end
launch() {
    start "$redpoll" run "$@" >out 2>err </dev/null
    launcher=$!
}
on_hosts() {
    wanted=$1
    shift
    launch "$@"
    ends "$wanted"
}
# is FILE TEXT: the lines of a file, sorted, are these
is() { [ "$(sort "$1")" = "$2" ] || { complain "$1 is not '$2':" && show "$1"; }; }

places() {
    on_hosts 0 -H big:2,small:1 sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $AT_HOME'
    is out "[0] 0/3 0/2 big
[1] 1/3 1/2 big
[2] 2/3 0/1 small"
    on_hosts 0 -n 2 -H big:1,small:4 --no-prefix -- sh -c 'echo $RANK $AT_HOME'
    is out "0 big
1 small"
    printf 'big slots=1\nsmall:1\n' >list
    on_hosts 0 --hostfile list sh -c 'echo $AT_HOME'
    is out "[0] big
[1] small"
    on_hosts 0 -H noisy:1,big:1 sh -c 'echo $AT_HOME'
    is out "[0] noisy
[1] big"
    on_hosts 0 -H localhost:2 sh -c 'echo $RANK of $WORLD_SIZE'
    is out "[0] 0 of 2
[1] 1 of 2"
}

batch_systems() {
    SLURM_JOB_NODELIST='n[1-2]' SLURM_TASKS_PER_NODE='2,1' on_hosts 0 sh -c 'echo $AT_HOME'
    is out "[0] n1
[1] n1
[2] n2"
    has err '3 ranks on 2 hosts, by SLURM_JOB_NODELIST \(n\[1-2\]\)'
    printf 'p1\np2\np1\n' >nodes
    PBS_NODEFILE=nodes on_hosts 0 sh -c 'echo $AT_HOME'
    is out "[0] p1
[1] p1
[2] p2"
    SLURM_JOB_NODELIST='n[1-2]' on_hosts 0 -n 1 sh -c 'echo ${AT_HOME-here}'
    is out "[0] here"
    SLURM_JOB_NODELIST='n[1-2]' SLURM_STEP_ID=0 on_hosts 2 true
    has err 'how many ranks'
}

collectives() {
    on_hosts 0 -H big:2,small:2 "$redpoll" bench all-reduce --count 1000 --iters 2 --json
    has out '"ranks": *4'
    has err 'rank 0 of 4, found by redpoll run'
}

# Folder, variables and arguments of any bytes.
forwarding() {
    mkdir -p "a b"
    odd=$(printf 'quote'"'"' "double" $HOME `id` \\ * new\nline')
    NOT_PASSED=1 PASSED="$odd" REDPOLL_LOG=error on_hosts 0 -H big -x PASSED -x "GIVEN=a=b c" --wdir "$PWD/a b" --no-prefix -- \
        sh -c 'printf "%s|" "$PWD" "$PASSED" "$GIVEN" "${NOT_PASSED-none}" "$REDPOLL_LOG" "${REDPOLL_SSH-none}" "$@"' \
        zero "$odd" "" "--flag"
    printf '%s|' "$PWD/a b" "$odd" "a=b c" none error none "$odd" "" "--flag" >wanted
    cmp -s out wanted || { complain "what came is:" && show out wanted; }
    on_hosts 0 -H big --wdir "a b" --no-prefix sh -c 'echo "$PWD"'
    is out "$PWD/a b"
    on_hosts 0 -H big sh -c 'test -t 0 || cat; echo end'
    is out "[0] end"
    on_hosts 2 -H big -x NOT_THERE true
    has err 'NOT_THERE is not set here; NOT_THERE=VALUE'
    on_hosts 2 -H big -x RANK=3 true
    has err 'RANK is set for each rank by redpoll run'
    on_hosts 0 -n 1 -x GIVEN=here --wdir "a b" sh -c 'echo "$GIVEN ${PWD##*/}"'
    is out "[0] here a b"
}

# Here and by an agent: each rank has a core that no other one has, where there are two.
bindings() {
    cores=$(sort -u /sys/devices/system/cpu/cpu[0-9]*/topology/core_id 2>/dev/null | wc -l)
    if [ "$(nproc)" -ge "$cores" ] && [ "$cores" -gt 1 ]; then
        for where in "-n 2" "-H big:2"; do
            on_hosts 0 $where --bind-to core --no-prefix sh -c 'grep Cpus_allowed_list /proc/self/status'
            [ "$(sort -u out | wc -l)" -eq 2 ] || { complain "two ranks are on the same cores:" && show out; }
        done
    fi
    on_hosts 0 -n 2 --bind-to numa true
    on_hosts 0 -n 1 --bind-to numa --report-bindings sh -c 'grep Cpus_allowed_list /proc/self/status'
    list=$(sed -n 's/.*Cpus_allowed_list:[[:space:]]*//p' out)
    has err "^\\[0\\] (bound|the kernel does not allow all of this: bound) to processors? $list( and memory of NUMA nodes? [-0-9,]+)?\$"
    on_hosts 0 -H big:1 --bind-to core --report-bindings true
    has err '^\[0\] .*bound to processors? [-0-9,]+'
    on_hosts 0 -n 2 --report-bindings true
    ! grep -q bound err || { complain "ranks that nobody bound say that they are:" && show err; }
    if "$redpoll" info --json | grep -q '"hwloc":"[0-9]'; then
        HWLOC_SYNTHETIC='pack:2 numa:2 core:2 pu:2' on_hosts 0 -n 4 --bind-to numa --report-bindings true
        has err '^\[3\] on a host that is made up, would be bound to processors 12-15 and memory of NUMA node 3$'
    fi
    on_hosts 1 -n 1000 --bind-to core true
    has err '1000 ranks and [0-9]+ cores? to bind them to'
    on_hosts 1 -H big:1,small:1000 --bind-to core true
    has err '^    small: 1000 ranks and [0-9]+ core'
    on_hosts 2 -n 2 --bind-to cores true
    has err "'cores' is not known; none, core, socket or numa"
}

# Neither in what ssh is told nor in the environment of what runs on the way.
the_secret_is_not_to_be_seen() {
    on_hosts 0 -H big:1,small:1 --no-prefix -- sh -c 'test -n "$REDPOLL_SECRET" && echo "$REDPOLL_SECRET" && tr "\0" "\n" </proc/$PPID/environ && tr "\0" "\n" </proc/$PPID/cmdline'
    secret=$(grep -xE '[0-9a-f]{64}' out | sort -u)
    [ "$(echo "$secret" | wc -w)" -eq 1 ] || complain "ranks have not one secret: $secret"
    grep -q "$secret" ../calls && complain "ssh was told the secret"
    [ "$(grep -c "$secret" out)" -eq 2 ] || complain "the agent's words hold the secret"
}

# All ranks use it or none, whoever asked: a mixed job ends at once, on all of them.
encryption() {
    "$redpoll" info | grep -q '^  tls *1.3' || { echo "skipped: no TLS in this build" && return; }
    on_hosts 0 -H big:1,small:1 --tls --no-prefix "$redpoll" bench all-reduce --sizes 64K --transport tcp
    has out 'over tcp.tls., codec fp32'
    on_hosts 0 -H big:1,small:1 --tls --no-prefix sh -c 'echo "$REDPOLL_TLS"'
    is out '1
1'
    # The third rank may lose the first host's store before it has read why.
    for where in "-n 3" "-H big:2,small:1"; do
        on_hosts 1 $where --tls sh -c 'if [ $RANK = 1 ]; then REDPOLL_TLS=0; fi; exec '"$redpoll"' bench all-reduce --sizes 64K'
        for rank in 0 1 $([ "$where" = "-n 3" ] && echo 2); do
            has err "^\\[$rank\\] redpoll: .*rank [02] uses TLS and rank 1 does not: say --tls"
        done
    done
    on_hosts 2 -n 2 env -u REDPOLL_SECRET "$redpoll" bench all-reduce --tls --sizes 64K
    has err 'the job has no secret to make its keys from: start it with `redpoll run`'
}

what_is_wrong_is_said() { # HOST PATTERN
    on_hosts 1 -H "big:1,$1:1" --answer-timeout 8s true
    has err 'nothing was started, for 1 of 2 hosts cannot take part'
    has err "^    $1: $2"
}
unfit_hosts() {
    what_is_wrong_is_said refused 'no ssh server listens there .*--ssh "ssh -p PORT"'
    what_is_wrong_is_said password 'no login without a password .*ssh-copy-id password'
    what_is_wrong_is_said prompt "no login without a password .*me@prompt's password"
    what_is_wrong_is_said unknown 'its key is not known .*ssh-here unknown true'
    what_is_wrong_is_said nowhere 'no host has that name'
    what_is_wrong_is_said older 'has redpoll 0.0.1, and this is [0-9.]+: install the same'
    what_is_wrong_is_said ancient 'its redpoll is of another version'
    what_is_wrong_is_said bare 'there is no redpoll, .*--remote-redpoll PATH'
    what_is_wrong_is_said crash 'the remote shell ended with code 3: Connection closed'
    what_is_wrong_is_said hang 'did not answer in time'
    on_hosts 1 -H refused:1,big:1,password:1,hang:1 --answer-timeout 8s sh -c 'echo started'
    has err '3 of 4 hosts'
    for host in refused password hang; do has err "^    $host: "; done
    is out ""
}

unfit_programs() {
    on_hosts 1 -H big:1,small:1 no-such-program
    has err "^    big: there is no program 'no-such-program' in the PATH there .*-x PATH"
    has err "^    small: there is no program"
    on_hosts 1 -H big ./no-such-program
    has err 'there is no program ./no-such-program; put it there'
    echo text >text
    on_hosts 1 -H big ./text
    has err './text cannot be executed; chmod [+]x'
    on_hosts 1 -H big --wdir /no/such/folder true
    has err 'cannot enter the working folder /no/such/folder \(--wdir'
    PATH="$PWD:$PATH" on_hosts 0 -H big -x PATH sh -c 'case $PATH in */work:*) echo mine ;; esac'
    is out "[0] mine"
}

words() {
    on_hosts 2 -H big:2 --hostfile list true
    has err '-H and --hostfile both'
    on_hosts 2 -H big:2 -n 3 true
    has err '-n is 3, but the hosts have 2 slots; give them more, as in -H big:3'
    on_hosts 2 -H big --lost-after 0.5s true
    has err "'0.5s' is out of range; 1s to"
    on_hosts 2 -H -oProxyCommand=id true
    has err "begins with '-'"
    on_hosts 2 -H big
    has err 'which program'
    on_hosts 1 -H big --ssh no-such-ssh true
    has err "there is no program 'no-such-ssh' here, to reach big by"
    "$redpoll" run --help | grep -q -e --agent && complain "the agent is in the help"
}

failures() {
    on_hosts 7 -H big:2,small:2 --grace 0.3s sh -c 'echo from $RANK; test $RANK = 2 && { echo last word >&2; exit 7; }; exec sleep 100'
    has err 'redpoll run: rank 2 on small ended with exit code 7; its last lines:'
    has err '^    \[2\] last word'
    has err '^\[big\] redpoll run: 2 ranks still running: sending SIGTERM'
    on_hosts 137 -H big:1,small:1 --grace 0.3s sh -c 'test $RANK = 0 && kill -9 $$; exec sleep 100'
    has err 'rank 0 on big was killed by signal 9'
    on_hosts 5 -H big:1,small:1 --output-dir logs/of/it sh -c 'echo to $RANK; echo error >&2; exit $((RANK * 5))'
    is out ""
    is logs/of/it/rank-0.log "error
to 0"
    is logs/of/it/rank-1.log "error
to 1"
    has err 'rank 1 on small ended with exit code 5; its last lines:'
    on_hosts 3 -n 2 --output-dir logs sh -c 'echo to $RANK; exit $((RANK * 3))'
    is logs/rank-1.log "to 1"
    has err 'the rest is in .*/logs/rank-1.log'
}

are_up() { [ "$(grep -c up out)" -eq "$1" ]; }
# A way to a host that is lost takes its ranks along, and is named.
lost_hosts() {
    launch -H big:1,small:2 --grace 0.3s sh -c 'echo up; exec sleep 100'
    within 20 are_up 3 || complain "the ranks do not come up"
    agent=$(for pid in $(running); do
        tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q 'run --agent' &&
            grep -qzx AT_HOME=small "/proc/$pid/environ" && echo "$pid"
    done | head -n 1)
    [ -n "$agent" ] && kill -9 "$agent"
    ends 1
    has err 'the connection to small was lost, with ranks 1 to 2'
}

# The processes of an agent: the first, which started with the remote shell, and the one that keeps the ranks.
agents_of() { # HOST
    for pid in $(running | sort -n); do
        tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -q 'run --agent' &&
            grep -qzx "AT_HOME=$1" "/proc/$pid/environ" && echo "$pid"
    done
}
# Whether it is seen before or after the others end, and whichever process goes first.
lost_hosts_that_the_others_outlive() {
    for others in 'until [ -e go ]; do sleep .05; done' 'true'; do
        for which in head tail; do
            rm -f go
            launch -H big:2,small:2 --on-loss continue sh -c 'echo up; [ $AT_HOME = small ] && exec sleep 100; '"$others"
            within 20 are_up 4 || complain "the ranks do not come up"
            kill -9 $(agents_of small | $which -n 1)
            within 10 grep -q 'connection to small' err || complain "the loss is not said"
            : >go
            ends 0
            has err 'the connection to small was lost, with ranks 2 to 3; the others (may go on|have ended)'
            nothing_left
        done
    done
    launch -H small:1,big:1 --on-loss continue sh -c 'echo up; exec sleep 100'
    within 20 are_up 2 || complain "the ranks do not come up"
    kill -9 $(agents_of small) $(agents_of big)
    ends 1 # nobody is left to end well
}

# Before there is a control connection that would notice. A stopped agent says nothing itself.
a_host_that_is_lost_while_ranks_connect() {
    launch -H big:1,small:1 --lost-after 1s --grace 1s --on-loss continue sh -c 'echo up; [ $AT_HOME = big ] || exec sleep 100
        exec "$0" bench barrier --iters 1 --connect-timeout 10min' "$redpoll"
    within 20 are_up 2 || complain "the ranks do not come up"
    kill -STOP $(agents_of small | tail -n 1)
    ends 1
    has err 'rank 1 was lost with its host, and the ranks cannot connect without it'
    nothing_left
}

# Its kernel and ssh answer for it.
a_stopped_agent() {
    for loss in continue stop; do
        rm -f go
        launch -H big:1,small:1 --lost-after 1s --grace 1s --on-loss $loss sh -c 'echo up; [ $RANK = 1 ] && exec sleep 100; until [ -e go ]; do sleep .05; done'
        within 20 are_up 2 || complain "the ranks do not come up"
        kill -STOP $(agents_of small | tail -n 1)
        within 20 grep -q 'small has said nothing for 6 s: its agent is stopped, or it is cut off' err || complain "it is not noticed"
        has err 'the connection to small was lost, with rank 1'
        : >go
        [ $loss = stop ] && ends 1 || ends 0
        nothing_left
    done
}

stopped_ranks() {
    on_hosts 0 -H big:2,small:1,last:1 --on-loss continue --grace 0.5s sh -c '[ $RANK -eq 1 ] || [ $RANK -eq 3 ] && kill -STOP $$; exit 0'
    has err '^.big. redpoll run: rank 1 is stopped, and the others have ended well: it is killed'
    has err '^.last. redpoll run: rank 3 is stopped'
}

# What ssh is told of it; 30 s when absent.
time_for_hosts() {
    for row in "30:ServerAliveInterval=10 -o ServerAliveCountMax=3" "6:ServerAliveInterval=2 -o ServerAliveCountMax=3" \
        "2:ServerAliveInterval=1 -o ServerAliveCountMax=2" "1:ServerAliveInterval=1 -o ServerAliveCountMax=1" \
        "600:ServerAliveInterval=200 -o ServerAliveCountMax=3"; do
        : >../calls
        on_hosts 0 -H big:1 --lost-after "${row%%:*}s" true
        has ../calls "${row#*:}"
    done
    : >../calls
    REDPOLL_LOST_AFTER=12s on_hosts 0 -H big:1 true
    has ../calls "ServerAliveInterval=4 -o ServerAliveCountMax=3"
}

signals() {
    launch -H big:1,small:1 sh -c 'trap "echo told; exit 0" TERM INT HUP; echo up; while :; do sleep 0.05; done'
    within 20 are_up 2 || complain "the ranks do not come up"
    kill -"$1" "$launcher"
    ends "$2"
    [ "$(grep -c told out)" -eq 2 ] || { complain "not all ranks were told:" && show out err; }
    has err "stopping the ranks: signal"
}
deaf_ranks() {
    launch -H big:1,small:1 --grace 60s sh -c 'trap "" TERM INT; echo up; while :; do sleep 0.05; done'
    within 20 are_up 2 || complain "the ranks do not come up"
    kill -INT "$launcher"
    within 5 grep -q stopping err
    kill -INT "$launcher"
    ends 130
}
a_killed_launcher() {
    launch -H big:1,small:1 sh -c 'trap "" TERM INT HUP; echo up; sleep 100 & while :; do sleep 0.05; done'
    within 20 are_up 2 || complain "the ranks do not come up"
    kill -9 "$launcher"
    wait "$launcher" 2>/dev/null
}
told_to_end_while_hosts_are_looked_at() {
    : >../calls
    launch -H big:1,hang:1 true
    within 10 grep -q hang ../calls
    kill -TERM "$launcher"
    ends 143
}

# Rank 1 dies with another of its host alive, rank 2 as the only one of its own.
deaths_that_the_others_outlive() {
    # the others end when both deaths are told
    dying='case $RANK in [12]) kill -KILL $$ ;; esac; until [ "$(grep -c "may go on" "$0")" -ge 2 ]; do sleep .05; done; echo done'
    on_hosts 0 -H big:2,small:1,last:1 --on-loss continue sh -c "$dying" "$PWD/err"
    has err 'rank 1 on big was killed by signal 9 .*; the others may go on'
    has err 'rank 2 on small was killed by signal 9 .*; the others may go on'
    [ "$(grep -c 'may go on' err)" -eq 2 ] || { complain "a death is told twice:" && show err; }
    is out "[0] done
[3] done"
    on_hosts 137 -H big:2,small:1 --grace 1s sh -c "$dying" "$PWD/err"
    on_hosts 3 -H big:2 --on-loss continue sh -c 'exit $((3 * RANK))' # not killed: it has failed
}

# It fails once rank 0 has ended; and there is no program any more that could be started again.
restarts_that_fail() {
    last='if [ $RANK -eq 0 ]; then until grep -q "is started again" "$0"; do sleep .05; done; echo $$ >"$0.pid"; exit 0; fi
        [ "${REDPOLL_GENERATION:-0}" -eq 0 ] && kill -KILL $$
        until [ -s "$0.pid" ] && ! kill -0 "$(cat "$0.pid")" 2>/dev/null; do sleep .05; done; exit 3'
    for where in "-H big:1,small:1" "-n 2"; do
        rm -f err.pid
        on_hosts 0 $where --on-loss continue --restart 1 sh -c "$last" "$PWD/err"
        has err 'rank 1.* ended with exit code 3; the others have ended'
    done
    cat >once <<'EOF'
#!/bin/sh
[ $RANK -eq 0 ] && : >"$1.up" && until grep -q "the others may go on" "$1" && grep -q "exit code 127" "$1"; do sleep .05; done && exit 0
until [ -e "$1.up" ]; do sleep .05; done
rm "$0" && kill -KILL $$
EOF
    chmod +x once
    on_hosts 0 -H big:1,small:1 --on-loss continue --restart 1 "$PWD/once" "$PWD/err"
    has err 'rank 1.* killed by signal 9 .*; it is started again, and the others may go on'
    has err 'rank 1.* ended with exit code 127; the others may go on'
    [ "$(grep -c 'may go on' err)" -eq 2 ] || { complain "an end is told twice:" && show err; }
}

# Rank 1 dies in its first two lives; as the only one of its host, and beside others. What it ends with in a later one
# is no failure of the job.
ranks_that_are_started_again() {
    life='echo "life ${REDPOLL_GENERATION:-0} of $REDPOLL_RESTART"
        if [ $RANK -eq 0 ]; then until grep -q "; the others may go on" "$0"; do sleep .05; done; exit 0; fi; '
    dying=$life'[ ${REDPOLL_GENERATION:-0} -ge 2 ] && exit 3; sleep 100 & kill -KILL $$'
    for where in "-H big:1,small:1" "-H big:2" "-n 2"; do
        on_hosts 0 $where --on-loss continue --restart 2 sh -c "$dying" "$PWD/err"
        is out "[0] life 0 of 2
[1] life 0 of 2
[1] life 1 of 2
[1] life 2 of 2"
        [ "$(grep -c 'was killed by signal 9 .*; it is started again, and the others may go on' err)" -eq 2 ] ||
            { complain "$where: it was not started twice:" && show err; }
        has err 'rank 1.* ended with exit code 3; the others may go on'
        nothing_left
    done
    on_hosts 0 -n 2 --on-loss continue --restart 1 --output-dir logs sh -c "$dying" "$PWD/err"
    is logs/rank-1.log "life 0 of 1
life 1 of 1"
    has err 'rank 1 was killed by signal 9 .*; the others may go on'
    restarts_that_fail
    on_hosts 2 -n 2 --restart 1 true
    has err 'say --on-loss continue, too'
}

# Killed before it has come, it is replaced; between coming and meeting, all fail at once and for that reason.
deaths_before_the_first_step() {
    cat >early <<'EOF'
if [ "${REDPOLL_GENERATION:-0}" -eq 0 ] && [ $RANK -eq 2 ]; then
    [ "$1" = before ] && kill -KILL $$
    pid=$$
    # It comes by a connection to the store, the first socket that is its own.
    (until readlink /proc/$pid/exe | grep -q redpoll && ls -l /proc/$pid/fd | grep -q socket:; do sleep .05; done; sleep 1; kill -KILL $pid) &
fi
[ "$1" != while ] || [ $RANK -ne 1 ] || { until grep -q "is started again" err; do sleep .05; done; sleep .5; }
exec "$2" train --model mlp --data synthetic --train-images 64 --test-images 16 --global-batch-size 16 --threads 1 --steps 5 \
    --strategy parameter-server:servers=1,on-loss=continue --restart 1 --connect-timeout 10min
EOF
    for where in "-n 3" "-H big:1,small:2"; do
        rm -rf runs
        on_hosts 0 $where --on-loss continue --restart 1 sh early before "$redpoll"
        has out 'step 5/5'
        on_hosts 1 $where --on-loss continue --restart 1 sh early while "$redpoll"
        for rank in 0 1; do
            has err "^\\[$rank\\] redpoll: rank 2 gave up connecting: the process before this one died while the ranks were meeting"
        done
    done
}

# Whoever waits for it to come hears of it from its launcher, long before its time is over.
ends_before_the_others_meet() {
    early='if [ $RANK -eq 2 ]; then until [ -e waits ]; do sleep .05; done; eval "$1"; fi; : >waits
        exec "$0" bench barrier --iters 1 --connect-timeout 10min'
    for where in "-n 3 --on-loss continue" "-H big:1,small:2 --on-loss continue"; do
        for end in 'kill -KILL $$,was killed by signal 9 .Killed.' 'exit 0,ended with exit code 0' 'exit 3,ended with exit code 3'; do
            rm -f waits
            code=1
            [ "${end#exit 3}" = "$end" ] || code=3
            on_hosts $code $where sh -c "$early" "$redpoll" "${end%%,*}"
            has err "rank 2 ${end#*,}, and the ranks cannot connect without it"
        done
    done
}

# Its work had ended, and so it is lost to nobody.
killed_behind_the_end_of_its_work() {
    for where in "-n 3" "-H big:1,small:2"; do
        rm -rf runs met
        on_hosts 0 $where --on-loss continue --restart 1 sh -c '"$0" train --model mlp --data synthetic --train-images 64 --test-images 16 \
            --global-batch-size 16 --threads 1 --steps 3 --strategy parameter-server:servers=1,on-loss=continue --restart 1 || exit 1
            if [ $RANK -eq 2 ]; then until [ -e met ]; do sleep .05; done; kill -KILL $$; fi
            [ $RANK -gt 0 ] || : >met
            until grep -q "rank 2.* was killed" err; do sleep .05; done' "$redpoll"
        has err 'rank 2.* was killed by signal 9 .*; the others may go on'
        ! grep -q 'started again' err || { complain "it is started again:" && show err; }
    done
}

much_output() {
    on_hosts 0 -H big:2,small:2 --no-prefix sh -c 'head -c 3000000 /dev/zero | tr "\0" "x"; echo'
    [ "$(wc -c <out)" -eq 12000004 ] || complain "$(wc -c <out) bytes came"
    "$redpoll" run -H big:2,small:2 yes 2>err | head -n 3 >out
    [ "$(grep -cx '\[[0-3]\] y' out)" -eq 3 ] || { complain "the lines are:" && show out err; }
}

check "places" places
check "batch systems" batch_systems
check "collectives" collectives
check "forwarding" forwarding
check "bindings" bindings
check "the secret is not to be seen" the_secret_is_not_to_be_seen
check "encryption" encryption
check "unfit hosts" unfit_hosts
check "unfit programs" unfit_programs
check "words" words
check "failures" failures
check "lost hosts" lost_hosts
check "lost hosts that the others outlive" lost_hosts_that_the_others_outlive
check "a host that is lost while ranks connect" a_host_that_is_lost_while_ranks_connect
check "a stopped agent" a_stopped_agent
check "stopped ranks" stopped_ranks
check "time for hosts" time_for_hosts
check "deaths that the others outlive" deaths_that_the_others_outlive
check "ranks that are started again" ranks_that_are_started_again
check "deaths before the first step" deaths_before_the_first_step
check "ends before the others meet" ends_before_the_others_meet
check "killed behind the end of its work" killed_behind_the_end_of_its_work
check "SIGINT" signals INT 130
check "SIGTERM" signals TERM 143
check "SIGHUP" signals HUP 129
check "deaf ranks" deaf_ranks
check "a killed launcher" a_killed_launcher
check "told to end while hosts are looked at" told_to_end_while_hosts_are_looked_at
check "much output" much_output

[ $failed -eq 0 ] || exit 1
