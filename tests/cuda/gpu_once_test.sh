#!/bin/sh
# tools/gpu/gpu_once.sh over the stand-in for a GPU, and where there is none. usage: gpu_once_test.sh SOURCE BUILD
set -eu
source=$1 build=$2
[ -x "$build/src/cli/redpoll" ] || { echo "no redpoll in $build"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/gpu/bin" "$folder/gpu/lib"
cp "$source/tools/gpu/gpu_once.sh" "$folder/gpu/"
for each in src/cli/redpoll tests/cuda/cuda_cuda_test tests/cuda/cuda_device_codec_test tests/cuda/cuda_gpu_probe; do
    ln -s "$build/$each" "$folder/gpu/bin/"
done
cd "$folder"
unset REDPOLL_CUDA_LIBRARY
export SIZES=64K ELEMENTS=4096 GPU_PROBE_MB=1 PYTHON=/nowhere/python OUT=$folder/out

wrong() { # what; the end of what was printed is shown
    echo "$1"
    tail -n 60 said
    exit 1
}
run() { # status wanted, variables
    wanted=$1 code=0
    shift
    rm -rf out
    env "$@" sh gpu/gpu_once.sh >said 2>&1 || code=$?
    [ "$code" = "$wanted" ] || wrong "$*: status $code, not $wanted"
}
says() { grep -q "$1" said || wrong "it does not say: $1"; }

run 77 REDPOLL_CUDA=off
[ "$(cat said)" = "no GPU: no: turned off by REDPOLL_CUDA=off" ] || wrong "without a GPU it says:"
[ ! -e out ] || wrong "without a GPU it leaves a folder"

# The codecs' benchmark copies from memory that is not pinned, which the stand-in takes with STAND_IN_HOSTS alone.
export REDPOLL_CUDA=on REDPOLL_CUDA_LIBRARY="$build/tests/cuda/libstand_in_cuda.so" STAND_IN_HOSTS=1
run 0 SECONDS_ALL=250
for step in opens kernels 'bits of q4' 'bits of all-to-all' probe 'codec q4 --count 16384' 'all-reduce of q4 on cuda'; do says "^ok $step"; done
says "^skipped torch and training: /nowhere/python lacks"
says "^======== numbers"
[ "$(wc -l <out/rows.jsonl)" -ge 10 ] || wrong "few rows of codecs"
sed -n '/^======== numbers/,$p' said | grep -q "encode .* of the bound of bytes.*q4:bucket=4096" || wrong "numbers are not last"

run 1 SECONDS_ALL=10 # no step begins that the deadline would cut off, and unchecked bits are not right
says "^-- opens: no time is left"
says "^not right: opens"

run 1 STAND_IN_SPILLS=-1 # wrong bits end it
says "^FAILED kernels"
says "^not right: kernels"
! grep -q "^ok bits" said || wrong "it went on behind wrong bits"
