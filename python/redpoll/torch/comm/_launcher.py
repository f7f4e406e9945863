"""What `redpoll run` and a rank that it has started say to each other.

By the rank's environment and a pipe: may it be started again, and how far is one that was? And
by keys of the launcher's own store, which is not the process group's:

    redpoll/returns/fate/N   the launcher: what becomes of rank N, which has ended: "again": it
                             is started again; anything else: it stays away
    redpoll/returns/over     rank 0: the run is over; nobody is started again
    redpoll/launch/ended     the launcher: the first rank that has ended for good, and how

The same as src/train/return_requests.h and src/net/world/launch_watch.h."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import time
from collections.abc import Iterable, Iterator
from typing import Callable, Optional

from ... import _abi

_KEYS = "redpoll/returns/"
_ENDED = "redpoll/launch/ended"
_CONNECT_S, _LOOK_S = 1.0, 0.5
_VALUE_BYTES = 512

Ask = Callable[[str], Optional[str]]


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else 0


def may_come_back() -> bool:
    """Does the launcher start ranks again?"""
    return _number("REDPOLL_RESTART") > 0


def is_started_again() -> bool:
    """Was this process started in the place of a rank that had ended?"""
    return _number("REDPOLL_GENERATION") > 0


def is_of_launcher(rank: int, world: int) -> bool:
    """Is this rank's place in a group of so many the one that the launcher has given it? Its
    children have its environment, and make groups of their own."""
    own = tuple(os.environ.get(variable, "") for variable in ("RANK", "WORLD_SIZE"))
    return bool(os.environ.get("REDPOLL_STORE")) and own == (str(rank), str(world))


def tell_launcher(word: bytes) -> None:
    """How far a rank that was started again is: b"w": it waits for the others to take it back,
    and is told to end when they have ended; b"b": it is back, or never was away."""
    pipe, _, inode = os.environ.get("REDPOLL_RETURN_PIPE", "").partition(":")
    with contextlib.suppress(OSError, ValueError):
        facts = os.fstat(int(pipe))  # of a child it may be another file
        if stat.S_ISFIFO(facts.st_mode) and facts.st_ino == int(inode):
            os.write(int(pipe), word)


def fates(ranks: Iterable[int]) -> dict[int, str]:
    """Of those that the launcher has said something of: "again", or that they stay away. A
    store that does not answer says nothing."""
    found: dict[int, str] = {}
    with _store() as store:
        for rank in ranks:
            text = _get(store, f"{_KEYS}fate/{rank}") if store is not None else None
            if text is not None:
                found[rank] = text
    return found


class LaunchWatch:
    """Of ranks that wait for each other: has one of them ended for good?"""

    def __init__(self, rank: int, world: int) -> None:
        """As of a group. Where its ranks are not those of a launch, none has."""
        self._is_on = is_of_launcher(rank, world)
        self._next = time.monotonic() + _LOOK_S

    def ended(self) -> str:
        """In a sentence; "": no. Asks twice a second at most."""
        now = time.monotonic()
        if not self._is_on or now < self._next:
            return ""
        self._next = now + _LOOK_S
        with _store() as store:
            text = _get(store, _ENDED) if store is not None else None
        if text is None:
            return ""
        return (
            f"rank {text}, and the ranks cannot connect without it (connection closed by peer)"
        )


def say_over() -> None:
    """The ranks have done their work."""
    with _store() as store:
        if store is not None:
            store.ops.contents.set(store.context, f"{_KEYS}over".encode(), b"over", 4)


@contextlib.contextmanager
def _store() -> Iterator[Optional[_abi.rp_store]]:
    """The launcher's; None: there is none, or it does not answer."""
    host, _, port = os.environ.get("REDPOLL_STORE", "").rpartition(":")
    store = _abi.rp_store()
    place = host.strip("[]").encode()
    is_there = bool(host) and port.isdigit()
    if not is_there or _abi.rp_store_connect(place, int(port), _CONNECT_S, store) < 0:
        yield None
        return
    try:
        yield store
    finally:
        _abi.rp_store_close(store)


def _get(store: _abi.rp_store, key: str) -> Optional[str]:
    value, size = ctypes.create_string_buffer(_VALUE_BYTES), ctypes.c_size_t()
    code = store.ops.contents.get(
        store.context, key.encode(), 0.0, value, len(value), ctypes.byref(size)
    )
    return value.raw[: min(size.value, len(value))].decode() if code == _abi.RP_OK else None
