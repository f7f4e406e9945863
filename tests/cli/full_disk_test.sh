#!/bin/sh
# Every file that a command writes, on a disk that is full from some byte on (a limit on the size of
# files, and where one may be mounted a small file system): the command fails and names the file, and
# what ranks print is never lost. usage: full_disk_test.sh REDPOLL
# shellcheck disable=SC2016,SC2046,SC2086 # scripts are for the ranks; options are kept as words
set -u
redpoll=$1
tests=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/processes.sh
. "$tests/processes.sh"
unset SLURM_JOB_NODELIST SLURM_STEP_ID PBS_NODEFILE
nothing_left() { within 10 none_running || complain "processes are left: $(ps -fp $(running))"; }
trap 'kill_all; umount "$folder/small" 2>/dev/null; cd /; rm -rf "$folder"' EXIT

train="train --model mlp --data synthetic --train-images 64 --test-images 16 --global-batch-size 16 --threads 1 --steps 4"
awk 'BEGIN { for (i = 0; i < 40000; i++) printf "word%d and more\n", i }' >text.txt
"$redpoll" $train --out whole >/dev/null 2>&1 || exit 1
mkdir small full logs
for rank in 0 1 2; do ln -s /dev/full full/rank-$rank.log; done
cat >print <<'EOF'
i=0
while [ $i -lt 3000 ]; do echo "line $i of rank $RANK"; i=$((i + 1)); done
EOF

# KB of a file that can be written ~ exit code ~ what standard error says ~ words of redpoll
table() {
    cat <<'EOF'
4~1~cannot write .*run/.*safetensors.*: File too large~TRAIN --out run
3~1~cannot write .*run/trace.json.*: File too large~TRAIN --no-checkpoint --trace --out run
0~1~cannot [a-z]+ .*run/.*: File too large~TRAIN --out run
4~1~cannot write .*tokens.*: File too large~data tokenize --tokenizer byte --in text.txt --out tokens
0~1~cannot write .*tokens.*: File too large~data tokenize --tokenizer byte --in text.txt --out tokens
4~1~cannot write .*page.html.*: File too large~report whole -o page.html
0~1~cannot write .*page.html(: File too large|; is the disk full.)~report whole -o page.html
0~1~cannot write .*figures/.*svg.*: File too large~report whole --svg figures
0~1~cannot write .*steps.csv.*: File too large~report whole --csv steps.csv
0~1~cannot write .*tables/.*csv.*: File too large~report whole --csv tables
0~1~cannot write .*events/.*: File too large~report whole --tensorboard events
4~1~cannot write .*logs/rank-0.log: File too large; what the rank prints from here on comes here~run -n 1 --output-dir logs sh print
4~7~cannot write .*logs/rank-2.log: File too large~run -n 3 --output-dir logs sh -c '. ./print; exit $((RANK == 1 ? 7 : 0))'
4~1~cannot write .*logs/rank-1.log: File too large~run -H localhost:2 --output-dir logs sh print
-~1~cannot write .*full/rank-0.log: No space left on device~run -n 3 --output-dir full sh print
-~1~cannot write .*full/rank-0.log: No space left on device~run -H localhost:2 --output-dir full sh print
-~1~cannot write .*full/rank-0.log: No space left on device~run -n 1 --output-dir full printf x
-~0~~run -n 1 --output-dir full true
EOF
}

# limited KB WORDS: standard output and error pass through pipes, which have no limit
limited() {
    rm -rf run tokens* page.html figures steps.csv tables events out err
    words=$(echo "$2" | sed "s/^TRAIN/$train/")
    {
        (
            [ "$1" = - ] || ulimit -f $(($1 * 2)) || exit 99
            eval "env REDPOLL_TEST_MARK=$mark '$redpoll' $words" </dev/null 2>&1 >&3
            echo "code $?"
        ) | cat >err
    } 3>&1 | cat >out
}
row() { # KB CODE SAYS WORDS
    limited "$1" "$4"
    has err "^code $2\$"
    [ -z "$3" ] || has err "$3"
}

# Lines of a rank in its file and behind "[rank] " are together what it has printed.
nothing_is_lost() { # FILE RANK
    text=$(seq 0 2999 | sed "s/.*/line & of rank $2/" | sort)
    both=$({ grep -x "line [0-9]* of rank $2" "$1" && sed -n "s/^\[$2\] //p" out; } | sort)
    [ "$both" = "$text" ] || complain "lines of rank $2 are missing, or there twice"
}
lines_go_on_elsewhere() {
    for where in "-n 2" "-H localhost:2"; do
        rm -f logs/*
        limited 4 "run $where --output-dir logs sh print"
        for rank in 0 1; do nothing_is_lost logs/rank-$rank.log $rank; done
        [ "$(grep -c 'cannot write' err)" -eq 2 ] || { complain "a file is named twice:" && show err; }
    done
}
# What ranks print on a standard error that cannot take it fails the run, if only by its code.
a_full_standard_error() {
    for where in "-n 2" "-H localhost:2"; do
        "$redpoll" run $where sh -c 'echo "rank $RANK" >&2' 2>/dev/full >out
        code=$?
        [ $code -eq 1 ] || complain "run $where to a full standard error ends with $code"
        "$redpoll" run $where sh -c 'echo "rank $RANK" >&2; exit 5' 2>/dev/full >out
        code=$?
        [ $code -eq 5 ] || complain "run $where to a full standard error ends with $code, not 5"
        "$redpoll" run $where sh -c 'echo "rank $RANK" >&2' 2>&- >out
        code=$?
        [ $code -eq 0 ] || complain "run $where without standard error ends with $code"
    done
}
# A small file system, where this user may mount one.
a_full_file_system() {
    mount -t tmpfs -o size=64k tmpfs small 2>/dev/null || { echo "skipped: no tmpfs can be mounted" && return; }
    limited - "run -n 2 --output-dir small sh print"
    has err 'code 1'
    has err 'cannot write .*small/rank-[01].log: No space left on device'
    rm -f small/*
    limited - "TRAIN --out small/run"
    has err 'code 1'
    has err 'cannot (write|make) .*small/run.*: No space left on device'
    rm -rf small/*
    limited - "data tokenize --tokenizer byte --in text.txt --out small/tokens"
    has err 'code 1'
    has err 'cannot write .*small/tokens.*No space left on device'
    [ -z "$(ls small)" ] || complain "files are left on the full disk: $(ls small)"
    umount small
}
# "ignored" where the signal of a file that is too large (25) is ignored, else "kept"; of the fields in a line of /proc/PID/status.
is_ignored() {
    for mask in $1; do :; done
    [ $((0x$mask >> 24 & 1)) -eq 0 ] && echo kept || echo ignored
}
# Ranks have the limit as their users know it: a signal. Where it was ignored before redpoll came it stays so.
ranks_keep_the_signal() {
    limited 4 'run -n 1 sh -c "grep SigIgn /proc/self/status"'
    is="$(is_ignored "$(cat out)")" was="$(is_ignored "$(grep SigIgn /proc/self/status)")"
    [ "$is" = "$was" ] || complain "the signal is $is; before redpoll it was $was"
}

table >rows
while IFS='~' read -r kb code says words <&4; do
    check "$kb KB: $words" row "$kb" "$code" "$says" "$words"
done 4<rows
check "lines go on elsewhere" lines_go_on_elsewhere
check "a full standard error" a_full_standard_error
check "a full file system" a_full_file_system
check "ranks keep the signal" ranks_keep_the_signal

[ $failed -eq 0 ] || exit 1
