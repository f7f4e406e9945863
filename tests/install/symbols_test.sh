#!/bin/sh
# No call of a room's folders goes upward (tools/symbols.sh); and one that does is named: here
# net/world's may use nothing of the room.
# usage: symbols_test.sh BUILD_FOLDER SOURCE_FOLDER
set -u
sh "$2/tools/symbols.sh" "$1" "$2"
code=$?
[ $code -eq 0 ] || exit $code
to=$(mktemp -d) || exit 1
trap 'rm -rf "$to"' EXIT
mkdir "$to/tools" && ln -s "$2/src" "$to/src"
sed 's|^net/world:.*|net/world: base|' "$2/tools/layers.txt" >"$to/tools/layers.txt"
said=$(sh "$2/tools/symbols.sh" "$1" "$to") && {
    echo "nothing is said of calls that layers.txt does not allow"
    exit 1
}
case $said in
*"net/world/mesh_connect.c may not use rpi_bootstrap_"*"() of net/store/bootstrap_"*) ;;
*)
    echo "not named: $said"
    exit 1
    ;;
esac
