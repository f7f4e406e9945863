#!/bin/sh
# A virtual environment with PyTorch and what the Python tests use, .venvs/torch; REDPOLL_TORCH_VENV names
# another. Prints the path of its python; exit 1 where it cannot be made (python_venv.sh).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
exec sh "$root/tools/python_venv.sh" "${REDPOLL_TORCH_VENV:-$root/.venvs/torch}" "$root/tests/python/requirements.txt" \
    "PyTorch and the tools of the Python tests (5 GB)" tools/torch_venv.sh
