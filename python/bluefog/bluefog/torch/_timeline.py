"""What happened when, for chrome://tracing: <BLUEFOG_TIMELINE><rank>.json."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional, TextIO

log = logging.getLogger("bluefog")


class Timeline:
    """A process of the trace for each name of a tensor, numbered from 1."""

    def __init__(self) -> None:
        self._file: Optional[TextIO] = None
        self._pids: dict[str, int] = {}
        self._open: dict[str, list[str]] = {}
        self._said = False

    def open(self, rank: int) -> None:
        prefix = os.environ.get("BLUEFOG_TIMELINE")
        if prefix:
            self._file = open(f"{prefix}{rank}.json", "w")  # noqa: SIM115  until close()
            self._file.write("[\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def start(self, tensor_name: str, activity_name: str) -> bool:
        """False when there is no timeline."""
        if self._is_off():
            return False
        self._open.setdefault(tensor_name, []).append(activity_name)
        self._event(tensor_name, "B", activity_name)
        return True

    def end(self, tensor_name: str) -> bool:
        """Of the activity that began last."""
        if self._is_off():
            return False
        running = self._open.get(tensor_name)
        self._event(tensor_name, "E", running.pop() if running else "")
        return True

    @contextmanager
    def context(self, tensor_name: str, activity_name: str) -> Iterator[None]:
        self.start(tensor_name, activity_name)
        try:
            yield
        finally:
            self.end(tensor_name)

    @property
    def is_on(self) -> bool:
        return self._file is not None

    def _is_off(self) -> bool:
        if self._file is None and not self._said:
            self._said = True
            log.error("there is no timeline: set BLUEFOG_TIMELINE before bf.init()")
        return self._file is None

    def _event(self, tensor_name: str, phase: str, activity: str) -> None:
        pid = self._pids.get(tensor_name)
        if pid is None:
            pid = self._pids[tensor_name] = len(self._pids) + 1
            named: dict[str, Any] = {"name": "process_name", "ph": "M", "pid": pid}
            self._write({**named, "args": {"name": tensor_name}})
            sorts = {"name": "process_sort_index", "args": {"sort_index": pid}}
            self._write({**named, **sorts})
        at = time.monotonic_ns() // 1000
        self._write({"ph": phase, "name": activity, "ts": at, "pid": pid})

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(record) + ",\n")
            self._file.flush()
