"""Failures of a gradient's all-reduce, raised by backward() as the RedpollError that they are.

DDP's reducer waits for futures in C++, whose errors have no type of their own: its backward()
raises a RuntimeError with our text. So the Works that it has begun are waited for before, at
the end of the backward pass, by a callback of autograd, whose exceptions come out as they
are."""

from __future__ import annotations

import sys
from typing import Any

import torch

_ENGINE = "_engine_run_backward"  # the last frame of Python above autograd's C++

_in_backward = getattr(torch._C, "_current_graph_task_id", lambda: -1)


def raise_at_end(work: Any) -> None:
    """Of a Work that must be complete when this backward pass is. Outside of one: nothing."""
    if _in_backward() < 0:
        return
    try:
        torch.autograd.Variable._execution_engine.queue_callback(work.wait)
    except RuntimeError:
        pass  # a pass that ends already: the future says it


def is_asked_by_reducer() -> bool:
    """Whether C++ of a backward pass has called what calls this: no hook of anybody's is
    between autograd and us."""
    if _in_backward() < 0:
        return False
    caller = sys._getframe(2)
    return caller is None or caller.f_code.co_name == _ENGINE
