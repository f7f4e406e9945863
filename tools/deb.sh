#!/bin/sh
# Debian packages of the last commit, into build/deb: libredpoll0, libredpoll-dev, redpoll and python3-redpoll.
# usage: tools/deb.sh [--lint]      --lint: lintian looks at them, and its errors and warnings fail
# Exit 77 where a tool or a package that it builds with is missing, with the line that installs it.
set -eu
cd "$(dirname "$0")/.."

for tool in dpkg-buildpackage dh dh_python3 git; do
    command -v "$tool" >/dev/null 2>&1 || {
        echo "deb: no $tool (apt-get install dpkg-dev debhelper dh-python git)" >&2
        exit 77
    }
done
version=$(sed -n 's/^project(redpoll VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
folder=$PWD/build/deb
tree=$folder/redpoll-$version
rm -rf "$folder"
mkdir -p "$tree"
git archive HEAD | tar -x -C "$tree"
cp -r packaging/debian "$tree/debian"
cd "$tree"
dpkg-checkbuilddeps 2>"$folder/missing" || {
    sed 's/.*: Unmet build dependencies: /deb: apt-get install /' "$folder/missing" >&2
    exit 77
}
dpkg-buildpackage --build=binary --no-sign >"$folder/build.log" 2>&1 || {
    tail -n 30 "$folder/build.log" >&2
    exit 1
}
cd "$folder"
ls -l -- *.deb | awk '{print "deb: " $NF ", " int($5 / 1000) " kB"}'
if [ "${1:-}" = --lint ]; then
    command -v lintian >/dev/null 2>&1 || {
        echo "deb: no lintian (apt-get install lintian)" >&2
        exit 77
    }
    # Debug packages of -dbgsym are made by debhelper.
    lintian --fail-on error,warning --tag-display-limit 0 ./*.changes
fi
