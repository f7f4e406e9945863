"""What happened when, for chrome://tracing: <BLUEFOG_TIMELINE><rank>.json."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Optional, TextIO

log = logging.getLogger("bluefog")


class Timeline:
    """A process of the trace for each name of a tensor, numbered from 1. Its threads are those
    of the script, and one for what operations do meanwhile."""

    def __init__(self) -> None:
        self._file: Optional[TextIO] = None
        self._lock = threading.Lock()
        self._pids: dict[str, int] = {}
        self._tids: dict[Hashable, int] = {}
        self._open: dict[tuple[str, int], list[str]] = {}
        self._said = False

    def open(self, rank: int) -> None:
        prefix = os.environ.get("BLUEFOG_TIMELINE")
        if prefix:
            self._file = open(f"{prefix}{rank}.json", "w")  # noqa: SIM115  until close()
            self._file.write("[\n")

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def start(self, tensor_name: str, activity_name: str) -> bool:
        """False when there is no timeline."""
        return self._begin(tensor_name, activity_name, threading.get_ident())

    def end(self, tensor_name: str) -> bool:
        """Of the activity that this thread began last."""
        return self._end(tensor_name, threading.get_ident())

    @contextmanager
    def context(self, tensor_name: str, activity_name: str) -> Iterator[None]:
        self.start(tensor_name, activity_name)
        try:
            yield
        finally:
            self.end(tensor_name)

    def start_operation(self, tensor_name: str, operation: str, inner: str) -> None:
        """An operation was posted: `operation` as BlueFog writes it, as NEIGHBOR_ALLREDUCE."""
        if self.is_on:
            for activity in (f"ENQUEUE_{operation}", f"PROC_{operation}", f"MPI_{operation}"):
                self._begin(tensor_name, activity, "operations")
            self._begin(tensor_name, inner, "operations")

    def end_operation(self, tensor_name: str) -> None:
        """It is done."""
        if self.is_on:
            for _ in range(4):
                self._end(tensor_name, "operations")

    @contextmanager
    def operation(self, tensor_name: str, operation: str) -> Iterator[None]:
        """One that is done at the end of the block."""
        self.start_operation(tensor_name, operation, operation)
        try:
            yield
        finally:
            self.end_operation(tensor_name)

    @property
    def is_on(self) -> bool:
        return self._file is not None

    def _is_off(self) -> bool:
        if self._file is None and not self._said:
            self._said = True
            log.error("there is no timeline: set BLUEFOG_TIMELINE before bf.init()")
        return self._file is None

    def _begin(self, tensor_name: str, activity: str, thread: Hashable) -> bool:
        if self._is_off():
            return False
        with self._lock:
            pid, tid = self._place(tensor_name, thread)
            self._open.setdefault((tensor_name, tid), []).append(activity)
            self._event("B", activity, pid, tid)
        return True

    def _end(self, tensor_name: str, thread: Hashable) -> bool:
        if self._is_off():
            return False
        with self._lock:
            pid, tid = self._place(tensor_name, thread)
            running = self._open.get((tensor_name, tid))
            self._event("E", running.pop() if running else "", pid, tid)
        return True

    def _place(self, tensor_name: str, thread: Hashable) -> tuple[int, int]:
        tid = self._tids.setdefault(thread, len(self._tids) + 1)
        pid = self._pids.get(tensor_name)
        if pid is None:
            pid = self._pids[tensor_name] = len(self._pids) + 1
            named: dict[str, Any] = {"name": "process_name", "ph": "M", "pid": pid}
            self._write({**named, "args": {"name": tensor_name}})
            sorts = {"name": "process_sort_index", "args": {"sort_index": pid}}
            self._write({**named, **sorts})
        return pid, tid

    def _event(self, phase: str, activity: str, pid: int, tid: int) -> None:
        at = time.monotonic_ns() // 1000
        self._write({"ph": phase, "name": activity, "ts": at, "pid": pid, "tid": tid})

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(record) + ",\n")
            self._file.flush()
