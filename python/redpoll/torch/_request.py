"""One operation in flight: the C request, what it borrows, and what is left to do after it."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from .. import _abi
from ..errors import last_message
from . import _notifier
from ._errors import Place, RedpollError, place_text

SLICE_S = 0.2
"""Waits come back to Python so often, so that Ctrl-C is answered."""

_wait_for = _abi.rp_request_wait_for
_free = _abi.rp_request_free
_source = _abi.rp_request_source


_UNSET = dist.AllreduceOptions().timeout


def seconds(timeout: Optional[timedelta]) -> Optional[float]:
    """A c10d timeout in seconds; None for the ways in which c10d says "the group's"."""
    if timeout is None or timeout == _UNSET:
        return None
    value = timeout.total_seconds()
    return value if value > 0 else None


class Request:
    """Owned by its communicator until it is settled; any number of threads may wait for it.

    handle: the rp_request's address; 0 once it is freed. keep: whatever C borrows, until then.
    finish: run once after success, before anybody is told (copies staged results back)."""

    __slots__ = (
        "communicator",
        "handle",
        "operation",
        "place",
        "outputs",
        "timeout_s",
        "source",
        "done",
        "_keep",
        "_finish",
        "_lock",
        "_users",
        "_failure",
        "_settled",
        "_future",
        "_watched",
    )

    def __init__(
        self,
        communicator: Any,
        handle: int,
        operation: str,
        place: Place,
        outputs: Sequence[torch.Tensor],
        keep: Any,
        finish: Optional[Callable[[], None]],
        timeout_s: Optional[float],
    ) -> None:
        self.communicator = communicator
        self.handle = handle
        self.operation = operation
        self.place = place
        self.outputs = outputs
        self.timeout_s = timeout_s
        self.source = -1
        self.done = False
        self._keep = keep
        self._finish = finish
        self._lock = threading.Lock()
        self._users = 0
        self._failure: Optional[tuple[int, str]] = None
        self._settled: Any = None  # what the future follows
        self._future: Optional[torch.futures.Future] = None
        self._watched = False  # the notifier has it, or had

    # ---- waiting ----

    def wait(self, timeout_s: Optional[float] = None) -> None:
        """Until it is complete and results are in place; raises its failure.

        timeout_s None: as long as the operation's own timeout, or the group's, lasts.
        RedpollError (TIMEOUT) when that is over: the operation goes on, and may be waited for
        again."""
        limit = self.timeout_s if timeout_s is None else timeout_s
        deadline = None if limit is None else time.monotonic() + limit
        while not self.done:
            left = SLICE_S if deadline is None else deadline - time.monotonic()
            if not self._look(min(max(left, 0.0), SLICE_S)) and left <= 0:
                raise self._error(
                    _abi.RP_TIMEOUT,
                    f"not complete after {limit:g} s; it goes on and may be waited for again",
                )
        if self._failure is not None:
            raise self._error(*self._failure)

    @property
    def waited_for(self) -> bool:
        """True while a thread is in the library for it."""
        return self._users > 0 and not self.done

    def test(self) -> bool:
        """True when it is complete. Drives a little; never blocks."""
        return self.done or self._look(0.0)

    def settle_quietly(self) -> None:
        """Of the notifier: C says that it is complete."""
        while not self._look(SLICE_S):
            pass

    def error(self) -> Optional[RedpollError]:
        """The failure of a completed request; None of one that succeeded or still runs."""
        return self._error(*self._failure) if self._failure is not None else None

    def _look(self, timeout_s: float) -> bool:
        with self._lock:
            if self.done:
                return True
            self._users += 1
        code, message = _abi.RP_PENDING, ""
        try:
            code = _wait_for(self.handle, timeout_s)
            if code < 0:
                message = last_message()
        finally:
            future = self._leave(code, message)
        if future is not None:
            future.set_result(None)
        return self.done

    def _leave(self, code: int, message: str) -> Any:
        with self._lock:
            self._users -= 1
            future = None
            if code != _abi.RP_PENDING and not self.done:
                self._settle(code, message)
                future = self._settled
            self._free_when_unused()
            return future

    def _settle(self, code: int, message: str) -> None:
        """Under the lock, once."""
        if code == _abi.RP_OK:
            self.source = _source(self.handle)
            if self._finish is not None:
                try:
                    self._finish()
                except Exception as error:
                    code, message = _abi.RP_STATE, f"results could not be copied back: {error}"
        if code < 0:
            self._failure = (code, message)
        self._keep = self._finish = None
        self.done = True
        self.communicator.forget_request(self)

    def _free_when_unused(self) -> None:
        """Under the lock."""
        if self.done and self._users == 0 and self.handle:
            _free(ctypes.byref(ctypes.c_void_p(self.handle)))
            self.handle = 0

    def cancel(self, message: str) -> None:
        """Of the communicator, which is gone and the C request with it."""
        with self._lock:
            if self.done:
                return
            self.handle = 0
            self._settle(_abi.RP_CANCELLED, message)
            future = self._settled
        if future is not None:
            future.set_result(None)

    def forget(self) -> None:
        """In a forked child: the request is the parent's, and nothing may be done with it."""
        self._lock = threading.Lock()
        self.handle = 0
        self._failure = (_abi.RP_STATE, "it belongs to the process that this one is a fork of")
        self.done = True

    # ---- telling others ----

    def future(self) -> torch.futures.Future:
        """The future of this request, made at the first call: `outputs`, or the failure."""
        with self._lock:
            if self._future is not None:
                return self._future
            future = self._future = self._make_future()
            is_done = self.done
        if is_done:
            self._settled.set_result(None)
        else:
            self._watch()
        return future

    def abandon(self) -> None:
        """Nobody will wait for it any more: have it settled all the same."""
        self._watch()

    def _watch(self) -> None:
        with self._lock:
            if self.done or self._watched:
                return
            self._watched = True
            self._users += 1
        try:
            _notifier.watch(self)
        finally:
            self._leave(_abi.RP_PENDING, "")

    def _make_future(self) -> torch.futures.Future:
        """What then() gives fails in C++ too; set_exception() is seen by Python's wait() alone,
        and DDP's reducer would take the exception for its tensors."""
        self._settled = torch.futures.Future()
        return self._settled.then(self._answer)

    def _answer(self, _settled: Any) -> list[torch.Tensor]:
        if self._failure is not None:
            raise self._error(*self._failure)
        return list(self.outputs)

    def _error(self, code: int, message: str) -> RedpollError:
        return self.communicator.error(code, message, self.operation, place_text(self.place))
