#!/bin/sh
# redpoll run -H over three hosts with addresses of their own (network namespaces on a bridge), where
# `ip netns exec` stands in for ssh. usage: hosts_network_test.sh REDPOLL
# shellcheck disable=SC2016,SC2046,SC2086 # scripts are for the ranks; options are kept as words
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
unset SLURM_JOB_NODELIST PBS_NODEFILE
nothing_left() { within 10 none_running || complain "processes are left: $(ps -fp $(running))"; }

cat >ssh-into <<EOF
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do
    [ "\$1" = -o ] && shift
    shift
done
host=$(netns_host '')\${1#host} command=\$2
exec ip netns exec "\$host" env -i PATH="$PATH" "AT_HOME=\$1" REDPOLL_TEST_MARK="$mark" \
    SSH_CONNECTION="10.77.0.9 1 10.99.0.1 22" sh -c "\$command"
EOF
chmod +x ssh-into
export REDPOLL_SSH="$PWD/ssh-into"
on_hosts() {
    wanted=$1
    shift
    start "$redpoll" run "$@" >out 2>err </dev/null
    launcher=$!
    ends "$wanted"
}

addresses() {
    REDPOLL_LOG=info on_hosts 0 -H host0:1,host1:2,host2:1 --no-prefix sh -c 'echo "$RANK $AT_HOME $MASTER_ADDR ${REDPOLL_STORE%:*}"'
    [ "$(sort out)" = "0 host0 10.77.0.1 10.77.0.1
1 host1 10.77.0.1 10.77.0.1
2 host1 10.77.0.1 10.77.0.1
3 host2 10.77.0.1 10.77.0.1" ] || { complain "ranks are elsewhere:" && show out err; }
    has err 'host2 reaches host0 at 10.77.0.1'
}
collectives() {
    on_hosts 0 -H host0:1,host1:2,host2:1 "$redpoll" bench all-reduce --count 100000 --iters 2
    has out 'equal'
}
# The address that ssh came to leads nowhere for the others.
a_dead_address() {
    ip -n "$(netns_host 0)" link add deaf0 type veth peer name deaf1
    ip -n "$(netns_host 0)" addr add 10.99.0.1/24 dev deaf0
    ip -n "$(netns_host 0)" link set deaf0 up
    ip -n "$(netns_host 0)" link set deaf1 up
    ip -n "$(netns_host 1)" route add 10.99.0.0/24 via 10.77.0.99
    REDPOLL_LOG=info on_hosts 0 -H host0:1,host1:1 "$redpoll" bench all-reduce --count 1000 --iters 2
    has err 'host1 reaches host0 at 10.77.0.1'
    ip -n "$(netns_host 0)" link del deaf0
    ip -n "$(netns_host 1)" route del 10.99.0.0/24
}
# A second network between the first two hosts, of IPv6 only.
second_network() {
    ip link add net1 netns "$(netns_host 0)" type veth peer name net1 netns "$(netns_host 1)"
    for i in 0 1; do
        ip -n "$(netns_host $i)" addr add "fd77::$((i + 1))/64" dev net1 nodad
        ip -n "$(netns_host $i)" link set net1 up
    done
}
interfaces() {
    second_network
    REDPOLL_SOCKET_IFNAME='=net1' REDPOLL_LOG=info on_hosts 0 -H host0:1,host1:1 "$redpoll" bench all-reduce --count 1000 --iters 2
    has err 'host1 reaches host0 at fd77::1'
    has err '\[1\] .*rank 1 listens at fd77::2'
    has out equal
    # Ranks 0 and 1 offer two addresses, of which rank 2 reaches one.
    REDPOLL_SOCKET_IFNAME='net,eth' REDPOLL_LOG=info on_hosts 0 -H host0:1,host1:1,host2:1 "$redpoll" bench all-reduce --count 1000 --iters 2
    has err '\[1\] .*rank 1 listens at 10.77.0.2,fd77::2'
    has err '\[2\] .*rank 2 listens at 10.77.0.3$'
    has out equal
    REDPOLL_SOCKET_IFNAME='=ib0' on_hosts 1 -H host0:1,host2:1 true
    has err "^    host2: REDPOLL_SOCKET_IFNAME is '=ib0', which no interface .*there are: .*eth0"
    ip -n "$(netns_host 0)" link del net1
}
ports() {
    on_hosts 0 -H host0:1,host1:1 --ports 21000-21009 --no-prefix sh -c 'echo "$REDPOLL_PORTS ${REDPOLL_STORE##*:} $MASTER_PORT"'
    grep -vqxE '21000-21009 2100[0-9] 2100[0-9]' out && complain "ports are: $(cat out)"
    on_hosts 0 -H host0:1,host1:1 --ports 21000-21009 "$redpoll" bench all-reduce --count 1000 --iters 2
    on_hosts 1 -H host0:1,host1:1 --ports 21000-21000 "$redpoll" bench all-reduce --count 1000
    has err 'all ports of REDPOLL_PORTS \(21000-21000\) are taken'
    on_hosts 2 -n 1 --ports 9-8 true
    has err "'9-8' is no range of ports"
}
loopback() {
    on_hosts 2 -H host0:1,host1:1 "$redpoll" bench all-reduce --count 1000 --bind 127.0.0.1 --connect-timeout 5s
    has err 'listens on 127.0.0.1, where rank [01], which is on another host, cannot reach it'
}
# ---- hosts that die, and such as do not ----

start_bench() { # WORDS OF redpoll run...
    start "$redpoll" run -H host0:1,host1:1,host2:1 "$@" "$redpoll" bench all-reduce --count 200000 \
        --iters "$iters" --timeout 10min >out 2>err </dev/null
    launcher=$!
    within 20 grep -q 'rank 0 of 3' out err || { complain "the bench does not begin:" && show out err; }
    sleep 1
}
cut_off() { ip -n "$netns_switch" link set "v$$-$1" down; }
mend() { ip -n "$netns_switch" link set "v$$-$1" up; }
# The survivors say so long before the timeout.
a_host_without_a_cable() {
    iters=100000
    start_bench --lost-after 2s --grace 2s
    cut_off "$1"
    ends 1
    has err "rank $1 is gone \(connection timed out: its host has answered nothing for 2 s"
    mend "$1"
    within 20 none_running || complain "what was cut off does not end: $(ps -fp $(running))"
}
# For longer than --lost-after: nothing is lost, and the bench goes on to its end.
a_stopped_process() {
    iters=200
    start_bench --lost-after 1s
    stopped=$(for pid in $(pid_of 1); do
        tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q 'bench all-reduce' && echo "$pid"
    done)
    kill -STOP $stopped
    sleep 3
    kill -CONT $stopped
    ends 0
    has out equal
}
a_link_that_comes_back() {
    iters=400
    start_bench
    cut_off 1
    sleep 5
    mend 1
    ends 0
    has out equal
}
no_way() {
    ip -n "$(netns_host 2)" link set eth0 down
    on_hosts 1 -H host0:1,host1:1,host2:1 true
    has err '1 of 3 hosts'
    has err '^    host2: cannot reach the host of rank 0.*REDPOLL_SOCKET_IFNAME'
    ip -n "$(netns_host 2)" link set eth0 up
}
a_killed_launcher() {
    start "$redpoll" run -H host0:1,host1:1 sh -c 'trap "" TERM HUP; echo up; while :; do sleep 0.1; done' >out 2>err </dev/null
    launcher=$!
    within 20 grep -q '1. up' out || { complain "the ranks do not come up" && show out err; }
    kill -9 "$launcher"
    wait "$launcher" 2>/dev/null
}

netns_up 3 unlimited
trap 'kill_all; cd /; netns_down; rm -rf "$folder"' EXIT
check "addresses" addresses
check "collectives" collectives
check "a dead address" a_dead_address
check "interfaces" interfaces
check "ports" ports
check "loopback" loopback
check "host 1 without a cable" a_host_without_a_cable 1
check "a stopped process" a_stopped_process
if [ -n "${REDPOLL_LONG_TESTS:-}" ]; then
    check "host 0 without a cable" a_host_without_a_cable 0
    check "a link that comes back" a_link_that_comes_back
fi
check "no way" no_way
check "a killed launcher" a_killed_launcher
[ $failed -eq 0 ] || exit 1
