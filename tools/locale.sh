#!/bin/sh
# Numbers have a point in every locale (src/base/c_locale.h): nothing else in src/ reads a
# floating-point number, and in the rooms of libredpoll, which runs in programs that may have
# chosen a language, nothing else prints one. The command chooses none.
# usage: tools/locale.sh [SOURCE_FOLDER]
set -eu
cd "${1:-$(dirname "$0")/..}"
status=0
fail() { # WHAT LINES
    [ -z "$2" ] && return
    printf '%s:\n%s\n' "$1" "$2"
    status=1
}

fail "rpi_strtod() reads numbers" "$(grep -rnE '\b(strto(d|f|ld)|atof|wcstod)(_l)?\(|scanf\([^;]*%[0-9]*l?[fgeE]' src --include='*.[ch]' \
    --include='*.cu' | grep -v '^src/base/c_locale\.' || true)"
fail "a locale is the program's to choose" "$(grep -rnE '\b(set|use|new)locale\(|localeconv\(' src | grep -v '^src/base/c_locale\.' || true)"
# shellcheck disable=SC2013 # no file name has a blank
for room in base net codec plan comm methods cuda; do
    for file in $(grep -rlE 'printf\(' "src/$room" --include='*.c'); do
        [ "$file" = src/base/c_locale.c ] && continue
        fail "$file: rpi_print() prints numbers" "$(tr '\n' ' ' <"$file" | tr ';' '\n' |
            grep -E '\bv?(sn|f|d|as|s)?printf\(.*%[-+ #0]*[0-9*]*(\.[0-9*]+)?[gfeEG]' || true)"
    done
done
exit $status
