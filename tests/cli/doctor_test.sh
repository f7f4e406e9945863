#!/bin/sh
# redpoll doctor over a stand-in for ssh, which runs the command here, or fails as ssh and other hosts
# do: hosts of one machine reach each other, what is wrong with one is said and does not keep the
# others from being measured, and nothing stays behind. usage: doctor_test.sh REDPOLL
# shellcheck disable=SC2046,SC2086 # options are kept as words
set -u
redpoll=$1
tests=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/processes.sh
. "$tests/processes.sh"
# shellcheck source=tests/cli/doctor_output.sh
. "$tests/doctor_output.sh"
unset SLURM_JOB_NODELIST SLURM_STEP_ID SLURM_TASKS_PER_NODE PBS_NODEFILE REDPOLL_PORTS REDPOLL_SOCKET_IFNAME
: >calls

cat >ssh-here <<'EOS'
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
hang*) exec sleep 100 ;;
behind*) cat | env -i PATH=/usr/bin:/bin "REDPOLL_TEST_MARK=$REDPOLL_TEST_MARK" "AT_HOME=$host" sh -c "$command" | cat && exit ;;
older*) printf '\nredpoll-agent 1 0.0.1\n' && exec sleep 100 ;;
ancient*) echo "redpoll: no command is called 'doctor'" >&2 && exit 2 ;;
esac
cd "$STAND_IN" || exit 1
exec env -i PATH=/usr/bin:/bin "REDPOLL_TEST_MARK=$REDPOLL_TEST_MARK" "AT_HOME=$host" sh -c "$command"
EOS
chmod +x ssh-here
export STAND_IN="$folder" REDPOLL_SSH="$folder/ssh-here"

nothing_left() { within 15 none_running || complain "processes are left: $(ps -fp $(running))"; }
is_number() { echo "$1" | grep -qxE '[0-9]+(\.[0-9]+)?' || complain "'$1' is no number for $2"; }

over_tls() {
    "$redpoll" info | grep -q '^  tls *1.3' || { echo "skipped: no TLS in this build" && return; }
    doctor 0 -H big,small --tls --time 0.1s
    has out '^All 2 hosts reach each other'
    has out '^Measured over TLS'
    REDPOLL_TLS=1 doctor 0 --time 0.1s --json
    has out '"tls": *true'
    has out '"mbit_per_s": *[0-9]'
}

one_host() {
    doctor 0 --time 0.1s
    has out '^   0  localhost +[0-9]+ .* 127.0.0.1, lo, MTU [0-9]+$'
    has out '^With itself, over lo: [0-9.]+ [MG]bit/s, latency [0-9.]+ us'
    doctor 0 -H big --time 0.1s --json
    has out '^\{"ready":true,"hosts":\[\{"name":"big","version":"[0-9.]+".*"cores":[0-9]+.*"free_bytes":[0-9]+'
    has out '"from":"big","to":"big","reached":true,"from_end":\{"address":"127.0.0.1","interface":"lo"'
    has out '"latency_us":[0-9.]+,"mbit_per_s":[0-9.e+]+'
    [ "$(wc -l <out)" -eq 1 ] || { complain "that is not one line:" && show out; }
}
some_hosts() {
    doctor 0 -H big:4,small,tiny --time 0.1s
    has out '^   0  big .* 127.0.0.1, lo, MTU'
    has out '^   2  tiny .* 127.0.0.1, lo, MTU'
    has out '^All 3 hosts reach each other. The slowest link is (big|small|tiny) to'
    for from in 0 1 2; do
        for to in 0 1 2; do
            [ $from = $to ] && { [ "$(cell Mbit $from $to)" = - ] || complain "what is $from to itself?"; }
            [ $from = $to ] || { is_number "$(cell Mbit $from $to)" rates; is_number "$(cell Latency $from $to)" latencies; }
        done
    done
    # What is printed as a command is one.
    eval "$(sed -n "s:^    redpoll plan:$redpoll plan:p" out)" >plan 2>&1 || { complain "the command that is offered fails:" && show plan; }
}
sizes() {
    doctor 0 -H big --size 200kB --json
    has out '"bytes":196608,'
    doctor 0 -H big --size 64K --json
    has out '"bytes":65536,'
}
lists() {
    printf 'big slots=4\nsmall\n' >list
    doctor 0 --hostfile list --time 0.05s
    has out '^   1  small '
    SLURM_JOB_NODELIST='n[1-2]' doctor 0 --time 0.05s
    has err '^redpoll doctor: 2 ranks on 2 hosts, by SLURM_JOB_NODELIST'
    has out '^   1  n2 '
    printf 'p1\np2\np1\n' >nodes
    PBS_NODEFILE=nodes doctor 0 --time 0.05s
    has out '^   1  p2 '
}

# Those that can be measured are.
unfit_hosts() {
    doctor 1 -H big,refused,small,hang --time 0.1s --answer-timeout 8s
    has out '^   1  refused +cannot take part'
    has out '^FAILED  refused: no ssh server listens there'
    has out '^FAILED  hang: did not answer in time'
    has out '^Not ready for a job'
    is_number "$(cell Mbit 0 2)" 'hosts beside those that fail'
    [ "$(cell Mbit 0 1)" = '?' ] || complain "what is not tried is '$(cell Mbit 0 1)'"
    doctor 1 -H big,older --time 0.1s
    has out '^FAILED  older: has redpoll 0.0.1, and this is'
    doctor 1 -H ancient,big --time 0.1s
    has out '^FAILED  ancient: its redpoll is of another version'
    doctor 1 -H refused --json
    has out '"ready":false,.*"error":"no ssh server'
}
# Both stand-ins count the ports of one machine, at the same moment. Each examination has ports of its
# own here: agents of the one before may still be about to leave.
ports() {
    doctor 0 -H big,small --time 0.05s --ports $port-$((port + 9))
    has out '^   0  big .* 127.0.0.1, lo, MTU [0-9]+, 10 of 10 ports$'
    has out '^   1  small .* 127.0.0.1, lo, MTU [0-9]+, 10 of 10 ports$'
    doctor 0 -H big,small --time 0.05s --ports $((port + 10))-$((port + 12))
    has out '^note    big: 3 of the 3 ports of REDPOLL_PORTS are free; a rank needs about'
    has out '^note    small: 3 of the 3 ports'
    doctor 1 -H big,small --time 0.05s --ports $((port + 13))-$((port + 13))
    has out '^FAILED  (big|small): all ports of REDPOLL_PORTS'
}
words() {
    printf 'big\n' >list
    doctor 2 -H big --hostfile list
    has err '-H and --hostfile both'
    doctor 2 -H big,,small
    has err 'has an empty word'
    doctor 2 -H big --time 0
    has err "time: '0' is out of range"
    doctor 2 -H big --size 1K
    has err "size: '1K' is out of range"
    doctor 2 -H big --ports 9-8
    has err "'9-8' is no range of ports"
    doctor 2 big
    has err "redpoll doctor --help"
    REDPOLL_SSH=no-such-ssh doctor 2 -H big
    has err "no program 'no-such-ssh' here"
    doctor 0 --help
    has out '^usage: redpoll doctor'
}

# Those who call without the secret: silent ones, as many as there is room for, and one that talks.
strangers() {
    command -v bash >noise || return
    launch -H big,small --ports $port-$((port + 3)) --time 1s --size 1TB
    for each in $port $((port + 1)); do
        start bash -c "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
            until exec {fd}<>/dev/tcp/127.0.0.1/$each; do sleep 0.02; done; done
            echo 'GET / HTTP/1.0' >&\$fd; sleep 8" 2>noise
    done
    ends 0
    has out '^All 2 hosts reach'
    kill_all
}
the_secret_is_not_to_be_seen() {
    launch -H big,small --time 1s --size 1TB
    within 10 eval '[ $(agents | wc -w) -ge 2 ]' || complain "there are no agents"
    for pid in $(agents); do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qE '[0-9a-f]{64}' && complain "an agent's environment holds a secret"
    done
    ends 0
    grep -qE '[0-9a-f]{64}' calls && complain "ssh was told a secret"
}

agents() {
    for pid in $(running); do
        tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q 'doctor --agent' && echo "$pid"
    done
}
agent_of() {
    for pid in $(agents); do
        grep -qzx "AT_HOME=$1" "/proc/$pid/environ" && echo "$pid" && return
    done
}
agent_is_there() { [ -n "$(agent_of "$1")" ]; }
a_lost_host() {
    launch -H big,small,tiny --time 1s --size 1TB
    within 10 agent_is_there small || complain "there is no agent"
    sleep 0.5
    kill -9 $(agent_of small)
    ends 1
    has out '^FAILED  small: the connection was lost'
    is_number "$(cell Mbit 0 2)" 'the hosts that are left'
}
signals() {
    launch -H big,small --time 30s --size 1TB
    within 10 agent_is_there small || complain "there is no agent"
    sleep 0.3
    kill -"$1" "$launcher"
    wait "$launcher"
    code=$?
    [ $code -eq "$2" ] || { complain "exit code $code, not $2:" && show out err; }
}

# As behind real ssh, agents are no children of the launcher, and must notice by themselves.
agents_behind() {
    launch -H behind,behind2 --time 30s --size 1TB
    within 10 agent_is_there behind || complain "there is no agent"
    sleep 0.5
    kill -9 "$launcher"
    wait "$launcher" 2>/dev/null
    within 10 none_running || complain "agents go on without their launcher"
}

check "one host" one_host
check "some hosts" some_hosts
check "over TLS" over_tls
check "sizes" sizes
check "lists" lists
check "unfit hosts" unfit_hosts
check "ports" ports
check "words" words
check "strangers" strangers
check "the secret is not to be seen" the_secret_is_not_to_be_seen
check "a lost host" a_lost_host
check "SIGINT" signals INT 130
check "SIGTERM" signals TERM 143
check "SIGKILL" signals KILL 137
check "agents behind connections" agents_behind

[ $failed -eq 0 ] || exit 1
