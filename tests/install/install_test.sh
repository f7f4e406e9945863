#!/bin/sh
# usage: install_test.sh BUILD SOURCE
set -eu
build=$1 source=$2
folder=$(mktemp -d "${TMPDIR:-/tmp}/redpoll-install-XXXXXX")
trap 'rm -rf "$folder"' EXIT

if grep -q '^REDPOLL_SANITIZE:[^=]*=.' "$build/CMakeCache.txt"; then
    echo "skipped: a library built with sanitizers asks every program for their runtime"
    exit 77
fi
cmake --install "$build" --prefix "$folder/prefix" >"$folder/install.log"

# The headers must be enough: nothing of the source tree is on the path.
cp -r "$source/examples" "$folder/example"
cd "$folder/example"

pc=$(dirname "$(find "$folder/prefix" -name redpoll.pc)")
flags=$(PKG_CONFIG_PATH="$pc" pkg-config --cflags --libs redpoll)
lib=$(PKG_CONFIG_PATH="$pc" pkg-config --variable=libdir redpoll)
for example in *.c; do
    # shellcheck disable=SC2086 # flags are words
    cc -std=c11 -Wall -Wextra -Werror "$example" -o by_pkg_config $flags
    "$folder/prefix/bin/redpoll" run -n 3 ./by_pkg_config
done

# The folder of examples is a project of its own.
cmake -S . -B alone -DCMAKE_PREFIX_PATH="$folder/prefix" >cmake.log && cmake --build alone >build.log ||
    { cat cmake.log build.log; exit 1; }
"$folder/prefix/bin/redpoll" run -n 3 alone/send_recv

# Manual pages and completions lie where man and the shells look for them; what devices do is to be read.
for file in man/man1/redpoll.1 man/man1/redpoll-bench-all-reduce.1 bash-completion/completions/redpoll \
    zsh/site-functions/_redpoll fish/vendor_completions.d/redpoll.fish redpoll/devices.txt; do
    grep -q redpoll "$folder/prefix/share/$file" || { echo "share/$file is not installed"; exit 1; }
done

cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(example C)
find_package(redpoll REQUIRED)
add_executable(by_cmake all_reduce.c)
target_link_libraries(by_cmake PRIVATE redpoll::redpoll)
add_executable(by_cmake_static all_reduce.c)
target_link_libraries(by_cmake_static PRIVATE redpoll::static)
END
cmake -S . -B build -DCMAKE_PREFIX_PATH="$folder/prefix" >cmake.log || { cat cmake.log; exit 1; }
cmake --build build >build.log || { cat build.log; exit 1; }
"$folder/prefix/bin/redpoll" run -n 3 build/by_cmake
"$folder/prefix/bin/redpoll" run -n 2 build/by_cmake_static

# A C++ program may include every header.
for header in "$folder"/prefix/include/redpoll/*.h; do
    echo "#include <redpoll/$(basename "$header")>"
done >headers.cpp
# shellcheck disable=SC2086
if command -v c++ >/dev/null 2>&1; then c++ -std=c++11 -Wall -Wextra -Werror -fsyntax-only headers.cpp $flags; fi

# Only rp_ names leave the shared library.
strangers=$(nm -D --defined-only "$lib"/libredpoll.so | awk '$2 ~ /[TDBR]/ && $3 !~ /^rp_/ {print $3}')
[ -z "$strangers" ] || { echo "exported without the rp_ prefix: $strangers"; exit 1; }
echo "install: headers, library, pkg-config, CMake package and command work"
