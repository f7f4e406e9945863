#!/bin/sh
# The dependency law once more, by what object files use of each other: a function is called across
# the folders of a room only where layers.txt allows an include, whichever header declares it, and
# no files use each other in a circle, in rooms with such folders and in those that are said to be
# free of circles, but for rooms whose calls layers.txt says may. Prints which folders call which.
# usage: tools/symbols.sh BUILD_FOLDER [SOURCE_FOLDER]
set -eu
build=$(cd "$1" && pwd)
cd "${2:-$(dirname "$0")/..}"
command -v nm >/dev/null || {
    echo "nm is missing (Debian and Ubuntu: apt-get install binutils)"
    exit 77
}
status=0

rooms=$(sed -n 's|^\([a-z]*\)/[a-z_]*:.*|\1|p; s|^free of circles:||p' tools/layers.txt)
spared=$(sed -n 's|^calls in circles:||p' tools/layers.txt)
for room in $(echo "$rooms" | tr ' ' '\n' | sort -u); do
    case " $spared " in *" $room "*) continue ;; esac
    archive=$build/src/$room/librp_$room.a
    [ -f "$archive" ] || continue
    found=$({
        find "src/$room" -name '*.[ch]' | sed 's/^/FILE /'
        nm -A "$archive" 2>/dev/null | sed 's/^[^:]*://; s/\.o:/ /'
    } | awk -v room="$room" '
        BEGIN {
            while ((getline line < "tools/layers.txt") > 0) {
                if (line ~ /^#/ || line !~ /:/) continue
                split(line, halves, ":")
                n = split(halves[2], below, " ")
                known[halves[1]] = 1
                for (i = 1; i <= n; i++) allowed[halves[1], below[i]] = 1
            }
        }
        # A generated file is where its header is, or of the room.
        function place(file) { return file in folder ? folder[file] : room }
        $1 == "FILE" {
            n = split($2, part, "/")
            sub(/h$/, "c", part[n])
            folder[part[n]] = n > 3 && (part[2] "/" part[3]) in known ? part[2] "/" part[3] : part[2]
            next
        }
        NF == 3 && $2 == "U" { user[++uses] = $1; used[uses] = $3; next }
        NF == 4 && $3 ~ /^[TDBRV]$/ { home[$4] = $1 }
        END {
            if (!uses) { print "src/" room ": no object file could be read"; exit }
            for (i = 1; i <= uses; i++) {
                if (!(used[i] in home)) continue
                if (user[i] != home[used[i]]) print "USES", user[i], home[used[i]]
                from = place(user[i]); to = place(home[used[i]])
                if (from != to) print "ARROW", from, to
                if (from != to && !((from, to) in allowed))
                    printf "%s/%s may not use %s() of %s/%s\n", from, user[i], used[i], to, home[used[i]]
            }
        }')
    breaches=$(echo "$found" | grep -v '^\(USES\|ARROW\) ' || true)
    circle=$(echo "$found" | sed -n 's/^USES //p' | tsort 2>&1 >/dev/null || true)
    [ -n "$circle" ] && breaches="$breaches
a circle of files in src/$room: $(echo "$circle" | sed 's/^tsort: //' | tr '\n' ' ')"
    # The folders that each folder calls, as a picture of the room.
    echo "$found" | sed -n 's/^ARROW //p' | sort -u |
        awk '$1 != last { printf "%s%s ->", (NR > 1 ? "\n" : ""), $1; last = $1 } { printf " %s", $2 } END { if (NR) print "" }'
    [ -z "$breaches" ] && continue
    echo "$breaches"
    status=1
done
[ $status -eq 0 ] && echo "symbols: every call goes downward, and in no circle"
exit $status
