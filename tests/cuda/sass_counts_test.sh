#!/bin/sh
# No kernel has grown by more than a tenth over tests/cuda/sass_counts.txt, which
#   sh tools/sass_counts.sh build/release > tests/cuda/sass_counts.txt
# makes: sass_counts_test.sh SOURCE BUILD
set -eu
table=$1/tests/cuda/sass_counts.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# compare COUNTED: what is wrong, a line each.
compare() {
    awk 'FNR == 1 { file++ }
        /^#/ { next }
        { key = $1 " " $3 }
        file == 1 { was[key] = $2; next }
        !(key in was) { print key ": has no row in sass_counts.txt, which tools/sass_counts.sh makes"; next }
        { seen[key] = 1 }
        $2 > 1.1 * was[key] { print key ": " $2 " instructions, " was[key] " in sass_counts.txt" }
        END { for (key in was) if (!(key in seen)) print key ": is in sass_counts.txt, and no kernel any more" }' "$table" "$1"
}

# What it is there for: a kernel that has grown, one that is new and one that is gone are told.
awk '!/^#/ && !done { $2 = int($2 * 1.2); done = 1 } { print }' "$table" >"$work/grown"
{ cat "$table"; echo "quant 1 new<0>"; } >"$work/new"
awk '!/^#/ && !done { done = 1; next } { print }' "$table" >"$work/gone"
for each in grown new gone; do
    if [ "$(compare "$work/$each" | wc -l)" -ne 1 ]; then
        echo "a table in which one kernel is $each is not told:"
        compare "$work/$each"
        exit 1
    fi
done
[ -z "$(compare "$table")" ]

status=0
sh "$1/tools/sass_counts.sh" "$2" >"$work/counted" || status=$?
[ "$status" -eq 0 ] || exit "$status"
if [ "$(head -n 1 "$table")" != "$(head -n 1 "$work/counted")" ]; then
    echo "skipped: counted by another nvcc: $(head -n 1 "$work/counted")"
    exit 77
fi
compare "$work/counted" >"$work/wrong"
cat "$work/wrong"
[ ! -s "$work/wrong" ]
