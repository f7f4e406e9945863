#!/bin/sh
# How many jobs this machine, or this container, has cores for: the processors that may be used (nproc), or fewer
# where a control group has a quota of time, rounded up; of all groups from our own upward the tightest, in version 1
# and 2. redpoll itself goes by the same (src/base/cpu_quota.h). usage: tools/cores.sh
set -eu
cores=$(nproc)

# limit QUOTA PERIOD
limit() {
    case $1 in '' | *[!0-9]* | 0) return ;; esac
    case $2 in '' | *[!0-9]* | 0) return ;; esac
    quota=$((($1 + $2 - 1) / $2))
    [ "$quota" -ge "$cores" ] || cores=$quota
}

# walk MOUNT PATH: the group's folder and all above it
walk() {
    path=$2
    while :; do
        folder=$1${path%/}
        if [ -r "$folder/cpu.max" ]; then
            read -r most period <"$folder/cpu.max" && limit "$most" "$period"
        fi
        if [ -r "$folder/cpu.cfs_quota_us" ]; then
            limit "$(cat "$folder/cpu.cfs_quota_us")" "$(cat "$folder/cpu.cfs_period_us")"
        fi
        [ -n "${path%/}" ] || break
        path=${path%/*}
    done
}

if [ -r /proc/self/cgroup ]; then
    while IFS=: read -r number controllers path; do
        case $number:,$controllers, in
        0:,,) for mount in /sys/fs/cgroup /sys/fs/cgroup/unified; do walk "$mount" "$path"; done ;;
        *,cpu,*) for mount in /sys/fs/cgroup/cpu /sys/fs/cgroup/cpu,cpuacct; do walk "$mount" "$path"; done ;;
        esac
    done </proc/self/cgroup
fi
echo "$cores"
