"""Where the C library is, and loading it.

It lies in the package, at `_lib/libredpoll.so`, put there by the wheel or by the build's
staging. No environment variable and no search path can put another one in its place.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path


def place_of(name: str) -> Path:
    """Where the file `name` of `_lib` is, or belongs when it is missing."""
    # An editable install has two folders: that of the sources, and one with what was built.
    folders = [Path(folder) for folder in sys.modules[__package__].__path__]
    places = [folder / "_lib" / name for folder in folders]
    return next((place for place in places if place.exists()), places[-1])


@cache
def load() -> ctypes.CDLL:
    """The C library; loaded once a process. Calls through it release the GIL.

    ImportError says where the library was looked for when it is missing or does not load."""
    here = place_of("libredpoll.so")
    try:
        return ctypes.CDLL(str(here))
    except OSError as error:
        raise ImportError(
            f"redpoll's C library does not load: {error}. It belongs at {here}; in a checkout "
            "'pip install --force-reinstall .' installs it anew, and the target "
            "'redpoll_python' builds it"
        ) from error


@cache
def quick() -> ctypes.PyDLL:
    """The same library, loaded already; calls through this keep the GIL."""
    return ctypes.PyDLL(load()._name)
