"""Redpoll: compressed collectives and data-parallel training over the network you have.

    import redpoll.torch                        # registers the PyTorch backend "redpoll"
    torch.distributed.init_process_group("redpoll")

This package holds the C library and what is common to its users; importing it loads the library
and needs nothing but Python 3.9. `redpoll.torch` needs PyTorch 2.4 or newer.
"""

from __future__ import annotations

import ctypes

from ._library import load


def _version() -> str:
    rp_version = load().rp_version
    rp_version.restype = ctypes.c_char_p
    text: bytes = rp_version()
    return text.decode()


__version__: str = _version()

__all__ = ["__version__"]
