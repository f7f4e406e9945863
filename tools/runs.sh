# shellcheck shell=sh
# For scripts that train many runs and put their table into a page; sourced.

# finished FOLDER: the run there has come to its end, and was not told to stop before
finished() {
    [ -f "$1/metrics.jsonl" ] && tail -n 1 "$1/metrics.jsonl" | grep '"steps":' | grep -qv '"stopped":true'
}

# replace_table NAME TABLE PAGE: what stands in PAGE from the line that begins with `<!-- NAME` to the
# next that begins with `<!-- end of the table` becomes the file TABLE, which brings both lines along.
replace_table() {
    [ -f "$3" ] || printf '<!-- %s\n<!-- end of the table -->\n' "$1" >"$3"
    grep -q "^<!-- $1" "$3" || {
        echo "$3 has no line that begins with '<!-- $1': put it where the table belongs, and '<!-- end of the table -->' below" >&2
        return 1
    }
    awk -v begins="<!-- $1" -v table="$2" '
        index($0, begins) == 1 { while ((getline line < table) > 0) print line; skips = 1 }
        !skips { print }
        /^<!-- end of the table/ { skips = 0 }' "$3" >"$3.new"
    mv "$3.new" "$3"
}
