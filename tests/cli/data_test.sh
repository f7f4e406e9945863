#!/bin/sh
# `redpoll data` as its users meet it. usage: data_test.sh REDPOLL
# shellcheck disable=SC2086,SC2015,SC2154 # words of a command are meant to be split
set -u
redpoll=$1
. "$(dirname "$0")/../harness/cases.sh"
mounted=
trap '[ -z "$mounted" ] || umount -l "$mounted"; cd /; rm -rf "$folder"' EXIT
# says PATTERN WORDS...: succeeds and prints it
says() {
    pattern=$1
    shift
    if timeout 60 "$redpoll" "$@" >out 2>err && grep -qE -e "$pattern" out; then pass; else
        complain "redpoll $* does not say '$pattern': $(head -n 4 out err)"
    fi
}
# expect CODE PATTERN WORDS...: fails with this code and says so in its first line of errors
expect() {
    code=$1 pattern=$2
    shift 2
    timeout 60 "$redpoll" "$@" >out 2>err
    got=$?
    if [ $got -eq "$code" ] && head -n 1 err | grep -qE -e "$pattern"; then pass; else
        complain "redpoll $*: code $got, not $code, or no '$pattern': $(head -n 3 err)"
    fi
}
nothing_at() { ls "$1".* >noise 2>&1 && complain "left behind: $(cat noise)"; }

printf 'In the beginning\nGod created\n' >a.txt
printf '{"text":"the heaven","n":1}\n{"text":"and the earth","n":2}\n' >b.jsonl
gzip -k b.jsonl
mkdir -p gpt2
cat >gpt2/vocab.json <<'END'
{"a":0,"b":1,"ab":2,"Ġ":3,"Ġa":4,"<|endoftext|>":5,"c":6,"Ċ":7}
END
printf '#version: 0.2\na b\nĠ a\n' >gpt2/merges.txt

# ---- tokenize, info, decode ----

data="data tokenize --tokenizer byte"
says 'd/one.ds: 6 documents, 79 tokens of 2 bytes by byte \(257\)' $data --in a.txt b.jsonl --in b.jsonl.gz --out d/one --split-lines --force
says '"documents":6,"tokens":79,' $data --in=a.txt --split-lines --in b.jsonl --in b.jsonl.gz --out d/two --json
says '^d/three.ds: 1 document, 30 tokens' $data --in a.txt --out d/three
says '^tokens +79, 2 bytes each$' data info d/two
says '^documents +6, of ' data info d/two.ds
says '^     1: God created<\|endoftext\|>$' data info d/two
says '"layout":"nanoset","tokenizer":"byte","vocabulary":257,' data info d/two --json
says '^God created<\|endoftext\|>$' data decode d/two --from 1
says '^\{"document":2,"tokens":11,"text":"the heaven<\|endoftext\|>"\}$' data decode d/two --from 2 --json
says '^==> document 3, 14 tokens <==$' data decode d/two --first 9
REDPOLL_TOKENIZERS=$folder
export REDPOLL_TOKENIZERS
printf 'ab a ab<|endoftext|>c\n' >c.txt
says '^e.ds: 1 document, 8 tokens of 2 bytes by gpt2 \(8\)' data tokenize --tokenizer gpt2 --in c.txt --out e
unset REDPOLL_TOKENIZERS
[ -s e.tokenizer.json ] || complain "no tokenizer.json is kept"
says '^ab a ab<\|endoftext\|>c$' data decode e
says '^e2.ds: .*by e.tokenizer.json' data tokenize --tokenizer e.tokenizer.json --in c.txt --out e2 --end none
cmp -s e.ds e2.ds && complain "--end none changes nothing"
says 'one.ds: 4 documents' $data --in a.txt b.jsonl --split-lines --out d/one --force

says '^t.ds: 3 documents, .* by bpe=300 \(290\)' data tokenize --tokenizer train:bpe=300 --in a.txt c.txt --split-lines --out t
says '^God created<\|endoftext\|>$' data decode t --from 1
cp t.tokenizer.json first.json
says 't.ds' data tokenize --tokenizer train:bpe=300 --in a.txt c.txt --split-lines --threads 5 --out t --force
cmp -s t.tokenizer.json first.json || complain "training twice gives two tokenizers"
says '^w.ds: 2 documents, .* by wordpiece=60 \([0-9]+\)' data tokenize --tokenizer train:wordpiece=60 --in a.txt --split-lines --out w
says '^in the beginning$' data decode w --from 0
says '^w.ds: 2 documents, 7 tokens .* by wordlevel=60 \(7\)' data tokenize --tokenizer train:wordlevel=60 --in a.txt --split-lines --out w --force
says '^In the beginning <\|endoftext\|>$' data decode w
expect 2 'a vocabulary of 9 tokens; the characters of this text alone are' data tokenize --tokenizer train:wordpiece=9 --in a.txt --out x

# First bytes tell what a file is, not its name; rows that are broken can be left out.
cp b.jsonl lines.txt
printf '{"text":"a"}\n{"text":null}\n' >null.jsonl
says 'j.ds: 2 documents, 25 tokens' $data --in lines.txt --out j
says 'j.ds: 1 document, 60 tokens' $data --in lines.txt --format text --out j --force
expect 1 "null.jsonl:2: its 'text' is null, and no text; --skip-broken leaves it out" $data --in null.jsonl --out x
says '"documents":1,.*"broken_rows":1,' $data --in null.jsonl --skip-broken --json --out j --force
says 'j.ds: 1 document, 7 tokens' data tokenize --tokenizer gpt2:gpt2 --end c --in c.txt --split-lines --format text --out j --force
says 'ab a ab<\|endoftext\|>cc$' data decode j
grep -q '"eos_token":.*"c"' j.tokenizer_config.json || complain "the end of texts is not kept: $(cat j.tokenizer_config.json)"
printf '{"eos_token":{"content":"c"}}' >gpt2/tokenizer_config.json
cp e.tokenizer.json gpt2/tokenizer.json
says 'j.ds: 1 document, 8 tokens' data tokenize --tokenizer gpt2:gpt2 --in c.txt --out j --force
says 'c$' data decode j
rm gpt2/tokenizer_config.json gpt2/tokenizer.json

# Ids without a header, as nanoGPT writes them.
printf 'a\0b\0' >train.bin
says '^==> document 0, 2 tokens <==$' data decode uint16:train.bin --tokenizer byte --first 2
says '"layout":"raw",' data info uint16:train.bin --json
expect 1 'train.bin is .*' data info train.bin

# ---- refusals ----

expect 2 "unknown format 'xml'; there are auto, text, json" $data --in a.txt --format xml --out x
printf 'PAR1' >p.jsonl
expect 1 'p.jsonl is a Parquet file, which is not read: write it as JSON lines' $data --in p.jsonl --out x

expect 2 'which tokenizer\?' data tokenize --in a.txt --out x
expect 2 'which text\?' $data --out x
expect 2 'where to\?' $data --in a.txt
expect 2 'd is a folder; give a name in it: --out d/NAME' $data --in a.txt --out d
expect 2 'd/one.ds is there already; --force replaces it' $data --in a.txt --out d/one
expect 1 "no files of the tokenizer gpt2: put tokenizer.json, or vocab.json and merges.txt" data tokenize --tokenizer gpt2 --in a.txt --out x
expect 2 'train:bpe=N with N from 257 to' data tokenize --tokenizer train:bpe=100 --in a.txt --out x
expect 2 'there are train:bpe=N, train:wordpiece=N, train:wordpiece-cased=N, train:wordlevel=N' data tokenize --tokenizer train:unigram=300 --in a.txt --out x
expect 1 "no tokenizer 'gtp2'.*did you mean 'gpt2'" data tokenize --tokenizer gtp2 --in a.txt --out x
expect 1 'missing.txt is missing' $data --in missing.txt --out x
expect 1 "b.jsonl:1: no text under the key 'body'; there are text, n; --key" $data --in b.jsonl --key body --out x
expect 2 "byte has no token '</s>'" $data --in a.txt --end '</s>' --out x
expect 2 "'0' is (out of range|too small)" $data --in a.txt --threads 0 --out x
printf 'a\377b\n' >bad.txt
expect 1 'bad.txt: 1 place is not UTF-8' data tokenize --tokenizer gpt2:gpt2 --in bad.txt --strict --out x
expect 1 'a.txt is not a folder' $data --in b.jsonl --out a.txt/x
nothing_at x
expect 2 'which data\?' data info
expect 1 'no tokens at nowhere: neither nowhere.ds' data info nowhere
expect 2 '[-]-from 6: d/two has 6 documents' data decode d/two --from 6
expect 2 "unknown command 'data tokenise'; did you mean 'data tokenize'" data tokenise
expect 2 'usage: redpoll data COMMAND' data

# Text that is not UTF-8 is told, and other data than the index says refused.
timeout 60 "$redpoll" data tokenize --tokenizer gpt2:gpt2 --in bad.txt --out g >out 2>err
grep -q 'note: 1 document was not UTF-8: U+FFFD stands in 1 place$' err || complain "U+FFFD is not told: $(cat err)"
head -c 100 d/two.ds >short && cp short d/two.ds
expect 1 'd/two.ds holds 50 tokens, and d/two.ds.metadata says 79' data info d/two

# ---- a full disk, a stop ----

mkdir full
if mount -t tmpfs -o size=256k none full 2>noise; then
    mounted=$folder/full
    head -c 400000 /dev/zero | tr '\0' x >big.txt
    expect 1 'cannot write full/big.ds: No space left' $data --in big.txt --out full/big
    [ -z "$(ls full)" ] || complain "a full disk is left with $(ls full)"
    umount -l full && mounted=
else
    echo "skipped a full disk: $(head -n 1 noise)"
fi
mkfifo slow.jsonl
expect 1 'slow.jsonl is a named pipe' $data --in slow.jsonl --out x
head -c 20000000 /dev/zero | tr '\0' y >long.txt
for i in 1 2 3 4 5 6; do cp long.txt long$i.txt; done
"$redpoll" $data --in long*.txt --out stopped >out 2>err &
pid=$!
tries=0
until [ -e stopped.ds.tmp ] || [ -e stopped.ds ] || [ $tries -ge 300 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
[ $tries -lt 300 ] || complain "stopped.ds.tmp never comes: $(cat err)"
kill -TERM $pid 2>noise
wait $pid
code=$?
if [ $code -eq 0 ]; then echo "skipped a stop: it was done before"; else
    [ $code -eq 143 ] && grep -q 'stopped; nothing was written' err || complain "a stop is code $code: $(cat err)"
    nothing_at stopped
fi

finish
