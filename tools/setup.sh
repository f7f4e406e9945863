#!/bin/sh
# Installs what building, testing or the demonstration needs, after saying what that is.
# usage: tools/setup.sh demo|test|check      (REDPOLL_SETUP=never only names what is missing)
set -eu

build="gcc libc6-dev make cmake ninja-build pkg-config libdnnl-dev libyaml-dev libcjson-dev zlib1g-dev"
case "${1:-}" in
demo) wanted="$build dataset-fashion-mnist iproute2 procps" ;;
test) wanted="$build dataset-fashion-mnist iproute2 procps" ;;
check) wanted="$build dataset-fashion-mnist iproute2 procps clang-tidy clang-format" ;;
*)
    echo "usage: tools/setup.sh demo|test|check" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "setup: this is not Debian or Ubuntu; install what corresponds to: $wanted" >&2
    echo "setup: going on with what is here" >&2
    exit 0
fi

# A tool may have come without its package (a cmake in /usr/local, say): the command counts then.
present() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ] && return 0
    case "$1" in
    gcc) command -v cc >/dev/null 2>&1 ;;
    make | cmake | pkg-config | clang-tidy | clang-format) command -v "$1" >/dev/null 2>&1 ;;
    ninja-build) command -v ninja >/dev/null 2>&1 ;;
    *) return 1 ;;
    esac
}

missing=""
for package in $wanted; do
    present "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo"
fi
if [ "${REDPOLL_SETUP:-}" = never ] || { [ -n "$as_root" ] && ! command -v sudo >/dev/null 2>&1; }; then
    echo "setup: these packages are missing:$missing" >&2
    echo "setup: install them with: sudo apt-get install$missing" >&2
    exit 1
fi

echo "setup: installing Debian packages:$missing"
echo "setup: by '${as_root:+sudo }apt-get update' and '${as_root:+sudo }apt-get install --no-install-recommends$missing'"
$as_root apt-get update -qq
# shellcheck disable=SC2086 # the list is meant to be split
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing </dev/null >/dev/null
echo "setup: done"
