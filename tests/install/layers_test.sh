#!/bin/sh
# tools/layers.sh over small trees, each with one fault, of which it must speak.
# usage: layers_test.sh SOURCE_FOLDER
set -u
layers=$1/tools/layers.sh
to=$(mktemp -d) || exit 1
trap 'rm -rf "$to"' EXIT
bad=0
complain() {
    echo "$*"
    bad=1
}

tree() { # a tree without fault: base below net, of which bytes is below tcp
    rm -rf "$to/tree" && mkdir -p "$to/tree/tools" "$to/tree/src/base" "$to/tree/src/net/bytes" "$to/tree/src/net/tcp" "$to/tree/tests"
    cd "$to/tree" || exit 1
    printf '%s\n' 'base:' 'net: base' 'net/bytes: base' 'net/tcp: net/bytes base' 'top: net' 'free of circles: net' >tools/layers.txt
    file base/status.h
    file net/bytes/frame.h base/status.h
    file net/bytes/frame.c net/bytes/frame.h redpoll/status.h
    file net/tcp/tcp.h net/bytes/frame.h
    file net/tcp/tcp.c net/tcp/tcp.h
    mkdir src/top && file top/top.c net/tcp/tcp.h net/bytes/frame.h
}
file() { # FILE HEADER...: a file of src/ that includes these
    name=$1
    shift
    for header; do printf '#include "%s"\n' "$header"; done >"src/$name"
}
passes() { said=$(sh "$layers" "$to/tree") || complain "a tree without fault is refused: $said"; }
fails() { # WORDS
    said=$(sh "$layers" "$to/tree") && complain "nothing is said, which should be: $1"
    case $said in *"$1"*) ;; *) complain "'$1' is not in: $said" ;; esac
}

tree && passes
tree && file base/status.c net/bytes/frame.h && fails 'src/base/status.c:1: base may not include net/bytes/frame.h'
tree && file net/bytes/frame.c net/bytes/frame.h net/tcp/tcp.h && fails 'src/net/bytes/frame.c:2: net/bytes may not include net/tcp/tcp.h'
tree && file net/tcp/tcp.c top/top.h && fails 'net/tcp may not include top/top.h'
tree && file net/loose.c net/tcp/tcp.h && fails 'net may not include net/tcp/tcp.h'
tree && file net/bytes/frame.c redpoll/unheard.h && fails 'redpoll/unheard.h belongs to no room'
tree && mkdir src/attic && file attic/attic.c base/status.h && fails 'room attic is not in tools/layers.txt'
tree && file net/tcp/frame.h && fails 'file names that are not unique: frame.h'
tree && mkdir bench && echo 'bench: net base' >>tools/layers.txt && echo '#include "top/top.h"' >bench/speed.c &&
    fails 'bench/speed.c:1: bench may not include top/top.h'
tree && mkdir bench && printf '%s\n' 'bench: net base' 'free of circles: net bench' >>tools/layers.txt &&
    echo '#include "rows.h"' >bench/speed.c && echo '#include "speed.h"' >bench/rows.h && touch bench/speed.h &&
    fails 'a circle of files: bench/rows -> bench/speed -> bench/rows'

# Circles: of headers, and of two files each of which is fine alone; elsewhere they are not looked for.
tree && file net/tcp/a.h net/tcp/b.h && file net/tcp/b.h net/tcp/c.h && file net/tcp/c.h net/tcp/a.h &&
    fails 'a circle of files: net/tcp/a -> net/tcp/b -> net/tcp/c -> net/tcp/a'
tree && file net/tcp/a.h net/bytes/frame.h && file net/tcp/a.c net/tcp/a.h net/tcp/b.h && file net/tcp/b.h &&
    file net/tcp/b.c net/tcp/b.h net/tcp/a.h && fails 'a circle of files: net/tcp/a -> net/tcp/b -> net/tcp/a'
tree && file top/a.h top/b.h && file top/b.h top/a.h && passes
tree && sed -i 's|^free.*|free of circles: net/bytes|' tools/layers.txt && file net/tcp/a.h net/tcp/b.h && file net/tcp/b.h net/tcp/a.h && passes
file net/bytes/a.h net/bytes/b.h && file net/bytes/b.h net/bytes/a.h &&
    fails 'a circle of files: net/bytes/a -> net/bytes/b -> net/bytes/a'
exit $bad
