"""Says in one line what is missing."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("jax") is None:
    raise ImportError("redpoll.jax needs jax: pip install jax")

import jax
from jax._src import xla_bridge


def _has_client() -> bool:
    known = getattr(xla_bridge, "backends_are_initialized", None)
    return bool(known is not None and known())


IS_LATE = _has_client()
"""jax had been used before, and runs functions at once that do not depend on each other: not
in the same order on all ranks."""

jax.config.update("jax_cpu_enable_async_dispatch", False)  # read when jax makes its client
