"""A process group's c10d store as the library's store, and the interface that faces the others.

The group's own store is the only meeting point: no second port is opened. Any Store will do
(TCPStore, FileStore, HashStore, PrefixStore over them, or one written in Python).
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from pathlib import Path
from typing import Any, Callable, Optional

from ... import _abi
from ...errors import last_message
from ._launcher import LaunchWatch

_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.02
_PAGE_KEYS = 128  # of one question to the store
_ADDRESSES_BYTES = 256  # as many as the library takes
_SOMEWHERE_ELSE = ("192.0.2.1", 9)  # of a network that exists nowhere; nothing is sent


class JoinError(Exception):
    """The group cannot be joined; `code`: a status of the library."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class StoreBridge:
    """An rp_store over a c10d store.

    It must live as long as the communicator that was created from it. An exception in a
    callback becomes a status, and stays in `failure` for whoever raises in the end; a
    KeyboardInterrupt too, so that Ctrl-C ends a wait for ranks that do not arrive."""

    def __init__(self, store: Any, check: Optional[Callable[[], None]] = None) -> None:
        """check: asked while it waits; what it raises ends the wait."""
        self._check = check
        self.failure: Optional[BaseException] = None
        self._store = store
        self._ops = _abi.rp_store_ops(
            set=_abi.StoreSet(self._guard(self._set)),
            get=_abi.StoreGet(self._guard(self._get)),
            add=_abi.StoreAdd(self._guard(self._add)),
            remove=_abi.StoreRemove(self._guard(self._remove)),
            get_page=_abi.StoreGetPage(self._guard(self._get_page)),
            compare_set=_abi.StoreCompareSet(self._guard(self._compare_set)),
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
        if not wait_for_key(self._store, name, timeout_s, self._check):
            return _abi.RP_TIMEOUT
        found = self._store.get(name)
        size[0] = len(found)
        ctypes.memmove(value, found, min(len(found), capacity))
        return _abi.RP_OK

    def _get_page(
        self,
        prefix: bytes,
        first: int,
        count: int,
        timeout_s: float,
        values: int,
        capacity: int,
        sizes: Any,
        got: Any,
    ) -> int:
        keys = [f"{prefix.decode()}{first + i}" for i in range(min(count, _PAGE_KEYS))]
        if not wait_for_keys(self._store, keys, timeout_s, self._check):
            keys = keys[: _count_set(self._store, keys)]
            if not keys:
                return _abi.RP_TIMEOUT
        used = 0
        for i, value in enumerate(_values(self._store, keys)):
            if used + len(value) > capacity:
                break  # asked for again
            ctypes.memmove(values + used, value, len(value))
            used += len(value)
            sizes[i] = len(value)
            got[0] = i + 1
        return _abi.RP_OK

    def _add(self, key: bytes, amount: int, result: Any) -> int:
        result[0] = self._store.add(key.decode(), amount)
        return _abi.RP_OK

    def _compare_set(
        self,
        key: bytes,
        expected: int,
        expected_size: int,
        desired: int,
        desired_size: int,
        value: int,
        capacity: int,
        size: Any,
    ) -> int:
        """PyTorch's takes text, and of an absent key says what was expected."""
        held = self._store.compare_set(
            key.decode(),
            ctypes.string_at(expected, expected_size).decode() if expected_size else "",
            ctypes.string_at(desired, desired_size).decode() if desired_size else "",
        )
        size[0] = len(held)
        if value:
            ctypes.memmove(value, held, min(len(held), capacity))
        return _abi.RP_OK

    def _remove(self, key: bytes) -> int:
        try:
            self._store.delete_key(key.decode())
        except (NotImplementedError, RuntimeError):
            pass  # a store that cannot remove keeps a few bytes more
        return _abi.RP_OK


def wait_for_key(
    store: Any, key: str, timeout_s: float, check: Optional[Callable[[], None]] = None
) -> bool:
    """wait_for_keys() of one key."""
    return wait_for_keys(store, [key], timeout_s, check)


def wait_for_keys(
    store: Any, keys: list[str], timeout_s: float, check: Optional[Callable[[], None]] = None
) -> bool:
    """True as soon as the store has all keys, False when timeout_s is over. Asks again and
    again, every 20 ms at the longest: Store.wait() would hold the connection that other groups
    share, and would not answer Ctrl-C."""
    deadline = time.monotonic() + timeout_s
    pause = _FIRST_PAUSE_S
    while not store.check(keys):
        if check is not None:
            check()
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    return True


def bind_host(
    store: Any,
    rank: int,
    world: int,
    name: str,
    timeout_s: float,
    check: Optional[Callable[[], None]] = None,
) -> Optional[str]:
    """The address for links of a group to listen on; None: the loopback, all ranks of the group
    being on this host. Collective: they tell each other where they are, as no variable of a
    launcher knows which ranks a group is of; and what they call the group, as those that call
    it otherwise would look for each other in vain.

    REDPOLL_BIND wins; else it is what REDPOLL_SOCKET_IFNAME names, or the interface that faces
    the store's host. check: asked while it waits; what it raises ends the wait. JoinError names
    the ranks that did not come, or one that its launcher says has ended, or two with different
    names, or says that there is no such interface."""
    chosen = os.environ.get("REDPOLL_BIND", "")
    if store is None or world == 1:
        return chosen or None
    keys = _host_keys(world)
    store.set(keys[rank], f"{world} {host_identity()}\n{name}")
    if chosen:
        return chosen
    hosts = _hosts(store, keys, timeout_s, LaunchWatch(rank, world), check)
    if len(set(hosts)) <= 1:
        return None
    place = _store_place(store)
    facing = None if place is None else _facing(place)
    if facing is None or _is_loopback(facing):  # this host's own name often means its loopback
        facing = _facing(_SOMEWHERE_ELSE)
    if os.environ.get("REDPOLL_SOCKET_IFNAME"):
        return _named_interfaces(facing)
    if facing is None:
        raise JoinError(
            _abi.RP_IO,
            f"the group's ranks are on {len(set(hosts))} hosts, and no interface of this one "
            "faces the others; set REDPOLL_BIND to its address in their network, or "
            "REDPOLL_SOCKET_IFNAME to the interface's name",
        )
    return facing


def host_identity() -> str:
    """Equal where two processes reach each other through the loopback: the machine's boot, and
    the network namespace, which containers of one machine do not share."""
    parts = [socket.gethostname()]
    for read in (
        lambda: Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        lambda: os.readlink("/proc/self/ns/net"),
    ):
        try:
            parts.append(read())
        except OSError:
            pass  # not Linux: the name has to do
    return "/".join(parts if len(parts) == 1 else parts[1:])


def _hosts(
    store: Any,
    keys: list[str],
    timeout_s: float,
    launch: LaunchWatch,
    check: Optional[Callable[[], None]],
) -> list[str]:
    """Where each rank says it is; nothing where ranks disagree on the world, about which the
    library has words. JoinError: they disagree on the group's name."""
    world = len(keys)
    deadline = time.monotonic() + timeout_s
    pause = _FIRST_PAUSE_S
    while not store.check(keys):
        if time.monotonic() >= deadline:
            raise JoinError(_abi.RP_TIMEOUT, _missing(store, keys, timeout_s))
        if ended := launch.ended():
            raise JoinError(_abi.STATUS["PEER"], ended)
        if check is not None:
            check()
        if not _agree(_values(store, [key for key in keys[:2] if store.check([key])]), world):
            return []
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    said = _values(store, keys)
    if not _agree(said, world):
        return []
    wrong = _disagreement(dict(enumerate(said)))
    if wrong:
        raise JoinError(_abi.RP_MISMATCH, wrong)
    return [one.decode().partition("\n")[0].partition(" ")[2] for one in said]


def _host_keys(world: int) -> list[str]:
    return [f"redpoll/host/{one}" for one in range(world)]


def name_disagreement(store: Any, world: int) -> str:
    """What is wrong with the names of those that have come so far; "" when nothing is. Never
    waits."""
    here = {one: key for one, key in enumerate(_host_keys(world)) if store.check([key])}
    return _disagreement(dict(zip(here, _values(store, list(here.values())))))


def _disagreement(said: dict[int, bytes]) -> str:
    parts = {rank: one.decode().partition("\n") for rank, one in said.items()}
    names = {rank: name for rank, (_, told, name) in parts.items() if told}
    for rank, name in names.items():
        first = min(names)
        if name != names[first]:
            return (
                f"ranks disagree on the name of the group: rank {first} says "
                f"'{names[first]}', rank {rank} says '{name}'"
            )
    return ""


def _count_set(store: Any, keys: list[str]) -> int:
    """How many of the first keys are set, though not all: check() says of several only whether
    all are."""
    least, most = 0, len(keys) - 1
    while least < most:
        middle = (least + most + 1) // 2
        if store.check(keys[:middle]):
            least = middle
        else:
            most = middle - 1
    return least


def _values(store: Any, keys: list[str]) -> list[bytes]:
    if len(keys) > 1 and store.has_extended_api():
        return [bytes(value) for value in store.multi_get(keys)]
    return [bytes(store.get(key)) for key in keys]


def _agree(said: list[bytes], world: int) -> bool:
    return all(one.partition(b" ")[0] == str(world).encode() for one in said)


def _missing(store: Any, keys: list[str], timeout_s: float) -> str:
    late = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
    ranks = f"rank {late[0]}" if len(late) == 1 else f"ranks {', '.join(late)}"
    here = len(keys) - len(late)
    return (
        f"timed out: {ranks} did not arrive within {timeout_s:g} s: {here} of {len(keys)} "
        "ranks are here"
    )


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


def _store_place(store: Any) -> Optional[tuple[str, int]]:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if hasattr(store, "host") and hasattr(store, "port"):
        return store.host, store.port
    host = os.environ.get("MASTER_ADDR")
    return (host, int(os.environ.get("MASTER_PORT", "9"))) if host else None


def _named_interfaces(facing: Optional[str]) -> str:
    """Addresses of the interfaces that REDPOLL_SOCKET_IFNAME names, separated by commas."""
    addresses = ctypes.create_string_buffer(_ADDRESSES_BYTES)
    first = facing.encode() if facing else None
    code = _abi.rp_bind_addresses(first, addresses, len(addresses))
    if code < 0:
        raise JoinError(code, last_message())
    return addresses.value.decode()


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
