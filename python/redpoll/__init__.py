"""Redpoll: compressed collectives and data-parallel training over the network you have.

    import redpoll.torch                        # registers the PyTorch backend "redpoll"
    torch.distributed.init_process_group("redpoll")

This package holds the C library and what is common to its users; it needs nothing but Python
3.9. `redpoll.torch` needs PyTorch 2.9 or newer. Where it is installed, PyTorch finds the
backend by itself (`_autoload.py`): so importing this loads nothing.
"""

from __future__ import annotations

import ctypes

from ._library import load

__version__: str
"""The library's, which is loaded to tell it."""


def _version() -> str:
    rp_version = load().rp_version
    rp_version.restype = ctypes.c_char_p
    text: bytes = rp_version()
    return text.decode()


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    global __version__
    __version__ = _version()
    return __version__


__all__ = ["__version__"]
