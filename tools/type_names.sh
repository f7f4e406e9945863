#!/bin/sh
# A type's name means one thing: no name of a struct, union, enum or typedef of the project (rp_...,
# rpi_...) may be defined twice in src/ and include/, in whatever rooms. A name that is declared
# ahead of its definition, and the tag of a typedef of the same name, are no second definition.
# In C++ a class of a file alone is in an unnamed namespace: the linker takes the member functions of
# two classes of one name for one function, and calls that of one file from the other.
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
# shellcheck disable=SC2086 # several folders
open=$(find $folders -name '*.cu' -o -name '*.cpp' | sort | xargs -r awk '
    FNR == 1 { inside = 0 }
    /^namespace \{/ { inside = 1 }
    /^\}/ && !/;/ { inside = 0 }
    inside { next }
    /^(template <.*> )?(struct|class|union) [a-z0-9_]+( |$)/ && !/;$/ {
        sub(/^template <.*> /, "")
        print $2 ": " FILENAME
    }')
[ -z "$twins$open" ] && echo "type names: each means one thing" && exit
if [ -n "$twins" ]; then
    echo "type names that are defined twice; a name says what a thing is, so let one of them say more:"
    echo "$twins"
fi
if [ -n "$open" ]; then
    echo "types of a C++ file that other files have in common with it; put them into namespace { }:"
    echo "$open"
fi
exit 1
