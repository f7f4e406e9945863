#!/bin/sh
# Builds the library for AArch64 by Debian's cross compiler, and runs the quick tests of its NEON kernels and of
# the rooms below under qemu: a minute, of which most is the first build. Exit 77 where one of them is missing.
set -u
cd "$(dirname "$0")/.." || exit

if ! command -v aarch64-linux-gnu-gcc >/dev/null 2>&1; then
    echo "no aarch64-linux-gnu-gcc (Debian and Ubuntu: apt-get install gcc-aarch64-linux-gnu)"
    exit 77
fi
if ! command -v qemu-aarch64-static >/dev/null 2>&1 && ! command -v qemu-aarch64 >/dev/null 2>&1; then
    echo "no qemu-aarch64 (Debian and Ubuntu: apt-get install qemu-user-static)"
    exit 77
fi
mkdir -p build
{ cmake --preset aarch64 && cmake --build --preset aarch64; } >build/aarch64-build.log 2>&1 || {
    tail -n 30 build/aarch64-build.log
    exit 1
}
exec ctest --preset aarch64 -j "$(sh tools/cores.sh)"
