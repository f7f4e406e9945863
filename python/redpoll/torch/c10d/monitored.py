"""A barrier that names who is missing.

PyTorch's own is tied to gloo; this one uses nothing but the group's store, and so works for
groups of any backend and while the group itself is stuck.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Optional

import torch.distributed as dist
from torch.distributed import distributed_c10d

from ... import _abi
from ..comm._errors import RedpollError, place_text, user_place
from ..comm._store import wait_for_key

_PREFIX = "redpoll/monitored_barrier"
_EVERYBODY = "everybody"  # an outcome


def monitored_barrier(
    group: Any = None, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False
) -> None:
    """Return when all ranks of the group have called it; else raise on every rank that came.

    group: None for the default one; timeout: None for the group's own, as gloo's ranks wait.
    RedpollError (TIMEOUT) names the missing ranks by their rank in the group: all of them with
    wait_all_ranks, else the first. The group stays usable, and the next call is a new barrier
    on all ranks: one that comes too late for this one is told so in its own call. Blocks up to
    timeout and no longer, whoever dies meanwhile. Any group with a store; one thread at a
    time."""
    group = group if group is not None else distributed_c10d._get_default_group()
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0 or world == 1:
        return
    limit_s = (_timeout_of(group) if timeout is None else timeout).total_seconds()
    meeting = _Meeting(distributed_c10d._get_process_group_store(group), rank, world)
    missing = meeting.missing(limit_s)
    if missing:
        raise RedpollError(
            _abi.RP_TIMEOUT,
            _sentence(missing, rank, limit_s, wait_all_ranks),
            rank=rank,
            group=distributed_c10d._get_process_group_name(group),
            operation="monitored_barrier",
            posted_at=place_text(user_place()),
        )


def _timeout_of(group: Any) -> timedelta:
    """Of a group of ours; groups of C++ do not tell theirs."""
    communicator = getattr(group, "communicator", None)
    if communicator is None:
        return distributed_c10d.default_pg_timeout
    return timedelta(seconds=communicator.timeout_s)


def _sentence(missing: list[int], rank: int, limit_s: float, name_all: bool) -> str:
    if rank in missing:
        return (
            f"timed out: rank {rank} came after the others had waited {limit_s:g} s for it, "
            "and failed to pass the monitored barrier"
        )
    missing = missing if name_all else missing[:1]
    names = ", ".join(map(str, missing))
    word = "rank" if len(missing) == 1 else "ranks"
    return (
        f"timed out: {word} {names} did not arrive within {limit_s:g} s, and failed to pass "
        "the monitored barrier"
    )


class _Meeting:
    """One round. Its outcome, the missing ranks or everybody, is what somebody writes first."""

    def __init__(self, store: Any, rank: int, world: int) -> None:
        self._store, self._rank, self._world = store, rank, world
        self._round = store.add(f"{_PREFIX}/rounds/{rank}", 1)

    def missing(self, limit_s: float) -> list[int]:
        store, outcome = self._store, self._key("outcome")
        store.set(self._key(f"here/{self._rank}"), "")
        if store.add(self._key("count"), 1) == self._world:
            text = self._decide(_EVERYBODY)
        elif wait_for_key(store, outcome, limit_s):
            text = store.get(outcome).decode()
        else:
            away = [str(rank) for rank in range(self._world) if not self._is_here(rank)]
            text = self._decide(" ".join(away) or _EVERYBODY)
        self._leave()
        return [] if text == _EVERYBODY else [int(each) for each in text.split()]

    def _decide(self, text: str) -> str:
        """The outcome: this, or what somebody has decided before."""
        decided: bytes = self._store.compare_set(self._key("outcome"), "", text)
        return decided.decode()

    def _leave(self) -> None:
        """The last to read the outcome removes the round's keys."""
        if self._store.add(self._key("left"), 1) < self._world:
            return
        for subject in ["count", "outcome", "left"]:
            self._store.delete_key(self._key(subject))
        for rank in range(self._world):
            self._store.delete_key(self._key(f"here/{rank}"))

    def _is_here(self, rank: int) -> bool:
        return self._store.check([self._key(f"here/{rank}")])

    def _key(self, subject: str) -> str:
        return f"{_PREFIX}/{self._round}/{subject}"
