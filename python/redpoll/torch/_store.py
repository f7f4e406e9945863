"""A process group's c10d store as the library's store, and the interface that faces the others.

The group's own store is the only meeting point: no second port is opened. Any Store will do
(TCPStore, FileStore, HashStore, PrefixStore over them, or one written in Python).
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from typing import Any, Callable, Optional

from .. import _abi

_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.02
_SOMEWHERE_ELSE = ("192.0.2.1", 9)  # of a network that exists nowhere; nothing is sent


class StoreBridge:
    """An rp_store over a c10d store.

    It must live as long as the communicator that was created from it. An exception in a
    callback becomes a status, and stays in `failure` for whoever raises in the end; a
    KeyboardInterrupt too, so that Ctrl-C ends a wait for ranks that do not arrive.

    is_over: asked while it waits; true ends the wait."""

    def __init__(self, store: Any, is_over: Callable[[], bool] = lambda: False) -> None:
        self.failure: Optional[BaseException] = None
        self._is_over = is_over
        self._store = store
        self._ops = _abi.rp_store_ops(
            set=_abi.StoreSet(self._guard(self._set)),
            get=_abi.StoreGet(self._guard(self._get)),
            add=_abi.StoreAdd(self._guard(self._add)),
            remove=_abi.StoreRemove(self._guard(self._remove)),
        )
        self.structure = _abi.rp_store(ops=ctypes.pointer(self._ops), context=None)

    def _guard(self, function: Callable[..., int]) -> Callable[..., int]:
        def guarded(_context: Any, *arguments: Any) -> int:
            try:
                return function(*arguments)
            except BaseException as error:  # must not unwind through C
                self.failure = error
                return _abi.RP_IO if isinstance(error, Exception) else _abi.RP_CANCELLED

        return guarded

    def _set(self, key: bytes, value: int, size: int) -> int:
        self._store.set(key.decode(), ctypes.string_at(value, size))
        return _abi.RP_OK

    def _get(self, key: bytes, timeout_s: float, value: int, capacity: int, size: Any) -> int:
        name = key.decode()
        if not wait_for_key(self._store, name, timeout_s, self._is_over):
            return _abi.RP_CANCELLED if self._is_over() else _abi.RP_TIMEOUT
        found = self._store.get(name)
        size[0] = len(found)
        ctypes.memmove(value, found, min(len(found), capacity))
        return _abi.RP_OK

    def _add(self, key: bytes, amount: int, result: Any) -> int:
        result[0] = self._store.add(key.decode(), amount)
        return _abi.RP_OK

    def _remove(self, key: bytes) -> int:
        try:
            self._store.delete_key(key.decode())
        except (NotImplementedError, RuntimeError):
            pass  # a store that cannot remove keeps a few bytes more
        return _abi.RP_OK


def wait_for_key(
    store: Any, key: str, timeout_s: float, is_over: Callable[[], bool] = lambda: False
) -> bool:
    """True as soon as the store has the key, False when timeout_s or it is over. Asks again and
    again, every 20 ms at the longest: Store.wait() would hold the connection that other groups
    share, and would not answer Ctrl-C."""
    deadline = time.monotonic() + timeout_s
    pause = _FIRST_PAUSE_S
    while not store.check([key]):
        left = deadline - time.monotonic()
        if left <= 0 or is_over():
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    return True


def bind_host(store: Any) -> Optional[str]:
    """The address for links to listen on; None: the loopback, all ranks being on this host.

    REDPOLL_BIND wins. Else ranks are on one host when the launcher says so (LOCAL_WORLD_SIZE is
    WORLD_SIZE) or the store is at a loopback address; else it is the interface that faces the
    store's host."""
    chosen = os.environ.get("REDPOLL_BIND", "")
    if chosen:
        return chosen
    world = os.environ.get("WORLD_SIZE")
    if world is not None and os.environ.get("LOCAL_WORLD_SIZE") == world:
        return None
    place = _store_place(store)
    if place is None or place[0] in ("localhost", "::1") or place[0].startswith("127."):
        return None
    facing = _facing(place)
    if facing is None or facing == "::1" or facing.startswith("127."):
        return _facing(_SOMEWHERE_ELSE)  # this host's own name often means its loopback
    return facing


def _store_place(store: Any) -> Optional[tuple[str, int]]:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if hasattr(store, "host") and hasattr(store, "port"):
        return store.host, store.port
    host = os.environ.get("MASTER_ADDR")
    return (host, int(os.environ.get("MASTER_PORT", "9"))) if host else None


def _facing(place: tuple[str, int]) -> Optional[str]:
    """The source address that the kernel would use towards `place`."""
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            *place, type=socket.SOCK_DGRAM
        ):
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                return probe.getsockname()[0]
    except OSError:
        pass
    return None
