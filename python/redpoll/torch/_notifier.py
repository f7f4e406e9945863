"""The one thread of the process that tells others of completed requests.

It sleeps in C until a request with a future (or one whose Work was dropped) is complete, then
settles it: copies results back, completes the future. It starts with the first such request and
ends with the last communicator."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Optional

from .. import _abi
from ..errors import check

_BATCH = 64


class _Notifier:
    def __init__(self) -> None:
        handle = ctypes.c_void_p()
        check(_abi.rp_completions_create(ctypes.byref(handle)))
        self._handle = handle.value
        self._lock = threading.Lock()
        self._waiting: dict[int, Any] = {}  # token -> request
        self._next_token = 1
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="redpoll", daemon=True)
        self._thread.start()

    def watch(self, request: Any) -> None:
        with self._lock:
            token = self._next_token
            self._next_token += 1
            self._waiting[token] = request
        code = _abi.rp_request_notify(request.handle, self._handle, token)
        if code < 0:
            self._waiting.pop(token, None)
            check(code)

    def _run(self) -> None:
        tokens = (ctypes.c_uint64 * _BATCH)()
        count = ctypes.c_size_t()
        while not self._stopping:
            _abi.rp_completions_wait(self._handle, -1.0, tokens, _BATCH, ctypes.byref(count))
            for token in tokens[: count.value]:
                request = self._waiting.pop(token, None)
                if request is not None:
                    request.settle_quietly()
                    del request  # or its tensors would live until the next one
        _abi.rp_completions_destroy(self._handle)

    def stop(self) -> None:
        """The thread ends, and the queue with it. No communicator may be alive."""
        self._stopping = True
        _abi.rp_completions_wake(self._handle)
        if threading.current_thread() is not self._thread:
            self._thread.join()


_lock = threading.Lock()
_notifier: Optional[_Notifier] = None


def watch(request: Any) -> None:
    """Have the thread settle this request when it is complete. At most once a request; the
    request is kept alive until then. Never blocks."""
    global _notifier
    with _lock:
        if _notifier is None:
            _notifier = _Notifier()
        notifier = _notifier
    notifier.watch(request)


def stop() -> None:
    """End the thread, where there is one. Call it when no communicator is alive."""
    global _notifier
    with _lock:
        notifier, _notifier = _notifier, None
    if notifier is not None:
        notifier.stop()


def forget() -> None:
    """In a forked child, which has no such thread."""
    global _notifier, _lock
    _lock, _notifier = threading.Lock(), None
