"""The handler for XLA (`xla_collective.c`), compiled once for each release of jax.

It cannot come with the package, which knows no release of jax: the interface's headers are
jax's own. It takes a C compiler and a second, and is kept in the user's cache.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import jax.ffi

NAME = "redpoll_collective"

_SOURCE = Path(__file__).with_name("xla_collective.c")
_FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-pthread")


@cache
def register() -> None:
    """Have XLA know the handler. ImportError: no compiler, or what it said."""
    library = ctypes.CDLL(str(_library()))
    jax.ffi.register_ffi_target(
        NAME, jax.ffi.pycapsule(getattr(library, NAME)), platform="cpu", api_version=1
    )


def _library() -> Path:
    headers = Path(jax.ffi.include_dir())
    seen = hashlib.sha256(_SOURCE.read_bytes())
    seen.update((headers / "xla" / "ffi" / "api" / "c_api.h").read_bytes())
    place = _folder() / f"collective-{os.uname().machine}-{seen.hexdigest()[:16]}.so"
    if not place.exists():
        _compile(headers, place)
    return place


def _folder() -> Path:
    """Of the user alone: what lies there is loaded."""
    cache_folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache_folder) / "redpoll"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _compile(headers: Path, place: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise ImportError(
            "redpoll.jax compiles a file of C against jax's headers at its first use, and "
            "there is no C compiler: apt-get install gcc libc6-dev"
        )
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        made = Path(folder) / place.name
        words = [*compiler.split(), *_FLAGS, f"-I{headers}", str(_SOURCE), "-o", str(made)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            raise ImportError(f"redpoll.jax: {' '.join(words)} failed: {done.stderr[-800:]}")
        made.replace(place)  # whole, whoever else compiles it now
