# For the tests of `redpoll plan $plan`, which read it before cases.sh: what it shows, and what it refuses.
# shellcheck shell=sh disable=SC2154 # $redpoll and $plan are the test's
# shows PATTERN WORDS...: the output has a line like this
shows() {
    pattern=$1
    shift
    timeout 60 "$redpoll" plan "$plan" "$@" >out 2>err || complain "$*: $(cat err)"
    also "$pattern"
}
also() {
    if grep -qE -e "$1" out; then pass; else complain "no '$1' in $(cat out)"; fi
}
# refused PATTERN WORDS...: exit code 2 and one line that says why
refused() {
    pattern=$1
    shift
    timeout 60 "$redpoll" plan "$plan" "$@" >out 2>err
    code=$?
    if [ $code -eq 2 ] && [ ! -s out ] && head -n 1 err | grep -qE -e "$pattern"; then pass; else
        complain "$*: ends with $code and '$(head -n 1 err)', not '$pattern'"
    fi
}
