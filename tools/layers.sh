#!/bin/sh
# The dependency law as a test: every #include "room/..." in src/ must be allowed by layers.txt, by
# folder where a room's folders have rows there, and so must those of bench/; files of a room that
# is said to be free of circles must include each other without one; and file names must be unique
# in src/ and tests/.
# usage: tools/layers.sh [SOURCE_FOLDER]
set -eu
cd "${1:-$(dirname "$0")/..}"
status=0

rooms=src
[ -d bench ] && rooms="src bench"
# shellcheck disable=SC2086 # several folders
breaches=$(find $rooms -name '*.[ch]' -o -name '*.cu' -o -name '*.cpp' | sort | xargs awk '
    BEGIN {
        while ((getline line < "tools/layers.txt") > 0) {
            if (line ~ /^#/ || line !~ /:/) continue
            split(line, halves, ":")
            n = split(halves[2], below, " ")
            if (halves[1] == "free of circles") { for (i = 1; i <= n; i++) is_free[below[i]] = 1; continue }
            known[halves[1]] = 1
            allowed[halves[1], halves[1]] = 1
            for (i = 1; i <= n; i++) allowed[halves[1], below[i]] = 1
        }
        # Public headers belong to the room that implements them, or to the lowest of its folders
        # that speaks of them.
        split("status log dtype rng version", names, " "); for (i in names) home[names[i]] = "base"
        home["comm"] = "comm/values"; home["codec_comparison"] = "comm/world"; home["window"] = "comm/core"
        home["redpoll"] = "methods" # all of them
        split("gossip local_sgd parameter_server", names, " "); for (i in names) home[names[i]] = "methods/" names[i]
        home["codec"] = "codec"; home["adaptive"] = "codec"; home["store"] = "net/store"; home["join"] = "net/world"; home["view"] = "net/world"; home["place"] = "net/world"; home["buffer"] = "net/memory"
    }
    # The row of layers.txt under which a file "room/folder/name.h" stands: its folder, or its room.
    function place_of(file,    part) {
        split(file, part, "/")
        return (part[1] "/" part[2]) in known ? part[1] "/" part[2] : part[1]
    }
    # A row names places, or whole rooms; of its own room a folder names each folder.
    function may_include(from, to,    room) {
        if ((from, to) in allowed) return 1
        room = to; sub(/\/.*/, "", room)
        return room != to && from !~ "^" room "(/|$)" && (from, room) in allowed
    }
    function unit_of(file) { sub(/\.[a-z]+$/, "", file); return file }
    # Depth first: a unit that is met again while it is open closes a circle.
    function visit(unit,    i, at, circle) {
        mark[unit] = "open"; trail[++depth] = unit
        for (i = 1; i <= count[unit]; i++) {
            if (mark[edge[unit, i]] == "open") {
                circle = edge[unit, i]
                for (at = depth; trail[at] != edge[unit, i]; at--) circle = trail[at] " -> " circle
                printf "a circle of files: %s -> %s\n", edge[unit, i], circle
            } else if (mark[edge[unit, i]] == "") visit(edge[unit, i])
        }
        mark[unit] = "done"; depth--
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        file = FILENAME; sub(/^src\//, "", file)
        room = file; sub(/\/.*/, "", room)
        target = $0; sub(/^[^"]*"/, "", target); sub(/".*/, "", target)
        if (room == "bench" && target !~ /\//) target = "bench/" target # stands beside it
        if (target !~ /\//) next
        from = place_of(file); to = place_of(target)
        if (target ~ /^redpoll\//) { name = target; gsub(/^redpoll\/|\.h$/, "", name); to = home[name] }
        if (to == "" ) { printf "%s:%d: %s belongs to no room; name it in tools/layers.sh\n", FILENAME, FNR, target; next }
        if (!(from in known)) { printf "%s: room %s is not in tools/layers.txt\n", FILENAME, room; next }
        if (!may_include(from, to)) printf "%s:%d: %s may not include %s\n", FILENAME, FNR, from, target
        unit = unit_of(file); other = unit_of(target)
        within = room in is_free ? room : from
        if (within in is_free && index(target, within "/") == 1 && unit != other) {
            edge[unit, ++count[unit]] = other
            units[++unit_count] = unit
        }
    }
    END { for (u = 1; u <= unit_count; u++) if (mark[units[u]] == "") visit(units[u]) }')
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
