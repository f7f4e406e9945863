"""Something of C that stands on a communicator, and goes before it.

    HELD --nobody holds it--> DROPPED --a thread waits for what is in flight--> GONE
      |                          |                                               ^
      `--------------------------`----- the communicator closes: release() ------'

People hold an `Attached`; what it stands for in C is a `CObject`, which the communicator holds
until it is gone. A finalizer waits for nobody: it asks for a thread, which enters the
communicator's life and destroys the object there, so that the rp_comm outlives it whoever
closes the group meanwhile. release() gives what is in flight its time, then aborts the rp_comm,
which ends every wait. What a thread is using, that thread destroys when it comes out."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Callable

from ...errors import last_message
from ._communicator import Communicator
from ._errors import RedpollError

_CANCEL_S = 1.0  # for waits that were aborted


class CObject:
    """An object of the library on a rp_comm. It does not hold the communicator, which holds it.

    address: null once it is destroyed. lock: around what it is used for."""

    def __init__(
        self,
        communicator: Communicator,
        address: ctypes.c_void_p,
        destroy: Callable[[Any], None],
        waits: Callable[[Any], bool],
        hurry: Callable[[Any], object],
        kept: Any,
    ) -> None:
        """waits: whether destroy() would wait for other ranks. hurry: ends what another thread
        waits for in it. kept: what the library borrows as long as the object lives."""
        self.lock = threading.RLock()
        self.address = address
        self._kept = kept
        self._life = communicator.poster.life
        self._cancel = communicator.poster.cancel
        self._holders = communicator.objects
        self._holders[self] = None
        self._destroy, self._waits, self._hurry = destroy, waits, hurry
        self._users: list[int] = []  # threads, under the lock
        self._is_condemned = False  # whoever uses it destroys it
        self._swap = threading.RLock()  # around `address`, for those without the lock
        self._gone = threading.Event()

    @contextmanager
    def used(self) -> Iterator[ctypes.c_void_p]:
        """By one thread at a time, from within the communicator's life."""
        with self.lock:
            self._users.append(get_ident())
            try:
                yield self.address
            finally:
                self._users.remove(get_ident())
                if self._is_condemned:
                    self._end()

    def tell(self, say: Callable[[Any], object]) -> None:
        """say(address), which never waits, while another thread may be using it."""
        with self._swap:
            if self.address:
                say(self.address)

    def close_dropped(self) -> None:
        """Of the notifier, once nobody holds it. RuntimeError: there can be no more threads,
        and it goes with the communicator."""
        threading.Thread(target=self._end_apart, name="redpoll drop", daemon=True).start()

    def release(self, drain_s: float) -> None:
        """Before the communicator goes: what is in flight has so long to end."""
        deadline = time.monotonic() + drain_s
        comm = self._life.enter()
        if not comm:
            return  # another thread has closed it
        try:
            if get_ident() in self._users:
                self._is_condemned = True  # a handler is on top of what uses it
            elif not self._has_ended_by(deadline):
                self._cancel(comm)
                self.end(_CANCEL_S)
        finally:
            self._life.leave()

    def _has_ended_by(self, deadline: float) -> bool:
        if self._is_in_flight():
            with contextlib.suppress(RuntimeError):
                self.close_dropped()
                self._gone.wait(max(deadline - time.monotonic(), 0.0))
        return not self._is_in_flight() and self.end(deadline - time.monotonic())

    def end(self, timeout_s: float) -> bool:
        """Destroyed now, or in so long by this thread; else by the one that uses it. From
        within the life."""
        if self._users:
            self.tell(self._hurry)
        self._is_condemned = True
        if not self.lock.acquire(timeout=max(timeout_s, 0.0)):
            return False
        try:
            self._end()
        finally:
            self.lock.release()
        return True

    def _is_in_flight(self) -> bool:
        """False, too, where a thread uses it, which knows when it is over."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            return bool(self.address) and self._waits(self.address)
        finally:
            self.lock.release()

    def _end_apart(self) -> None:
        if not self._life.enter():
            return  # it has gone with the communicator
        try:
            with self.lock:
                self._end()
        finally:
            self._life.leave()

    def _end(self) -> None:
        """Under the lock, from within the life."""
        if self._users:
            return
        with self._swap:
            address, self.address = self.address, ctypes.c_void_p()
        if address:
            self._destroy(address)
        self._kept = None
        self._holders.pop(self, None)
        self._gone.set()


class Attached:
    """A CObject, released with its communicator, or when nobody holds this. who: names it in
    errors."""

    def __init__(
        self,
        communicator: Communicator,
        who: str,
        create: Callable[[int, Any], int],
        destroy: Callable[[Any], None],
        kept: Any = None,
        waits: Callable[[Any], bool] = lambda _address: False,
        hurry: Callable[[Any], object] = lambda _address: None,
    ) -> None:
        """create: (rp_comm, byref of a handle) -> status. kept: what the library borrows for
        the object's life. waits: whether destroy() would wait for other ranks now. hurry: ends
        what a thread waits for in it."""
        self.communicator, self.who = communicator, who
        address = ctypes.c_void_p()
        with communicator.poster.entered(who) as comm:
            code = create(comm, ctypes.byref(address))
            if code >= 0:
                self._object = CObject(communicator, address, destroy, waits, hurry, kept)
        self.check(code)

    @property
    def address(self) -> ctypes.c_void_p:
        """Null once it is destroyed."""
        return self._object.address

    @contextmanager
    def used(self, posts: bool = True) -> Iterator[ctypes.c_void_p]:
        """By one thread at a time. posts: on the communicator, too."""
        with self.communicator.poster.entered(self.who), self._object.used() as address:
            if not address:
                raise self.communicator.names.gone(self.who)
            if not posts:
                yield address
                return
            with self.communicator.poster.lock:
                yield address

    def check(self, code: int) -> None:
        if code < 0:
            raise self.communicator.error(code, last_message(), self.who)

    def tell(self, say: Callable[[Any], object]) -> None:
        """say(address), which never waits, while another thread may be using it."""
        self._object.tell(say)

    def release(self, drain_s: float) -> None:
        """Destroyed now, or by the thread that uses it for longer than that."""
        with contextlib.suppress(RedpollError), self.communicator.poster.entered(self.who):
            self._object.end(drain_s + _CANCEL_S)

    def __del__(self) -> None:
        """May run inside any code, whatever lock that holds: takes none, and waits for
        nobody."""
        own = getattr(self, "_object", None)
        if own is not None and own.address and not self.communicator.closed:
            self.communicator.notifier.close_later(own)
