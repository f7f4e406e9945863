#!/bin/sh
# Everything that only a machine with an NVIDIA GPU can tell, in one go: builds with CUDA, then sanitizer,
# tests, codecs beside the card's copy rate, and training. About eight minutes on a data-centre card
# of 16 cores once it is built, as each step has a limit; no network is used.
# usage: sh tools/gpu_check.sh [FOLDER]      what each step prints is kept there (gpu-check)
#
# Needs: an NVIDIA driver, nvcc 12 or later (or BUILD=folder, built elsewhere with libredpoll_cuda.so),
# CMake 3.25, a C and a C++ compiler, libyaml, libcjson, zlib, pcre2 and utf8proc for the command. For the steps
# of PyTorch: a Python with a CUDA build of torch, numpy and pytest (PYTHON=python3, or REDPOLL_TORCH_VENV).
# A step whose need is missing is skipped by name; one that fails does not keep the others from running.
# STEPS="build tests" runs these alone; SECONDS_EACH=300 is the longest that one may take.
set -u
cd "$(dirname "$0")/.." || exit
folder=${1:-gpu-check} build=${BUILD:-build/gpu} limit=${SECONDS_EACH:-300}
python=${PYTHON:-${REDPOLL_TORCH_VENV:+$REDPOLL_TORCH_VENV/bin/}python3}
mkdir -p "$folder" || exit
folder=$(cd "$folder" && pwd)
failed="" passed="" skipped=""

wanted() { # step
    case " ${STEPS:-$1} " in *" $1 "*) return 0 ;; *) return 1 ;; esac
}

step() { # name, command: its output is kept; 77 is skipped, with the reason as its last line
    name=$1
    shift
    wanted "$name" || return 0
    echo "== $name"
    begun=$(date +%s)
    (set -e; "$@") >"$folder/$name.txt" 2>&1
    code=$?
    took=$(($(date +%s) - begun))
    case $code in
    0) passed="$passed $name" word=ok ;;
    77) skipped="$skipped $name" word="skipped: $(tail -n 1 "$folder/$name.txt")" ;;
    124) failed="$failed $name" word="FAILED: not through after $limit s" ;;
    *) failed="$failed $name" word="FAILED ($code)" && tail -n 20 "$folder/$name.txt" ;;
    esac
    echo "== $name: $word, $took s"
    echo "$name $word, $took s" >>"$folder/summary.txt"
}

needs() { # what a program is called, and what it is for
    command -v "$1" >/dev/null || { echo "$2"; exit 77; }
}
needs_gpu() {
    needs nvidia-smi "no GPU: there is no nvidia-smi"
    nvidia-smi -L | grep -q GPU || { echo "no GPU: nvidia-smi lists none"; exit 77; }
}
needs_build() {
    [ -x "$redpoll" ] || { echo "nothing is built in $build"; exit 77; }
    [ -e "$kernels" ] || { echo "no libredpoll_cuda.so in $build: nvcc was not found"; exit 77; }
}
needs_torch() {
    "$python" -c 'import torch, numpy, pytest' 2>/dev/null ||
        { echo "$python has no torch, numpy and pytest"; exit 77; }
    "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
        { echo "the torch of $python finds no GPU"; exit 77; }
}

machine() {
    needs_gpu
    nvidia-smi
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,pcie.link.gen.max,pcie.link.width.max --format=csv
    lscpu | head -n 20
    uname -a
}

build() {
    [ -z "${BUILD:-}" ] || { echo "BUILD=$BUILD was built before"; exit 77; }
    needs_gpu
    needs nvcc "no nvcc on the PATH (export PATH=/usr/local/cuda/bin:\$PATH)"
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
    cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DREDPOLL_CUDA=ON -DREDPOLL_PYTHON=ON ${capability:+-DCMAKE_CUDA_ARCHITECTURES="$capability"}
    cmake --build "$build" -j "$(sh tools/cores.sh)"
}

# The kernels of every codec, and the collectives over them: reads and writes beyond memory, races between threads.
sanitizer() {
    needs_gpu
    needs_build
    needs compute-sanitizer "no compute-sanitizer on the PATH (it comes with the CUDA toolkit)"
    for tool in memcheck racecheck synccheck; do
        REDPOLL_CUDA_LIBRARY=$kernels REDPOLL_TEST_SEED=1 timeout "$limit" compute-sanitizer --tool $tool \
            --error-exitcode 9 "$build/tests/cuda/cuda_device_codec_test"
    done
}

tests() { # those that need a GPU, and the same logic over the stand-in
    needs_gpu
    needs_build
    timeout "$limit" ctest --test-dir "$build" -L gpu -E '^python/' --output-on-failure --no-tests=error
    timeout "$limit" ctest --test-dir "$build" -R '^(cuda|comm/device)' --output-on-failure
}

torch_tests() {
    needs_gpu
    needs_build
    needs_torch
    REDPOLL_TORCH_VENV=/nowhere PATH="$(dirname "$(command -v "$python")"):$PATH" \
        timeout "$limit" sh tests/python/run_pytest.sh "$build" tests/python/test_cuda.py -v -k "gpu or memory or streams"
}

field() { # of one line of JSON
    printf '%s\n' "$2" | sed -n "s/.*\"$1\": *\([^,}]*\).*/\1/p"
}

codec_row() { # codec, options
    # shellcheck disable=SC2086 # words
    json=$(timeout 60 "$redpoll" bench codec --device cuda --json --count "$elements" --codec "$@") || {
        echo "$* failed: $json"
        return 1
    }
    awk -v what="$*" -v copy="$(field copy_bytes_s "$json")" -v encode="$(field encode_bytes_s "$json")" \
        -v decode="$(field decode_add_bytes_s "$json")" -v e="$(field encode_bound "$json")" -v d="$(field decode_add_bound "$json")" 'BEGIN {
        printf "%-36s %9.1f %9.1f %7.2f %10.1f %7.2f\n", what, copy * 1e-9, encode * 1e-9, e, decode * 1e-9, d }'
}

codecs() { # of 1 GiB of f32; the goal of q4 is 0.8 of the bound that its bytes set, from the copy in the same run
    needs_gpu
    needs_build
    elements=$((${CODEC_BYTES:-1073741824} / 4)) wrong=0
    echo "GB/s of elements, and the share of the rate that bytes would allow at the card's own copy rate"
    printf "%-36s %9s %9s %7s %10s %7s\n" codec copy encode share decode-add share
    for codec in q4 fp32 bf16 fp16 q1 q2 q3 q5 q6 q7 q8 q4:bucket=128 q4:bucket=1024 q4:bucket=4096 q4:rounding=stochastic \
        sign randk topk v4; do
        codec_row $codec || wrong=1
    done
    for codec in q4 q8 bf16; do codec_row $codec --error-feedback || wrong=1; done
    return $wrong
}

collectives() { # two ranks, one GPU: the same bits as the serial sum, and how fast
    needs_gpu
    needs_build
    for codec in fp32 q4 q8; do
        timeout "$limit" "$redpoll" bench all-reduce -n 2 --device cuda --codec $codec
    done
}

training() {
    needs_gpu
    needs_build
    needs_torch
    PYTHONPATH="$PWD/$build/python${PYTHONPATH:+:$PYTHONPATH}" timeout "$limit" "$python" bench/torch.py gpu --rounds 5
}

redpoll=$build/src/cli/redpoll kernels=$PWD/$build/src/cuda/libredpoll_cuda.so
: >"$folder/summary.txt"
for each in machine build tests sanitizer codecs collectives torch_tests training; do step $each $each; done
echo "passed:$passed; skipped:$skipped; FAILED:${failed:- none}"
echo "kept in $folder"
[ -z "$failed" ]
