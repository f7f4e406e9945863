#!/bin/sh
# Builds with oneDNN 3.2 of PyPI (GNU OpenMP), which it downloads into build/onednn3 unless DNNL_ROOT names a
# folder that has one, and runs the tests of the engine and of models with it. Exit 77 where there is none to be had.
set -u
cd "$(dirname "$0")/.." || exit

root=${DNNL_ROOT:-$PWD/build/onednn3/root}
if [ "$(uname -m)" != x86_64 ]; then
    echo "the package of oneDNN 3 is for x86-64"
    exit 77
fi
if [ ! -e "$root/include/oneapi/dnnl/dnnl.h" ]; then
    mkdir -p build/onednn3/wheels "$root"
    python3 -m pip download --quiet --no-deps --dest build/onednn3/wheels \
        onednn-cpu-gomp==2023.2.0 onednn-devel-cpu-gomp==2023.2.0 || {
        echo "oneDNN 3 could not be downloaded"
        exit 77
    }
    for wheel in build/onednn3/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" build/onednn3/unpacked
    done
    cp -r build/onednn3/unpacked/*.data/data/. "$root"
fi
build=build/onednn3/release
{ cmake --preset release -B $build -DCMAKE_PREFIX_PATH="$root" -DREDPOLL_PYTHON=OFF -DREDPOLL_CUDA=OFF -DREDPOLL_ONEDNN=ON &&
    cmake --build $build; } >build/onednn3/build.log 2>&1 || {
    tail -n 30 build/onednn3/build.log
    exit 1
}
exec ctest --test-dir $build -j "$(sh tools/cores.sh)" --output-on-failure \
    -R '^engine/|^train/(models|checkpoint|train_loop|language_model|masked_lm)_test|^train/train_command_test'
