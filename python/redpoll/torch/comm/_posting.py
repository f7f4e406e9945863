"""Handing operations to the library, and waiting for those that block."""

from __future__ import annotations

import ctypes
import itertools
import threading
from typing import Any, Optional

from ... import _abi
from ...errors import last_message
from ._buffers import Lent
from ._checks import Checks
from ._errors import Place, RedpollError, place_text, user_place
from ._life import Life
from ._profiling import Span, profiling
from ._request import SLICE_S, Request
from ._work import PendingWork, Posted, Work, completed

_wait_for = _abi.rp_request_wait_for
_free = _abi.rp_request_free
_attend = _abi.rp_comm_attend
_leave = _abi.rp_comm_leave


def _start_gossip(_communicator: int, gossip: Any, step: int, rate: float, out: Any) -> int:
    return _abi.rp_gossip_post(gossip, step, rate, out)


_START = {
    name.replace("_with", ""): getattr(_abi, f"rp_{name}_start") for name in _abi.COLLECTIVES
}
_START["gossip"] = _start_gossip
_REFUSED = Posted("", 0, 0.0)


class Posting(Checks):
    """The rp_comm of a communicator and its requests.

    A call that blocks attends: the progress thread is left asleep, and one C call drives the
    transfer. It makes a Request only when it takes long, so that a short one costs little."""

    notifier: Any  # for requests of which others are told
    timeout_s: float  # of the group

    def __init__(self) -> None:
        self._life = Life(0, lambda _address: None)
        self._lock = threading.RLock()  # around the library's posting calls
        self._numbers = itertools.count(1)  # of requests
        self._failures: list[tuple[int, str, str]] = []  # of operations: number, where, text
        self._options: dict[tuple[int, int], Any] = {}
        self.sequence = 0  # of the operation that was posted last

    def _next_posted(self, name: str, timeout_s: Optional[float]) -> Posted:
        """Of the operation that has just been posted, under the lock of posting."""
        self.sequence += 1
        return Posted(name, self.sequence, self.timeout_s if timeout_s is None else timeout_s)

    def _post(
        self,
        name: str,
        arguments: tuple[Any, ...],
        lent: Lent,
        blocking: bool,
        timeout_s: Optional[float],
    ) -> Work:
        """Start operation `name` with what its C function takes; wait for it when blocking."""
        if not profiling():
            return self._post_now(name, arguments, lent, blocking, timeout_s)
        span = Span(name, lent)
        if not blocking or lent.place is not None:
            return self._post_now(name, arguments, span.ended_by(lent), blocking, timeout_s)
        try:
            return self._post_now(name, arguments, lent, True, timeout_s)
        finally:
            span.end()

    def _post_now(
        self,
        name: str,
        arguments: tuple[Any, ...],
        lent: Lent,
        blocking: bool,
        timeout_s: Optional[float],
    ) -> Work:
        communicator = self._life.enter() or self._gone(name)
        work: Work
        try:
            if not blocking:
                handle, posted = self._start(communicator, name, arguments, lent, timeout_s)
                request = self._request(name, handle, lent, timeout_s)
                work = PendingWork((request,), lent.outputs)
                work.posted = posted
                return work
            _attend(communicator)
            try:
                handle, posted = self._start(communicator, name, arguments, lent, timeout_s)
                self._complete(name, handle, lent, timeout_s)
            finally:
                _leave(communicator)
        finally:
            self._life.leave()
        work = completed(lent.outputs)
        work.posted = posted
        return work

    def _start(
        self,
        communicator: int,
        name: str,
        arguments: tuple[Any, ...],
        lent: Lent,
        timeout_s: Optional[float],
    ) -> tuple[ctypes.c_void_p, Posted]:
        out = ctypes.c_void_p()
        try:
            with self._lock:
                code = _START[name](communicator, *arguments, ctypes.byref(out))
                posted = _REFUSED if code < 0 else self._next_posted(name, timeout_s)
        except BaseException:  # Ctrl-C: what was posted goes on, and keeps its tensors
            if out.value:
                self._request(name, out, lent, timeout_s)
            raise
        if code < 0:
            raise self._refusal(communicator, code, last_message(), name)
        return out, posted

    def _complete(
        self, name: str, handle: ctypes.c_void_p, lent: Lent, timeout_s: Optional[float]
    ) -> None:
        """Wait. What takes long, or is interrupted by Ctrl-C, goes on as a Request, which keeps
        its tensors; so does what only a GPU is still at."""
        if timeout_s is not None or lent.place is not None:
            self._request(name, handle, lent, timeout_s).wait()
            return
        code = _abi.RP_PENDING
        try:
            code = _wait_for(handle, SLICE_S)
            message = last_message() if code < 0 else ""
        finally:
            if code == _abi.RP_PENDING:
                request = self._request(name, handle, lent, None)
        if code == _abi.RP_PENDING:
            request.wait()
            return
        _free(ctypes.byref(handle))
        if code < 0:
            place = user_place()
            self.note_failure(next(self._numbers), name, place, message)
            raise self.error(code, message, name, place_text(place))
        if lent.finish is not None:
            lent.finish()

    def _request(
        self, name: str, handle: ctypes.c_void_p, lent: Lent, timeout_s: Optional[float]
    ) -> Request:
        number, address = next(self._numbers), handle.value or 0
        request = Request(self, address, number, name, user_place(), lent, timeout_s)
        self._life.add(request)
        return request

    def forget_request(self, request: Request) -> None:
        """Of a request that is freed."""
        self._life.remove(request)

    # ---- a group that has failed ----

    def note_failure(self, number: int, operation: str, place: Place, message: str) -> None:
        """Of an operation that had been posted; number: as of requests."""
        self._failures.append((number, f"{operation} ({place_text(place)})", message))

    def earlier_failure(self) -> str:
        """ "group '0' failed earlier at all_reduce (train.py:41): ...", of the first operation
        that did; empty while none has."""
        for request in self._life.requests():
            request.test()  # nobody may have asked yet
        if not self._failures:
            return ""
        _, where, message = min(self._failures)
        return f"group '{self.name}' failed earlier at {where}: {message}"

    def _refusal(self, communicator: int, code: int, message: str, name: str) -> RedpollError:
        """Of an operation that was not posted: for its arguments, or for what went before."""
        if code != _abi.RP_INVALID and _abi.rp_comm_status(communicator) < 0:
            place, earlier = user_place(), self.earlier_failure()
            if not earlier:  # another rank's, of which this is the first to hear
                self.note_failure(next(self._numbers), name, place, message)
            return self.error(code, earlier or message, name, place_text(place))
        return self.error(code, message, name)

    def _plain_options(self, reduction: int, root: int, factor: float = 1.0) -> Any:
        """Options that are asked for again and again, made once."""
        if factor != 1.0:
            return self._new_options(reduction, factor, root=root)
        found = self._options.get((reduction, root))
        if found is None:
            found = self._new_options(reduction, 1.0, root=root)
            self._options[reduction, root] = found
        return found

    def _new_options(
        self,
        reduction: int,
        factor: float,
        seed: int = 0,
        step: int = 0,
        algorithm: Optional[str] = None,
        root: int = 0,
        key: int = 0,
    ) -> Any:
        return ctypes.pointer(
            _abi.rp_collective_options(
                algorithm=algorithm.encode() if algorithm else None,
                reduce=reduction,
                seed=seed,
                step=step,
                root=root,
                factor=factor,
                key=key,
            )
        )
