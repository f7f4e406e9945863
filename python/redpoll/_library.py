"""Where the C library is, and loading it.

It lies in the package, at `_lib/libredpoll.so`, put there by the wheel or by the build's
staging. No environment variable and no search path can put another one in its place.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path


@cache
def load() -> ctypes.CDLL:
    """The C library; loaded once a process. Calls through it release the GIL.

    ImportError says where the library was looked for when it is missing or does not load."""
    # An editable install has two folders: that of the sources, and one with the library.
    folders = [Path(folder) for folder in sys.modules[__package__].__path__]
    places = [folder / "_lib" / "libredpoll.so" for folder in folders]
    here = next((place for place in places if place.exists()), places[-1])
    try:
        return ctypes.CDLL(str(here))
    except OSError as error:
        raise ImportError(
            f"redpoll's C library does not load: {error}. It belongs at {here}; reinstall the "
            "package ('pip install --force-reinstall redpoll'), or build the target "
            "'redpoll_python' of a checkout"
        ) from error


@cache
def quick() -> ctypes.PyDLL:
    """The same library, loaded already; calls through this keep the GIL."""
    return ctypes.PyDLL(load()._name)
