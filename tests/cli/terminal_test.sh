#!/bin/sh
# What a terminal sees of a run, on pseudo-terminals of script(1): the bar fits any width and follows
# a resized window, messages stand on lines of their own, and so does the prompt after the run,
# whether it ended, failed, was interrupted or lost a rank. usage: terminal_test.sh REDPOLL
set -u
redpoll=$1
command -v script >/dev/null || { echo "skipped: there is no script(1) to make a terminal"; exit 77; }
. "$(dirname "$0")/../harness/cases.sh"
train="$redpoll train --model mlp --data synthetic --train-images 64 --test-images 16 --global-batch-size 16 --threads 1 --out run"
# Others may have the cores for a while: `sh going` waits until the run draws.
cat >going <<'END'
tries=0
until [ "$(cat run/metrics.jsonl 2>/dev/null | wc -l)" -gt 5 ] || [ $tries -gt 600 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
sleep 0.5
END

# `sh drawn_lately -le 30`: waits until a whole line that was drawn lately is so long, its end counted.
cat >drawn_lately <<'END'
tries=0
until [ "$(tr '\r' '\n' <raw | sed 's/\x1b\[K//g' | grep -E 'step [0-9]+/' | tail -n 2 | head -n 1 | wc -m)" "$1" "$2" ] || [ $tries -gt 300 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
END

# on_terminal COLUMNS COMMAND: what it writes there goes to raw; PROMPT follows it
on_terminal() {
    rm -rf run
    TERM=xterm timeout 100 script -qefc "stty cols $1 rows 24; trap : INT; $2; echo PROMPT" /dev/null >raw 2>&1
}
# Every drawn line, without what clears it.
drawn() { tr '\r' '\n' <raw | sed 's/\x1b\[K//g' | grep -E 'step [0-9]+/'; }
# fits COLUMNS: all that was drawn does; a last column stays free
fits() {
    if drawn | awk -v most="$1" 'length($0) >= most { print; wide = 1 } END { exit wide }' >wide; then pass; else
        complain "wider than $1 columns: $(head -n 2 wide)"
    fi
}
prompt_stands_alone() {
    if tr -d '\r' <raw | sed 's/.*\x1b\[K//' | grep -qx PROMPT; then pass; else
        complain "$1: the prompt stands behind '$(grep PROMPT raw | tail -c 200 | tr '\r' '|')'"
    fi
}

for columns in 20 40 80 200; do
    on_terminal $columns "$train --steps 60"
    drawn | grep -q 'step 60/60' || complain "$columns columns: no last step: $(tail -n 5 raw)"
    fits $columns
    prompt_stands_alone "$columns columns"
    grep -q 'found by' raw && complain "a run alone begins with its launcher"
done
on_terminal 80 "$train --steps 60"
drawn | grep -qE '^\[#+\.*\] step' || complain "80 columns: no bar: $(drawn | head -n 2)"
drawn | grep -qE 'left$' || complain "80 columns: no time left: $(drawn | head -n 2)"
rm -rf run
TERM=dumb script -qefc "$train --steps 5" /dev/null >raw 2>&1
grep -q "$(printf '\033')" raw && complain "a dumb terminal is drawn upon"

# A window that becomes narrower in the middle of a run, and wider again. What was measured before
# may be written for a moment yet.
on_terminal 100 "{ sh going; stty cols 30 </dev/tty; sh drawn_lately -le 30; echo NARROW; sleep 1; echo WIDE; stty cols 100 </dev/tty; sh drawn_lately -gt 60; kill -INT 0; } &
    $train --steps 100000000"
cp raw resized
sed -n '/NARROW/,/WIDE/p' resized | sed '1s/.*NARROW//' | tr '\r' '\n' | sed 's/WIDE.*//' >raw
fits 30
sed -n '/WIDE/,$p' resized | sed '1s/.*WIDE//' | tr '\r' '\n' | sed 's/\x1b\[K//g' >raw
awk 'length($0) > 60 { wide = 1 } END { exit !wide }' raw || complain "the bar does not widen again: $(head -n 3 raw)"

# ---- the prompt ----

on_terminal 80 "$train --steps 5 -n 2"
prompt_stands_alone "two ranks"
on_terminal 80 "$train --steps 5 --data idx --data-dir nowhere"
prompt_stands_alone "an error"
for ranks in '' '-n 2'; do
    on_terminal 80 "{ sh going; kill -INT 0; } & $train --steps 100000000 $ranks"
    prompt_stands_alone "interrupted, $ranks"
done
# The ranks carry a mark in their environment.
cat >kill_rank <<'END'
for environment in /proc/[0-9]*/environ; do
    pid=${environment#/proc/}
    grep -qzx "TERMINAL_TEST=$2" "$environment" 2>/dev/null && grep -qzx "RANK=$1" "$environment" && kill -KILL "${pid%/environ}"
done
END
for rank in 0 1; do
    on_terminal 80 "{ sh going; sh kill_rank $rank $$; } 2>/dev/null & TERMINAL_TEST=$$ $train --steps 100000000 -n 2"
    prompt_stands_alone "rank $rank was killed"
    tr '\r' '\n' <raw | sed 's/\x1b\[K//g' | grep -q "^redpoll train: rank $rank was killed" ||
        complain "the launcher's word does not stand alone: $(tail -n 5 raw)"
done

# What ranks print does not move their user's cursor, unless that was asked for; a pipe has it as it is.
print='printf "\033[2J\033]0;title\007\033[31mred\302\233x\n"'
for where in "-n 2" "-H localhost:2"; do
    script -qefc "$redpoll run $where sh -c '$print; exit 3'" /dev/null >raw 2>&1
    grep -q "$(printf '\033\\[2J\|\033]0\|\007\|\302\233')" raw && complain "$where: a terminal is told: $(cat -v raw)"
    grep -qF "^[[2J^[]0;title^G$(printf '\033')[31mred<U+009B>x$(printf '\033')[m" raw || complain "$where: not shown: $(cat -v raw)"
    script -qefc "$redpoll run $where --raw sh -c '$print; exit 3'" /dev/null >raw 2>&1
    grep -qF "$(printf '\033')[2J" raw || complain "$where: --raw does not pass it: $(cat -v raw)"
    $redpoll run $where sh -c "$print" >raw 2>/dev/null
    grep -qF "[1] $(printf '\033')[2J" raw || complain "$where: a pipe does not get it: $(cat -v raw)"
    pass
done

finish
