"""Parts of Horovod that are not here: importing one says so in a line."""

from __future__ import annotations

from typing import NoReturn


def refuse(module: str, instead: str) -> NoReturn:
    """ImportError of a module of Horovod's."""
    raise ImportError(
        f"{module} is not supported: this is Horovod's interface on Redpoll, which has "
        f"horovod.torch; {instead}"
    )
