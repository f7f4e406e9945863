#!/bin/sh
# The tools' count of cores is the command's. usage: cores_command_test.sh REDPOLL
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tools=$(sh "$here/../../tools/cores.sh")
command=$("$1" info --json | sed -n 's/.*"cores": *\([0-9]*\).*/\1/p')
[ "$tools" = "$command" ] || { echo "tools/cores.sh says $tools cores, redpoll info $command"; exit 1; }
