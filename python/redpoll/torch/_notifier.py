"""The threads of the process that tell others of completed requests.

One sleeps in C until a request with a future (or one whose Work was dropped) is complete, and
settles it: copies results back, completes the future, whose callbacks run right there. A
callback may wait for the future of another operation, as PyTorch's PowerSGD hook does; so while
one thread settles, the next sleeps in C. As a rule there are two; there are more only while
several callbacks block. They start with the first such request and end with the last
communicator."""

from __future__ import annotations

import collections
import ctypes
import threading
from typing import Any, Optional

from .. import _abi
from ..errors import check

_BATCH = 64
_IDLE = 2  # so many threads without work stay


class _Notifier:
    def __init__(self) -> None:
        handle = ctypes.c_void_p()
        check(_abi.rp_completions_create(ctypes.byref(handle)))
        self._handle = handle.value
        self._lock = threading.Lock()  # around what follows
        self._waiting: dict[int, Any] = {}  # token -> request
        self._next_token = 1
        self._threads: set[threading.Thread] = set()
        self._idle = 0  # threads that lead, or wait to
        self._stopping = False
        self._lead = threading.Lock()  # held by the one thread that sleeps in C
        self._tokens: collections.deque[int] = collections.deque()  # of the leader
        with self._lock:
            self._start_thread()

    def watch(self, request: Any) -> None:
        with self._lock:
            token = self._next_token
            self._next_token += 1
            self._waiting[token] = request
        code = _abi.rp_request_notify(request.handle, self._handle, token)
        if code < 0:
            self._waiting.pop(token, None)
            check(code)

    def _start_thread(self) -> None:
        """Under the lock."""
        thread = threading.Thread(target=self._run, name="redpoll", daemon=True)
        self._threads.add(thread)
        self._idle += 1
        thread.start()

    def _run(self) -> None:
        while True:
            token = self._next()
            if token is None:
                break
            request = self._waiting.pop(token, None)
            if request is not None:
                request.settle_quietly()
                del request  # or its tensors would live until the next one
            with self._lock:
                if self._idle >= _IDLE:
                    self._threads.discard(threading.current_thread())
                    return
                self._idle += 1
        with self._lock:
            self._idle -= 1
            self._threads.discard(threading.current_thread())
            last = not self._threads
        if last:
            _abi.rp_completions_destroy(self._handle)

    def _next(self) -> Optional[int]:
        """The next token, with another thread to wait for the one after; None: it is over."""
        with self._lead:
            while not self._tokens:
                if self._stopping:
                    return None
                self._sleep()
            token = self._tokens.popleft()
        with self._lock:
            self._idle -= 1
            if self._idle == 0 and not self._stopping:
                self._start_thread()
        return token

    def _sleep(self) -> None:
        tokens = (ctypes.c_uint64 * _BATCH)()
        count = ctypes.c_size_t()
        _abi.rp_completions_wait(self._handle, -1.0, tokens, _BATCH, ctypes.byref(count))
        self._tokens.extend(tokens[: count.value])

    def stop(self) -> None:
        """The threads end, and the queue with them. No communicator may be alive."""
        with self._lock:
            self._stopping = True
            threads = list(self._threads)
        _abi.rp_completions_wake(self._handle)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()


_lock = threading.Lock()
_notifier: Optional[_Notifier] = None


def watch(request: Any) -> None:
    """Have a thread settle this request when it is complete. At most once a request; the
    request is kept alive until then. Never blocks."""
    global _notifier
    with _lock:
        if _notifier is None:
            _notifier = _Notifier()
        notifier = _notifier
    notifier.watch(request)


def stop() -> None:
    """End the threads, where there are any. Call it when no communicator is alive."""
    global _notifier
    with _lock:
        notifier, _notifier = _notifier, None
    if notifier is not None:
        notifier.stop()


def forget() -> None:
    """In a forked child, which has no such threads."""
    global _notifier, _lock
    _lock, _notifier = threading.Lock(), None
