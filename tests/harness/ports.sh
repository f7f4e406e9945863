# For tests that cannot let the system choose, which read it: 20 ports from $port on, of this test alone
# while others run beside it. A lock says so, which goes when the last process that the test has started
# ends. They lie below those that the system hands out.
# shellcheck shell=sh disable=SC2034 # $port is the test's
locks=${TMPDIR:-/tmp}/redpoll-test-ports-$(id -u) slot=$(($$ % 450))
mkdir -p "$locks" || exit 1
while exec 9>"$locks/$slot" && ! flock -n 9; do slot=$(((slot + 1) % 450)); done
port=$((20000 + slot * 20))
