"""Keeps torch.compile() out of this package's functions.

C++ calls them in the middle of what is being compiled (DDP's forward pass broadcasts buffers),
and there Dynamo would trace them as if they were the user's: ctypes calls, locks, threads."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, Callable, Optional

import torch

log = logging.getLogger("redpoll")

_walked: dict[str, int] = {}  # modules, by how many names they had then


def keep_untraced(package: str) -> None:
    """Have every function of these modules, which are imported, run as it is, and what it calls
    too. Costs nothing when they are called. Again: what was imported since is added. Where this
    PyTorch has no way to do it, torch.compile() may trace them, and the log says so."""
    skip = _skipper()
    if skip is None:
        log.info("PyTorch %s cannot be told what not to trace", torch.__version__)
        return
    for name, module in list(sys.modules.items()):
        if name != package and not name.startswith(f"{package}."):
            continue
        if _walked.get(name) != len(vars(module)):  # one that was still being imported has more
            for code in _codes_of(module):
                skip(code)
            _walked[name] = len(vars(module))


def _skipper() -> Optional[Callable[[CodeType], object]]:
    """Of the frame evaluator itself: importing Dynamo for its decorators would take seconds."""
    evaluator: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    try:
        action = evaluator._FrameAction.SKIP
        strategy = evaluator._FrameExecStrategy(action, action)
        mark = evaluator.set_code_exec_strategy
    except AttributeError:
        return None
    return lambda code: mark(code, strategy)


def _codes_of(module: ModuleType) -> Iterator[CodeType]:
    """Of what was written in the module's file. A decorator's wrapper has the decorator's code,
    which every function under it shares: marking that of no_grad() would keep Dynamo out of the
    user's functions."""
    for found in list(vars(module).values()):
        if getattr(found, "__module__", None) != module.__name__:
            continue
        members = vars(found).values() if isinstance(found, type) else [found]
        for function in members:
            for code in _codes_in(function):
                if code.co_filename == module.__file__:
                    yield code


def _codes_in(member: Any) -> Iterator[CodeType]:
    """Of a function, method or property, of what is below decorators, and of what is defined
    inside of it."""
    for function in (getattr(member, each, None) for each in ("fget", "fset", "__func__")):
        if function is not None:
            yield from _codes_in(function)
    while isinstance(member, FunctionType):
        yield from _with_inner(member.__code__)
        member = getattr(member, "__wrapped__", None)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
