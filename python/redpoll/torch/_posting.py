"""Handing operations to the library, and waiting for those that block."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Optional

from .. import _abi
from ..errors import last_message
from ._buffers import Lent
from ._checks import Checks
from ._errors import user_place
from ._profiling import Span, profiling
from ._request import SLICE_S, Request
from ._work import PendingWork, Work, completed

_wait_for = _abi.rp_request_wait_for
_free = _abi.rp_request_free
_attend = _abi.rp_comm_attend
_leave = _abi.rp_comm_leave

_START = {name: getattr(_abi, f"rp_{name}_start") for name in _abi.COLLECTIVES}


class Posting(Checks):
    """The handle of a communicator and its requests.

    A call that blocks attends: the progress thread is left asleep, and one C call drives the
    transfer. It makes a Request only when it takes long, so that a short one costs little."""

    def __init__(self) -> None:
        self._handle = 0
        self._lock = threading.Lock()  # around the library's posting calls, and _handle
        self._requests: set[Request] = set()
        self._blocked: list[None] = []  # one for each thread that is in a call that blocks
        self._options: dict[tuple[int, int], Any] = {}

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
        if not blocking:
            return self._post_now(name, arguments, span.ended_by(lent), False, timeout_s)
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
        if not blocking:
            handle = self._start(name, arguments)
            return PendingWork((self._request(name, handle, lent, timeout_s),), lent[0])
        self._blocked.append(None)  # close() waits for this thread, from here on
        try:
            communicator = self._handle or self._gone(name)
            _attend(communicator)
            try:
                self._complete(name, self._start(name, arguments), lent, timeout_s)
            finally:
                _leave(communicator)
        finally:
            self._blocked.pop()
        return completed(lent[0])

    def _start(self, name: str, arguments: tuple[Any, ...]) -> ctypes.c_void_p:
        out = ctypes.c_void_p()
        with self._lock:
            communicator = self._handle or self._gone(name)
            code = _START[name](communicator, *arguments, ctypes.byref(out))
        if code < 0:
            raise self.error(code, last_message(), name)
        return out

    def _complete(
        self, name: str, handle: ctypes.c_void_p, lent: Lent, timeout_s: Optional[float]
    ) -> None:
        """Wait. What takes long, or is interrupted by Ctrl-C, goes on as a Request, which keeps
        its tensors."""
        if timeout_s is not None:
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
            raise self.error(code, message, name)
        if lent[2] is not None:
            lent[2]()

    def _request(
        self, name: str, handle: ctypes.c_void_p, lent: Lent, timeout_s: Optional[float]
    ) -> Request:
        outputs, keep, finish = lent
        request = Request(
            self, handle.value or 0, name, user_place(), outputs, keep, finish, timeout_s
        )
        self._requests.add(request)
        return request

    def forget_request(self, request: Request) -> None:
        """Of a request that is settled."""
        self._requests.discard(request)

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
    ) -> Any:
        return ctypes.pointer(
            _abi.rp_collective_options(
                algorithm=algorithm.encode() if algorithm else None,
                reduce=reduction,
                seed=seed,
                step=step,
                root=root,
                factor=factor,
            )
        )
