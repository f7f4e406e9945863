"""Operations in flight, as numbers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any, Callable, Optional

from redpoll.torch import RedpollError, Work

from ..common.exceptions import HorovodInternalError

Finish = Callable[[], Any]


class Operation:
    """One that was asked for: waits for the other ranks, then it is posted, then done."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._posted = threading.Event()
        self._works: Sequence[Work] = ()
        self._finish: Optional[Finish] = None
        self._error: Optional[BaseException] = None
        self._result: Any = None
        self._lock = threading.Lock()

    def post(self, works: Sequence[Work], finish: Finish) -> None:
        """Of the engine. finish: makes the result once the works are complete."""
        self._works, self._finish = works, finish
        self._posted.set()

    def fail(self, error: BaseException) -> None:
        """Of the engine: wait() raises this."""
        self._error = error
        self._posted.set()

    def is_done(self) -> bool:
        """wait() would not block."""
        if not self._posted.is_set():
            return False
        return self._error is not None or all(work.is_completed() for work in self._works)

    def wait(self) -> Any:
        """The result. HorovodInternalError: ranks differ, or one was lost."""
        self._posted.wait()
        if self._error is not None:
            raise self._error
        try:
            for work in self._works:
                work.wait()
        except RedpollError as error:
            raise HorovodInternalError(f"{self.name}: {error}") from error
        with self._lock:
            if self._finish is not None:
                self._result, self._finish = self._finish(), None
        return self._result


_numbers = itertools.count()
_running: dict[int, Operation] = {}


def numbered(operation: Operation) -> int:
    """The handle of an operation."""
    handle = next(_numbers)
    _running[handle] = operation
    return handle


def poll(handle: int) -> bool:
    """True when synchronize() would not block. ValueError: no such handle."""
    operation = _running.get(handle)
    if operation is None:
        raise ValueError(f"handle {handle} is unknown, or was waited for already")
    return operation.is_done()


def synchronize(handle: Any) -> Any:
    """Wait for an operation; its output. None of one that was waited for already.

    HorovodInternalError: ranks asked for different things, or one was lost."""
    if callable(handle):  # of sparse_allreduce_async()
        return handle()
    operation = _running.pop(handle, None)
    return None if operation is None else operation.wait()


def forget_all() -> None:
    """Nobody waits for what is in flight any more."""
    _running.clear()
