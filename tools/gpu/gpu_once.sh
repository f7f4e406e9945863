#!/bin/sh
# All that only a machine with an NVIDIA GPU can tell, within ten minutes: it builds nothing, needs no packages and
# no network. It is a file of a folder that tools/gpu_pack.sh makes, and is carried with it.
# usage: sh FOLDER/gpu_once.sh      all that is printed is kept in $OUT (./gpu-once): log.txt, rows.jsonl, numbers.txt
#
# Needs an NVIDIA driver; for the steps of PyTorch a Python with a CUDA build of torch, numpy and pytest (PYTHON=python3).
# What is missing is skipped by name. SECONDS_ALL=540 is the deadline over all steps: the most valuable come first, and
# numbers are printed last. Without a GPU it ends with one line that says why, and status 77.
# Wrong bits end it: nothing that is measured would count then.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-gpu-once} all=${SECONDS_ALL:-540} python=${PYTHON:-python3} begun=$(date +%s)
redpoll=$here/bin/redpoll
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export REDPOLL_CUDA_LIBRARY="${REDPOLL_CUDA_LIBRARY:-$here/bin/libredpoll_cuda.so}" REDPOLL_TEST_SEED="${REDPOLL_TEST_SEED:-1}"

usable=$("$redpoll" info 2>&1 | sed -n 's/^ *cuda  *//p')
case $usable in
no* | "")
    echo "no GPU: ${usable:-$("$redpoll" info 2>&1 | tail -n 1)}"
    exit 77
    ;;
esac
mkdir -p "$out" || exit
log=$out/log.txt rows=$out/rows.jsonl numbers=$out/numbers.txt now=$out/now.txt failed=""
: >"$log" && : >"$rows" && : >"$numbers" || exit

left() { echo $((all - $(date +%s) + begun)); }
say() { echo "$*" | tee -a "$numbers"; }
show() { sed -n "$1" "$now" | sed 's/^/    /' | tee -a "$numbers"; } # of what the last step printed

step() { # name, most seconds, command: into the log, never past the end; 77 is skipped
    name=$1 most=$2 from=$(date +%s) code=late
    shift 2
    [ "$(left)" -gt 10 ] || { say "-- $name: no time is left"; return 1; }
    [ "$most" -lt "$(left)" ] || most=$(($(left) - 5))
    echo "=== $name" >>"$log"
    timeout -k 5 "$most" "$@" >"$now" 2>&1
    code=$?
    cat "$now" >>"$log"
    took=$(($(date +%s) - from))
    case $code in
    0) say "ok $name ($took s)" ;;
    77) say "skipped $name: $(tail -n 1 "$now")" ;;
    124 | 137) say "LATE $name (more than $most s): $(tail -n 1 "$now")" ;;
    *) say "FAILED $name ($code): $(grep -m 3 -iE 'error|fail|differs|:' "$now" | cut -c1-300 | tr '\n' ' ')" ;;
    esac
    case $code in 0 | 77) ;; *) failed="$failed, $name" ;; esac
    return $code
}

must() { # a step without which the rest means nothing
    step "$@" && return
    [ "$code" = 77 ] && return
    [ "$code" = late ] && failed="$failed, $1"
    finish
}

finish() {
    rm -f "$now"
    echo "======== numbers, after $(($(date +%s) - begun)) of $all s"
    tail -c 11000 "$numbers"
    [ -z "$failed" ] || { echo "not right: ${failed#, }"; exit 1; }
    exit 0
}

machine() {
    command -v nvidia-smi >/dev/null && nvidia-smi --format=csv,noheader \
        --query-gpu=name,driver_version,pcie.link.gen.max,pcie.link.width.max,clocks.max.sm,clocks.max.mem
    lscpu | grep -E '^(Model name|CPU\(s\))'
    uname -r
    command -v "$python" >/dev/null && "$python" -c 'import torch; print("torch", torch.__version__, torch.cuda.is_available())' 2>&1 | tail -n 1
    for each in ip tc ncu compute-sanitizer; do printf '%s: %s; ' $each "$(command -v $each || echo none)"; done
    echo
}
machine >"$now" 2>&1
cat "$now" >>"$log"
say "$usable"
show p

# Are the kernels right, and the collectives over them, beside the serial sum?
must "opens" 20 "$here/bin/cuda_cuda_test" usable_or_why
must "kernels" 120 "$here/bin/cuda_device_codec_test"
for codec in fp32 q4 q8 bf16 sign randk topk; do
    must "bits of $codec" 30 "$redpoll" bench all-reduce -n 2 --device cuda --codec $codec --count 300001 --iters 1 --warmup 0
done
for operation in all-gather reduce-scatter broadcast all-to-all; do
    must "bits of $operation" 30 "$redpoll" bench $operation -n 3 --device cuda --count 30001 --iters 1 --warmup 0
done

step "probe" 60 "$here/bin/cuda_gpu_probe" && show p

# Codecs beside the card's own copy. elements: fewer make it quicker.
field() { sed -n "s/.*\"$1\": *\([^,}]*\).*/\1/p" "$now"; }
rate() { # words of --codec and others
    # shellcheck disable=SC2086 # words
    step "codec $1" 60 "$redpoll" bench codec --device cuda --json --iters 15 --warmup 3 --codec $1 || return
    cat "$now" >>"$rows"
    say "$(awk -v what="$1" -v copy="$(field copy_bytes_s)" -v encode="$(field encode_bytes_s)" -v e="$(field encode_bound)" \
        -v add="$(field decode_add_bytes_s)" -v d="$(field decode_add_bound)" 'BEGIN {
        printf "    copy %.0f, encode %.0f (%.2f of the bound of bytes), decode-add %.0f (%.2f): %s", copy * 1e-9, encode * 1e-9, e, add * 1e-9, d, what }')"
}
elements=${ELEMENTS:-67108864}
say "codecs, GB/s of elements"
for codec in "q4 --count $((4 * elements))" "q4 --count $((4 * elements)) --error-feedback" "q4 --dtype bf16" q8 q4:bucket=4096 \
    q4:rounding=stochastic q2 sign bf16 "fp32 --error-feedback" topk v4 randk; do
    [ "$(left)" -gt $((all * 3 / 10)) ] || break
    case $codec in *--count*) rate "$codec" ;; *) rate "$codec --count $elements" ;; esac
done

for link in "" "--link 100Gbit,20us" "--link 10Gbit,50us"; do
    for codec in fp32 q4; do
        for device in cuda cpu; do
            # shellcheck disable=SC2086 # words
            step "all-reduce of $codec on $device $link" 30 "$redpoll" bench all-reduce -n 2 --hosts 2 --device $device --codec $codec \
                --sizes "${SIZES:-1M,26M,256M}" --iters 5 --warmup 2 --check 0 $link && show '/bytes/,$p'
        done
    done
done

# As chunks were cut for hosts, in the place of parts that encode to 480 KB.
step "all-reduce of q4 on cuda, chunks of 880 KB" 30 "$redpoll" bench all-reduce -n 2 --hosts 2 --device cuda --codec q4 \
    --sizes "${SIZES:-26M}" --iters 5 --warmup 2 --check 0 --chunk 880K && show '/bytes/,$p'

# PyTorch, by the release that is there.
export PYTHONPATH="$here/python:$here/tests${PYTHONPATH:+:$PYTHONPATH}" REDPOLL_BUILD="$here" OMP_NUM_THREADS="${OMP_NUM_THREADS:-4}"
if "$python" -c 'import torch, numpy, pytest' 2>/dev/null; then
    step "torch" 170 "$python" -m pytest -x -q -p no:cacheprovider "$here/tests/test_cuda.py" -k "${TESTS:-gpu or streams_and_graphs or memory_is_flat}" && show '$p'
    step "gossip, local SGD, servers, windows" 90 "$python" -m pytest -x -q -p no:cacheprovider "$here/tests/test_cuda_methods.py" -k "${TESTS:-gpu}" && show '$p'
    step "training" 90 "$python" "$here/train.py" && show '/parameters/p'
else
    say "skipped torch and training: $python lacks torch, numpy or pytest"
fi

for tool in memcheck racecheck; do
    command -v compute-sanitizer >/dev/null || { say "skipped $tool: no compute-sanitizer"; continue; }
    step "$tool" 60 compute-sanitizer --tool $tool --error-exitcode 9 "$here/bin/cuda_device_codec_test"
done
finish
