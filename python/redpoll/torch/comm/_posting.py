"""Handing operations to the library, and waiting for those that block."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Iterator
from ctypes import byref, c_void_p
from typing import Any, Callable, NamedTuple, NoReturn, Optional, Protocol

from ... import _abi
from ...errors import last_message
from ._buffers import Lent
from ._checks import Checks, Names
from ._collective_options import library_options
from ._errors import Place, RedpollError, place_text, user_place
from ._life import Life
from ._profiling import Span, profiling
from ._request import SLICE_S, Request
from ._work import PendingWork, Posted, Work, completed

_wait_for = _abi.rp_request_wait_for
_free = _abi.rp_request_free
_attend = _abi.rp_comm_attend
_leave = _abi.rp_comm_leave


_tuple = tuple.__new__  # makes a NamedTuple in half the time
_OWN_FRAMES = 4  # at least, from what asks for the user's line: post() and its inner functions
_REFUSED = Posted("", 0, 0.0)


class Operation(NamedTuple):
    """What can be posted. start: (rp_comm, arguments ..., byref of a request) -> status."""

    name: str
    start: Callable[..., int]


def operation_named(name: str) -> Operation:
    """A collective or message of the library (`_abi.COLLECTIVES`, without "_with")."""
    return _OPERATIONS[name]


_OPERATIONS = {
    name: Operation(name, getattr(_abi, f"rp_{function}_start"))
    for function in _abi.COLLECTIVES
    for name in [function.replace("_with", "")]
}


class Poster:
    """Posts on the rp_comm of one communicator, and knows its requests and what has failed.

    A call that blocks attends: the progress thread is left asleep, and one C call drives the
    transfer. It makes a Request only when it takes long, so that a short one costs little.

    life: of the rp_comm. lock: around the library's posting calls. timeout_s: of the group.
    sequence: of the operation that was posted last. segments: single ones that no call
    uses now, so that the common call makes none."""

    def __init__(
        self, owner: weakref.ref[Any], names: Names, life: Life, notifier: Any, timeout_s: float
    ) -> None:
        """owner: what requests keep alive until they are done: the communicator, which has
        this. notifier: for requests of which others are told."""
        self.names, self.life, self.notifier = names, life, notifier
        self.timeout_s = timeout_s
        self.lock = threading.RLock()
        self.sequence = 0
        self.segments: list[Any] = []
        self._owner = owner
        self._numbers = itertools.count(1)  # of requests
        self._failures: list[tuple[int, str, str]] = []  # of operations: number, where, text
        self._options: dict[tuple[int, int], Any] = {}

    def _gone(self, name: str) -> NoReturn:
        raise self.names.gone(name)

    @contextlib.contextmanager
    def entered(self, name: str) -> Iterator[int]:
        """The rp_comm, which is there until the end of the block. RedpollError: it is gone.
        name: what is done with it, for the error."""
        handle = self.life.enter() or self._gone(name)
        try:
            yield handle
        finally:
            self.life.leave()

    def next_posted(self, name: str, timeout_s: Optional[float]) -> Posted:
        """Of the operation that has just been posted, under the lock of posting."""
        self.sequence += 1
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        return _tuple(Posted, (name, self.sequence, limit_s))

    def post(
        self,
        operation: Operation,
        arguments: tuple[Any, ...],
        lent: Lent,
        blocking: bool,
        timeout_s: Optional[float],
    ) -> Work:
        """Start it with what its C function takes; wait for it when blocking."""
        if not profiling():
            return self._post_now(operation, arguments, lent, blocking, timeout_s)
        span = Span(operation.name, lent)
        if not blocking or lent.place is not None:
            return self._post_now(
                operation, arguments, span.ended_by(lent), blocking, timeout_s
            )
        try:
            return self._post_now(operation, arguments, lent, True, timeout_s)
        finally:
            span.end()

    def _post_now(
        self,
        operation: Operation,
        arguments: tuple[Any, ...],
        lent: Lent,
        blocking: bool,
        timeout_s: Optional[float],
    ) -> Work:
        communicator = self.life.enter() or self._gone(operation.name)
        work: Work
        try:
            if not blocking:
                handle, posted = self._start(
                    communicator, operation, arguments, lent, timeout_s
                )
                request = self._request(operation.name, handle, lent, timeout_s)
                return PendingWork((request,), lent.outputs, posted)
            _attend(communicator)
            try:
                handle, posted = self._start(
                    communicator, operation, arguments, lent, timeout_s
                )
                self._complete(operation.name, handle, lent, timeout_s)
            finally:
                _leave(communicator)
        finally:
            self.life.leave()
        work = completed(lent.outputs)
        work.posted = posted
        return work

    def _start(
        self,
        communicator: int,
        operation: Operation,
        arguments: tuple[Any, ...],
        lent: Lent,
        timeout_s: Optional[float],
    ) -> tuple[c_void_p, Posted]:
        name, start = operation
        out = c_void_p()
        try:
            with self.lock:
                code = start(communicator, *arguments, byref(out))
                posted = _REFUSED if code < 0 else self.next_posted(name, timeout_s)
        except BaseException:  # Ctrl-C: what was posted goes on, and keeps its tensors
            if out.value:
                self._request(name, out, lent, timeout_s)
            raise
        if code < 0:
            raise self._refusal(communicator, code, last_message(), name)
        return out, posted

    def _complete(
        self, name: str, handle: c_void_p, lent: Lent, timeout_s: Optional[float]
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
        _free(byref(handle))
        if code < 0:
            place = user_place()
            self.note_failure(next(self._numbers), name, place, message)
            raise self.names.error(code, message, name, place_text(place))
        if lent.finish is not None:
            lent.finish()

    def _request(
        self, name: str, handle: c_void_p, lent: Lent, timeout_s: Optional[float]
    ) -> Request:
        place = user_place(_OWN_FRAMES)
        request = Request(
            self, self._owner(), handle, next(self._numbers), name, place, lent, timeout_s
        )
        self.life.add(request)
        return request

    def cancel(self, address: int) -> None:
        """Abort the rp_comm, which ends every wait in C; from within its life."""
        reason = f"group '{self.names.name}' was destroyed"
        running = next((one for one in self.life.requests() if not one.done), None)
        if running is not None:
            where = place_text(running.place)
            reason += f" with {running.operation} (posted at {where}) in flight"
        _abi.rp_comm_abort(address, _abi.RP_CANCELLED, reason.encode())

    # ---- a group that has failed ----

    def note_failure(self, number: int, operation: str, place: Place, message: str) -> None:
        """Of an operation that had been posted; number: as of requests."""
        self._failures.append((number, f"{operation} ({place_text(place)})", message))

    def earlier_failure(self) -> str:
        """ "group '0' failed earlier at all_reduce (train.py:41): ...", of the first operation
        that did; empty while none has."""
        for request in self.life.requests():
            request.test()  # nobody may have asked yet
        if not self._failures:
            return ""
        _, where, message = min(self._failures)
        return f"group '{self.names.name}' failed earlier at {where}: {message}"

    def _refusal(self, communicator: int, code: int, message: str, name: str) -> RedpollError:
        """Of an operation that was not posted: for its arguments, or for what went before."""
        if code != _abi.RP_INVALID and _abi.rp_comm_status(communicator) < 0:
            place, earlier = user_place(), self.earlier_failure()
            if not earlier:  # another rank's, of which this is the first to hear
                self.note_failure(next(self._numbers), name, place, message)
            return self.names.error(code, earlier or message, name, place_text(place))
        return self.names.error(code, message, name)

    def plain_options(self, reduction: int, root: int, factor: float = 1.0) -> Any:
        """Options that are asked for again and again, made once."""
        if factor != 1.0:
            return library_options(reduction, factor, root)
        found = self._options.get((reduction, root))
        if found is None:
            found = library_options(reduction, 1.0, root)
            self._options[reduction, root] = found
        return found


class Operator(Protocol):
    """What operations are functions of: a communicator."""

    rank: int
    world: int
    checks: Checks
    poster: Poster
