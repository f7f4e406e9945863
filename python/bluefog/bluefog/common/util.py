"""The environment for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["env"]


@contextmanager
def env(**variables: Any) -> Iterator[None]:
    """Inside, these variables are set; those that are None stay as they are. Afterwards all are
    as before."""
    wanted = {name: str(value) for name, value in variables.items() if value is not None}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
