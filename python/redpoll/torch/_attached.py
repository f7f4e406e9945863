"""Something of C that stands on a communicator, and goes with it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

from ..errors import last_message
from ._communicator import Communicator


class Attached:
    """Released with its communicator, or when nobody holds it. who: names it in errors."""

    def __init__(
        self,
        communicator: Communicator,
        who: str,
        create: Callable[[int, Any], int],
        destroy: Callable[[Any], None],
    ) -> None:
        """create: (rp_comm, byref of a handle) -> status."""
        self.communicator, self.who = communicator, who
        self.lock = threading.RLock()
        self.address = ctypes.c_void_p()
        self._destroy = destroy
        with communicator._entered(who) as comm:
            code = create(comm, ctypes.byref(self.address))
        self.check(code)
        communicator.attach(self)

    @contextmanager
    def used(self, posts: bool = True) -> Iterator[ctypes.c_void_p]:
        """By one thread at a time. posts: on the communicator, too."""
        with self.communicator._entered(self.who), self.lock:
            if not self.address:
                self.communicator._gone(self.who)
            if not posts:
                yield self.address
                return
            with self.communicator._lock:
                yield self.address

    def check(self, code: int) -> None:
        if code < 0:
            raise self.communicator.error(code, last_message(), self.who)

    def release(self, drain_s: float) -> None:
        """Before the communicator goes: what is in flight has so long to end."""
        if not self.lock.acquire(timeout=drain_s + 1.0):
            return  # somebody waits in it, and fails when the communicator goes
        try:
            with self.communicator._entered(self.who) as comm:
                self._drain(comm, drain_s)
                address, self.address = self.address, ctypes.c_void_p()
                self._destroy(address)
        finally:
            self.lock.release()

    def _drain(self, comm: int, drain_s: float) -> None:
        """Before it is destroyed."""

    def __del__(self) -> None:
        # Of a communicator that has gone without us nothing may be touched any more.
        if self.address and not self.communicator.closed:
            self._destroy(self.address)
