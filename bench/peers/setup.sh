#!/bin/sh
# Install PyTorch into a virtual environment of its own, .venvs/torch, unless it is there.
# Prints the path of its python. REDPOLL_TORCH_VENV names another environment.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=${REDPOLL_TORCH_VENV:-$root/.venvs/torch}

if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
    echo "installing PyTorch (several GB) into $venv ..." >&2
    python3 -m venv "$venv" || {
        echo "python3 -m venv failed; on Debian and Ubuntu: apt install python3-venv" >&2
        exit 1
    }
    "$venv/bin/pip" install --quiet torch >&2
fi
echo "$venv/bin/python"
