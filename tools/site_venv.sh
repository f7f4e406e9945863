#!/bin/sh
# A virtual environment with MkDocs for tools/site.sh, .venvs/site; REDPOLL_SITE_VENV names another. Prints the path
# of its python; exit 1 where it cannot be made (python_venv.sh).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
exec sh "$root/tools/python_venv.sh" "${REDPOLL_SITE_VENV:-$root/.venvs/site}" "$root/tools/site/requirements.txt" \
    "MkDocs (60 MB)" tools/site_venv.sh
