#!/bin/sh
# Fills the folder in which documented commands are run with what they name: texts, pictures, questions, small
# models in the place of large ones, runs. What is in the folder goes. usage: prepare.sh REDPOLL ROOT FOLDER
set -eu
redpoll=$1
root=$2
rm -rf "$3"
mkdir -p "$3"
cd "$3"

for name in bench tools examples tests docs python; do ln -s "$root/$name" $name; done
mkdir programs corpus models data build
ln -s "$redpoll" programs/redpoll
ln -s "$(command -v python3)" programs/python
ln -s "$(cd "$(dirname "$redpoll")/../.." && pwd)" build/release

for line in $(seq 400); do
    echo "In the beginning line $line had words of every kind, and line $((line * 7 % 61)) had more of them."
done >corpus/first.txt
cp corpus/first.txt corpus.txt
cp "$root/tests/documents/train.py" .
cat >graph.txt <<'END'
undirected
edges
0 1
1 2
2 3
0 3
END
for i in 1 2 3 4 5 6; do echo "{\"prompt\": \"$i \", \"completion\": \"A finch.\"}"; done >birds.jsonl
python3 examples/make_pictures.py pictures >log
cp -r pictures data/imagenet
cp -r pictures data/train
cp -r pictures pets
python3 examples/make_questions.py --texts 40 --validation 8 birds >log
cp birds/train.json train-v2.0.json
cp birds/validation.json dev-v2.0.json
python3 - <<'END'
import pathlib, random

folder, numbers = pathlib.Path("data/cifar10"), random.Random(1)
folder.mkdir()
for name in ["test_batch", *(f"data_batch_{i}" for i in range(1, 6))]:
    rows = [bytes([i % 10]) + numbers.randbytes(3072) for i in range(20)]
    (folder / f"{name}.bin").write_bytes(b"".join(rows))
END

# Small models under the names of large ones, with their tokenizers. All their tokens are those of one file.
train() { # MODEL RUN OPTIONS...
    model=$1 run=$2
    shift 2
    "$redpoll" train --model "$model" --steps 1 --global-batch-size 2 --eval-images 2 --out "$run" "$@" >log 2>&1 ||
        { cat log >&2 && exit 1; }
}
"$redpoll" data tokenize --tokenizer train:bpe=300 --in corpus/*.txt --out data/corpus >log
cp data/corpus.tokenizer.json gpt2.json
for name in kjv val; do "$redpoll" data tokenize --tokenizer gpt2.json --in corpus/*.txt --out data/$name >log; done
train llama:layers=1,hidden=32,heads=4,kv-heads=2,vocabulary=300 runs/seeds --data tokens:data/kjv --seq-length 16
train gpt2:layers=1,hidden=32,heads=4,vocabulary=300 runs/kjv --data tokens:data/kjv --seq-length 16
train bert:layers=1,hidden=32,heads=4,vocabulary=51,positions=384,spans=on runs/bert \
    --data spans:train-v2.0.json,tokenizer=bert:birds --seq-length 32
train vit:layers=1,hidden=32,heads=4,patch=32,image=224 runs/vit --data images:pets,normalize=half --image-size 224
small=gpt2:layers=2,hidden=32,heads=4,vocabulary=300
train $small runs/one --data tokens:data/kjv --seq-length 16
train $small runs/pp2 --data tokens:data/kjv --seq-length 16 -n 2 --pp 2 --micro-batch-size 1
train $small runs/tp2 --data tokens:data/kjv --seq-length 16 -n 2 --tp 2
for codec in fp32 q4; do train mlp:hidden=8 runs/$codec --data synthetic -n 2 --codec $codec; done
for pair in seeds:llama seeds:SmolLM2-135M kjv:gpt2 bert:bert-base-uncased vit:vit-base-patch16-224; do
    "$redpoll" export --model runs/"${pair%:*}" --to hf:models/"${pair#*:}" >log
done
rm -rf log out
