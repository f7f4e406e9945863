#!/bin/sh
# Programs and schedulers tell failures by the field's words: every message of a missed deadline
# says "timed out", every message of a lost peer what became of the connection. A message that
# passes on another one (%s alone, errno's text) or says why nothing was lost is named below.
# usage: tools/wording.sh [SOURCE_FOLDER]
set -eu
cd "${1:-$(dirname "$0")/..}"
rooms="src/net src/comm src/methods src/train src/cli"

# shellcheck disable=SC2086 # a list of rooms
messages() { # CODE: file and message of each RP_FAIL(CODE, "..."), pieces of literals joined
    grep -rlE "(FAIL\(|RP_)$1" --include='*.c' $rooms | sort | while read -r file; do
        tr '\n' ' ' <"$file" | sed 's/"  *"//g' |
            grep -oE "(RP_FAIL\(|rpi_comm_fail_text\(comm, RP_)$1, *([a-z]+, *|comm->rank, *)?\"([^\"\\\\]|\\\\.)*\"" |
            sed "s|^|$file: |" || true
    done
}

late=$(messages TIMEOUT | grep -vE 'timed out|connection (refused|closed)|"%s"' || true)
# Of words that no other program hears ("told to end"), of a rank that does not listen, and of
# sentences that pass on a reason.
lost=$(messages PEER | grep -vE 'connection (closed by peer|reset by peer|refused)|timed out|"%s(: |")|told to end|hosts cannot take part|nobody answers there|does not listen|no worker is left: %s|they say why|none has died|has given up' || true)
[ -z "$late$lost" ] && exit 0
printf 'a missed deadline says "timed out":\n%s\na lost peer "connection closed by peer":\n%s\n' "$late" "$lost"
exit 1
