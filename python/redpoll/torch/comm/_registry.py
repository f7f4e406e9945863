"""The communicators of this process, in the order in which they were made."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

_live: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""By number: open, or not destroyed yet."""
_dropped: dict[int, Any] = {}  # those that nobody holds, until they are destroyed
_numbers = itertools.count(1)


def enrol(communicator: Any) -> int:
    """Its number, from 1 on: rising."""
    number = next(_numbers)
    _live[number] = communicator
    return number


def keep_dropped(communicator: Any) -> None:
    """Nobody holds it any more: held until it is destroyed. Of finalizers: takes no lock."""
    _dropped[communicator.number] = communicator


def strike(number: int) -> None:
    """It is destroyed."""
    _live.pop(number, None)
    _dropped.pop(number, None)


def strike_all() -> None:
    """In a fork's child."""
    _live.clear()
    _dropped.clear()


def open_and_held() -> list[Any]:
    """Oldest first."""
    return [one for one in _held() if not one.closed and one.number not in _dropped]


def undestroyed() -> list[Any]:
    found = {one.number: one for one in (*_held(), *list(_dropped.values()))}
    return [found[number] for number in sorted(found)]


def are_dropped() -> bool:
    """There are some that nobody holds, and that are not destroyed yet."""
    return bool(_dropped)


def _held() -> list[Any]:
    found = [reference() for reference in _live.valuerefs()]
    return [one for one in found if one is not None]
