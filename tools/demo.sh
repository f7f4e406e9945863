#!/bin/sh
# The story of Redpoll in four acts. usage: tools/demo.sh REDPOLL     (`make demo` calls it)
# REDPOLL_DEMO_STEPS shortens the training act.
set -eu
redpoll=$(readlink -f "$1")
cd "$(dirname "$0")/.."
runs=runs/demo
rm -rf $runs
mkdir -p $runs
steps=${REDPOLL_DEMO_STEPS:-36}
link=200Mbit,50us
count=25557032

act() { printf '\n=== Act %s\n\n' "$*"; }
show() { # print a command, then run it
    printf '$ %s\n' "$(echo "$*" | sed "s|$redpoll|redpoll|g")"
    "$@"
}

act "1: the wire. 25,557,032 floats, summed over 4 ranks, 1 Gbit/s each way"
# shellcheck source=bench/netns.sh
. bench/netns.sh
for codec in fp32 q4; do
    show "$redpoll" plan all-reduce --ranks 4 --count $count --codec $codec --link 1Gbit,50us --brief
done
echo
wire() { # codec, over --link
    show "$redpoll" bench all-reduce -n 4 --count $count --codec "$1" --link 1Gbit,50us --iters 2
}
wire_in_namespaces() { # codec, one rank a namespace
    rank=3
    while [ $rank -ge 0 ]; do
        netns_exec $rank env RANK=$rank WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 \
            MASTER_ADDR="$(netns_address 0)" MASTER_PORT="$2" "$redpoll" bench all-reduce --count $count \
            --codec "$1" --transport tcp --bind "$(netns_address $rank)" --iters 2 &
        rank=$((rank - 1))
    done
    wait
}
if netns_possible; then
    echo "The links: four network namespaces, shaped by the kernel (tbf, 1 Gbit/s each way). Ethernet, IP and"
    echo "TCP headers, which the prediction leaves out, add 4.6 %."
    netns_up 4 1gbit
    wire_in_namespaces fp32 29501
    wire_in_namespaces q4 29502
    netns_down
    trap - EXIT INT TERM
else
    echo "The links: our own --link (network namespaces need root and a kernel that allows them)."
    wire fp32
    wire q4
fi

act "2: training. ResNet-18 on Fashion-MNIST, two ranks, a link of ${link%,*}/s each way"
parameters=$("$redpoll" info --parameters resnet18)
gradient=$((parameters * 4))
for codec in fp32 q4; do
    show "$redpoll" plan all-reduce --ranks 2 --size "$gradient" --codec $codec --link $link --brief
done
echo
train() { # name, further options
    name=$1
    shift
    show "$redpoll" train --model resnet18 --data fashion-mnist -n 2 --steps "$steps" --global-batch-size 64 \
        --seed 1 --lr 0.05 --lr-schedule cosine --eval-images 2000 --out "$runs/$name" "$@"
}
train unlimited --codec fp32
train fp32 --codec fp32 --link $link
train q4 --codec q4 --link $link --trace
echo
echo "Same seed, same global batches, same order. 'unlimited' has no link limit: it is the bound."
echo "Accuracy is of the first 2,000 test images."
awk -v WARMUP=3 -f tools/compare_runs.awk $runs/unlimited/metrics.jsonl $runs/fp32/metrics.jsonl $runs/q4/metrics.jsonl

act "3: a failure. One of three ranks is killed; the run resumes from its checkpoint"
echo "The plan: the two survivors name rank 2 within about a second; nothing is left behind."
"$redpoll" train --model mlp --data fashion-mnist -n 3 --codec q4 --steps 100000 --global-batch-size 96 --seed 1 \
    --checkpoint-every 50 --no-eval --out $runs/failure >$runs/failure.log 2>&1 &
launcher=$!
waited=0
while [ ! -e $runs/failure/model.safetensors ] && [ $waited -lt 300 ]; do
    sleep 0.1
    waited=$((waited + 1))
done
victim=$(pgrep -P "$(pgrep -P $launcher)" | tail -n 1 || true) # the launcher is two processes
echo "\$ kill -9 $victim        # rank 2"
kill -9 "$victim"
wait $launcher || echo "(exit code $?)"
grep -E 'redpoll:|gone|killed' $runs/failure.log | tail -n 5
show "$redpoll" train --resume $runs/failure --out $runs/resumed \
    --steps "$(( $(sed -n 's/.*"step":\([0-9]*\).*/\1/p' $runs/failure/metrics.jsonl | tail -n 1) + 50 ))"

act "4: what next"
cat <<END
redpoll bench all-reduce -n 4 --count 25557032 --codec q4 --link 1Gbit,50us --json
redpoll bench codec --codec q4:bucket=1024,rounding=stochastic
redpoll plan all-reduce --algorithm sra --ranks 8 --size 100MB --codec q4 --link 1Gbit,50us
redpoll train --model resnet18 --data fashion-mnist -n 2 --link $link --codec q4 --steps 200 --global-batch-size 64 --out runs/q4
redpoll train --resume runs/q4 --steps 400
redpoll run -n 4 PROGRAM ARGS

The runs are in $runs: metrics.jsonl, model.safetensors and, for q4, trace.json (open it in
https://ui.perfetto.dev or chrome://tracing). The command itself is $redpoll;
\`make install\` puts it on the path, with the library.
END
