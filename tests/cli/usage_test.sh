#!/bin/sh
# Wrong words and bad files get one clear line, exit code 2 for a mistake of usage and 1 for a
# failure, and leave nothing behind. usage: usage_test.sh REDPOLL
# shellcheck disable=SC2086 # options are kept as words
set -u
redpoll=$1
folder=$(mktemp -d "${TMPDIR:-/tmp}/redpoll-usage-XXXXXX")
mounted=
trap '[ -z "$mounted" ] || umount -l "$mounted"; cd /; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM HUP
cd "$folder" || exit 1
failed=0 passed=0

complain() {
    echo "$*"
    failed=$((failed + 1))
}
# expect CODE PATTERN WORDS...: the exit code, and a pattern (grep -E) that standard error must match
expect() {
    code=$1 pattern=$2
    shift 2
    timeout 60 "$redpoll" "$@" >out 2>err
    got=$?
    if [ $got -ne "$code" ]; then
        echo "redpoll $*: exit code $got, not $code: $(head -n 3 err)"
        failed=$((failed + 1))
    elif ! grep -qE -e "$pattern" err; then
        echo "redpoll $*: standard error lacks '$pattern': $(head -n 3 err)"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
}
# says PATTERN WORDS...: exit code 0 and standard output
says() {
    pattern=$1
    shift
    if timeout 60 "$redpoll" "$@" >out 2>err && grep -qE -e "$pattern" out; then
        passed=$((passed + 1))
    else
        echo "redpoll $*: does not say '$pattern': $(head -n 3 out err)"
        failed=$((failed + 1))
    fi
}

expect 2 'usage: redpoll COMMAND'
expect 2 "unknown command 'trian'; did you mean 'train'" trian
expect 2 "did you mean 'bench all-reduce'" bench all-redcue
says 'redpoll [0-9]+\.[0-9]+' --version
says 'codecs' info
# Every catalogue that an option chooses from is listed, and so is every name that train takes.
for name in codecs algorithms transports models 'data sets' optimizers 'lr schedules' strategies backends pipelines; do
    says "^$name\$" info
done
for name in sgd cosine warmup all-reduce single synthetic fashion-mnist; do says "^  $name " info; done

# ---- help ----

groups=$("$redpoll" --help | awk '$1 == "bench" { print $2 }')
for words in 'bench --help' 'help bench' 'bench -h'; do
    says '^usage: redpoll bench COMMAND' $words
    for name in $groups; do
        grep -qE "^  $name +" out || complain "redpoll $words does not list $name"
    done
done
expect 2 '^usage: redpoll bench COMMAND' bench
says '^usage: redpoll bench all-reduce ' help bench all-reduce
says '^usage: redpoll train ' help train
says '^usage: redpoll COMMAND' help
says 'REDPOLL_LOG +error, warning, info, debug' --help
says 'REDPOLL_ISA +scalar, avx2, avx512' --help
says 'REDPOLL_FORMS +KERNEL=FORM' --help
expect 2 "unknown command 'trian'; did you mean 'train'" help trian
expect 2 "unknown command 'bench all-redcue'; did you mean 'bench all-reduce'" help bench all-redcue
expect 2 "redpoll bench --help' lists" bench zzzzzzzzzzzz

# ---- output that cannot be written ----

# lost WORDS...: exit code 1 and one line, whatever the command prints
lost() {
    timeout 60 "$redpoll" "$@" >/dev/full 2>err
    got=$?
    if [ $got -eq 1 ] && [ "$(grep -c 'cannot write to standard output' err)" -eq 1 ]; then
        passed=$((passed + 1))
    else
        complain "redpoll $* >/dev/full: exit code $got: $(head -n 3 err)"
    fi
}
if [ -c /dev/full ]; then
    lost --help
    lost --version
    lost help bench
    lost info
    lost info --json
    lost info --options
    lost info --parameters mlp
    lost plan all-reduce
    lost plan barrier --json
    lost bench codec --count 1000
    lost bench codec --count 1000 --json
    lost bench barrier -n 2
    lost bench all-reduce -n 2 --count 10 --json
    lost run -n 2 -- echo hello
    lost train --model mlp --data synthetic --train-images 16 --test-images 16 --batch-size 16 --steps 1 --out lost
    rm -rf lost
    for command in train run 'bench all-reduce' 'bench barrier' 'bench codec' plan info; do lost $command --help; done
    "$redpoll" info >&- 2>err && complain "info says nothing of a closed standard output"
else
    echo "skipped output that cannot be written: no /dev/full"
fi
# Who reads no further is no failure to report.
for words in 'info' '--help' 'info --options' 'plan all-reduce -n 64' 'bench all-reduce -n 2 --sizes 8,8,8,8'; do
    timeout 60 "$redpoll" $words 2>err | head -n 1 >out
    grep -vE '^rank 0 of' err >noise && complain "redpoll $words | head -n 1 complains: $(head -n 3 noise)"
done

says '"version":' info --json
for command in train run 'bench all-reduce' 'bench codec' plan report info; do
    says "usage: redpoll $command" $command --help
    grep -q '^examples:' out && grep -q "^  redpoll $command" out && grep -qE '^  (-n, )?--' out || {
        echo "redpoll $command --help has no options or no example"
        failed=$((failed + 1))
    }
done
for command in train 'bench all-reduce' 'bench codec' plan; do
    says '\[(fp32|q4)\]$' $command --help # defaults are shown
done

expect 2 'bits' bench codec --codec q0
expect 2 'bits' bench codec --codec q9
expect 2 'bucket' bench codec --codec q4:bucket=0
expect 2 'bucket' bench codec --codec q4:buckett=512
expect 2 'did you mean' bench codec --codec fp23
expect 2 'round' bench codec --codec q4:rounding=up
expect 2 '524272 elements are allowed with 4 bits' bench all-reduce -n 2 --count 100 --codec q4:bucket=1100000
expect 2 '262136 elements' bench codec --count 100 --codec q8:bucket=1000000
for codec in q4:bucket=524272 q8:bucket=262136 q1:bucket=2097088; do
    for size in 400 5000001; do
        says '"correct":true' bench all-reduce -n 3 --sizes $size --codec $codec --iters 1 --json
    done
done
expect 2 "--count: '0'" bench codec --count 0
expect 2 'not one of f32' bench codec --dtype i32
expect 2 "did you mean '--codec'" bench codec --codc q4
expect 2 'needs a value' bench codec --codec

for command in train 'bench all-reduce'; do
    expect 2 "'0' is out of range" $command -n 0
    expect 2 'too large; 1 to ' $command -n 1000000
    expect 2 '1 to 1024' $command -n 1025
    expect 2 "'-1'" $command -n -1
    expect 2 'bits' $command -n 2 --codec q0
    expect 2 'bits' $command -n 2 --codec q9
    expect 2 'bucket' $command -n 2 --codec q4:bucket=0
    expect 2 "codec ''|codec" $command --codec ''
    expect 2 'timeout' $command --timeout 0s
    expect 2 "did you mean 'shm'" $command --transport smh
    expect 2 'link' $command --link 0Gbit
done
expect 2 "'50' has no unit; did you mean '50us' or '50ms'" bench all-reduce -n 2 --link 1Gbit,50
expect 2 "'50' has no unit; did you mean '50us'" plan all-reduce --link 1Gbit,50
expect 2 "did you mean '1000Mbit'" plan all-reduce --link 1000,50us
expect 2 "did you mean '64kB'" plan all-reduce --size 64KB
says '"bytes":2000000000000,' plan all-reduce --size 2TB --json
says '"bytes":2199023255552,' plan all-reduce --size 2TiB --json
says '"count":0,.*"bytes":0,' bench all-reduce -n 2 --sizes 0 --json
says '"bytes":0,' plan all-reduce --size 0 --json
says '"bytes":0,' plan all-reduce --count 0 --json
expect 2 'not a size' bench all-reduce -n 2 --sizes ,
for name in steps epochs global-batch-size batch-size train-images test-images threads chunk; do
    expect 2 "--$name: '0' is (out of range|too small)" train --model mlp --data synthetic --$name 0
done
expect 2 "--chunk: '0'" bench all-reduce -n 2 --chunk 0
expect 2 'whole number' bench all-reduce -n two
expect 2 'algorithm' bench all-reduce -n 2 --count 100 --algorithm rnig
expect 2 'link|rate' bench all-reduce -n 2 --link fast
expect 2 'transport' bench all-reduce -n 2 --transport pigeon
expect 2 "unexpected word 'please'" bench all-reduce please

expect 2 "no collective 'all-redcue'; did you mean 'all-reduce'" plan all-redcue
expect 2 'which collective' plan
expect 2 "'rnig'" plan all-reduce --algorithm rnig
expect 2 'not in a world of 4' plan all-reduce --rank 4
expect 2 'not a size' plan all-reduce --size big
says 'predicted: ' plan all-reduce --algorithm sra --ranks 8 --size 100MB --link 1Gbit,50us
says '"time_s":' plan broadcast --ranks 5 --json
says 'predicted: ' plan barrier --ranks 7 --brief
for collective in reduce gather scatter; do
    says "^$collective by .*, root 3: " plan $collective --ranks 5 --rank 2 --root 3
    says "\"op\":\"$collective\"" plan $collective --ranks 5 --json
done
says 'rank 4 -> wire' plan all-to-all --ranks 5 --steps
says '"algorithm":"direct"' plan reduce --ranks 8 --size 4 --json
says '"algorithm":"scatter"' plan reduce --ranks 8 --size 100MB --json

expect 2 "-n|ranks" run -n 0 true
expect 2 "-n|ranks" run -n 1000000 true
expect 2 'program|command' run -n 2
expect 127 'no-such-program' run -n 2 ./no-such-program

mlp="train --model mlp --data synthetic --train-images 64 --test-images 16 --global-batch-size 16 --steps 2"
expect 2 "did you mean 'resnet18'" train --model resnet81 --data synthetic --out r
expect 2 'hidden|width' train --model mlp:widht=3 --data synthetic --out r
expect 2 "did you mean 'fashion-mnist'" train --model mlp --data fashion-mnits --out r
expect 2 '44 bits' $mlp --codec q44 --out r
expect 2 "did you mean 'fp16'" $mlp --codec fp61 --out r
expect 2 "did you mean 'ring'" $mlp -n 2 --algorithm rnig --out r
expect 2 "did you mean 'cosine'" $mlp --lr-schedule cosin --out r
expect 2 'did you mean|optimizer' $mlp --optimizer sdg --out r
expect 2 'strategy' $mlp --strategy all-redcue --out r
expect 2 'backend' $mlp --backend onednm --out r
expect 2 'strategy single is for 1 rank' $mlp --strategy single -n 2 --out r
expect 2 'not divisible by 3' $mlp -n 3 --out r
expect 2 'global-batch-size' $mlp -n 2 --batch-size 4 --out r
expect 2 'neither on nor off' $mlp --error-feedback maybe --out r
expect 2 "'-1'" $mlp --steps -1 --out r
expect 2 "'many'" $mlp --steps many --out r
expect 2 "'2'" $mlp --momentum 2 --out r
expect 2 "did you mean '--steps'" train --step 3

echo 'modle: {name: mlp}' >bad.yaml
expect 2 "bad.yaml:1: unknown key 'modle.name'; did you mean 'model.name'" train --config bad.yaml
printf 'model:\n  name: mlp\n  name: resnet18\n' >twice.yaml
expect 2 'twice.yaml:3: .*twice' train --config twice.yaml
printf 'tokens:\n  train_steps: soon\n' >value.yaml
expect 2 "value.yaml:2: tokens.train_steps: 'soon'" train --config value.yaml
printf 'tokens: [1, 2]\n' >list.yaml
expect 2 'list.yaml:1: a list' train --config list.yaml
printf 'tokens: {train_steps: 3\n' >cut.yaml
expect 2 'cut.yaml:[0-9]+: not YAML' train --config cut.yaml
expect 2 'missing.yaml' train --config missing.yaml
expect 2 'cannot open|is a folder|Is a directory|not YAML' train --config .
REDPOLL_CODEC=q9
export REDPOLL_CODEC
expect 2 'REDPOLL_CODEC: .*bits' train
unset REDPOLL_CODEC

# ---- data ----

# idx FOLDER IMAGES BYTES: images of 4 x 4 said to be so many, of which so many bytes follow
idx() {
    mkdir -p "$1"
    count=$(printf '\\0\\0\\0\\%03o' "$2")
    for part in train t10k; do
        { printf "\\0\\0\\10\\3$count\\0\\0\\0\\4\\0\\0\\0\\4" && head -c "$3" /dev/zero; } >"$1/$part-images-idx3-ubyte"
        { printf "\\0\\0\\10\\1$count" && head -c "$2" /dev/zero; } >"$1/$part-labels-idx1-ubyte"
    done
}
data="train --model mlp --data idx --global-batch-size 4 --steps 1 --out r --data-dir"
expect 1 '/nowhere.*(No such|not there|missing)' train --model mlp --data fashion-mnist --data-dir /nowhere --steps 1 --out r
expect 1 '/nowhere' $data /nowhere
mkdir empty
expect 1 'empty' $data empty
idx cut 8 100
expect 1 'cut/.*(truncated|short|bytes|ends)' $data cut
idx long 8 200
expect 1 'long/.*(bytes|more|longer|size)' $data long
idx none 0 0
expect 1 'none|0 training' $data none
idx magic 8 128
printf 'XXXX' | dd of=magic/train-images-idx3-ubyte conv=notrunc 2>noise
expect 1 'magic/train-images.* is no IDX file' $data magic
idx labels 8 128
printf '\0\0\10\1\0\0\0\7\0\0\0\0\0\0\0' >labels/train-labels-idx1-ubyte
expect 1 'labels.*(8|7).*(8|7)' $data labels
idx zip 8 128
gzip zip/train-images-idx3-ubyte && head -c 20 zip/train-images-idx3-ubyte.gz >zip/half
mv zip/half zip/train-images-idx3-ubyte.gz
expect 1 'zip/train-images' $data zip
idx good 8 128
rm -f good/t10k-labels-idx1-ubyte
expect 1 'good has no file .*labels-idx1-ubyte' $data good

# ---- checkpoints ----

says 'saved step 2' $mlp --out first
expect 1 'mlp:hidden=64|hidden' $mlp --model mlp:hidden=64 --resume first --out r
expect 1 'resnet20' $mlp --model resnet20 --resume first --out r
expect 1 'not-a-run' $mlp --resume not-a-run --out r
expect 2 'holds a run already: go on with --resume first' $mlp --out first
for bytes in 0 7 100 5000; do
    mkdir -p half
    head -c $bytes first/model.safetensors >half/model.safetensors
    expect 1 'half/model.safetensors' $mlp --resume half --out r
done
cp first/model.safetensors half/model.safetensors
printf '\377\377\377\377\377\377\377\377' | dd of=half/model.safetensors conv=notrunc 2>noise
expect 1 'half/model.safetensors' $mlp --resume half --out r

# ---- folders to write to ----

touch file
expect 1 'file/r: Not a directory' $mlp --out file/r
expect 2 'file is not a folder' $mlp --out file
expect 1 '/proc/r' $mlp --out /proc/r
if [ "$(id -u)" -ne 0 ]; then
    mkdir locked && chmod 500 locked
    expect 1 'locked' $mlp --out locked/r
fi

# A file system of two megabytes: the first checkpoint fits, a second beside it does not.
mkdir full
if mount -t tmpfs -o size=2m none full 2>noise; then
    mounted=$folder/full
    says 'saved step 2' $mlp --out full/run
    cp -r full/run kept
    expect 1 'No space left' $mlp --steps 4 --resume full/run
    says 'nothing was left to train|saved' $mlp --steps 2 --resume full/run --no-eval
    cmp -s full/run/model.safetensors kept/model.safetensors || {
        echo "a full disk has changed the checkpoint"
        failed=$((failed + 1))
    }
    expect 1 'No space left' $mlp -n 2 --steps 4 --resume full/run
    [ "$(ls full/run)" = "$(ls kept)" ] || {
        echo "a full disk is left with $(ls full/run)"
        failed=$((failed + 1))
    }
    rm -rf full/run
    head -c 2000000 /dev/zero >full/ballast
    expect 1 'No space left' $mlp --out full/new
    [ ! -e full/new/model.safetensors ] || {
        echo "a full disk holds a checkpoint that was never finished"
        failed=$((failed + 1))
    }
    mount -o remount,ro full
    expect 1 'full/ro.*Read-only' $mlp --out full/ro
    umount -l full && mounted=
else
    echo "skipped a full and a read-only disk: $(head -n 1 noise)"
fi

if [ -e r ]; then
    echo "a run that never started left its folder"
    failed=$((failed + 1))
fi
echo "$passed expectations met, $failed not"
[ $failed -eq 0 ]
