#!/bin/sh
# A type's name means one thing: no name of a struct, union, enum or typedef of the project (rp_...,
# rpi_...) may be defined twice in src/ and include/, in whatever rooms. A name that is declared
# ahead of its definition, and the tag of a typedef of the same name, are no second definition.
# usage: tools/type_names.sh [SOURCE_FOLDER]
set -eu
cd "${1:-$(dirname "$0")/..}"
folders=src
[ -d include ] && folders="src include"

# shellcheck disable=SC2086 # several folders
twins=$(find $folders -name '*.[ch]' -o -name '*.cu' -o -name '*.cpp' | sort | xargs awk '
    function defined(name) {
        sub(/\[.*/, "", name)
        if (name !~ /^rpi?_[a-z0-9_]+$/ || (name, FILENAME) in seen) return
        seen[name, FILENAME] = 1
        places[name] = places[name] " " FILENAME
        count[name]++
    }
    FNR == 1 { is_typedef = 0 }
    /^(struct|union|enum) rpi?_[a-z0-9_]+ \{/ { defined($2) }
    /^typedef / { is_typedef = 1; text = "" }
    is_typedef {
        text = text " " $0
        if (text ~ /\{/ && $0 !~ /^\}/ && $0 !~ /^typedef.*\}/) next # within the braces
        if ($0 !~ /;/) next
        is_typedef = 0
        sub(/;[^;]*$/, "", text)
        if (text ~ /\{/) sub(/.*\}/, "", text)
        else if (text ~ /\(\*/) { sub(/.*\(\*[ ]*/, "", text); sub(/\).*/, "", text) }
        else {
            n = split(text, word, /[ *]+/)
            if (word[n] == word[n - 1]) next # struct x x: ahead of its definition
            text = word[n]
        }
        gsub(/[ *]/, "", text)
        defined(text)
    }
    END { for (name in count) if (count[name] > 1) print name ":" places[name] }' | sort)
[ -z "$twins" ] && echo "type names: each means one thing" && exit
echo "type names that are defined twice; a name says what a thing is, so let one of them say more:"
echo "$twins"
exit 1
