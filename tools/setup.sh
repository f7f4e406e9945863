#!/bin/sh
# Installs what building, testing or the demonstration needs, after saying what that is.
# usage: tools/setup.sh demo|test|check      (REDPOLL_SETUP=never only names what is missing)
# test and check also want PyTorch in .venvs/torch; where it cannot be had, its tests are skipped.
set -eu
cd "$(dirname "$0")/.."

common="gcc libc6-dev make cmake ninja-build pkg-config libdnnl-dev libssl-dev libyaml-dev libcjson-dev zlib1g-dev
    libpcre2-dev libutf8proc-dev libjpeg-dev libpng-dev liblzma-dev libbz2-dev libzstd-dev libhwloc-dev
    dataset-fashion-mnist iproute2 procps"
case "${1:-}" in
demo | test) wanted=$common ;;
check) wanted="$common clang-tidy clang-format shellcheck" ;;
*)
    echo "usage: tools/setup.sh demo|test|check" >&2
    exit 2
    ;;
esac

# A tool may have come without its package (a cmake in /usr/local, say): the command counts then.
present() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ] && return 0
    case "$1" in
    gcc) command -v cc >/dev/null 2>&1 ;;
    make | cmake | pkg-config | clang-tidy | clang-format | shellcheck | python3) command -v "$1" >/dev/null 2>&1 ;;
    ninja-build) command -v ninja >/dev/null 2>&1 ;;
    python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    *) return 1 ;;
    esac
}

as_root=""
[ "$(id -u)" -eq 0 ] || as_root="sudo"

install_packages() { # names; 1 where one is missing and cannot be installed
    missing=""
    for package in "$@"; do
        present "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    if [ "${REDPOLL_SETUP:-}" = never ] || { [ -n "$as_root" ] && ! command -v sudo >/dev/null 2>&1; }; then
        echo "setup: these packages are missing:$missing" >&2
        echo "setup: install them with: sudo apt-get install$missing" >&2
        return 1
    fi
    echo "setup: installing Debian packages:$missing"
    echo "setup: by '${as_root:+sudo }apt-get update' and '${as_root:+sudo }apt-get install --no-install-recommends$missing'"
    $as_root apt-get update -qq || return 1
    # shellcheck disable=SC2086 # the list is meant to be split
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing \
        </dev/null >/dev/null || return 1
    echo "setup: done"
}

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "setup: this is not Debian or Ubuntu; install what corresponds to:" $wanted >&2
    echo "setup: going on with what is here" >&2
else
    # shellcheck disable=SC2086
    install_packages $wanted || exit 1
fi

# A browser lets `redpoll report`'s pages be looked at; its test is skipped without one.
if [ "$1" != demo ] && command -v dpkg-query >/dev/null 2>&1 && ! command -v chromium >/dev/null 2>&1; then
    install_packages chromium || echo "setup: without chromium the test of pages in a browser will be skipped" >&2
fi

# AArch64 is built and tested, too, where its compiler and emulator are.
if [ "$1" = check ] && command -v dpkg-query >/dev/null 2>&1; then
    install_packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static ||
        echo "setup: without a cross compiler and qemu the tests on AArch64 will be skipped" >&2
fi

[ "$1" != demo ] || exit 0
{ ! command -v dpkg-query >/dev/null 2>&1 || install_packages python3 python3-venv; } &&
    sh tools/torch_venv.sh >/dev/null ||
    echo "setup: without PyTorch the tests and lints of the Python package will be skipped" >&2
sh tools/jax_venv.sh >/dev/null ||
    echo "setup: without JAX its tests will be skipped" >&2
sh tools/site_venv.sh >/dev/null ||
    echo "setup: without MkDocs the test of the documents' site will be skipped" >&2
