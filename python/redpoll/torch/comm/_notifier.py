"""The threads of the process that tell others of completed requests.

One sleeps in C until a request with a future (or one whose Work was dropped) is complete, and
settles it: copies results back, completes the future, whose callbacks run right there. A
callback may wait for the future of another operation, as PyTorch's PowerSGD hook does; so while
one thread settles, the next sleeps in C. As a rule there are one or two; there are more only
while several callbacks block.

The same thread takes the library's log (`_log.py`), which another one passes on.

They live from the first communicator to the last: each has a notifier from its creation until
its rp_comm is destroyed, so that no request meets one that ends. What finalizers call takes no
lock, and nothing here holds one while a thread starts: Python may collect garbage, and so run
anybody's finalizer, inside any of it."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import itertools
import threading
import time
from typing import Any, Optional

from ... import _abi
from ...errors import Error, check
from . import _log
from ._shared import Shared

_BATCH = 64
_IDLE = 2  # so many threads without work stay
_JOIN_S = 5.0  # at most, for callbacks that do not come back
_PAUSE_S = 0.001
_LOG = 0  # a token that is no request's


class Notifier:
    def __init__(self) -> None:
        handle = ctypes.c_void_p()
        check(_abi.rp_completions_create(ctypes.byref(handle)))
        _log.follow_level()
        check(_abi.rp_completions_keep_log(handle))
        self._queue = Shared(handle.value or 0, _abi.rp_completions_destroy)
        self._waiting: dict[int, Any] = {}  # token -> request
        self._numbers = itertools.count(1)
        self._abandoned: collections.deque[Any] = collections.deque()  # requests
        self._dropped: collections.deque[Any] = collections.deque()  # communicators
        self._threads: set[threading.Thread] = set()
        self._running: list[None] = []  # one for each thread, from before its start to its end
        self._idle: list[None] = []  # one for each that leads, or waits to, or will
        self._stopping = False
        self._lead = threading.Lock()  # held by the one thread that sleeps in C
        self._tokens: collections.deque[int] = collections.deque()  # of the leader
        self._reader = _log.LogReader()  # of the leader
        self._lines: collections.deque[tuple[int, str]] = collections.deque()

    def watch(self, request: Any) -> None:
        """Have a thread settle this request when it is complete. At most once a request, which
        is kept alive until then. Never blocks. The caller keeps the C request."""
        queue = self._queue.enter()
        if not queue:
            return  # no communicator is alive, and no request runs
        try:
            token = next(self._numbers)
            self._waiting[token] = request
            code = _abi.rp_request_notify(request.handle, queue, token)
            if code < 0:
                self._waiting.pop(token, None)
                check(code)
        finally:
            self._queue.leave()

    def watch_later(self, request: Any) -> None:
        """The same, by one of the threads. Of finalizers: takes no lock, and never raises."""
        self._abandoned.append(request)
        self._wake()

    def close_later(self, communicator: Any) -> None:
        """Nobody holds it any more: have it closed. Of finalizers, too."""
        self._dropped.append(communicator)
        self._wake()

    # ---- the threads ----

    def start_thread(self) -> None:
        """Raises RuntimeError when there can be no more threads."""
        thread = threading.Thread(target=self._run, name="redpoll", daemon=True)
        self._running.append(None)
        self._idle.append(None)
        try:
            thread.start()
        except BaseException:
            self._running.pop()
            self._idle.pop()
            raise

    def _run(self) -> None:
        self._threads.add(threading.current_thread())
        while True:
            token = self._next()
            if token is None:
                break
            if token == _LOG:
                self._pass_lines_on()
            request = self._waiting.pop(token, None)
            if request is not None:
                request.settle_quietly()
                del request  # or its tensors would live until the next one
            if len(self._idle) >= _IDLE:
                break
            self._idle.append(None)
        self._threads.discard(threading.current_thread())
        self._running.pop()
        if self._stopping and not self._running:
            self._queue.finish()

    def _next(self) -> Optional[int]:
        """The next token, with another thread to wait for the one after; None: it is over."""
        with self._lead:
            while not self._tokens:
                self._watch_abandoned()
                self._close_dropped()
                if self._stopping:
                    self._idle.pop()
                    return None
                self._sleep()
            token = self._tokens.popleft()
        self._idle.pop()
        if not self._idle and not self._stopping:
            try:
                self.start_thread()
            except RuntimeError:
                pass  # the interpreter ends: this thread goes on alone
        return token

    def _sleep(self) -> None:
        tokens = (ctypes.c_uint64 * _BATCH)()
        count = ctypes.c_size_t()
        queue = self._queue.enter()
        if not queue:
            return
        try:
            _abi.rp_completions_wait(queue, -1.0, tokens, _BATCH, ctypes.byref(count))
            self._lines.extend(self._reader.read(queue))
        finally:
            self._queue.leave()
        self._tokens.extend(tokens[: count.value])
        if self._lines:
            self._tokens.append(_LOG)

    def _pass_lines_on(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                _log.pass_on(*self._lines.popleft())

    def _watch_abandoned(self) -> None:
        while self._abandoned:
            with contextlib.suppress(Error):  # no memory: it is settled when its group ends
                self._abandoned.popleft().watch()

    def _close_dropped(self) -> None:
        while self._dropped:
            with contextlib.suppress(RuntimeError):  # the interpreter ends, and closes it
                self._dropped.popleft().close_dropped()

    def _wake(self) -> None:
        queue = self._queue.enter()
        if queue:
            try:
                _abi.rp_completions_wake(queue)
            finally:
                self._queue.leave()

    def stop(self) -> None:
        """The threads end, and the queue with them; whoever is in a callback that does not
        come back follows later. No communicator is alive, so nothing will be put. One of the
        threads waits for no other: what it is in the middle of may hold them up."""
        self._stopping = True
        self._wake()
        if threading.current_thread() not in self._threads:
            self._join(time.monotonic() + _JOIN_S)
        if not self._running:
            self._read_rest()
            self._queue.finish()
        self._pass_lines_on()

    def _read_rest(self) -> None:
        queue = self._queue.enter()
        if queue:
            try:
                self._lines.extend(self._reader.read(queue))
            finally:
                self._queue.leave()

    def _join(self, deadline: float) -> None:
        while self._running and time.monotonic() < deadline:
            for thread in list(self._threads):
                thread.join(max(deadline - time.monotonic(), 0.0))
            time.sleep(_PAUSE_S)


_lock = threading.RLock()  # around what follows
_notifier: Optional[Notifier] = None
_communicators = 0


def acquire() -> Notifier:
    """Of a new communicator, until its release()."""
    global _notifier, _communicators
    with _lock:
        _communicators += 1
        is_new = _notifier is None
        if _notifier is None:
            _notifier = Notifier()
        notifier = _notifier
    try:
        if is_new:
            notifier.start_thread()
    except BaseException:
        release()
        raise
    return notifier


def release() -> None:
    """Of a communicator whose rp_comm is destroyed. The last one ends the threads."""
    global _notifier, _communicators
    with _lock:
        _communicators -= 1
        if _communicators:
            return
        notifier, _notifier = _notifier, None
    if notifier is not None:
        notifier.stop()


def forget() -> None:
    """In a forked child, which has no such threads."""
    global _notifier, _lock, _communicators
    _lock, _notifier, _communicators = threading.RLock(), None, 0
