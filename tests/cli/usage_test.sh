#!/bin/sh
# Wrong words get one clear line, exit code 2, and leave nothing behind. usage: usage_test.sh REDPOLL
set -u
redpoll=$1
folder=$(mktemp -d "${TMPDIR:-/tmp}/redpoll-usage-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0 passed=0

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
says '"version":' info --json
for command in train run 'bench all-reduce' 'bench codec' plan info; do
    # shellcheck disable=SC2086 # a command may be two words
    says 'usage: redpoll' $command --help
done

expect 2 'bits' bench codec --codec q0
expect 2 'bits' bench codec --codec q9
expect 2 'bucket' bench codec --codec q4:bucket=0
expect 2 'bucket' bench codec --codec q4:buckett=512
expect 2 'did you mean' bench codec --codec fp23
expect 2 'round' bench codec --codec q4:rounding=up
expect 2 "--count: '0'" bench codec --count 0
expect 2 'not one of f32' bench codec --dtype i32
expect 2 "did you mean '--codec'" bench codec --codc q4
expect 2 'needs a value' bench codec --codec

expect 2 "'0' is out of range" bench all-reduce -n 0
expect 2 'out of range|at most' bench all-reduce -n 1000000
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

expect 2 "-n|ranks" run -n 0 true
expect 2 "-n|ranks" run -n 1000000 true
expect 2 'program|command' run -n 2
expect 127 'no-such-program' run -n 2 ./no-such-program

expect 2 "did you mean 'resnet18'" train --model resnet81 --data synthetic --out r
expect 2 "did you mean 'fashion-mnist'" train --model mlp --data fashion-mnits --out r
expect 2 'did you mean' train --model mlp --data synthetic --codec q44 --out r
expect 2 'divi' train --model mlp --data synthetic -n 3 --global-batch-size 64 --out r
expect 2 "did you mean '--steps'" train --step 3
echo 'modle: {name: mlp}' >bad.yaml
expect 2 'bad.yaml:1: unknown key' train --config bad.yaml
expect 2 'missing.yaml' train --config missing.yaml
expect 1 'dataset-fashion-mnist|no such|No such' train --model mlp --data fashion-mnist --data-dir /nowhere --steps 1 --out r
mkdir idx
head -c 5000 /dev/zero >idx/train-images-idx3-ubyte
head -c 50 /dev/zero >idx/train-labels-idx1-ubyte
cp idx/train-images-idx3-ubyte idx/t10k-images-idx3-ubyte
cp idx/train-labels-idx1-ubyte idx/t10k-labels-idx1-ubyte
expect 1 'magic|IDX|idx' train --model mlp --data idx --data-dir idx --steps 1 --out r
expect 1 'not-a-run|No such' train --model mlp --data synthetic --steps 1 --resume not-a-run --out r
if [ "$(id -u)" -ne 0 ]; then
    mkdir locked && chmod 500 locked
    expect 1 'locked' train --model mlp --data synthetic --steps 1 --out locked/r
fi
touch file
expect 1 'file' train --model mlp --data synthetic --steps 1 --out file/r

if [ -e r ]; then
    echo "a run that never started left its folder"
    failed=$((failed + 1))
fi
echo "$passed expectations met, $failed not"
[ $failed -eq 0 ]
