"""Before the interpreter ends: other threads come out of what it would end below them.

It stops a thread at the next step that it takes in Python. Where C++ code is below it, that is
answered with terminate(). Between a script and the code here there is C++ of PyTorch: what has
left us, with a result or because its group was destroyed, is in there until PyTorch has taken
the GIL again. That takes a moment, and much longer where many threads want the processor."""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType
from typing import Callable, Optional

_COME_OUT_S = 5.0  # at most; callbacks of a script may never come back
_PASS_S = 1.0  # through PyTorch alone; a thread may wait there for what is not ours
_PAUSE_S = 0.001

# What calls C++ that calls us, or that waits for what we complete.
_PYTORCH = ("torch.distributed", "torch.futures", "torch.autograd")


def wait_for_threads() -> None:
    """Until no other thread is inside, as far as the deadlines above allow. Groups are closed:
    whatever waits in C has ended."""
    begun = came_out = time.monotonic()
    while True:
        now = time.monotonic()
        if _is_any(_is_ours):
            came_out = now
        elif not _is_any(_passes) or now - came_out > _PASS_S:
            return
        if now - begun > _COME_OUT_S:
            return
        time.sleep(_PAUSE_S)


def is_inside(frame: FrameType) -> bool:
    """Is a thread that stands there in the code here, or in C++ of PyTorch around it?"""
    return _is_ours(frame) or _passes(frame)


def _is_any(where: Callable[[FrameType], bool]) -> bool:
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    return any(where(frame) for frame in frames.values())


def _is_ours(frame: FrameType) -> bool:
    at: Optional[FrameType] = frame
    while at is not None:
        if _module(at).startswith("redpoll.torch."):
            return True
        at = at.f_back
    return False


def _passes(frame: FrameType) -> bool:
    return _module(frame).startswith(_PYTORCH)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
