#!/bin/sh
# Whole runs of `redpoll train` over processes: resuming, repeating, dying. usage: ... REDPOLL EXAMPLES
set -u
redpoll=$1 examples=$2
folder=$(mktemp -d "${TMPDIR:-/tmp}/redpoll-train-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0 passed=0

ok() {
    passed=$((passed + 1))
}
bad() {
    echo "FAILED: $*"
    tail -n 5 out err
    failed=$((failed + 1))
}
# train FOLDER WORDS...: must succeed
train() {
    to=$1
    shift
    if timeout 100 "$redpoll" train --model resnet20 --data synthetic --train-images 80 \
        --test-images 40 --global-batch-size 16 --seed 3 --out "$to" "$@" >out 2>err; then ok
    else bad "train $to $*"; fi
}
same() {
    if cmp -s "$1" "$2"; then ok; else bad "$1 and $2 differ"; fi
}
says() {
    if grep -qE -e "$2" "$1"; then ok; else bad "$1 lacks '$2'"; fi
}

# The same run twice, over processes and the fastest backend, gives the same bytes.
train one -n 2 --codec q4:rounding=stochastic --steps 6 --trace
says out 'rank 0 of 2, found by redpoll run'
says out 'step 6/6'
says out 'test accuracy'
train two -n 2 --codec q4:rounding=stochastic --steps 6
same one/model.safetensors two/model.safetensors
says one/trace.json '"name":"bucket 0"'
says one/trace.json '"name":"rank 1"'
[ "$(wc -l <one/metrics.jsonl)" -eq 9 ] && ok || bad "one/metrics.jsonl has not 9 lines"

# Half a last line, as a killed run leaves it, counts for nothing.
mkdir torn
{ cat one/metrics.jsonl && printf '{"step":7,"loss":9.5,"ste'; } >torn/metrics.jsonl
awk -v WARMUP=1 -f "$examples/../tools/compare_runs.awk" one/metrics.jsonl | sed 1d | cut -c 15- >out
awk -v WARMUP=1 -f "$examples/../tools/compare_runs.awk" torn/metrics.jsonl | sed 1d | cut -c 15- >err
same out err

# Stopping and going on gives the same bytes; another number of ranks goes on too.
train three -n 2 --codec q4:rounding=stochastic --steps 3
train three -n 2 --codec q4:rounding=stochastic --steps 6 --resume three
same one/model.safetensors three/model.safetensors
same one/rank-1-of-2-step-6.safetensors three/rank-1-of-2-step-6.safetensors
train four -n 4 --codec q4 --steps 8 --resume three
says out 'saved by 2 ranks, continued by 4'
train alone -n 1 --steps 8 --resume three
says out 'found by'

# --resume alone takes everything from the run; what is said besides is noted, or refused.
# go_on CODE WORDS...
go_on() {
    code=$1
    shift
    timeout 100 "$redpoll" train "$@" >out 2>err
    [ $? -eq "$code" ] && ok || bad "train $* has not ended with $code"
}
silent() {
    if grep -q 'note:' out; then bad "$* has notes"; else ok; fi
}
train five -n 2 --codec q4:rounding=stochastic --link 1Gbit,50us --steps 6 --checkpoint-every 3 --keep 2 \
    --momentum 0.8 --lr-schedule cosine --no-eval
cp -r five six
mv six/model-step-3.safetensors six/model.safetensors
go_on 0 --resume six
silent
says out 'rank 0 of 2'
says out 'steps 4 to 6'
same five/model.safetensors six/model.safetensors
same five/rank-1-of-2-step-6.safetensors six/rank-1-of-2-step-6.safetensors
says six/metrics.jsonl '"link":"1Gbit,50us"'
go_on 0 --resume six
silent
says out 'nothing was left to train'
go_on 0 --resume six --steps 8 --lr 0.02 --link= --data-dir .
for change in 'steps was 6, now 8' 'lr was 0.05, now 0.02' 'link was 1Gbit,50us, now absent' 'data-dir was absent, now .'; do
    says out "note: --$change"
done
go_on 0 --resume six --batch-size 4 --epochs 2
says out 'note: --steps was 8, now absent'
says out 'the global batch was 16, now 8'
go_on 1 --resume six --model mlp
says err 'six/model.safetensors holds the model resnet20, not mlp'
go_on 2 --resume six --overwrite
says err 'resume goes on with the run in six, --overwrite starts over in it'
timeout 100 "$redpoll" run -n 2 "$redpoll" train --resume six --steps 21 --epochs 0 >out 2>err || bad 'a launcher cannot go on'
says out '\[0\] rank 0 of 2'
timeout 100 "$redpoll" run -n 4 "$redpoll" train --resume six --steps 22 >out 2>err || bad 'another launch cannot go on'
says out 'saved by 2 ranks, continued by 4'
go_on 2 --resume six
says err 'had 4 ranks, which a launcher had started.* -n N'
printf 'optimizer:\n  weight_decay: 0.001\n' >other.yaml
go_on 0 --resume six -n 2 --config other.yaml --steps 22
says out 'note: --weight-decay was 0.0005, now 0.001'
rm six/settings.json
go_on 1 --resume six -n 2
says err 'six/model.safetensors holds the model resnet20, not resnet18'

# A file of settings; the command line wins over it.
cat >settings.yaml <<'END'
parallelism: {dp: 2}
tokens: {train_steps: 50, micro_batch_size: 8}
communication: {codec: q4, error_feedback: false}
evaluation: {enabled: false}
END
train yaml --config settings.yaml --steps 2
says yaml/metrics.jsonl '"codec":"q4:bucket=512"'
says yaml/metrics.jsonl '"last_step":2,'
says yaml/metrics.jsonl '"error-feedback":"off"'

train example --config "$examples/fashion-mnist.yaml" --model resnet20 --data synthetic --steps 2
says example/metrics.jsonl '"link":"200Mbit,50us"'

# A finished run is not overwritten by accident.
timeout 60 "$redpoll" train --model mlp --data synthetic --steps 1 --out one >out 2>err
[ $? -eq 2 ] && ok || bad "an old run was overwritten"
says err 'holds a run already'

# A rank that is killed is named, within seconds, and the run goes on from its checkpoint.
timeout 100 "$redpoll" train --model resnet20 --data synthetic --train-images 80 --test-images 40 \
    --global-batch-size 16 --seed 3 -n 2 --codec q4 --steps 100000 --checkpoint-every 5 --out "$folder/killed" >out 2>err &
run=$!
tries=0
while [ ! -e killed/model.safetensors ] && [ $tries -lt 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
victim=$(pgrep -f -- "--out $folder/killed" | while read -r process; do
    tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | grep -qx 'RANK=1' && echo "$process"
done | head -n 1)
if [ -n "$victim" ]; then
    kill -KILL "$victim"
    wait $run
    [ $? -ne 0 ] && ok || bad "a run with a dead rank succeeded"
    says err 'rank 1'
    if pgrep -f -- "--out $folder/killed" >/dev/null; then bad "processes are left"; else ok; fi
    last=$(sed -n 's/^{"step":\([0-9]*\),.*/\1/p' killed/metrics.jsonl | tail -n 1)
    train killed -n 2 --codec q4 --steps $((last + 3)) --resume killed
else
    kill $run
    wait $run
    bad "rank 1 was not found"
fi

echo "$passed expectations met, $failed not"
[ $failed -eq 0 ]
