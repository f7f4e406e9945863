# For tests in shell, which read it: a folder of their own in which they run, counts, and the end.
# shellcheck shell=sh
folder=$(mktemp -d "${TMPDIR:-/tmp}/redpoll-test-XXXXXX")
[ -n "${KEEP:-}" ] || trap 'cd /; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM HUP
cd "$folder" || exit 1
failed=0 passed=0

pass() { passed=$((passed + 1)); }
complain() {
    echo "FAILED: $*"
    failed=$((failed + 1))
}
# same FILE FILE
same() {
    if cmp -s "$1" "$2"; then pass; else complain "$1 and $2 differ"; fi
}
# The last line of a test.
finish() {
    echo "$passed checks passed, $failed failed"
    [ $failed -eq 0 ]
}
