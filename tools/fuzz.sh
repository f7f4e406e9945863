#!/bin/sh
# Runs each fuzz target of tests/fuzz by libFuzzer, two at a time, from the committed corpus on.
# usage: tools/fuzz.sh SECONDS [TARGET...]     SECONDS for each
#        tools/fuzz.sh --can                   is there a clang with libFuzzer? says nothing
# FUZZ_SEED=N: the same inputs each time, 50,000 of them at most; else each run goes on from the last
# one. What libFuzzer finds on its way stays in build/fuzz/corpus then; an input that breaks something lies in
# build/fuzz/found, and belongs into tests/fuzz/corpus/TARGET once it is mended.
set -eu
cd "$(dirname "$0")/.."

can() {
    printf 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return (int)(d[0] * n * 0); }\n' |
        clang -x c -fsanitize=fuzzer - -o /dev/null 2>/dev/null
}

case "${1:-}" in
--can) can && exit 0 || exit 1 ;;
'' | *[!0-9]*)
    sed -n '3,4s/^# //p' "$0" >&2
    exit 2
    ;;
esac
seconds=$1
shift

can || {
    echo "fuzz: skipped: no clang with libFuzzer (Debian and Ubuntu: apt-get install clang libclang-rt-dev)"
    exit 0
}
mkdir -p build/fuzz/corpus build/fuzz/found
cmake --preset fuzz >build/fuzz/configure.log 2>&1 || { tail -n 20 build/fuzz/configure.log; exit 1; }
# shellcheck disable=SC2046 # a list of words
[ $# -gt 0 ] || set -- $(sed -n 's/^ *redpoll_fuzz(\([a-z_]*\).*/\1/p' tests/fuzz/CMakeLists.txt)
for target; do targets="${targets:-} fuzz_$target"; done
# shellcheck disable=SC2086 # the list is meant to be split
cmake --build build/fuzz --target $targets >build/fuzz/build.log 2>&1 || { tail -n 30 build/fuzz/build.log; exit 1; }

one() { # target
    found=build/fuzz/corpus/$1 runs=-1
    if [ "${FUZZ_SEED:-}" ]; then
        found=build/fuzz/seeded/$1 runs=50000
        rm -rf "$found"
    fi
    mkdir -p "$found"
    if timeout -k 10 $((seconds + 120)) "build/fuzz/tests/fuzz/fuzz_$1" -max_total_time="$seconds" -runs="$runs" -seed="${FUZZ_SEED:-0}" -timeout=20 \
        -rss_limit_mb=4096 -artifact_prefix="build/fuzz/found/$1-" \
        "$found" "tests/fuzz/corpus/$1" >"build/fuzz/$1.log" 2>&1; then
        runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "build/fuzz/$1.log")
        echo "fuzz: $1: ${runs:-?} inputs, nothing found"
    else
        tail -n 40 "build/fuzz/$1.log"
        echo "fuzz: $1: FAILED; the input: $(ls -t "build/fuzz/found/$1-"* 2>/dev/null | head -n 1)"
        return 1
    fi
}

failed=0
while [ $# -gt 0 ]; do
    one "$1" &
    first=$!
    shift
    if [ $# -gt 0 ]; then
        one "$1" || failed=1
        shift
    fi
    wait $first || failed=1
done
exit $failed
