"""Communicators of those that are left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from ._communicator import Communicator
from ._errors import RedpollError


def left_of(communicator: Communicator, excluded: Optional[Iterable[int]]) -> Communicator:
    """Of its ranks those that are neither lost nor excluded; members: their ranks in it;
    before: this one's place in it. Collective over them."""
    leaving = sorted(set(excluded or ()))
    _check(communicator, leaving)
    left = _left_of(communicator, leaving)
    left.before = (communicator.rank, communicator.world)
    return left


def _left_of(communicator: Communicator, leaving: list[int]) -> Communicator:
    if not leaving or _has_lost(communicator):
        return communicator.survivors()
    staying = [rank for rank in range(communicator.world) if rank not in leaving]
    try:
        return communicator.subset(staying)
    except RedpollError as error:
        if error.status != "PEER":
            raise
        return communicator.survivors()


def _check(communicator: Communicator, leaving: list[int]) -> None:
    wrong = [rank for rank in leaving if not 0 <= rank < communicator.world]
    if wrong:
        communicator.checks.check_rank("shrink_group", wrong[0])
    if communicator.rank in leaving:
        communicator.checks.refuse(
            "shrink_group", f"rank {communicator.rank} is to be left out, and calls this"
        )


def _has_lost(communicator: Communicator) -> bool:
    try:
        communicator.check()
    except RedpollError as error:
        return error.status == "PEER"
    return False
