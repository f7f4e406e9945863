"""Accounts of communication, a group: print(redpoll.torch.stats()) shows them as a table."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Union

from .._untraced import keep_untraced
from . import _exports

_lock = threading.RLock()  # a finalizer inside it may close a group, whose callbacks count


@dataclass(frozen=True)
class GroupStats:
    """Of one process group, seen from this rank, since its creation or the last reset."""

    group: str  # as people named it (new_group(group_desc=...)), else as PyTorch did
    rank: int
    world: int
    operations: int  # collectives and point-to-point operations posted here
    wire_bytes_sent: int  # frames and all
    wire_bytes_received: int
    value_bytes_sent: int  # what the same frames would have carried unencoded
    encode_s: float
    decode_s: float  # decoding and summing
    wait_s: float  # callers blocked in waits, and in synchronous calls
    busy_s: float  # at least one operation in flight
    exposed_s: float  # from a step's last bucket being ready to its result; of compress() only
    steps: int  # reductions of a whole model that exposed_s counts

    @property
    def ratio(self) -> float:
        """Bytes of values for each byte on the wire; 1.0 before anything was sent."""
        return self.value_bytes_sent / self.wire_bytes_sent if self.wire_bytes_sent else 1.0

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}

    def _since(self, earlier: GroupStats) -> GroupStats:
        changed = {name: getattr(self, name) - getattr(earlier, name) for name in _COUNTERS}
        return GroupStats(self.group, self.rank, self.world, **changed)


_COUNTERS = [one.name for one in fields(GroupStats)][3:]


class Stats(Mapping[str, GroupStats]):
    """GroupStats by the group's description, where people gave it one, or its name; in order of
    creation. Printing gives a table."""

    def __init__(self, groups: Mapping[str, GroupStats]) -> None:
        self._groups = dict(groups)

    def __getitem__(self, group: str) -> GroupStats:
        return self._groups[group]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Plain numbers, for JSON."""
        return {name: one.as_dict() for name, one in self._groups.items()}

    def scalars(self, prefix: str = "redpoll") -> dict[str, float]:
        """{"redpoll/mesh_dp/ratio": 7.9, ...}: for wandb.log(), Lightning's log_dict(), ..."""
        return _exports.scalars(self._groups, prefix)

    def to_tensorboard(self, writer: Any, step: int) -> None:
        """The same into a torch.utils.tensorboard.SummaryWriter, as of this step."""
        for name, value in self.scalars().items():
            writer.add_scalar(name, value, step)

    def prometheus(self) -> str:
        """Counters in the text format of Prometheus, labelled by group and rank: for a file
        of node_exporter's textfile collector, or a handler of one's own."""
        return _exports.prometheus(self._groups.values())

    def __str__(self) -> str:
        return _table(list(self._groups.values()))

    __repr__ = __str__


class _Account:
    """What the library cannot know of a communicator, and the last reset."""

    def __init__(self) -> None:
        self.exposed_s = 0.0
        self.steps = 0
        self.start: GroupStats | None = None


_accounts: weakref.WeakKeyDictionary[Any, _Account] = weakref.WeakKeyDictionary()


def _account(communicator: Any) -> _Account:
    account = _accounts.get(communicator)
    return _accounts.setdefault(communicator, _Account()) if account is None else account


def record_exposed(communicator: Any, seconds: float) -> None:
    """One step's last bucket was reduced `seconds` after it was ready. Any thread."""
    with _lock:
        account = _account(communicator)
        account.exposed_s += seconds
        account.steps += 1


def _now(communicator: Any) -> GroupStats:
    account, counted = _account(communicator), communicator.stats()
    known = {name: counted[name] for name in _COUNTERS if name in counted}
    known.update(exposed_s=account.exposed_s, steps=account.steps)
    return GroupStats(communicator.label, communicator.rank, communicator.world, **known)


def collect(communicators: Any) -> Stats:
    """The accounts of these communicators since their last reset."""
    groups: dict[str, GroupStats] = {}
    with _lock:
        for communicator in communicators:
            now, start = _now(communicator), _account(communicator).start
            if now.group in groups:  # of several that people call the same
                now = replace(now, group=f"{now.group} ({communicator.name})")
            groups[now.group] = now._since(start) if start else now
    return Stats(groups)


def reset(communicators: Any) -> None:
    """Count from now on."""
    with _lock:
        for communicator in communicators:
            _account(communicator).start = _now(communicator)


class _Stats:
    """`redpoll.torch.stats(group)`, and its reset()."""

    def __call__(self, group: Any = None) -> Stats:
        """The accounts of one process group, or of all Redpoll groups of this process, since
        their creation or the last reset, as this rank sees them. Local; never blocks.

        RedpollError: the group's CPU backend is not redpoll."""
        return collect(_of(group))

    def reset(self, group: Any = None) -> None:
        """Count from now on. Local."""
        reset(_of(group))

    def trace(self, path: Union[str, os.PathLike[str]]) -> _exports.Trace:
        """For torch.profiler: writes the trace into this file, with a counter of the bytes that
        each group has sent, beside the spans of its operations.

            with profile(on_trace_ready=redpoll.torch.stats.trace("trace.json")): ...

        Counts when an operation ends while a profiler runs, until its close()."""
        return _exports.Trace(path, self)


stats = _Stats()


def _of(group: Any) -> list[Any]:
    from ..comm._communicator import communicator_of, communicators

    return communicators() if group is None else [communicator_of(group)]


_COLUMNS = (
    "group",
    "rank",
    "operations",
    "sent",
    "received",
    "as values",
    "ratio",
    "encode s",
    "decode s",
    "wait s",
    "exposed s",
)


def _table(groups: list[GroupStats]) -> str:
    rows = [_COLUMNS, *map(_row, groups)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    )


def _row(one: GroupStats) -> tuple[str, ...]:
    return (
        one.group,
        f"{one.rank}/{one.world}",
        str(one.operations),
        bytes_text(one.wire_bytes_sent),
        bytes_text(one.wire_bytes_received),
        bytes_text(one.value_bytes_sent),
        f"{one.ratio:.2f}",
        f"{one.encode_s:.3f}",
        f"{one.decode_s:.3f}",
        f"{one.wait_s:.3f}",
        f"{one.exposed_s:.3f}" if one.steps else "-",
    )


def bytes_text(count: float) -> str:
    """12.3 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("not reached")


keep_untraced("redpoll")
