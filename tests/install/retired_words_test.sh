#!/bin/sh
# tools/words.sh over small trees: a retired word is found wherever it stands as a word, with what
# is said instead and why, and what only looks like one is let pass.
# usage: retired_words_test.sh SOURCE_FOLDER
set -u
words=$1/tools/words.sh
to=$(mktemp -d) || exit 1
trap 'rm -rf "$to"' EXIT
bad=0
complain() {
    echo "$*"
    bad=1
}
printf '# a list\nfabric|lent_as | context | ^src/comm/ | it is a network elsewhere\n' >"$to/list"
tree() { # FILE TEXT
    rm -rf "$to/tree" && mkdir -p "$to/tree/$(dirname "$1")" "$to/tree/tests" || exit 1
    printf '%s\n' "$2" >"$to/tree/$1"
}
passes() { # FILE TEXT
    tree "$1" "$2"
    said=$(sh "$words" "$to/tree" "$to/list") || complain "refused: $2: $said"
}
fails() { # FILE TEXT
    tree "$1" "$2"
    said=$(sh "$words" "$to/tree" "$to/list") && complain "nothing is said of $1: $2"
    case $said in *'say context: it is a network elsewhere'*"$1:"*) ;; *) complain "not what to say: $said" ;; esac
}

fails src/comm/a.c 'int fabric;'
fails src/comm/a.c '/* Two fabrics of a process. */'
fails src/comm/a.h 'void rpi_fabric_open(void);'
fails src/comm/core/a.c 'int x = chunk->lent_as;'
fails src/comm/fabric.h 'int x;'
fails src/comm/a.c 'fail("no fabric here");'
passes src/net/a.c 'int fabric;' # in another room
passes src/comm/a.c 'int prefabricated, fabricate, lent, lent_asset;'
passes src/comm/a.c '/* Not a fabric (retired word). */'

glossary() { # ROW: of a room whose one file has the words "progress owner" and "slices"
    tree src/comm/core/a.h '/* The progress owner; slices. */'
    printf '# comm\n\n| word | what it means | where |\n|---|---|---|\n%s\n' "$1" >"$to/tree/src/comm/README.md"
    said=$(sh "$words" "$to/tree" "$to/list")
}
glossary '| progress owner | who moves bytes | `core/a.h` |' || complain "a good row is refused: $said"
glossary '| slice | some elements | `core/a.h` |' || complain "a plural is refused: $said"
glossary '| owner of progress | who moves bytes | `core/a.h` |' && complain "a word that is not there passes"
glossary '| slice | some elements | `core/b.h` |' && complain "a file that is not there passes"

printf 'fabric | context | ^src/comm/\n' >"$to/list" # a row that does not say why
tree src/comm/a.c 'int x;'
sh "$words" "$to/tree" "$to/list" >/dev/null && complain "a row without a reason passes"
printf 'fabric(( | context | ^src/comm/ | why\n' >"$to/list"
sh "$words" "$to/tree" "$to/list" >/dev/null 2>&1 && complain "a row that cannot be read passes"
sh "$words" "$to/tree" "$to/none" >/dev/null 2>&1 && complain "no list passes"
exit $bad
