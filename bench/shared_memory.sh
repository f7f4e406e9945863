#!/bin/sh
# All-reduce of floats on two ranks through shared memory, of memory of each rank's own and of registered buffers, interleaved with a program
# that does either by hand.
# usage: bench/shared_memory.sh BUILD [REPEATS] [BYTES ...]
# MPI_LIBRARY=/path/libmpi.so.12 (of the ABI of MPICH, Intel MPI and others) beside an mpiexec in PATH: that, too, in the same turns. For Intel MPI,
# `pip install impi-rt` into an environment E: PATH=E/bin:$PATH LD_LIBRARY_PATH=E/lib I_MPI_ROOT=E I_MPI_FABRICS=shm I_MPI_PIN=0 MPI_LIBRARY=E/lib/libmpi.so.12.
# RUN is put before each command, e.g. RUN='chrt -r 1' (root) on a machine that others use, too.
set -eu
build=$1 repeats=${2:-5}
shift "$(($# < 2 ? $# : 2))"
[ $# -gt 0 ] || set -- 16384 4194304 67108864
redpoll=$build/src/cli/redpoll hand=$build/bench/shared_memory_by_hand iters=21
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

median() { sort -g | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

by_hand() { # private|registered bytes: of stores past the caches and into them the faster
    # shellcheck disable=SC2086 # RUN is words
    for stores in "" cached; do ${RUN:-} "$hand" "$1" "$2" $iters $stores; done | sort -g | head -n 1 | cut -d ' ' -f 1
}

by_redpoll() { # bytes [option]
    # shellcheck disable=SC2086 # RUN is words, and there may be no option
    ${RUN:-} "$redpoll" bench all-reduce -n 2 --sizes "$1" ${2:-} --iters $iters --warmup 3 --json 2>/dev/null |
        sed -n 's/.*"time_s":\([^,}]*\).*/\1/p'
}

by_mpi() { # bytes
    [ -n "${MPI_LIBRARY:-}" ] || return 0
    # shellcheck disable=SC2086 # RUN is words
    ${RUN:-} mpiexec -n 2 "$build/bench/shared_memory_mpi" "$MPI_LIBRARY" "$1" $iters | tail -n 1 | cut -d ' ' -f 1
}

echo "all-reduce of floats, 2 ranks, shared memory, in place; medians of $repeats runs of $iters, interleaved"
for bytes in "$@"; do
    for kind in own private buffers registered mpi; do : >"$folder/$kind"; done
    r=0
    while [ $r -lt "$repeats" ]; do
        by_redpoll "$bytes" >>"$folder/own"
        by_hand private "$bytes" >>"$folder/private"
        by_redpoll "$bytes" --registered >>"$folder/buffers"
        by_hand registered "$bytes" >>"$folder/registered"
        by_mpi "$bytes" >>"$folder/mpi"
        r=$((r + 1))
    done
    for kind in own private buffers registered; do median <"$folder/$kind"; done | tr '\n' ' ' |
        awk -v bytes="$bytes" '{printf "%9d bytes: own memory %9.1f us, by hand %9.1f (ratio %.2f); registered %9.1f us, by hand %9.1f (ratio %.2f)\n",
                                bytes, $1 * 1e6, $2 * 1e6, $1 / $2, $3 * 1e6, $4 * 1e6, $3 / $4}'
    [ -z "${MPI_LIBRARY:-}" ] || median <"$folder/mpi" | awk '{printf "                 MPI %9.1f us\n", $1 * 1e6}'
done
