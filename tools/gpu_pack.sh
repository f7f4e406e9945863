#!/bin/sh
# A folder that a machine with a GPU and little else can run: programs, kernels and the Python package, built here, where nvcc is.
# usage: sh tools/gpu_pack.sh FOLDER      then carry it there, and: sh FOLDER/gpu_once.sh
#
# BUILD=build/gpu-pack is built, or brought up to date (kernels take some minutes); ARCHITECTURES=90-real makes them for one
# GPU alone, which is quicker. Own copies of libraries are packed but for the C library's.
set -eu
[ $# = 1 ] || { sed -n 3p "$0" >&2; exit 2; }
cd "$(dirname "$0")/.."
to=$1 build=${BUILD:-build/gpu-pack}
command -v nvcc >/dev/null || PATH=/usr/local/cuda/bin:$PATH
command -v nvcc >/dev/null || { echo "no nvcc on the PATH: kernels cannot be built" >&2; exit 1; }

cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DREDPOLL_CUDA=ON ${ARCHITECTURES:+-DCMAKE_CUDA_ARCHITECTURES="$ARCHITECTURES"} \
    -DREDPOLL_ONEDNN=OFF -DREDPOLL_PICTURES=OFF -DREDPOLL_HWLOC=OFF -DREDPOLL_OPENSSL=OFF -DREDPOLL_PYTHON=OFF >/dev/null
cmake --build "$build" -j "$(sh tools/cores.sh)" --target redpoll_command redpoll redpoll_cuda stand_in_cuda cuda_cuda_test cuda_device_codec_test cuda_gpu_probe

rm -rf "$to"
mkdir -p "$to/bin" "$to/lib" "$to/python" "$to/tests/cuda"
to=$(cd "$to" && pwd)
for each in src/cli/redpoll src/cuda/libredpoll_cuda.so tests/cuda/cuda_cuda_test tests/cuda/cuda_device_codec_test tests/cuda/cuda_gpu_probe; do
    cp -L "$build/$each" "$to/bin/"
done
cp -L "$build/tests/cuda/libstand_in_cuda.so" "$to/tests/cuda/" # for tests that run over it there, too
ldd "$build/src/cli/redpoll" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | while read -r library; do
    case $library in
    */libc.so* | */libm.so* | */libpthread* | */libdl* | */librt* | */ld-linux*) ;;
    *) cp -L "$library" "$to/lib/" ;;
    esac
done
cp -RL python/redpoll "$to/python/"
cp -L python/cgx/*.py "$to/python/"
mkdir -p "$to/python/redpoll/_lib"
cp -L "$build/libredpoll.so" "$to/python/redpoll/_lib/" # kernels lie once, in bin: gpu_once.sh says where
cp tests/python/*.py "$to/tests/"
cp tools/gpu/gpu_once.sh tools/gpu/train.py "$to/"
find "$to" -name __pycache__ -type d -prune -exec rm -rf {} +
strip --strip-debug "$to"/bin/* "$to/python/redpoll/_lib/"*.so
echo "$to: $(du -sm "$to" | cut -f 1) MB; carry it to the GPU, and there: sh $(basename "$to")/gpu_once.sh"
