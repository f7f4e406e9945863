"""REDPOLL_SUMMARY=1: what a training has sent and how much of it was exposed, said by rank 0 at
exit, and which rank the others waited for.

Every rank leaves its numbers of a group in that group's store when it leaves the group; rank 0
reads them at exit, and waits a moment for those that are late."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import time
import weakref
from typing import Any, NamedTuple

from ..comm._errors import RedpollError
from ..comm._store import wait_for_keys
from . import statistics

VARIABLE = "REDPOLL_SUMMARY"  # 0, empty: not asked
_KEY = "redpoll/summary"
_WAIT_S = 3.0  # for all groups and ranks together
_EVEN = 0.9  # the slowest rank is named where its part of the others' time is less
_LITTLE_S = 0.05  # or less than it by so much


class _Noted(NamedTuple):
    number: int  # of the communicator, in the order in which they were made
    store: Any
    stats: statistics.GroupStats


_noted: list[_Noted] = []
_watched: weakref.WeakSet[Watcher] = weakref.WeakSet()


class Watcher:
    """Of one communicator, which tells it when it is left."""

    def __init__(self, communicator: Any) -> None:
        self._communicator = weakref.ref(communicator)
        self._unsaid = [None]  # whoever pops it notes

    def release(self, _drain_s: float) -> None:
        communicator = self._communicator()
        if communicator is None:
            return
        try:
            self._unsaid.pop()
        except IndexError:
            return
        with contextlib.suppress(RedpollError):
            (stats,) = statistics.collect([communicator]).values()
            _note(communicator.number, communicator.store, stats)


def is_asked() -> bool:
    return os.environ.get(VARIABLE, "").strip() not in ("", "0")


def watch(communicator: Any) -> None:
    """Have this group in the summary."""
    watcher = Watcher(communicator)
    _watched.add(watcher)
    communicator.attach(watcher, keep=True)


def _note(number: int, store: Any, stats: statistics.GroupStats) -> None:
    if store is not None and stats.rank > 0:
        with contextlib.suppress(Exception):  # a store that is gone: rank 0 has left
            store.set(f"{_KEY}/{stats.rank}", json.dumps(stats.as_dict()))
    _noted.append(_Noted(number, store, stats))


def _say() -> None:
    """Before groups are closed that are still there."""
    for watcher in list(_watched):
        watcher.release(0.0)
    deadline = time.monotonic() + _WAIT_S
    noted, _noted[:] = sorted(_noted, key=lambda one: one.number), []
    for one in noted:
        if one.stats.rank == 0:
            told = _others(one, max(deadline - time.monotonic(), 0.0))
            print(text([one.stats.as_dict(), *told]), file=sys.stderr, flush=True)


def _others(own: _Noted, limit_s: float) -> list[dict[str, Any]]:
    """What the other ranks have left, as far as they have."""
    told: list[dict[str, Any]] = []
    if own.store is None:
        return told
    keys = [f"{_KEY}/{rank}" for rank in range(1, own.stats.world)]
    with contextlib.suppress(Exception):  # a store that is gone
        wait_for_keys(own.store, keys, limit_s)
        for key in keys:
            if own.store.check([key]):
                told.append(json.loads(own.store.get(key)))
                own.store.delete_key(key)
    return told


def text(ranks: list[dict[str, Any]]) -> str:
    """Of one group, by what its ranks have told; rank 0's comes first."""
    first = ranks[0]
    sent, values = (sum(one[name] for one in ranks) for name in _SENT)
    size = statistics.bytes_text
    ratio = f"ratio {values / sent:.2f}" if sent else "nothing encoded"
    exposed = max(one["exposed_s"] for one in ranks)
    steps = first["steps"]
    shown = f"{exposed:.3f} s exposed in {steps} steps" if steps else "exposed: not measured"
    waited = f"{first['wait_s']:.3f} s waited by rank 0"
    missing = first["world"] - len(ranks)
    head = f"redpoll: group {first['group']}"
    lines = [
        f"{head}, {first['world']} ranks: {size(sent)} sent for {size(values)} of values "
        f"({ratio}); {shown}; {waited}",
        f"{head}, slowest rank: {_slowest(ranks)}",
    ]
    if missing:
        lines.append(f"{head}: {missing} ranks have told nothing")
    return "\n".join(lines)


_SENT = ("wire_bytes_sent", "value_bytes_sent")


def _slowest(ranks: list[dict[str, Any]]) -> str:
    """Whoever comes last to operations has them in flight for the shortest time."""
    if len(ranks) < 2:
        return "unknown"
    last = min(ranks, key=lambda one: (one["busy_s"], one["rank"]))
    others = [one["busy_s"] for one in ranks if one is not last]
    mean = sum(others) / len(others)
    word = f"rank {last['rank']}"
    if mean - last["busy_s"] <= max(_LITTLE_S, (1 - _EVEN) * mean):
        return f"{word}, by little: operations were in flight equally long everywhere"
    return (
        f"{word}, for which the others waited: its operations were in flight for "
        f"{last['busy_s']:.3f} s, theirs for {mean:.3f} s"
    )


atexit.register(_say)
