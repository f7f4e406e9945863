#!/bin/sh
# The dependency law as a test: every #include "room/..." in src/ must be allowed by layers.txt,
# and file names must be unique in src/ and tests/.  usage: tools/layers.sh [SOURCE_FOLDER]
set -eu
cd "${1:-$(dirname "$0")/..}"
status=0

breaches=$(find src -name '*.[ch]' -o -name '*.cu' -o -name '*.cpp' | sort | xargs awk '
    BEGIN {
        while ((getline line < "tools/layers.txt") > 0) {
            if (line ~ /^#/ || line !~ /:/) continue
            split(line, halves, ":")
            known[halves[1]] = 1
            allowed[halves[1], halves[1]] = 1
            n = split(halves[2], below, " ")
            for (i = 1; i <= n; i++) allowed[halves[1], below[i]] = 1
        }
        # Public headers belong to the room that implements them.
        split("status log dtype rng version", names, " "); for (i in names) home[names[i]] = "base"
        split("comm codec_comparison gossip window local_sgd parameter_server", names, " "); for (i in names) home[names[i]] = "comm"
        home["codec"] = "codec"; home["adaptive"] = "codec"; home["store"] = "net"; home["join"] = "net"; home["buffer"] = "net"
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        split(FILENAME, path, "/"); room = path[2]
        target = $0; sub(/^[^"]*"/, "", target); sub(/".*/, "", target)
        if (target !~ /\//) next
        split(target, part, "/"); to = part[1]
        if (to == "redpoll") { name = part[2]; sub(/\.h$/, "", name); to = home[name] }
        if (to == "" ) { printf "%s:%d: %s belongs to no room; name it in tools/layers.sh\n", FILENAME, FNR, target; next }
        if (!(room in known)) { printf "%s: room %s is not in tools/layers.txt\n", FILENAME, room; next }
        if (!((room, to) in allowed)) printf "%s:%d: %s may not include %s\n", FILENAME, FNR, room, target
    }')
if [ -n "$breaches" ]; then
    echo "$breaches"
    status=1
fi

twins=$(find src tests -name '*.[ch]' | sed 's|.*/||' | sort | uniq -d)
if [ -n "$twins" ]; then
    echo "file names that are not unique: $twins"
    status=1
fi
[ $status -eq 0 ] && echo "layers: every include goes downward"
exit $status
