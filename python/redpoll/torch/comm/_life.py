"""The life of a communicator's rp_comm: who may use it, and when it is destroyed.

              close(), exit            finish()            the last user leaves
        OPEN ---------------> LEAVING ----------> FINISHED --------------------> GONE
         |                       |                   |
         `-----------------------`-------------------`---> FORGOTTEN, in a fork's child

OPEN: any thread enters, uses the rp_comm, and leaves; a request counts from its posting until
it is freed. LEAVING: nobody enters any more. What is in flight gets its time; then the rp_comm
is aborted, which ends every wait in C, and what is left is settled, with that failure.
FINISHED: whoever is the last to leave destroys the rp_comm: as a rule close() itself, which
waits for the others; a thread that was late; or the code that a signal handler interrupted,
when it was the handler that closed. GONE: the communicator's notifier and its store are let go.
FORGOTTEN: only descriptors are closed; a destruction that another thread of the parent had
begun leaves even these.

So C never sees a request or a communicator that it has freed, and nothing of it waits longer
than close() says."""

from __future__ import annotations

import contextlib
import math
import time
from threading import Event, get_ident
from typing import Any, Callable

from ._errors import RedpollError
from ._shared import LASTING, Shared

_CANCEL_S = 1.0  # for aborted operations, and for the threads that wait in them
_SLICE_S = 0.05
_PAUSE_S = 0.001


class Life(Shared):
    """An rp_comm (address 0: none) and the requests on it that are not freed."""

    def __init__(self, address: int, destroy: Callable[[int], None]) -> None:
        """destroy: called once, when nobody uses it any more; must not raise."""
        super().__init__(address, self._end)
        self._destroy = destroy
        self._requests: dict[Any, None] = {}  # in the order of posting
        self._closer = 0  # the thread that closes
        self._drained = math.inf  # time.monotonic() at which what is in flight is aborted
        self._unclosed = [None]  # whoever pops it closes
        self._gone = Event()

    def add(self, request: Any) -> None:
        """From within enter() and leave(); until remove()."""
        self._users.append(LASTING)
        self._requests[request] = None

    def remove(self, request: Any) -> None:
        del self._requests[request]
        self._users.remove(LASTING)
        if self._finished:
            self._free_if_unused()

    def requests(self) -> list[Any]:
        """Those that are not freed, in the order of posting."""
        return list(self._requests)

    def close(self, drain_s: float, abort: Callable[[int], None]) -> None:
        """From OPEN to FINISHED, and to GONE unless somebody is in it still. What is in flight
        has drain_s seconds to end, then abort() is called. Another thread that closes is waited
        for, and has no more time than this one: the interpreter does not end below it."""
        self.shut()
        self._drained = min(self._drained, time.monotonic() + drain_s)
        try:
            self._unclosed.pop()
        except IndexError:
            if self._closer != get_ident():  # else we are in a handler on top of it
                self._gone.wait(drain_s + 2 * _CANCEL_S)
            return
        self._closer = get_ident()
        is_below = self.has_this() or any(one.is_looked_at() for one in self.requests())
        self._users.append(self._closer)
        try:
            self._settle(lambda: self._drained)
            if self._is_busy():
                abort(self._address)
                cancelled = time.monotonic() + _CANCEL_S
                self._settle(lambda: cancelled)
        finally:
            self.leave()
            self.finish()
        if not is_below:  # else the code that we interrupted destroys it
            self._gone.wait(_CANCEL_S)

    def forget(self) -> int:
        """In a forked child: the address to forget; 0: there is none, or not any more."""
        for request in self.requests():
            request.forget()
        self._requests.clear()
        return self.take()

    def _settle(self, deadline: Callable[[], float]) -> None:
        """Until requests are done and other threads have left, or the deadline, which may come
        nearer meanwhile."""
        for request in self.requests():
            while True:
                left = deadline() - time.monotonic()
                with contextlib.suppress(RedpollError):  # told to who waits for it
                    request.wait_for_all(min(max(left, 0.0), _SLICE_S))
                if request.done or left <= 0:
                    break
        while self._is_busy() and time.monotonic() < deadline():
            time.sleep(_PAUSE_S)

    def _is_busy(self) -> bool:
        return self.has_others() or any(one.is_in_use() for one in self.requests())

    def _end(self, address: int) -> None:
        try:
            if address:
                self._destroy(address)
        finally:
            self._gone.set()
