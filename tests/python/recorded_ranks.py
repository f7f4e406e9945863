"""Two ranks as threads, and what they say to each other over TCP or shared memory, recorded on
the way.

The store is one of ours: it hands rank 1 the address of a proxy in place of rank 0's."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import socket
import threading
import time
from typing import Any, Callable, Optional

from redpoll import _abi

WAIT_S = 20.0


class Wire:
    """A proxy of one connection: what the caller says, and what it is answered."""

    transport = b"tcp"
    address = re.compile(rb"tcp:127\.0\.0\.1:(\d+)")

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.called = bytearray()
        self.answered = bytearray()
        self._threads: list[threading.Thread] = []

    def lead(self, found: re.Match[bytes]) -> bytes:
        """To the address that was found; what stands for it."""
        self._start(self._accept, int(found[1]))
        return b"tcp:127.0.0.1:%d" % self.port

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


class ShmWire(Wire):
    """A proxy of the socket of a link of shared memory: it sees the memory, and all notes."""

    transport = b"shm"
    address = re.compile(rb"shm:([\w-]+)")

    def __init__(self) -> None:
        self._name = b"\0redpoll-recorded-%d-%x" % (os.getpid(), id(self))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._name)
        self._listener.listen()
        self.memory: Optional[mmap.mmap] = None
        self.notes: tuple[list[bytes], list[bytes]] = ([], [])  # of rank 0, of rank 1
        self.files: dict[bytes, mmap.mmap] = {}  # by the note that they came with
        self._threads = []

    def lead(self, found: re.Match[bytes]) -> bytes:
        self._start(self._accept_at, b"\0" + found[1])
        return b"shm:" + self._name[1:]

    def _accept_at(self, name: bytes) -> None:
        self._listener.settimeout(WAIT_S)
        caller = self._listener.accept()[0]
        called = socket.socket(socket.AF_UNIX)
        called.connect(name)
        self._start(self._relay, caller, called, 1)
        self._start(self._relay, called, caller, 0)

    def _relay(self, source: socket.socket, sink: socket.socket, rank: int) -> None:
        """A hello, a byte with descriptors, notes."""
        source.settimeout(WAIT_S)
        try:
            for size in (64, 1):
                data, files = self._take(source, size)
                if files and rank == 0:
                    self.memory = mmap.mmap(files[0], 0)
                self._give(sink, data, files)
            while True:
                data, files = self._take(source, 24)
                if files:
                    self.files[data] = mmap.mmap(files[0], 0)
                self.notes[rank].append(data)
                self._give(sink, data, files)
        except (EOFError, OSError):
            sink.close()

    @staticmethod
    def _take(source: socket.socket, size: int) -> tuple[bytes, list[int]]:
        data, files = b"", []
        while len(data) < size:
            piece, more, _, _ = socket.recv_fds(source, size - len(data), 4)
            if not piece:
                raise EOFError
            data, files = data + piece, files + more
        return data, files

    @staticmethod
    def _give(sink: socket.socket, data: bytes, files: list[int]) -> None:
        socket.send_fds(sink, [data], files)
        for each in files:
            os.close(each)


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
        found = self._wire.address.search(text)
        if re.search(rb"/address[^/]*/0$", key) and found:
            text = text.replace(found[0], self._wire.lead(found))
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
    run_over(wire, live, tls)
    return bytes(wire.called), bytes(wire.answered)


def run_over(
    wire: Wire,
    live: Callable[[ctypes.c_void_p, int], None],
    tls: bool,
    chunk_bytes: int = 16384,
) -> None:
    store = Store(wire)
    failures: list[Optional[BaseException]] = [None, None]

    def run(rank: int) -> None:
        comm = ctypes.c_void_p()
        options = _abi.rp_comm_options(
            name=b"recorded",
            transport=wire.transport,
            connect_timeout_s=WAIT_S,
            timeout_s=WAIT_S,
            chunk_bytes=chunk_bytes,
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
