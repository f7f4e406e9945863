#!/bin/sh
# shellcheck disable=SC2086 # words of a command are meant to be split
# Byte-level BPE of GPT-2's kind on one core, beside Hugging Face's tokenizers: the same
# tokenizer.json, the same text, in turns; medians of MB/s, and the ids compared.
# usage: bench/tokenize.sh REDPOLL TEXT [TURNS]
# PYTHON names a Python that has tokenizers (python3 -m venv v && v/bin/pip install tokenizers).
set -eu
redpoll=$1 text=$2 turns=${3:-7}
python=${PYTHON:-python3}
folder=$(mktemp -d "${TMPDIR:-/tmp}/redpoll-tokenize-XXXXXX")
trap 'rm -rf "$folder"' EXIT
export RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false

"$python" - "$text" "$folder/tokenizer.json" <<'END'
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
trainer = trainers.BpeTrainer(vocab_size=8192, initial_alphabet=alphabet, show_progress=False)
tokenizer.train([sys.argv[1]], trainer)
tokenizer.save(sys.argv[2])
END

cat >"$folder/turn.py" <<'END'
import array
import sys
import time
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file(sys.argv[2])
lines = open(sys.argv[1], newline="").read().split("\n")
lines = [line for line in lines if line]
size = sum(len(line.encode()) for line in lines)
begin = time.perf_counter()
ids = [one.ids for one in tokenizer.encode_batch_fast(lines)]
print(size / 1e6 / (time.perf_counter() - begin))
array.array("H", [id for one in ids for id in one]).tofile(open(sys.argv[3], "wb"))
END

one_core="taskset -c 0"
for _ in $(seq "$turns"); do
    $one_core "$redpoll" data tokenize --tokenizer "gpt2:$folder" --in "$text" --split-lines --end none \
        --threads 1 --force --json --out "$folder/ours" |
        sed 's/.*"text_bytes":\([0-9]*\).*"time_s":\([0-9.e-]*\).*/\1 \2/' |
        awk '{ print $1 / 1e6 / $2 }' >>"$folder/ours.txt"
    $one_core "$python" "$folder/turn.py" "$text" "$folder/tokenizer.json" "$folder/theirs.ds" >>"$folder/theirs.txt"
done
cmp "$folder/ours.ds" "$folder/theirs.ds" && echo "the same ids"
middle() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
ours=$(middle "$folder/ours.txt") theirs=$(middle "$folder/theirs.txt")
awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "redpoll %.1f MB/s, tokenizers %.2f MB/s, ratio %.1f\n", a, b, a / b }'
