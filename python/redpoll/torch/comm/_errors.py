"""What a failed collective raises, and where in the user's script it was posted."""

from __future__ import annotations

import dis
import os
import sys
from collections.abc import Sequence
from types import CodeType
from typing import Optional

import torch
from torch.distributed import DistBackendError

import redpoll

from ... import _abi
from ...errors import Error, status_name

Place = Optional[tuple[CodeType, int]]
"""A function, and the instruction that it was at. Which line that is costs a walk through the
function's table, so errors alone ask for it."""

_INSIDE = (
    os.path.dirname(torch.__file__) + os.sep,
    os.path.dirname(os.path.abspath(redpoll.__file__)) + os.sep,
    os.path.dirname(os.__file__) + os.sep + "contextlib.py",
    os.path.dirname(os.__file__) + os.sep + "threading.py",
    "<",  # generated code
)
_inside: dict[str, bool] = {}  # by file name


class RedpollError(DistBackendError, Error):
    """An operation of a process group failed, or was refused.

    status: "PEER", "TIMEOUT", "MISMATCH", "CANCELLED", "INVALID", ... (<redpoll/status.h>)
    rank: of this process in its group; operation: "all_reduce", "recv", ...
    posted_at: "train.py:41", the line of the script that called it, or "DDP backward" where
    no line did (a hook that autograd's own thread runs)."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        rank: int = -1,
        group: str = "",
        operation: str = "",
        posted_at: str = "",
    ) -> None:
        where = f"rank {rank} of group '{group}', " if rank >= 0 else ""
        what = f" [{where}{operation} posted at {posted_at}]" if operation else ""
        RuntimeError.__init__(self, message + what)
        self.code = code
        self.status = status_name(code)
        self.message = message
        self.rank = rank
        self.group = group
        self.operation = operation
        self.posted_at = posted_at


class RedpollValueError(RedpollError, ValueError):
    """Arguments that cannot be right; nothing was posted."""

    def __init__(self, message: str, **where: object) -> None:
        super().__init__(_abi.RP_INVALID, message, **where)  # type: ignore[arg-type]


def user_place(own: int = 1) -> Place:
    """The innermost line on this thread's stack that is not PyTorch's or Redpoll's own; None
    where there is none. own: so many frames, this one among them, are known to be our own:
    each that is looked at costs an object of the interpreter's."""
    frame = sys._getframe(own)
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        inside = _inside.get(name)
        if inside is None:
            inside = _inside[name] = name.startswith(_INSIDE)
        if not inside:
            return code, frame.f_lasti
        frame = frame.f_back  # type: ignore[assignment]
    return None


def place_text(place: Place) -> str:
    """ "train.py:41" """
    if place is None:
        return "DDP backward"
    code, instruction = place
    line = code.co_firstlineno
    for begin, found in dis.findlinestarts(code):
        if begin <= instruction:
            line = found or line
    return f"{os.path.basename(code.co_filename)}:{line}"


def ranks_text(ranks: Sequence[int]) -> str:
    """ "rank 3", "ranks 1, 2 and 3" """
    numbers = [str(rank) for rank in ranks]
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    return f"ranks {', '.join(numbers[:-1])} and {numbers[-1]}"
