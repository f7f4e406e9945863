#!/bin/sh
# Retired words stay out: tools/retired_words.txt says which, where, what is said instead, and why.
# A word counts wherever it stands as a whole one, also between the underscores of an identifier,
# in code, comments, messages and file names.
# And the glossaries of rooms, src/*/README.md, hold: each word stands in the file that its row names.
# usage: tools/words.sh [SOURCE_FOLDER [LIST]]
set -eu
list=${2:-$(cd "$(dirname "$0")" && pwd)/retired_words.txt}
[ -r "$list" ] || { echo "$list: there is no such list"; exit 1; }
cd "${1:-$(dirname "$0")/..}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
find src tests -name '*.[ch]' -o -name '*.cu' | sort >"$work/all"

# Those of a row in the files of `some`: place and line. What grep cannot read it says itself.
lines() { # WORDS
    xargs grep -nE "(^|[^A-Za-z])($1)s?([^A-Za-z]|\$)" /dev/null <"$work/some" || true
    grep -E "[/_]($1)s?[._]" "$work/some" | sed 's/$/: its name/' || true
}

# Rows are word|word|... | instead | where | why: columns are parted by " | ".
grep -vE '^ *(#|$)' "$list" | sed 's/ | /\t/g' | while IFS="$(printf '\t')" read -r words instead where why; do
    [ -n "$why" ] || {
        echo "\"$words\": a row is words | instead | where | why"
        continue
    }
    grep -E "$where" "$work/all" >"$work/some" || continue
    lines "$words" 2>&1 | grep -v 'retired word' |
        awk -v words="$words" -v instead="$instead" -v why="$why" '
            NR == 1 { print "\"" words "\": say " instead ": " why }
            NR <= 5 { print "    " substr($0, 1, 150) }
            END { if (NR > 5) print "    and " NR - 5 " more lines" }'
done >"$work/found"

# Rows are | word | what it means | `file` |
glossary() { # README
    room=$(dirname "$1")
    grep -E '^\| [a-z].*\| `[^`]+` \|$' "$1" | sed 's/^| \([^|]*\) |.*| `\([^`]*\)` |$/\1\t\2/' |
        while IFS="$(printf '\t')" read -r word file; do
            any=$(echo "$word" | sed 's/ /[_ -]*/g')
            [ -f "$room/$file" ] && grep -qiE "(^|[^A-Za-z])$any(s|es|d|ed|ing)?([^A-Za-z]|\$)" "$room/$file" ||
                echo "$1: \"$word\" does not stand in $file"
        done
}
for readme in src/*/README.md; do
    [ ! -f "$readme" ] || glossary "$readme"
done >>"$work/found"
[ -s "$work/found" ] || {
    echo "retired words: none"
    exit 0
}
cat "$work/found"
exit 1
