#!/bin/sh
# `redpoll info --model` as its users meet it. usage: info_test.sh REDPOLL
# shellcheck disable=SC2086,SC2154 # options are kept as words; $folder is that of cases.sh
set -u
redpoll=$1
. "$(dirname "$0")/../harness/cases.sh"

# shows PATTERN WORDS...: the output has a line like this
shows() {
    pattern=$1
    shift
    timeout 60 "$redpoll" info "$@" >out 2>err || complain "$*: $(cat err)"
    also "$pattern"
}
also() {
    if grep -qE -e "$1" out; then pass; else complain "no '$1' in $(cat out)"; fi
}
# refused CODE PATTERN WORDS...: that code, nothing printed, and a line that says why
refused() {
    wanted=$1 pattern=$2
    shift 2
    timeout 60 "$redpoll" info "$@" >out 2>err
    code=$?
    if [ $code -eq "$wanted" ] && [ ! -s out ] && head -n 1 err | grep -qE -e "$pattern"; then pass; else
        complain "$*: ends with $code and '$(head -n 1 err)', not $wanted and '$pattern'"
    fi
}

# ---- counts that papers give, and what is alike in one line ----

shows '^gpt2:medium \(language-model\): 354,823,168 parameters$' --model gpt2:medium --batch-size 4 --seq-length 64
also '^a step of 4 x 64 tokens, fp32: forward [0-9.]+ GFLOP, backward [0-9.]+ GFLOP'
also '^  parameters +1419\.3 MB$'
also "^  optimizer's state \(adamw\) +2838\.6 MB\$"
also '^  h\.0 to h\.23 +24 x +12,596,224 '
shows '^resnet50:stem=imagenet \(classification\): 25,557,032 parameters$' \
    --model resnet50:stem=imagenet --image 3x224x224 --classes 1000 --optimizer sgd
also '^a step of 1 images of 3x224x224 in 1000 classes'
also "^  optimizer's state \(sgd\) +102\.2 MB\$"
also '^  fc +2,049,000 '
# Of four ranks each has a quarter, to a cache line of each bucket; of whole tensors, the largest at least.
shows "^  optimizer's state \(adamw, of 4 ranks\) +709\.[67] MB\$" --model gpt2:medium --zero 1 -n 4 --batch-size 1 --seq-length 64
also '^  gradients +1419\.3 MB$'
# By --zero 2 the gradients of a quarter, of four buckets of up to 16.8 MB, and of the table of 205.9 MB.
shows '^  gradients \(of 4 ranks\) +62[0-9]\.[0-9] MB$' --model gpt2:medium --zero 2 -n 4 --batch-size 1 --seq-length 64
also '^  parameters +1419\.3 MB$'
also "^  optimizer's state \(adamw, of 4 ranks\) +709\.[67] MB\$"
shows '^  parameters \(of 4 ranks\) +62[0-9]\.[0-9] MB$' --model gpt2:medium --zero 3 -n 4 --batch-size 1 --seq-length 64
also '^  gradients \(of 4 ranks\) +62[0-9]\.[0-9] MB$'
shows "^  optimizer's state \(lamb, of 4 ranks\) +7[0-9][0-9]\.[0-9] MB\$" --model gpt2:medium --zero 1 -n 4 --optimizer lamb --batch-size 1 --seq-length 64
shows "^  optimizer's state \(adamw\) +2838\.6 MB\$" --model gpt2:medium --zero 1 --batch-size 1 --seq-length 64
shows ' 8 tokens,' --model gpt2:layers=1,hidden=8,heads=2,vocabulary=16,positions=8
shows '^llama:7b \(language-model\): 6,738,415,616 parameters$' --model llama:7b

# ---- JSON, and a folder of Hugging Face's ----

shows '^\{"model":"mlp","task":"classification","parameters":203530,"batch_size":1,"image":"1x28x28","dtype":"fp32","optimizer":"adamw","forward_flops":[0-9]+,"backward_flops":[0-9]+,"parameters_bytes":814120,"gradients_bytes":814120,"optimizer_bytes":1628240,"states_bytes":0,"activations_bytes":[0-9]+,"workspace_bytes":[0-9]+,"layers":\[\{"name":' \
    --model mlp --json
also '\{"name":"fc2","parameters":2570,"forward_flops":[0-9]+,"backward_flops":[0-9]+,"output_bytes":40\}'
mkdir -p hf
echo '{"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"vocab_size":64,"n_positions":32,"n_embd":16,"n_layer":2,"n_head":2}' >hf/config.json
shows '^hf:hf \(language-model\): 8,128 parameters$' --model hf:hf
also '^  h\.0 to h\.1 +2 x '

# ---- forms of kernels: what this machine takes, or what is said ----

shows '^  forms +quantise (plain|fetch|range-first|fetch\+range-first) \(of plain, fetch,'
also '^ +add-two (fetch|plain) \(of fetch, plain\)$'
export REDPOLL_FORMS=quantise=range-first,add-two=plain
shows '^  forms +quantise range-first \(of '
also '^ +add-two plain \(of '
for form in plain fetch range-first fetch+range-first; do
    REDPOLL_FORMS=quantise=$form "$redpoll" info >out
    if awk 'length > 80 { wide = 1 } END { exit wide }' out; then pass; else complain "wider than 80 columns: $(cat out)"; fi
    also "^  forms +quantise $(echo "$form" | sed 's/+/[+]/') "
done
shows '"kernel_forms":\{"quantise":"range-first","add-two":"plain"\}' --json
REDPOLL_FORMS=add-two=plane
refused 2 "unknown form 'plane'; there are fetch, plain; did you mean 'plain'"
REDPOLL_FORMS=add-two=plain,quantize=fetch
refused 2 "unknown kernel 'quantize'; there are quantise, add-two; did you mean 'quantise'"
REDPOLL_FORMS=plain
refused 2 "REDPOLL_FORMS: 'plain' is not KERNEL=FORM"
unset REDPOLL_FORMS

# ---- mistakes ----

refused 2 "unknown model 'gpt3'.*did you mean 'gpt2'" --model gpt3
refused 2 'sequences of 2000 tokens, and the model has 1024 positions' --model gpt2 --seq-length 2000
refused 2 "'3x32' is no size of images: CHANNELSxHEIGHTxWIDTH" --model resnet20 --image 3x32
refused 2 "'1x28x0' is no size of images" --model mlp --image 1x28x0
refused 2 "'1x28x28x3' is no size of images" --model mlp --image 1x28x28x3
refused 2 'batch-size' --model mlp --batch-size 0
refused 2 "fp8" --model mlp --dtype fp8
refused 2 "unknown optimizer 'adam'" --model mlp --optimizer adam
tiny=gpt2:layers=4,hidden=16,heads=2,vocabulary=300,positions=16
shows '^zb-h1 over 2 stages: wte to h.[0-9] .* of the operations' --model $tiny --pp 2 -n 4 --batch-size 8 --micro-batch-size 2 --schedule zb-h1 --zero 1
also '^4 ranks, 2 replicas; 4 micro-batches of 2 in a step$'
also '^  0 +[0-9]+ +[0-9.e-]+ +2 '
also '^all 4 ranks: [0-9.]+ MB(, on this host, which has [0-9.]+ MB: they fit)?$'
shows '"by_stage":' --model $tiny --pp 3 --json
shows '^1f1b over 2 stages: wte .*to h.0 .*, h.1 to loss' --model $tiny --pp 2 --stage-cut h.1
refused 2 'stage-cut measured: only redpoll train measures layers' --model $tiny --pp 2 --stage-cut measured
refused 2 "no stage can begin with 'h.9'" --model $tiny --pp 2 --stage-cut h.9
refused 2 'pp 2 and 3 ranks: a replica takes 2 of them; -n 2 or -n 4 would fit' --model $tiny --pp 2 -n 3
# Replicas share what --zero says: of 4 ranks of which two share each layer those are two.
shows "^  optimizer's state \(adamw, of 2 ranks\) +" --model $tiny --tp 2 -n 4 --zero 1
shows "^  optimizer's state \(adamw\) +" --model $tiny --tp 2 -n 2 --zero 1
shows '^  parameters .of 2 ranks. ' --model $tiny --tp 2 -n 4 --zero 3
# What redpoll train refuses is not counted.
refused 2 'tp 2 and 3 ranks: a replica takes 2 of them; -n 2 or -n 4 would fit' --model $tiny --tp 2 -n 3
refused 2 'zero 3 with --schedule zb-h1: .*--zero 1 goes with any' --model $tiny --pp 2 -n 4 --zero 3 --schedule zb-h1
refused 2 'optimizer lamb with --tp 2' --model $tiny --tp 2 -n 2 --optimizer lamb
refused 2 'pp 2 with transformer-xl.*memory of segments' --model transformer-xl --pp 2 -n 2
refused 2 'not made of micro-batches of 3' --model $tiny --pp 2 --batch-size 8 --micro-batch-size 3
refused 2 'can be cut into 5 parts; --pp 5 would fit' --model $tiny --pp 6
refused 1 'nowhere/config.json is missing' --model hf:nowhere

finish
