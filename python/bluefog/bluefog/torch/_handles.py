"""Operations in flight, as numbers."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

import torch

from redpoll.torch import RedpollError, Work

from ._context import context

_numbers = itertools.count()
_running: dict[int, Operation] = {}
_names: set[str] = set()


class Operation:
    """One that was posted. finish: makes the output of what has come."""

    def __init__(
        self, name: str, works: list[Work], finish: Callable[[], torch.Tensor]
    ) -> None:
        self.name = name
        self.works = works
        self.finish = finish

    def wait(self) -> torch.Tensor:
        try:
            for work in self.works:
                work.wait()
        except RedpollError as error:
            if error.status == "MISMATCH":
                raise ValueError(
                    f"{self.name}: ranks differ in operation, name, dtype or shape: {error}. "
                    "Operations are matched in the order of their calls, named ones too"
                ) from None
            raise
        return self.finish()


def begin(kind: str, name: Optional[str]) -> str:
    """The full name of an operation that is to be posted. ValueError: it is in flight."""
    context.check()
    full = f"{kind}.{name}" if name is not None else f"{kind}.noname.{next(_numbers)}"
    if full in _names:
        raise ValueError(
            f"{full} is in flight: synchronize() it first, or give this one another name"
        )
    return full


def marker(name: str, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Two numbers that follow from what ranks must agree on; they travel with the tensors, and
    what comes of them tells whether ranks did."""
    kind = name.split(".noname.")[0]
    text = f"{kind} {[(str(each.dtype), tuple(each.shape)) for each in tensors]}"
    number = zlib.crc32(text.encode()) % (1 << 20) + 1
    return torch.tensor([number, number**2], dtype=torch.float64)


def check_marker(
    name: str, sent: torch.Tensor, found: torch.Tensor, times: Union[float, torch.Tensor]
) -> None:
    """ValueError: what was summed, with weights that come to `times`, differed among ranks."""
    if not torch.allclose(found, sent * times, rtol=1e-13, atol=float(sent[0]) * 1e-12):
        raise ValueError(
            f"{name}: ranks differ in operation, name, dtype or shape. Operations are matched "
            "in the order of their calls, named ones too"
        )


def posted(name: str, works: list[Work], finish: Callable[[], torch.Tensor]) -> int:
    """The handle of an operation whose works have been posted."""
    handle = next(_numbers)
    _running[handle] = Operation(name, works, finish)
    _names.add(name)
    context.timeline.start_operation(name, _activity(name), "COMMUNICATE")
    return handle


_KINDS = (
    "hierarchical.neighbor.allreduce",
    "neighbor.allreduce",
    "neighbor.allgather",
    "pair.gossip",
    "allreduce",
    "allgather",
    "broadcast",
)


def _activity(name: str) -> str:
    """Of an operation, as timelines of BlueFog call it."""
    kind = next(each for each in _KINDS if name.startswith(f"{each}."))
    return kind.replace(".", "_").upper()


def poll(handle: int) -> bool:
    """True when synchronize() would not block."""
    return all(work.is_completed() for work in _found(handle).works)


def synchronize(handle: int) -> Any:
    """Wait for an operation; its output. Once a handle: ValueError of one that is unknown, or
    was waited for."""
    operation = _found(handle)
    del _running[handle]
    _names.discard(operation.name)
    try:
        return operation.wait()
    finally:
        context.timeline.end_operation(operation.name)


wait = synchronize


def _found(handle: int) -> Operation:
    operation = _running.get(handle)
    if operation is None:
        raise ValueError(f"handle {handle} is unknown, or was waited for already")
    return operation
