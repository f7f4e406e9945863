"""Two ranks as threads, and what they say to each other over TCP, recorded on the way.

The store is one of ours: it hands rank 1 the address of a proxy in place of rank 0's."""

from __future__ import annotations

import ctypes
import re
import socket
import threading
import time
from typing import Any, Callable, Optional

from redpoll import _abi

WAIT_S = 20.0


class Wire:
    """A proxy of one connection: what the caller says, and what it is answered."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.called = bytearray()
        self.answered = bytearray()
        self._threads: list[threading.Thread] = []

    def lead_to(self, port: int) -> None:
        self._start(self._accept, port)

    def _start(self, function: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=function, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self, port: int) -> None:
        self._listener.settimeout(WAIT_S)
        caller = self._listener.accept()[0]
        called = socket.create_connection(("127.0.0.1", port))
        self._start(self._pass_on, caller, called, self.called)
        self._start(self._pass_on, called, caller, self.answered)

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket, record: bytearray) -> None:
        source.settimeout(WAIT_S)
        try:
            while piece := source.recv(65536):
                record += piece
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the other side has gone first

    def end(self) -> None:
        for thread in self._threads:
            thread.join(WAIT_S)
        self._listener.close()


class Store:
    """A dictionary with the library's interface."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._values: dict[bytes, bytes] = {}
        self._changed = threading.Condition()
        self._ops = _abi.rp_store_ops(
            set=_abi.StoreSet(self._set),
            get=_abi.StoreGet(self._get),
            add=_abi.StoreAdd(self._add),
            remove=_abi.StoreRemove(self._remove),
        )
        self.structure = _abi.rp_store(ops=ctypes.pointer(self._ops), context=None)

    def _put(self, key: bytes, value: bytes) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def _set(self, _context: Any, key: bytes, value: int, size: int) -> int:
        text = ctypes.string_at(value, size)
        found = re.search(rb"tcp:127\.0\.0\.1:(\d+)", text)
        if re.search(rb"/address[^/]*/0$", key) and found:
            self._wire.lead_to(int(found[1]))
            text = text.replace(found[0], b"tcp:127.0.0.1:%d" % self._wire.port)
        self._put(key, text)
        return _abi.RP_OK

    def _get(
        self, _context: Any, key: bytes, wait_s: float, value: int, room: int, size: Any
    ) -> int:
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, max(0.0, wait_s)):
                return _abi.RP_TIMEOUT
            found = self._values[key]
        size[0] = len(found)
        if value:
            ctypes.memmove(value, found, min(len(found), room))
        return _abi.RP_OK

    def _add(self, _context: Any, key: bytes, amount: int, result: Any) -> int:
        with self._changed:
            old = self._values.get(key, bytes(8))
            result[0] = int.from_bytes(old, "little", signed=True) + amount
            self._values[key] = int(result[0]).to_bytes(8, "little", signed=True)
            self._changed.notify_all()
        return _abi.RP_OK

    def _remove(self, _context: Any, key: bytes) -> int:
        with self._changed:
            self._values.pop(key, None)
        return _abi.RP_OK


def check(code: int) -> None:
    if code < 0:
        raise RuntimeError(_abi.rp_last_error().contents.message.decode())


def wait(request: ctypes.c_void_p) -> None:
    code = _abi.RP_PENDING
    deadline = time.monotonic() + WAIT_S
    while code == _abi.RP_PENDING and time.monotonic() < deadline:
        code = _abi.rp_request_wait_for(request, 1.0)
    _abi.rp_request_free(ctypes.byref(request))
    check(code)
    assert code == _abi.RP_OK


def record(
    live: Callable[[ctypes.c_void_p, int], None], tls: bool = False
) -> tuple[bytes, bytes]:
    """Let two ranks live; what rank 1 said to rank 0, and rank 0 to rank 1."""
    wire = Wire()
    store = Store(wire)
    failures: list[Optional[BaseException]] = [None, None]

    def run(rank: int) -> None:
        comm = ctypes.c_void_p()
        options = _abi.rp_comm_options(
            name=b"recorded",
            transport=b"tcp",
            connect_timeout_s=WAIT_S,
            timeout_s=WAIT_S,
            chunk_bytes=16384,
            tls=tls,
        )
        try:
            made = _abi.rp_comm_create(
                ctypes.byref(store.structure),
                rank,
                2,
                ctypes.byref(options),
                ctypes.byref(comm),
            )
            check(made)
            live(comm, rank)
        except BaseException as failure:
            failures[rank] = failure
        finally:
            _abi.rp_comm_destroy(comm)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * WAIT_S)
    wire.end()
    for failure in failures:
        if failure is not None:
            raise failure
    return bytes(wire.called), bytes(wire.answered)
