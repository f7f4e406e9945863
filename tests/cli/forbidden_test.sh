#!/bin/sh
# System calls that the seccomp profile of a container, or an old kernel, forbids: ranks do
# without them, or the launch ends at once and says which one it needs. A stranger who met
# another one adds a row. usage: forbidden_test.sh REDPOLL FORBID
# shellcheck disable=SC2086 # options are kept as words
set -u
redpoll=$1 forbid=$2
. "$(dirname "$0")/../harness/cases.sh"
"$forbid" 1 99999 -- true
[ $? -eq 77 ] && echo "this kernel has no seccomp filters" && exit 77

# row ERRNO CALLS OPTIONS...: works
row() {
    error=$1 calls=$2 && shift 2
    if timeout 60 "$forbid" $error $calls -- "$redpoll" bench all-reduce -n 2 --count 1000 --iters 1 \
        --connect-timeout 20 "$@" >out 2>err && grep -q equal out; then
        pass
    else
        complain "without $calls ($error) $*: $(cat out err)"
    fi
}
# says ERRNO CALLS WORDS OPTIONS...: ends at once with these words
says() {
    error=$1 calls=$2 words=$3 && shift 3
    timeout 60 "$forbid" $error $calls -- "$redpoll" bench all-reduce -n 2 --count 1000 --iters 1 \
        --connect-timeout 20 "$@" >out 2>err
    code=$?
    if [ $code -ne 0 ] && [ $code -ne 124 ] && grep -qE "$words" err && ! grep -q "timed out" err; then
        pass
    else
        complain "without $calls ($error) $*: exit code $code, $(cat out err) lacks '$words'"
    fi
}

for error in 1 38; do # EPERM, ENOSYS
    row $error memfd_create --transport shm
    row $error memfd_create --transport auto --link 10Gbit,20us
    row $error memfd_create --transport tcp
    row $error "memfd_create fallocate" --transport shm
    row $error getrandom
    row $error accept4
    row $error accept4 --transport tcp
    row $error ppoll
    if "$forbid" $error set_mempolicy mbind sched_setaffinity -- "$redpoll" run -n 2 --bind-to core -- true 2>err; then
        pass
    else
        complain "--bind-to core without its calls ($error): $(cat err)"
    fi
    row $error sched_getaffinity
    row $error "setpriority getpriority"
    row $error madvise
    row $error prlimit64
    row $error process_vm_readv
    says $error eventfd2 'eventfd2, which a seccomp profile or an old kernel forbids'
    says $error epoll_create1 'epoll_create1, which a seccomp profile or an old kernel forbids'
    says $error signalfd4 'signalfd4, which a seccomp profile or an old kernel forbids'
done
REDPOLL_CONNECT=need row 1 "memfd_create getrandom accept4" --transport shm
finish
