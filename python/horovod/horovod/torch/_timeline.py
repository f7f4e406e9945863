"""What happened when, for chrome://tracing: HOROVOD_TIMELINE, written by rank 0."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any, Optional, TextIO

from ._handles import Operation


class Timeline:
    """A process of the trace for each operation's name. A file that is whole at any time but
    for its last bracket, which stop() writes."""

    def __init__(self) -> None:
        self._file: Optional[TextIO] = None
        self._lock = threading.Lock()
        self._pids: dict[str, int] = {}
        self._marks_cycles = self._is_first = False
        self._open: list[tuple[str, Operation]] = []

    def start(self, path: str, mark_cycles: bool) -> None:
        """Into a new file; again: the earlier one is finished. OSError: it cannot be
        written."""
        self.stop()
        with self._lock:
            self._file = open(path, "w")  # noqa: SIM115  until stop()
            self._file.write("[\n")
            self._pids, self._is_first, self._marks_cycles = {}, True, mark_cycles
            began = {"start_time_since_epoch_in_micros": time.time_ns() // 1000}
            self._write({"name": "clock", "ph": "M", "pid": 0, "args": began})

    def start_by_variable(self, rank: int) -> None:
        """As HOROVOD_TIMELINE asks; "DYNAMIC" there waits for start_timeline()."""
        path = os.environ.get("HOROVOD_TIMELINE", "")
        if path and path.upper() != "DYNAMIC" and rank == 0 and self._file is None:
            self.start(path, os.environ.get("HOROVOD_TIMELINE_MARK_CYCLES") == "1")

    def stop(self) -> None:
        self._look()
        with self._lock:
            if self._file is not None:
                self._file.write("\n]\n")
                self._file.close()
                self._file = None
            self._open.clear()

    def begin(self, name: str, activity: str) -> None:
        self._event("B", name, activity)

    def end(self, name: str) -> None:
        self._event("E", name, "")

    def end_when_done(self, name: str, operation: Operation) -> None:
        """When it is seen to be: at the next event, at the latest."""
        if self._file is not None:
            with self._lock:
                self._open.append((name, operation))

    def mark(self, activity: str) -> None:
        """A round of negotiation, if those are wanted."""
        self._look()
        if self._marks_cycles:
            self._event("i", "cycles", activity)

    def _look(self) -> None:
        with self._lock:
            done = [name for name, operation in self._open if operation.is_done()]
            self._open = [pair for pair in self._open if pair[0] not in done]
        for name in done:
            self.end(name)

    def _event(self, phase: str, name: str, activity: str) -> None:
        if self._file is None:
            return
        with self._lock:
            pid = self._pids.get(name)
            if pid is None:
                pid = self._pids[name] = len(self._pids) + 1
                named = {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}
                self._write(named)
            at = time.monotonic_ns() // 1000
            self._write({"ph": phase, "name": activity, "ts": at, "pid": pid, "tid": 0})

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(("" if self._is_first else ",\n") + json.dumps(record))
            self._is_first = False
            self._file.flush()
