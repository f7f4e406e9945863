#!/bin/sh
# Runs the tests of a build folder and prints their totals. usage: tools/run_tests.sh BUILD [ctest arguments]
# Exit 0 when none failed. Skipped tests are named with the reason they print, and what failed is said once more
# at the end, also in BUILD/failed-tests.log: in the output of hundreds of tests nobody finds it.
set -u
build=$1
shift
log=$build/ctest-output.log
{
    ctest --test-dir "$build" --output-on-failure --no-tests=error "$@" 2>&1
    echo $? >"$log.code"
} | tee "$log"
result=$(cat "$log.code")

count() { grep -cE "$1" "$log" || true; }
passed=$(count '^ *[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed ')
skipped=$(count '^ *[0-9]+/[0-9]+ Test +#[0-9]+: .*\*\*\*Skipped')
total=$(count '^ *[0-9]+/[0-9]+ Test +#[0-9]+: ')
failed=$((total - passed - skipped))
[ "$skipped" -eq 0 ] || grep -E '\*\*\*Skipped' "$log" | sed -E 's/.*: ([^ ]+) .*/skipped here: \1/'
# pytest says why, also for single cases of a file that ran.
sed -n -E 's/^SKIPPED (\[[0-9]+\] )?/skip reason: /p' "$build"/Testing/Temporary/LastTest.log 2>/dev/null | sort -u
# The last lines of each, as ctest printed them behind its result, without the cases that passed.
awk -v build="$build" '
    function close_test() { for (i = (n > 120 ? n - 120 : 0); i < n; i++) print lines[i]; n = 0 }
    /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
        close_test()
        on = !/ Passed |\*\*\*Skipped/
        if (on) print "== failed in " build ": " $0
        next
    }
    /^ *Start +[0-9]+: / || /^[0-9]+% tests passed/ { close_test(); on = 0 }
    on && !/^ok  / { lines[n++] = $0 }
    END { close_test() }' "$log" >"$build/failed-tests.log"
cat "$build/failed-tests.log"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$total" -gt 0 ] && [ "$failed" -eq 0 ] && [ "$result" -eq 0 ]
