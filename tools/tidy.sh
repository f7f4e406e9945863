#!/bin/sh
# clang-tidy over every source of the library and the command that this machine's compiler builds.
# usage: tools/tidy.sh [--deep]
# The static analyzer looks at each path of a function; --deep lets it follow calls as far as it likes,
# which takes four fifths of the time. Without, it goes no further than `make check` has the time for.
set -u
cd "$(dirname "$0")/.." || exit
case "${1:-}" in
--deep) analyzer=mode=deep ;;
"") analyzer=mode=shallow ;;
*)
    echo "usage: tools/tidy.sh [--deep]" >&2
    exit 2
    ;;
esac

compiled_here() { # sources; files of another architecture are not
    while read -r file; do
        grep -q "/$file\"" build/dev/compile_commands.json && echo "$file"
    done
}

command -v clang-tidy >/dev/null || {
    echo "clang-tidy is missing (Debian and Ubuntu: apt-get install clang-tidy)" >&2
    exit 1
}
cmake --preset dev >/dev/null || exit 1
git ls-files 'src/*.c' | compiled_here |
    xargs -P "$(sh tools/cores.sh)" -n 4 clang-tidy --quiet -p build/dev \
        --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=$analyzer 2>/dev/null
