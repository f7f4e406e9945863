#!/bin/sh
# Does oneDNN call anything of libgomp that a program of ours does not define itself? It would know nothing of the
# region in which it is called. usage: onednn_openmp_test.sh PROGRAM LIST
set -eu
program=$1 list=$2
for tool in ldd nm; do
    command -v $tool >/dev/null || { echo "skipped: there is no $tool"; exit 77; }
done
library=$(ldd "$program" | sed -n 's/^[[:space:]]*libdnnl[^ ]* => \([^ ]*\) .*/\1/p')
[ -n "$library" ] || { echo "skipped: oneDNN is not a shared library here"; exit 77; }

names() { sed -n 's/^.* \(GOMP_[a-z_]*\|omp_[a-z_]*\)\(@.*\)\{0,1\}$/\1/p' | sort -u; }

nm -D --defined-only "$program" >"/tmp/onednn_openmp.$$"
trap 'rm -f "/tmp/onednn_openmp.$$"' EXIT
ours=$(names <"/tmp/onednn_openmp.$$")
failed=0
for name in $(nm -D --undefined-only "$library" | names); do
    echo "$ours" | grep -qx "$name" || { echo "$library calls $name, which onednn_team.c does not define"; failed=1; }
done
missing=$(sed -n 's/^  \([A-Za-z_]*\);$/\1/p' "$list" | while read -r name; do
    echo "$ours" | grep -qx "$name" || echo "$name"
done)
[ -z "$missing" ] || { echo "$program does not show to oneDNN: $missing"; failed=1; }
exit $failed
