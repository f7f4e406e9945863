#!/bin/sh
# pytest with the package staged in a build folder. usage: run_pytest.sh BUILD FILE... [pytest arguments]
# The Python is that of REDPOLL_TORCH_VENV, .venvs/torch (tools/setup.sh test makes it), or python3.
# Exit 77 (skipped) with the reason where PyTorch or pytest is missing; a failure where the build was
# configured with REDPOLL_PYTHON=ON.
set -eu
build=$(cd "$1" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)
venv=${REDPOLL_TORCH_VENV:-$here/../../.venvs/torch}
python=$venv/bin/python
[ -x "$python" ] || python=python3

# Looked up, not imported: importing PyTorch takes seconds.
missing=$("$python" - <<'END' 2>&1 || true
import sys
from importlib.util import find_spec
missing = [name for name in ("torch", "numpy", "pytest") if find_spec(name) is None]
if sys.version_info < (3, 9):
    missing.insert(0, "Python 3.9 (this one is %d.%d)" % sys.version_info[:2])
print(", ".join(missing))
END
)
if [ -n "$missing" ]; then
    for file in "$@"; do
        case $file in
        *.py) echo "SKIPPED $(basename "$file"): $python lacks $missing ('sh tools/setup.sh test' installs it)" ;;
        esac
    done
    [ "${REDPOLL_PYTHON_TESTS:-AUTO}" = ON ] && exit 1
    exit 77
fi

export PYTHONPATH="$build/python${PYTHONPATH:+:$PYTHONPATH}"
export REDPOLL_BUILD="$build"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" # several ranks share the cores
# Unbuffered, a print() of a rank is several writes, between which another rank's may come.
unset PYTHONUNBUFFERED
exec "$python" -m pytest "$@"
