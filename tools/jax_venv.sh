#!/bin/sh
# A virtual environment with JAX, flax and optax for the tests of redpoll.jax, .venvs/jax; REDPOLL_JAX_VENV names
# another. Does nothing where it is complete. Prints the path of its python; exit 1 where it cannot be made.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
venv=${REDPOLL_JAX_VENV:-$root/.venvs/jax}
wanted=$root/tests/python/requirements-jax.txt
done=$venv/requirements.txt # a copy of what was installed, made last

if ! cmp -s "$wanted" "$done" || ! "$venv/bin/python" -c '' 2>/dev/null; then
    if [ "${REDPOLL_SETUP:-}" = never ]; then
        echo "setup: $venv is missing or incomplete; make it with: sh tools/jax_venv.sh" >&2
        exit 1
    fi
    echo "setup: installing JAX (500 MB) into $venv" >&2
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || python3 -m venv --clear "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 2 --timeout 30 \
        -r "$wanted" >&2
    cp "$wanted" "$done"
fi
echo "$venv/bin/python"
