#!/bin/sh
# What `make bench-compare` calls a loss, over builds that are scripts: what they print is said below, a number a run.
# usage: bench_compare_test.sh REDPOLL
# shellcheck disable=SC2154 # $folder is that of cases.sh
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/harness/cases.sh"
command -v python3 >/dev/null || { echo "no python3" && exit 77; }
compare=$root/bench/compare/bench_compare.py

# A build's redpoll prints the next of the numbers in its file of this name, again from the first on behind the last.
for build in old new; do
    mkdir -p $build/src/cli $build/bench $build/numbers
    cat >$build/src/cli/redpoll <<'END'
#!/bin/sh
folder=$(dirname "$0")/../../numbers
echo "$(basename "$(cd "$folder/.." && pwd)")" >>"$folder/../../turns"
[ -f "$folder/$1" ] || { echo "redpoll: unknown option '$1'" >&2; exit 2; }
. "$folder/$1"
n=$(($(cat "$folder/$1.count" 2>/dev/null || echo 0) + 1))
echo $n >"$folder/$1.count"
# shellcheck disable=SC2086,SC2154 # numbers are words
set -- $numbers
shift $(((n - 1) % $#))
[ "$1" != fail ] || { echo "redpoll: it broke" >&2; exit 1; }
echo "{\"rate\":$1,\"copy\":${copy:-$1},\"time_s\":0.5}"
END
    chmod +x $build/src/cli/redpoll
done

# prints ROW BUILD NUMBERS
prints() { echo "numbers='$3' copy=${4:-100}" >"$2/numbers/$1" && rm -f "$2/numbers/$1.count"; }
# compares CODE PATTERN WORDS...: that exit code, and a line like this
compares() {
    wanted=$1 pattern=$2
    shift 2
    rm -f turns
    python3 "$compare" --old old --new new --rows rows.txt --rounds 2 "$@" >out 2>&1
    code=$?
    if [ $code -eq "$wanted" ] && grep -qE -e "$pattern" out; then pass; else
        complain "$*: ends with $code, not $wanted and '$pattern': $(cat out)"
    fi
}
also() { if grep -qE -e "$1" "${2:-out}"; then pass; else complain "no '$1' in $(cat "${2:-out}")"; fi; }
never() { if grep -qE -e "$1" "${2:-out}"; then complain "'$1' in $(cat "${2:-out}")"; else pass; fi; }
row() { echo "$1 | B/s | json rate | ${2:-100} | {redpoll} $1" >rows.txt; }

# ---- what is down, and what is not: NAME OLD NEW CODE PATTERN ----

while IFS='|' read -r name old new code pattern; do
    row "$name"
    prints "$name" old "$old"
    prints "$name" new "$new"
    compares "$code" "$pattern"
done <<'END'
same|100|100|0|^1 rows compared, 0 of them more than 5 % down
three|100|97|0|^three .* 0\.970 .*0\.970 \.\.\. 0\.970\)$
six|100|94|1|^DOWN: six: 6\.0 %
half|100|50|1|^half .* 0\.500 .*DOWN$
quicker|100|300|0|^quicker .* 3\.000
six_in_noise|98 101 103 97 100|94 92 95 93 96|1|^DOWN: six_in_noise: [5-9]\.[0-9] %
noise|100|80 75 120 85 84 118 78 125 90|0|^noise .* looked down once$
noise_of_both|70 130 90 110|120 60 125 95 80|0|^1 rows compared, 0 of them
a_bad_minute|100|100 80 80 80 80 100 100 100 100 100 100 100 100|0|^a_bad_minute .* 1\.000 .* looked down once$
END

# ---- in turns, and in units of the yardstick ----

row same
prints same old 100
prints same new 100
compares 0 '^same .*1\.000 .*1\.000 .*1\.000'
# The first look, then two rounds.
echo "new old old new new old old new new old" | tr ' ' '\n' >wanted
same wanted turns

# A machine that is half as quick while the new one runs is no loss: the yardstick is, too.
row drift 'json copy'
prints drift old 200 100
prints drift new 100 50
compares 0 '^drift .*200 B/s +2\.000 +100 B/s +2\.000 +1\.000'

cat >rows.txt <<'END'
# A remark, and an empty line

yardstick stick | B/s | json rate / json time_s | 1 | {here}/src/cli/redpoll stick
by a stick | B/s | json rate | stick | {redpoll} same
of a time | 1/s | 50 / json time_s | stick | {redpoll} same
of a line | B/s | line "rate":([0-9]+) | stick | {redpoll} same
END
prints stick new 25
compares 0 '^by a stick .*100 B/s +2\.000 +100 B/s +2\.000 +1\.000'
also '^of a time .*100 1/s +2\.000 +100 1/s +2\.000'
also '^of a line .*100 B/s +2\.000'
also '^3 rows compared'
# Rows of one command are read from the same runs, and the stick is the tree at hand's, once a round.
[ "$(grep -c old turns)" -eq 5 ] && [ "$(grep -c new turns)" -eq 7 ] || complain "turns: $(tr '\n' ' ' <turns)"

# ---- rows that a build has not, or that do not run ----

row absent
prints absent new 100
rm -f old/numbers/absent
compares 0 "^absent .* not in REF: redpoll: unknown option 'absent'"
also '^not in REF: absent$'
also '^0 rows compared'

echo 'other key | B/s | json speed | 100 | {redpoll} same' >rows.txt
compares 1 "^other key .* fails: no 'json speed' in what it prints"

row gone
prints gone old 100
compares 1 "^gone .* fails: redpoll: unknown option 'gone'"
also '^fails: gone$'

row neither
compares 0 "^neither .* does not run here: redpoll: unknown option 'neither'"

echo 'root | B/s | json rate | 100 | echo "this needs root"; exit 77' >rows.txt
compares 0 '^root .* does not run here: this needs root'

row breaks
prints breaks old 100
prints breaks new '100 100 fail'
compares 1 '^breaks .* fails: ran, and then not: redpoll: it broke'

echo 'slow | B/s | json rate | 100 | sleep 20' >rows.txt
compares 0 '^slow .* does not run here: not done after 0.2 s' --timeout 0.2

# ---- nothing outlives a comparison ----

# gone FILE: the process whose number is in it ends in a few seconds
gone() {
    i=0
    while kill -0 "$(cat "$1")" 2>/dev/null && [ $i -lt 50 ]; do sleep 0.1 && i=$((i + 1)); done
    [ $i -lt 50 ] && pass || complain "process $(cat "$1") of a command lives on"
}
echo "child | B/s | json rate | 100 | sleep 60 & echo \$! >$folder/child; wait" >rows.txt
compares 0 '^child .* does not run here: not done' --timeout 0.5
gone child
rm -f child
python3 "$compare" --old old --new new --rows rows.txt >out 2>&1 &
until [ -s child ]; do sleep 0.1; done
kill $!
wait $! && complain "a comparison that was stopped ends with 0"
also 'stopped by signal 15'
gone child

# ---- mistakes ----

# mistakes PATTERN LINE
mistakes() {
    printf '# one\n%s\n' "$2" >rows.txt
    compares 1 "^bench-compare: rows.txt:2: $1"
}
mistakes 'a row is NAME' 'name | B/s | json rate | {redpoll} x'
mistakes "'rate' is not json KEY" 'name | B/s | rate | 100 | {redpoll} x'
mistakes "'line x' is not json KEY, line PATTERN with one group" 'name | B/s | line x | 100 | {redpoll} x'
mistakes "'memcpyy' is not json KEY" 'name | B/s | json rate | memcpyy | {redpoll} x'
printf 'a | B/s | json rate | 1 | x\na | B/s | json rate | 1 | y\n' >rows.txt
compares 1 "rows.txt:2: there are two rows 'a'"
row same
compares 1 "no row's name holds tokens; there are same" --only tokens
python3 "$compare" no-such-commit >out 2>&1 && complain "a commit that is not there: exit code 0"
also "bench-compare: 'no-such-commit' is no commit of this repository"

# ---- the table of this processor ----

cat >page.md <<'END'
# A page

## By processor

Words.

### Another processor, 2 cores

| row | in units of | median | spread |
|---|---|---|---|
| same | 100 | 7 | 7 ... 7 |

## Behind

The end.
END
row same
prints same new 300
compares 0 'is in page.md' --write --document page.md
also '^\| same \| 100 \| 3 \| 3 \.\.\. 3 \|$' page.md
also '^\| same \| 100 \| 7 \| 7 \.\.\. 7 \|$' page.md
also '^The end\.$' page.md
prints same new 200
cp page.md before.md
compares 0 'is in page.md' --write --document page.md
also '^\| same \| 100 \| 2 \| 2 \.\.\. 2 \|$' page.md
never '^\| same \| 100 \| 3 ' page.md
[ "$(wc -l <before.md)" -eq "$(wc -l <page.md)" ] || complain "the page grew: $(cat page.md)"
[ "$(grep -c '^### ' page.md)" -eq 2 ] || complain "there are not two processors in $(cat page.md)"

# ---- the rows that there are ----

cp "$root/bench/rows.txt" rows.txt
compares 1 "no row's name holds no-such-row; there are codec q4: encode, " --only no-such-row
for program in $(grep -o '{bench}/[a-z_]*\|{here}/bench/[a-z_]*' rows.txt | sed 's|.*/||' | sort -u); do
    grep -q "add_executable($program " "$root/bench/CMakeLists.txt" || complain "rows.txt runs $program, which is not built"
done

finish
