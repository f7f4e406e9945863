"""The library's log as Python's: the logger "redpoll".

The library's threads must not call Python, which may hold locks that they are waited for: its
messages are kept in the notifier's queue, and one of the notifier's threads passes them on.
Where nobody has configured logging they go to standard error, as they do in C. REDPOLL_LOG, or
the logger's own level, says down to which the library speaks; warnings without either."""

from __future__ import annotations

import ctypes
import logging
import os
import sys

from ... import _abi

log = logging.getLogger("redpoll")

_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)  # by the library's
_NAMES = ("error", "warning", "info", "debug")
_PREFIXES = ("error: ", "warning: ", "", "")


def follow_level() -> None:
    """The library's level is the logger's, or this that of REDPOLL_LOG, which goes first."""
    named = os.environ.get("REDPOLL_LOG", "")
    if named in _NAMES:
        if log.level == logging.NOTSET:
            log.setLevel(_LEVELS[_NAMES.index(named)])
    elif log.level != logging.NOTSET:
        wanted = [i for i, level in enumerate(_LEVELS) if level >= log.level]
        _abi.rp_log_set_level(wanted[-1] if wanted else 0)


class LogReader:
    """Of a queue of completions that keeps the log. One thread at a time."""

    def __init__(self) -> None:
        self._level = ctypes.c_int()
        self._line = ctypes.create_string_buffer(_abi.RP_LOG_LINE)
        self._arguments = (ctypes.byref(self._level), self._line, _abi.RP_LOG_LINE)

    def read(self, queue: int) -> list[tuple[int, str]]:
        """What it has kept since: levels of the library, and lines."""
        found = []
        while _abi.rp_completions_take_line(queue, *self._arguments) == _abi.RP_OK:
            found.append((self._level.value, self._line.value.decode("utf-8", "replace")))
        return found


def pass_on(level: int, line: str) -> None:
    """To whoever listens."""
    if log.hasHandlers():
        log.log(_LEVELS[level], "%s", line)
    elif sys.stderr is not None:
        print(f"redpoll: {_PREFIXES[level]}{line}", file=sys.stderr, flush=True)
