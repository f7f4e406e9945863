"""One operation in flight."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Callable, Optional

from .. import _abi
from ..errors import Error, last_message

if TYPE_CHECKING:
    from ._communicator import Communicator

_SLICE_S = 0.2  # waits come back to Python so often, so that Ctrl-C is answered


class Request:
    """Of wait=False. Its arrays belong to the operation until it is complete, and are held
    until somebody has waited for it or the communicator is closed. One thread waits for it."""

    def __init__(
        self,
        communicator: Communicator,
        address: Optional[int],
        keep: Any,
        finish: Callable[[], Any],
        operation: str,
    ) -> None:
        self._communicator, self._keep, self._finish = communicator, keep, finish
        self._address = ctypes.c_void_p(address)
        self._result: Any = None
        self.operation = operation

    def test(self) -> bool:
        """wait() would not block. Drives a little."""
        return not self._address or self._wait_for(0.0) != _abi.RP_PENDING

    def wait(self, timeout_s: Optional[float] = None) -> Any:
        """The operation's result. redpoll.errors.Error: it failed, on every rank; TIMEOUT: it
        is not complete after timeout_s, and goes on. ValueError: the communicator was
        closed."""
        if not self._address:
            return self._result
        left = float("inf") if timeout_s is None else timeout_s
        while True:
            code = self._wait_for(min(left, _SLICE_S))
            left -= _SLICE_S
            if code != _abi.RP_PENDING:
                break
            if left <= 0:
                raise Error(
                    _abi.RP_TIMEOUT,
                    f"{self.operation} timed out: not complete after {timeout_s:g} s; it goes "
                    "on and may be waited for again",
                )
        message = last_message() if code < 0 else ""
        _abi.rp_request_free(ctypes.byref(self._address))
        self._communicator.forget(self)
        keep, self._keep = self._keep, None
        if code < 0:
            raise Error(code, message)
        self._result = self._finish()
        del keep
        return self._result

    def _wait_for(self, seconds: float) -> int:
        self._communicator.check_open()
        return int(_abi.rp_request_wait_for(self._address, seconds))
