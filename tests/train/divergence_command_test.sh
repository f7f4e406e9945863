#!/bin/sh
# `redpoll train` with a rate that no run survives, on every backend, alone and over ranks: it
# stops with exit code 1 and one line, and the checkpoint from before stays. usage: ... REDPOLL
set -u
redpoll=$1
. "$(dirname "$0")/../harness/cases.sh"
model=resnet20:width=2

bad() {
    complain "$*"
    tail -n 5 out err
}
# train CODE WORDS...: must end with this exit code
train() {
    wanted=$1
    shift
    timeout 100 "$redpoll" train --model $model --data synthetic --train-images 128 \
        --test-images 6 --global-batch-size 6 --seed 3 "$@" >out 2>err
    code=$?
    if [ $code -eq "$wanted" ]; then pass; else bad "exit code $code: train $*"; fi
}
says() {
    if grep -qE -e "$2" "$1"; then pass; else bad "$1 lacks '$2'"; fi
}

# diverge NAME RATE WORDS...: a good checkpoint of step 2, then steps that diverge
diverge() {
    run=$1 rate=$2
    shift 2
    train 0 --lr 0.01 --steps 2 --out "$run" "$@"
    cp "$run/model.safetensors" before
    train 1 --lr "$rate" --steps 80 --resume "$run" --out "$run" "$@"
    says err 'training has diverged at step [0-9]+: .* on (rank [0-9]+|every rank); nothing of this is saved'
    says err "smaller --lr or a warm-up .*checkpoint is that of step 2: .* --resume $run"
    # Each rank says it once, all in the same words.
    said=$(grep 'has diverged' err | sed 's/^\[[0-9]*\] //')
    [ "$(echo "$said" | sort -u | wc -l)" -eq 1 ] && pass || bad "ranks say different things"
    cmp -s before "$run/model.safetensors" && pass || bad "$run: the checkpoint has changed"
    tail -n 1 "$run/metrics.jsonl" >last
    says last '^\{"failed_step":[0-9]+,"error":"training has diverged'
    if grep -iqE ':-?(nan|inf)' "$run/metrics.jsonl"; then bad "$run: metrics.jsonl is no JSON"; else pass; fi
}

has_cpu=$("$redpoll" info | grep -c '^  *cpu ')
diverge alone 1e6 --backend reference
train 0 --lr 0.01 --steps 4 --resume alone --out alone # as the line says
diverge two 1e6 --backend reference -n 2 --codec q4
if [ "$has_cpu" -gt 0 ]; then
    diverge fast-alone 1e6 --backend cpu
    diverge fast-two 1e6 --backend cpu -n 2
    diverge fast-q4 1e6 --backend cpu -n 3 --codec q4
fi

model=resnet20:width=8
# Without a checkpoint to go on from, and nothing is left that looks like one.
train 1 --lr 1e6 --steps 40 --out none
says err 'there is no checkpoint to go on from: --checkpoint-every N'
[ ! -e none/model.safetensors ] && pass || bad "a checkpoint of a diverged run"

# Rates at which the loss stays finite longest: never a checkpoint that holds NaN.
for rate in 30 100; do
    timeout 100 "$redpoll" train --model resnet20:width=8 --data synthetic --train-images 128 \
        --global-batch-size 16 --seed 3 --lr $rate --steps 40 --out "rate-$rate" >out 2>err
    code=$?
    if [ $code -eq 1 ]; then
        says err 'training has diverged'
        [ ! -e "rate-$rate/model.safetensors" ] && pass || bad "a checkpoint of a diverged run"
    else
        [ $code -eq 0 ] && [ $rate -ne 100 ] && pass || bad "rate $rate: exit code $code"
        train 0 --steps 40 --resume "rate-$rate" --out "rate-$rate" # what is loaded is finite
    fi
done

finish
