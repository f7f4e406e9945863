#!/bin/sh
# A virtual environment with JAX, flax and optax for the tests of redpoll.jax, .venvs/jax; REDPOLL_JAX_VENV names
# another. Prints the path of its python; exit 1 where it cannot be made (python_venv.sh).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
exec sh "$root/tools/python_venv.sh" "${REDPOLL_JAX_VENV:-$root/.venvs/jax}" "$root/tests/python/requirements-jax.txt" \
    "JAX (500 MB)" tools/jax_venv.sh
