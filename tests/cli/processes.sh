# For the tests of this folder, which read it: processes with a mark, what they must say, cases.
# shellcheck shell=sh disable=SC2046,SC2086,SC2154 # options are kept as words; $redpoll is the test's
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT REDPOLL_STORE REDPOLL_PORT
# shellcheck source=tests/harness/ports.sh
. "$tests/../harness/ports.sh"
folder=$(mktemp -d "${TMPDIR:-/tmp}/redpoll-test-XXXXXX")
cd "$folder" || exit 1
mkdir temporary
export TMPDIR="$folder/temporary"
mark="test-$$"
failed=0 complaints=0

# ---- processes ----

# The processes we started that still run: they carry a mark in their environment, and a zombie
# has none.
running() { grep -lzx "REDPOLL_TEST_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }
none_running() { [ -z "$(running)" ]; }
kill_all() { kill -9 $(running) 2>/dev/null; }
trap 'kill_all; cd /; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM HUP

# pid_of RANK
pid_of() {
    for pid in $(running); do
        grep -qzx "RANK=$1" "/proc/$pid/environ" 2>/dev/null && echo "$pid"
    done
}
has_ended() {
    case $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) in
    '' | Z* | X*) return 0 ;;
    esac
    return 1
}
# within SECONDS COMMAND...: does it come true by then?
within() {
    tries=$(($1 * 20))
    shift
    until "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.05
    done
}
# Signals as a terminal leaves them: a script's background ignores SIGINT.
start() { env --default-signal=INT,QUIT "REDPOLL_TEST_MARK=$mark" "$@" & }

# ---- what is said about it ----

complain() {
    echo "    $*"
    complaints=$((complaints + 1))
}
show() { for file in "$@"; do sed "s/^/        $file: /" "$file" | grep -v 'step [0-9]*/' | head -n 12; done; }
# has FILE PATTERN
has() { grep -qE -e "$2" "$1" || { complain "$1 lacks '$2':" && show "$1"; }; }
# said_once FILE PREFIX PATTERN: one line of a rank's own, warnings apart, and it matches
said_once() {
    lines=$(grep -E "^$2redpoll: " "$1" | grep -vc 'redpoll: warning: ')
    [ "$lines" -eq 1 ] || { complain "$1 has $lines lines of '$2', not 1:" && show "$1"; }
    has "$1" "^$2redpoll: $3"
}

# ends CODE: the launcher does, with that code
ends() {
    if ! within 30 has_ended "$launcher"; then
        complain "the launcher has not ended:" && show err
        kill_all
        wait "$launcher" 2>/dev/null
        return
    fi
    wait "$launcher" 2>/dev/null
    code=$?
    [ $code -eq "$1" ] || { complain "exit code $code, not $1:" && show err; }
}

# by_hand RANK WORLD WORDS...: one rank in the background, at $port; output in out.RANK, err.RANK
by_hand() {
    rank=$1 world=$2
    shift 2
    start env "RANK=$rank" "WORLD_SIZE=$world" "LOCAL_RANK=$rank" "LOCAL_WORLD_SIZE=$world" \
        MASTER_ADDR=127.0.0.1 "MASTER_PORT=$port" "$redpoll" "$@" >"out.$rank" 2>"err.$rank"
    eval "by_hand_$rank=\$!"
}
# rank_ends RANK CODE
rank_ends() {
    eval "launcher=\$by_hand_$1"
    ends "$2"
}

# check NAME COMMAND...: one case
check() {
    name=$1
    shift
    complaints=0
    rm -rf run out err out.* err.*
    "$@"
    nothing_left
    kill_all
    if [ $complaints -eq 0 ]; then
        echo "ok      $name"
    else
        echo "FAILED  $name"
        failed=$((failed + 1))
    fi
}
