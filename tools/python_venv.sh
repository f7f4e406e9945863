#!/bin/sh
# A virtual environment with what a file of requirements lists. usage: tools/python_venv.sh FOLDER REQUIREMENTS WHAT SCRIPT
# Does nothing where it is complete. Prints the path of its python; exit 1 where it cannot be made. WHAT is installed is said
# then, and SCRIPT in the line of what is missing where REDPOLL_SETUP=never forbids it.
set -eu
venv=$1 wanted=$2 what=$3 script=$4
done=$venv/requirements.txt # a copy of what was installed, made last

if ! cmp -s "$wanted" "$done" || ! "$venv/bin/python" -c '' 2>/dev/null; then
    if [ "${REDPOLL_SETUP:-}" = never ]; then
        echo "setup: $venv is missing or incomplete; make it with: sh $script" >&2
        exit 1
    fi
    echo "setup: installing $what into $venv" >&2
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || python3 -m venv --clear "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 2 --timeout 30 \
        -r "$wanted" >&2
    cp "$wanted" "$done"
fi
echo "$venv/bin/python"
