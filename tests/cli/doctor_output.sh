# For the tests of `redpoll doctor`, which read it behind processes.sh: its output, whole and by cells.
# shellcheck shell=sh disable=SC2034,SC2154 # $redpoll, $launcher and the like are the test's

# What is found stands in lines of a terminal's width: makes them one again.
join_lines() {
    awk '/^        [^ ]/ { printf " %s", substr($0, 9); next } { printf "%s%s", (NR > 1 ? "\n" : ""), $0 }
        END { print "" }' out >joined && mv joined out
}
launch() { # WORDS...: in the background
    start "$redpoll" doctor "$@" >out 2>err </dev/null
    launcher=$!
}
doctor() { # CODE WORDS...: to its end
    wanted=$1
    shift
    launch "$@"
    ends "$wanted"
    join_lines
}
# cell TABLE FROM TO: of the tables, "Mbit" or "Latency"; columns are counted from 0
cell() {
    awk -v table="$1" -v from="$2" -v to="$3" '
        $1 == "Mbit/s" { at = "Mbit" } $1 == "Latency," { at = "Latency" } NF == 0 { at = "" }
        at == table && $1 == from && $2 !~ /^[0-9]/ { print $(to + 3) }' out
}
