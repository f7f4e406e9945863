"""One operation in flight: the C request, what it borrows, and what is left to do after it."""

from __future__ import annotations

import threading
import time
from ctypes import byref, c_void_p
from datetime import timedelta
from threading import get_ident
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from ... import _abi
from ...errors import last_message
from . import _cuda
from ._buffers import Lent
from ._errors import Place, RedpollError, place_text

SLICE_S = 0.2
"""Waits come back to Python so often, so that Ctrl-C is answered."""

_wait_for = _abi.rp_request_wait_for
_free = _abi.rp_request_free
_source = _abi.rp_request_source
_PENDING = _abi.RP_PENDING
_MESSAGES = ("send", "recv", "recv_any")

_UNSET = dist.AllreduceOptions().timeout


def seconds(timeout: Optional[timedelta]) -> Optional[float]:
    """A c10d timeout in seconds; None for the ways in which c10d says "the group's"."""
    if timeout is None or timeout == _UNSET:
        return None
    value = timeout.total_seconds()
    return value if value > 0 else None


class Request:
    """Owned by its communicator until it is freed; any number of threads may wait for it.
    Afterwards whoever keeps it does not keep the communicator, only its names for errors.

    It runs; it is done when somebody has settled it (results are in place, or its failure is
    known); its rp_request is freed when it is done and nobody looks at it any more. As long as
    it is not freed the rp_comm is not destroyed (`_life.py`).

    The lock is one that its own thread may take again: a signal handler or a finalizer in the
    middle of anything here may close the group, which settles all requests.

    Of elements on a GPU wait() is over when nothing but the GPU's part is left, which the
    caller's stream goes on behind; it is done, and lets go of tensors, when that is over, too.

    poster: who posted it, until it is freed. communicator: what it holds until then. handle:
    the rp_request; None once it is freed. number: in the order of posting. lent:
    whatever C borrows, until it is done, and what is left to do after success, before anybody
    is told (copies staged results back)."""

    __slots__ = (
        "poster",
        "handle",
        "number",
        "operation",
        "place",
        "outputs",
        "timeout_s",
        "source",
        "done",
        "_holds",
        "_names",
        "_on_gpu",
        "_keep",
        "_finish",
        "_lock",
        "_lookers",
        "_settling",
        "_failure",
        "_settled",
        "_untold",
        "_future",
        "_watched",
    )

    def __init__(
        self,
        poster: Any,
        communicator: Any,
        handle: Optional[c_void_p],
        number: int,
        operation: str,
        place: Place,
        lent: Lent,
        timeout_s: Optional[float],
    ) -> None:
        self.poster = poster
        self._names = poster.names
        self._holds = communicator
        self.handle = handle
        self.number = number
        self.operation = operation
        self.place = place
        self.outputs = lent.outputs
        self.timeout_s = timeout_s
        self.source = -1
        self.done = False
        self._on_gpu = lent.place
        self._keep = lent.keep
        self._finish = lent.finish
        self._lock = threading.RLock()
        self._lookers: list[int] = []  # threads that use the rp_request
        self._settling = False
        self._failure: Optional[tuple[int, str]] = None
        self._settled: Any = None  # what the future follows
        self._untold: list[None] = []  # whoever pops of it completes that
        self._future: Optional[torch.futures.Future] = None
        self._watched = False  # the notifier has it, or had

    # ---- waiting ----

    def wait(self, timeout_s: Optional[float] = None) -> None:
        """Until it is complete and results are in place; raises its failure.

        timeout_s None: as long as the operation's own timeout, or the group's, lasts.
        RedpollError (TIMEOUT) when that is over: the operation goes on, and may be waited for
        again."""
        place = self._on_gpu
        if place is None:
            self._wait(timeout_s, self._look)
            return
        self._wait(timeout_s, self._look if place.has_copies else self._follow)
        place.follow_copies()

    def wait_for_all(self, timeout_s: Optional[float] = None) -> None:
        """The same, until the GPU's part is over, too."""
        self._wait(timeout_s, self._look)

    def _wait(self, timeout_s: Optional[float], look: Callable[[float], bool]) -> None:
        limit = self.timeout_s if timeout_s is None else timeout_s
        deadline = None if limit is None else time.monotonic() + limit
        while not self.done:
            left = SLICE_S if deadline is None else max(deadline - time.monotonic(), 0.0)
            if look(left if left < SLICE_S else SLICE_S):
                break
            if self._settling:
                self._check_nesting()
            if left == 0:
                raise self._error(
                    _abi.RP_TIMEOUT,
                    f"timed out: not complete after {limit:g} s; it goes on and may be waited "
                    "for again",
                )
        if self._failure is not None:
            raise self._error(*self._failure)

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
        """Enter first and look at `done` then: whoever frees looks the other way round."""
        self._lookers.append(get_ident())
        code, message = _PENDING, ""
        try:
            if not self.done:
                code = _wait_for(self.handle, timeout_s)
                if code < 0:
                    message = last_message()
        finally:
            if code != _PENDING:
                self._settle_once(code, message)
            self._leave()
        return self.done

    def _follow(self, timeout_s: float) -> bool:
        """True: the current stream goes on behind the results, or they are there, or it has
        failed."""
        place, code = self._on_gpu, _PENDING
        assert place is not None
        self._lookers.append(get_ident())
        try:
            if not self.done:
                code = _cuda.seam.follow(self.handle, place.device, timeout_s)
                if code == _abi.RP_OK:
                    self.source = _source(self.handle)
        finally:
            self._leave()
        if code < 0:
            return self._look(timeout_s)  # which knows whether the operation is over
        if code == _abi.RP_OK:
            self.watch()  # so that its tensors are let go of when the GPU is through
        return self.done or code == _abi.RP_OK

    def _leave(self) -> None:
        self._lookers.remove(get_ident())
        if self.done:
            if not self._lookers:
                self._free_handle()
            if self._settled is not None:
                self._tell()

    def _settle_once(self, code: int, message: str) -> None:
        with self._lock:
            if not self.done and not self._settling:
                self._settle(code, message)

    def _check_nesting(self) -> None:
        """RedpollError when it is settled by this very thread, further up its stack."""
        if self._lock.acquire(blocking=False):
            try:
                if not self.done:
                    raise self._error(
                        _abi.RP_STATE, "a handler waits for what the code below it completes"
                    )
            finally:
                self._lock.release()

    def _settle(self, code: int, message: str) -> None:
        """Under the lock, once; again when Ctrl-C broke it off."""
        self._settling = True
        try:
            if code < 0:
                self.poster.note_failure(self.number, self.operation, self.place, message)
            else:
                if self.operation in _MESSAGES:
                    self.source = _source(self.handle)
                if self._finish is not None:
                    code, message = self._finished(self._finish)
            if code < 0:
                self._failure = (code, message)
            self._keep = self._finish = None
            if self._on_gpu is not None:
                self._on_gpu.let_go()
            self.done = True
        finally:
            self._settling = False

    def _finished(self, finish: Callable[[], None]) -> tuple[int, str]:
        try:
            with _cuda.on_gpu_of(self.outputs):
                finish()
        except Exception as error:
            return _abi.RP_STATE, f"results could not be copied back: {error}"
        return _abi.RP_OK, ""

    def _free_handle(self) -> None:
        """Once, when it is done and nobody looks at it."""
        with self._lock:
            handle, self.handle = self.handle, None
        if handle is not None:
            _free(byref(handle))
            poster, self.poster = self.poster, None
            held, self._holds = self._holds, None  # until it is forgotten
            poster.life.remove(self)
            del held

    def _tell(self) -> None:
        """Complete the future, once, as there is something to tell."""
        try:
            self._untold.pop()
        except IndexError:
            return
        with _cuda.on_gpu_of(self.outputs):  # callbacks are run there
            self._settled.set_result(None)

    def is_looked_at(self) -> bool:
        """By this very thread, on which a handler runs."""
        return get_ident() in self._lookers

    def is_in_use(self) -> bool:
        """It runs, or another thread looks at it."""
        own = get_ident()
        if not self.done and not self._settling:
            return True
        return any(looker != own for looker in list(self._lookers))

    def forget(self) -> None:
        """In a forked child: the request is the parent's, and nothing may be done with it."""
        self._lock = threading.RLock()
        self._lookers = []
        self.handle = None
        self._failure = (_abi.RP_STATE, "it belongs to the process that this one is a fork of")
        self.done = True

    # ---- telling others ----

    def future(self) -> torch.futures.Future:
        """The future of this request, made at the first call: `outputs`, or the failure."""
        with self._lock:
            if self._future is None:
                self._future = self._make_future()
            future = self._future
        if self.done:
            self._tell()
        self.watch()
        return future

    def abandon(self) -> None:
        """Nobody will wait for it any more: have it settled all the same. Of finalizers: takes
        no lock."""
        poster = self.poster
        if poster is not None and not self.done and not self._watched:
            poster.notifier.watch_later(self)

    def watch(self) -> None:
        """Have the notifier settle it, unless that is asked for already."""
        self._lookers.append(get_ident())
        try:
            with self._lock:
                if self.done or self._watched:
                    return
                self._watched = True
            self.poster.notifier.watch(self)
        finally:
            self._leave()

    def _make_future(self) -> torch.futures.Future:
        """What then() gives fails in C++ too; set_exception() is seen by Python's wait() alone,
        and DDP's reducer would take the exception for its tensors."""
        self._untold.append(None)
        self._settled = _cuda.seam.future(self.outputs)
        return self._settled.then(self._answer)

    def _answer(self, _settled: Any) -> list[torch.Tensor]:
        if self._failure is not None:
            raise self._error(*self._failure)
        if self._on_gpu is not None:
            self._on_gpu.follow_copies()  # on the stream of this callback
        return list(self.outputs)

    def _error(self, code: int, message: str) -> RedpollError:
        return self._names.error(code, message, self.operation, place_text(self.place))
