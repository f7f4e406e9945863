#!/bin/sh
# redpoll doctor over three hosts with addresses of their own (network namespaces on a bridge), where
# `ip netns exec` stands in for ssh: rates are those that the kernel allows, and paths that are cut, or
# let no large packets through, are named. usage: doctor_network_test.sh REDPOLL
# shellcheck disable=SC2046,SC2086,SC2154 # options are kept as words; netns_switch is of netns.sh
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
# shellcheck source=tests/cli/doctor_output.sh
. "$tests/doctor_output.sh"
unset SLURM_JOB_NODELIST PBS_NODEFILE REDPOLL_PORTS REDPOLL_SOCKET_IFNAME
nothing_left() { within 15 none_running || complain "processes are left: $(ps -fp $(running))"; }

cat >ssh-into <<EOS
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do
    [ "\$1" = -o ] && shift
    shift
done
host=\${1#host} command=\$2
exec ip netns exec "$(netns_host '')\${host%x}" env -i PATH="$PATH" REDPOLL_TEST_MARK="$mark" \
    SSH_CONNECTION="10.77.0.9 1 10.99.0.1 22" sh -c "\$command"
EOS
chmod +x ssh-into
export REDPOLL_SSH="$PWD/ssh-into"

is_between() { # LEAST VALUE MOST WHAT
    awk -v a="$1" -v b="$2" -v c="$3" 'BEGIN { exit !(b + 0 >= a && b + 0 <= c) }' ||
        { complain "$4 is $2, not from $1 to $3:" && show out; }
}

# One link is of 40 Mbit/s, both ways; the others are as fast as the kernel.
rates() {
    netns_shape "$(netns_host 2)" eth0 40mbit
    netns_shape "$netns_switch" "v$$-2" 40mbit
    doctor 0 -H host0,host1,host2 --time 1s --size 30MB
    for i in 0 1 2; do has out "^   $i  host$i .* 10.77.0.$((i + 1)), eth0, MTU 1500$"; done
    is_between 20 "$(cell Mbit 0 2)" 60 "the rate of a link of 40 Mbit/s"
    is_between 20 "$(cell Mbit 2 1)" 60 "the rate of a link of 40 Mbit/s"
    is_between 70 "$(cell Mbit 0 1)" 1000000 "the rate of a link without a limit"
    is_between 0.5 "$(cell Latency 0 1)" 100000 "a latency"
    has out '^note    host2: its links carry [0-9.]+ Mbit/s at most, where others carry [0-9.]+ [MG]bit/s'
    has out '^All 3 hosts reach each other. The slowest link is host[0-2] to host[0-2]:$'
    has out '^    redpoll plan all-reduce --ranks 3 --size 100MB --link [2-5][0-9.]*Mbit,[0-9]+us$'
    tc -n "$(netns_host 2)" qdisc del dev eth0 root
    tc -n "$netns_switch" qdisc del dev "v$$-2" root
}
# Four of six directions are as fast as the kernel.
a_slow_direction() {
    netns_shape "$(netns_host 2)" eth0 20mbit
    doctor 0 -H host0,host1,host2 --time 0.3s --size 30MB
    has out '^note    host2 to host0 carries [0-9.]+ Mbit/s, where others carry [0-9.]+ [MG]bit/s'
    tc -n "$(netns_host 2)" qdisc del dev eth0 root
}

# Frames go to a station that is not there.
deafen() {
    netns_exec "$1" ip neighbour replace "$(netns_address "$2")" lladdr 02:00:00:00:00:99 \
        dev eth0 nud permanent
}
mend() {
    for each in 0 1 2; do
        netns_exec "$each" ip neighbour flush dev eth0 nud permanent
        netns_exec "$each" ip neighbour flush dev eth0
    done
}
a_cut_pair() {
    deafen 1 2
    deafen 2 1
    doctor 1 -H host0,host1,host2 --time 0.1s --connect-timeout 1s
    has out '^FAILED  host1 and host2 do not reach each other: timed out: nobody answered at 10.77.0.3:'
    [ "$(grep -c '^FAILED' out)" -eq 1 ] || { complain "more than that pair has failed:" && show out; }
    [ "$(cell Mbit 1 2) $(cell Latency 2 1)" = "none none" ] || { complain "the tables do not say so:" && show out; }
    is_between 1 "$(cell Mbit 0 1)" 1000000 "the rate of a link that is whole"
    doctor 1 -H host0,host1,host2 --time 0.1s --connect-timeout 1s --json
    has out '^\{"ready":false'
    has out '"from":"host1","to":"host2","reached":false,"error":"timed out: nobody answered'
    has out '"from":"host2","to":"host0","reached":true'
    mend
}
# Short messages pass, and packets of full length do not: the switch drops them and says nothing.
a_black_hole() {
    ip -n "$(netns_host 1)" link set dev eth0 gso_max_segs 1
    ip -n "$netns_switch" link set "v$$-1" mtu 600
    doctor 1 -H host0,host1 --time 0.1s --connect-timeout 1s
    has out '^FAILED  host1 reaches host0, but data does not come through: .* `ping -M do -s 1472 10.77.0.1` shows'
    [ "$(cell Mbit 1 0)" = stalls ] || { complain "the table does not say so:" && show out; }
    is_between 0.5 "$(cell Latency 1 0)" 100000 "its latency"
    ip -n "$netns_switch" link set "v$$-1" mtu 1500
    ip -n "$(netns_host 1)" link set dev eth0 gso_max_segs 65535
}
mtus() {
    ip -n "$(netns_host 1)" link set eth0 mtu 1400
    doctor 0 -H host0,host1 --time 0.1s
    has out '^note    host0 has MTU 1500 on eth0, and host1 1400 on eth0'
    ip -n "$(netns_host 1)" link set eth0 mtu 1500
}
# The address that ssh came to leads nowhere for the others.
a_dead_address() {
    ip -n "$(netns_host 0)" link add deaf0 type veth peer name deaf1
    ip -n "$(netns_host 0)" addr add 10.99.0.1/24 dev deaf0
    ip -n "$(netns_host 0)" link set deaf0 up
    ip -n "$(netns_host 0)" link set deaf1 up
    ip -n "$(netns_host 1)" route add 10.99.0.0/24 via 10.77.0.99
    doctor 0 -H host0,host1 --time 0.1s
    has out '^   0  host0 .* 10.77.0.1, eth0, MTU 1500$'
    REDPOLL_SOCKET_IFNAME='=deaf0' doctor 1 -H host0,host1 --time 0.1s --connect-timeout 1s
    has out "^FAILED  host1: REDPOLL_SOCKET_IFNAME is '=deaf0', which no interface"
    ip -n "$(netns_host 0)" link del deaf0
    ip -n "$(netns_host 1)" route del 10.99.0.0/24
}
# A second network between the first two hosts, of IPv6 only.
interfaces() {
    ip link add net1 netns "$(netns_host 0)" type veth peer name net1 netns "$(netns_host 1)"
    for i in 0 1; do
        ip -n "$(netns_host $i)" addr add "fd77::$((i + 1))/64" dev net1 nodad
        ip -n "$(netns_host $i)" link set net1 up
    done
    REDPOLL_SOCKET_IFNAME='=net1' doctor 0 -H host0,host1 --time 0.1s
    has out '^   0  host0 .* fd77::1, net1, MTU 1500$'
    REDPOLL_SOCKET_IFNAME='=net1' doctor 0 -H host0,host1 --time 0.1s --json
    has out '"from":"host0","to":"host1","reached":true,"from_end":\{"address":"fd77::1","interface":"net1","mtu":1500\},"to_end":\{"address":"fd77::2"'
    # Both are offered, of which the third host reaches one.
    REDPOLL_SOCKET_IFNAME='net1,eth' doctor 0 -H host0,host1,host2 --time 0.1s
    has out '^All 3 hosts reach each other'
    ip -n "$(netns_host 0)" link del net1
}
# Two networks between the first two hosts: each connection of a link takes one of them. The second of
# host1 leads nowhere for host2, whose connections go by the first.
streams() {
    ip link add wide1 netns "$(netns_host 0)" type veth peer name wide1 netns "$(netns_host 1)"
    for i in 0 1; do
        ip -n "$(netns_host $i)" addr add "10.78.0.$((i + 1))/24" dev wide1
        ip -n "$(netns_host $i)" link set wide1 up
        netns_shape "$(netns_host $i)" wide1 30mbit
        netns_shape "$(netns_host $i)" eth0 30mbit
    done
    REDPOLL_STREAMS=2 REDPOLL_SOCKET_IFNAME='=eth0,wide1' doctor 0 -H host0,host1 --time 1s
    has out '^Over 2 connections each \(REDPOLL_STREAMS\), with these ends:$'
    has out '^  host0 to host1: eth0 10.77.0.1 - 10.77.0.2, wide1 10.78.0.1 - 10.78.0.2$'
    has out '^  host1 to host0: eth0 10.77.0.2 - 10.77.0.1, wide1 10.78.0.2 - 10.78.0.1$'
    is_between 40 "$(cell Mbit 0 1)" 80 "the rate of two links of 30 Mbit/s"
    REDPOLL_STREAMS=2 REDPOLL_SOCKET_IFNAME='=eth0,wide1' doctor 0 -H host0,host1 --time 0.1s --json
    has out '"ways":"eth0 10.77.0.1 - 10.77.0.2, wide1 10.78.0.1 - 10.78.0.2"'
    has out '"streams":2'
    REDPOLL_STREAMS=2 REDPOLL_SOCKET_IFNAME='=eth0,wide1' doctor 0 -H host1,host2 --time 0.1s
    has out '^  host2 to host1: eth0 10.77.0.3 - 10.77.0.2, eth0 10.77.0.3 - 10.77.0.2$'
    has out '^note    host2 does not reach host1 at 10.78.0.2, which a connection'
    REDPOLL_STREAMS=0 doctor 2 -H host0,host1
    has err "REDPOLL_STREAMS is '0'; 1 to 16 connections a link"
    ip -n "$(netns_host 0)" link del wide1
    for i in 0 1; do tc -n "$(netns_host $i)" qdisc del dev eth0 root; done
}
# host0x is another name for host0.
two_names_of_a_machine() {
    doctor 0 -H host0,host0x,host1 --time 0.1s
    has out '^   1  host0x .* 10.77.0.1, eth0, MTU 1500$'
    has out '^All 3 hosts reach each other'
    is_between 1 "$(cell Mbit 0 1)" 1000000 "the rate between names of one machine"
}
no_address() {
    ip -n "$(netns_host 2)" link set eth0 down
    doctor 1 -H host0,host2 --time 0.1s --connect-timeout 1s
    has out '^FAILED  host0 and host2 do not reach each other: host2 has no address but its loopback'
    ip -n "$(netns_host 2)" link set eth0 up
}
# All of them, and none that the others have between them: one line says so.
a_host_that_is_cut_off() {
    for other in 0 1; do
        deafen $other 2
        deafen 2 $other
    done
    doctor 1 -H host0,host1,host2 --time 0.1s --connect-timeout 1s
    has out '^FAILED  host2: no other host reaches it, nor does it reach any: timed out: nobody answered'
    [ "$(grep -c '^FAILED' out)" -eq 1 ] || { complain "that is not said once:" && show out; }
    mend
}
a_killed_launcher() {
    launch -H host0,host1,host2 --time 30s --size 1TB
    sleep 1
    kill -9 "$launcher"
    wait "$launcher" 2>/dev/null
}

netns_up 3 unlimited
trap 'kill_all; cd /; netns_down; rm -rf "$folder"' EXIT
check "rates" rates
check "a cut pair" a_cut_pair
check "a black hole" a_black_hole
check "interfaces" interfaces
check "streams" streams
if [ -n "${REDPOLL_LONG_TESTS:-}" ]; then
    check "a host that is cut off" a_host_that_is_cut_off
    check "a slow direction" a_slow_direction
    check "MTUs" mtus
    check "a dead address" a_dead_address
    check "two names of a machine" two_names_of_a_machine
    check "no address" no_address
fi
check "a killed launcher" a_killed_launcher
[ $failed -eq 0 ] || exit 1
