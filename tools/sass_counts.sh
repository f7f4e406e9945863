#!/bin/sh
# How many machine instructions each kernel has on a card of capability 9.0, as the build made
# it: sh tools/sass_counts.sh build/release > tests/cuda/sass_counts.txt
# An instruction is 16 bytes; those that fill up the last 128 are counted, too. Needs cuobjdump,
# of CUDA's toolkit or of PyTorch's Triton ($REDPOLL_TORCH_VENV), and binutils. Exits with 77
# where something of it is not there.
set -eu
objects=$(cd "$1" && pwd)/src/cuda/CMakeFiles/redpoll_cuda.dir
skip() {
    echo "skipped: $1" >&2
    exit 77
}

[ -f "$objects/quant.cu.o" ] || skip "$1 was built without kernels"
PATH=$PATH:/usr/local/cuda/bin
for each in "${REDPOLL_TORCH_VENV:-/nonexistent}" "$(cd "$(dirname "$0")/.." && pwd)/.venvs/torch"; do
    for tools in "$each"/lib/python3*/site-packages/triton/backends/nvidia/bin; do
        PATH=$PATH:$tools
    done
done
for each in nvcc cuobjdump readelf c++filt; do
    command -v "$each" >/dev/null || skip "there is no $each"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "# sh tools/sass_counts.sh BUILD; sm_90, nvcc $(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
for object in "$objects"/*.cu.o; do
    file=$(basename "$object" .cu.o)
    mkdir "$work/$file"
    (cd "$work/$file" && cuobjdump -xelf sm_90 "$object" >/dev/null 2>&1) || true
    for code in "$work/$file"/*.cubin; do
        [ -f "$code" ] || continue
        readelf -SW "$code" 2>/dev/null | sed -n 's/.* \.text\.\(_Z[^ ]*15rpi_device_[cl][^ ]*\) *PROGBITS *[0-9a-f]* [0-9a-f]* \([0-9a-f]*\) .*/\1 \2/p' |
            while read -r kernel bytes; do
                echo "$file $((0x$bytes / 16)) $(c++filt "$kernel" | sed 's/^void //; s/(rpi_device_.*//; s/, /,/g')"
            done
    done
done | LC_ALL=C sort >"$work/counts"
[ -s "$work/counts" ] || skip "there are no kernels for a card of capability 9.0 in $1"
cat "$work/counts"
