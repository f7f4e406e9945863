#!/bin/sh
# The long check: formatting, lints, layers, and the tests under the sanitizers. Every step runs
# even when one before it failed; the exit status is that of the worst.
# usage: tools/check.sh [asan]      asan: all tests under the address sanitizer, and nothing else
set -u
cd "$(dirname "$0")/.." || exit
failures=""
passed=0 failed=0 skipped=0

step() { # name, command, which exits with 77 where it cannot run and has said why
    name=$1
    shift
    echo "== $name"
    "$@"
    case $? in
    0)
        echo "== $name: ok"
        passed=$((passed + 1))
        ;;
    77)
        echo "== $name: skipped"
        skipped=$((skipped + 1))
        ;;
    *)
        echo "== $name: FAILED"
        failures="$failures $name"
        failed=$((failed + 1))
        ;;
    esac
}

skip() { # name, why
    echo "== $1: skipped: $2"
    skipped=$((skipped + 1))
}

formatted() {
    git ls-files '*.[ch]' '*.cu' '*.cuh' '*.cpp' | xargs clang-format --dry-run -Werror
}

shell_scripts() { # the file names that some list with ls are of their own making
    git ls-files '*.sh' '*.sbatch' .ci/run | xargs shellcheck --severity=warning --exclude=SC2010
}

python_style() {
    git ls-files -co --exclude-standard '*.py' | xargs "$tools/ruff" check --quiet &&
        git ls-files -co --exclude-standard '*.py' | xargs "$tools/ruff" format --check --quiet
}

python_types() {
    MYPYPATH=python/cgx:python/bluefog:python/horovod:python "$tools/mypy" --config-file python/mypy.ini --cache-dir build/mypy \
        python/redpoll python/cgx python/bluefog python/horovod
}

fuzz() {
    sh tools/fuzz.sh --can || {
        echo "no clang with libFuzzer (Debian and Ubuntu: apt-get install clang libclang-rt-dev)"
        return 77
    }
    FUZZ_SEED=1 sh tools/fuzz.sh 10
}

# A sanitizer build and its tests, into build/PRESET-tests.log.
sanitize() {
    preset=$1
    shift
    cmake --preset "$preset" >/dev/null && cmake --build --preset "$preset" >build/"$preset"-build.log 2>&1 || {
        tail -n 30 build/"$preset"-build.log
        return 1
    }
    sh tools/run_tests.sh build/"$preset" "$@"
}

# What came of it; the totals of the tests are added to ours.
sanitized() {
    cat build/"$1"-tests.log
    totals=$(grep -E '^[0-9]+ passed, [0-9]+ failed' build/"$1"-tests.log | tail -n 1)
    # shellcheck disable=SC2046 # three words
    set -- $(echo "$totals" | tr -dc '0-9 ')
    passed=$((passed + ${1:-0})) failed=$((failed + ${2:-1})) skipped=$((skipped + ${3:-0}))
    [ "${2:-1}" -eq 0 ]
}

# Leaks count as failures; the OpenMP runtime keeps its thread pool, which is not one.
address() {
    ASAN_OPTIONS=detect_leaks=1 LSAN_OPTIONS=suppressions=$PWD/tools/lsan.supp \
        sanitize asan -j "$(sh tools/cores.sh)" "$@" >build/asan-tests.log 2>&1
}

end() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ -z "$failures" ] || {
        echo "failed:$failures" >&2
        exit 1
    }
    exit 0
}

mkdir -p build
if [ "${1:-}" = asan ]; then
    address
    step asan+ubsan sanitized asan
    end
fi
step clang-format formatted
step layers sh tools/layers.sh
step clang-tidy sh tools/tidy.sh
step shellcheck shell_scripts
if python=$(sh tools/torch_venv.sh); then
    tools=$(dirname "$python")
    step ruff python_style
    step mypy python_types
    step hadolint "$tools/hadolint" python/Dockerfile examples/kubernetes/mpi.Dockerfile
else
    skip "ruff, mypy and hadolint" "no virtual environment of the Python tests"
fi
step aarch64 sh tools/aarch64.sh
step fuzz fuzz
# ThreadSanitizer does not understand libgomp: tiers 0 and 1 are free of OpenMP. Plans, codecs, lanes, accounts
# and the definitions of ops have no threads, sums and layers have the threads of others; all take it minutes.
# It runs beside the address sanitizer.
threadless='^(plan|codec)/|^cuda/device_lanes_|^comm/reductions_|^engine/ops_|^train/(safetensors|label_split|memory_remedies)_'
alike='^train/parallel/(tensor_parallel|context_layouts)_|^comm/(requests|window_random)_test\.streams$'
TSAN_OPTIONS=suppressions=$PWD/tools/tsan.supp \
    sanitize tsan -j "$(sh tools/cores.sh)" -L 'tier[01]' -E "$threadless|$alike" >build/tsan-tests.log 2>&1 &
# What takes minutes there, most of them waits and words, and runs code that quicker tests run, too: make
# check-long has all.
commands='cli/(bench|bench_compare|documents|doctor|doctor_network|failure|hosts|network|plan|report_browser|run|usage)_test$'
address -E "^$commands|^train/(train|on_loss)_command_|^plan/gossip/gossip_fit_|^comm/(failure|chaos|leave|groups)_test\.(need|streams)"
step asan+ubsan sanitized asan
wait
step tsan sanitized tsan

end
