#!/bin/sh
# The wheel under several releases of PyTorch: builds it, then for each release makes a virtual environment,
# installs that PyTorch and the wheel, and runs tests/python/release_smoke.py. Prints a table at the end.
# usage: tools/try_torch_releases.sh [RELEASE[@PYTHON] ...]     (2.9.1@/usr/bin/python3.10: with that Python)
# Each release is some gigabytes, fetched and deleted in turn; TMPDIR says where. REDPOLL_RELEASES names a folder
# that keeps the environments for the next time. Exit 1 when a release failed.
set -u
cd "$(dirname "$0")/.." || exit
[ $# -gt 0 ] || set -- 2.9.1 2.13.0 2.15.0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
results=$folder/results
status=0

keep=${REDPOLL_RELEASES:-}
venv=

install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$@"; }

environment() { # makes $venv, unless it stands
    [ -e "$venv/complete" ] && return
    "$python" -m venv --clear "$venv" && install "torch==$release" numpy setuptools && touch "$venv/complete"
}

python3 -m venv "$folder/build" &&
    "$folder/build/bin/pip" wheel --quiet --disable-pip-version-check --no-deps -w "$folder" . || exit
wheel=$(echo "$folder"/*.whl)
echo "built $(basename "$wheel")"

for wanted in "$@"; do
    release=${wanted%@*}
    case $wanted in *@*) python=${wanted#*@} ;; *) python=python3 ;; esac
    echo "== PyTorch $release, $("$python" --version)"
    venv=${keep:-$folder}/$release
    if ! { environment && install --no-deps --force-reinstall "$wheel"; }; then
        echo "{\"torch\": \"$release\", \"installs\": \"no\"}" >>"$results"
        status=1
        continue
    fi
    rm -f "$folder/one"
    PYTHONPATH='' OMP_NUM_THREADS=1 timeout 900 "$venv/bin/python" tests/python/release_smoke.py --control \
        --json "$folder/one" || status=1
    if [ -s "$folder/one" ]; then
        cat "$folder/one" >>"$results" && echo >>"$results"
    else
        echo "{\"torch\": \"$release\", \"imports\": \"no\"}" >>"$results"
    fi
    [ -n "$keep" ] || rm -rf "$venv"
done

python3 - "$results" <<'END'
import json, sys

rows = [json.loads(line) for line in open(sys.argv[1])]
columns = list(dict.fromkeys(name for row in rows for name in row if name not in ("redpoll",)))
print("\n| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
for row in rows:
    print("| " + " | ".join(row.get(name, "-").replace("not with gloo either", "nor gloo") for name in columns) + " |")
END
exit $status
