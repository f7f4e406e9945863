"""Says in one line what is missing."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("numpy") is None:
    raise ImportError("redpoll.numpy needs numpy: pip install numpy")
