"""Something of C that several threads use, and that is freed when nobody does any more.

Users come and go without a lock: a list's append, remove and pop are atomic. So a finalizer or
a signal handler may be a user too, whatever the code that it interrupted was doing."""

from __future__ import annotations

from threading import get_ident
from typing import Callable

LASTING = 0
"""A user that is no thread: of a subclass, where it comes from within enter() and leave()."""


class Shared:
    """address: of what is shared. free: called with it once, by the last user after finish()
    or by finish() itself; must not raise."""

    def __init__(self, address: int, free: Callable[[int], None]) -> None:
        self._address = address
        self._free = free
        self._users: list[int] = []
        self.is_open = True
        self._finished = False
        self._once = [None]  # whoever pops it frees

    def enter(self) -> int:
        """The address, for this thread until its leave(); 0, without a leave(), when it is
        shut. Enter first and look then: whoever shuts looks at the users afterwards."""
        self._users.append(get_ident())
        if self.is_open:
            return self._address
        self.leave()
        return 0

    def leave(self) -> None:
        self._users.remove(get_ident())
        if self._finished:
            self._free_if_unused()

    def shut(self) -> None:
        """Nobody enters from now on; who is in goes on."""
        self.is_open = False

    def finish(self) -> None:
        """Freed now, or by the last user."""
        self.is_open = False
        self._finished = True
        self._free_if_unused()

    def has_others(self) -> bool:
        """Threads apart from this one."""
        apart = (get_ident(), LASTING)
        return any(user not in apart for user in list(self._users))

    def has_this(self) -> bool:
        """This thread is in: a handler runs on top of it."""
        return get_ident() in self._users

    def take(self) -> int:
        """The address, which will not be freed here any more; 0: it is, or is about to be."""
        self.is_open = False
        try:
            self._once.pop()
        except IndexError:
            return 0
        return self._address

    def _free_if_unused(self) -> None:
        if self._users:
            return
        address = self.take()
        if address:
            self._free(address)
