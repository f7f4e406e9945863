# Four (or N) hosts on one machine: network namespaces joined by a bridge in a namespace of its own,
# every link shaped by the kernel (tbf, burst 256 kB) in both directions. Sourced, not run:
#     . bench/netns.sh
#     netns_possible || skip
#     netns_up 4 1gbit        # hosts rp-PID-0 ... at 10.77.0.1 ...; netns_down at exit
#     netns_exec 2 COMMAND    # run on host 2
# shellcheck shell=sh

netns_name="rp$$"

netns_host() { echo "$netns_name-$1"; }
netns_address() { echo "10.77.0.$(($1 + 1))"; }
netns_exec() {
    netns_rank=$1
    shift
    ip netns exec "$(netns_host "$netns_rank")" "$@"
}

# True when this user and kernel can make namespaces, bridges and shaped links.
netns_possible() {
    [ "$(id -u)" -eq 0 ] && command -v ip >/dev/null 2>&1 && command -v tc >/dev/null 2>&1 || return 1
    netns_probe="$netns_name-probe"
    ip netns add "$netns_probe" 2>/dev/null || return 1
    netns_result=0
    ip -n "$netns_probe" link add br0 type bridge 2>/dev/null &&
        ip -n "$netns_probe" link add p0 type veth peer name p1 2>/dev/null &&
        tc -n "$netns_probe" qdisc add dev p0 root tbf rate 1gbit burst 256kb latency 50ms 2>/dev/null ||
        netns_result=1
    ip netns del "$netns_probe"
    return $netns_result
}

netns_shape() { # namespace device rate
    [ "$3" = unlimited ] || tc -n "$1" qdisc add dev "$2" root tbf rate "$3" burst 256kb latency 50ms
}

netns_up() {
    netns_count=$1 netns_rate=$2
    trap netns_down EXIT
    trap 'exit 130' INT TERM
    netns_switch="$netns_name-switch"
    ip netns add "$netns_switch"
    ip -n "$netns_switch" link add br0 type bridge
    ip -n "$netns_switch" link set br0 up
    netns_i=0
    while [ $netns_i -lt "$netns_count" ]; do
        netns_ns=$(netns_host $netns_i)
        ip netns add "$netns_ns"
        ip link add "v$$-$netns_i" netns "$netns_switch" type veth peer name eth0 netns "$netns_ns"
        ip -n "$netns_switch" link set "v$$-$netns_i" master br0 up
        ip -n "$netns_ns" addr add "$(netns_address $netns_i)/24" dev eth0
        ip -n "$netns_ns" link set lo up
        ip -n "$netns_ns" link set eth0 up
        netns_shape "$netns_ns" eth0 "$netns_rate"
        netns_shape "$netns_switch" "v$$-$netns_i" "$netns_rate"
        netns_i=$((netns_i + 1))
    done
}

netns_down() {
    ip netns list 2>/dev/null | awk -v name="$netns_name-" 'index($1, name) == 1 {print $1}' |
        while read -r netns_ns; do
            ip netns pids "$netns_ns" 2>/dev/null | xargs -r kill -9 2>/dev/null
            ip netns del "$netns_ns" 2>/dev/null
        done
    return 0
}
