"""Some of the ranks, to which an operation may be limited."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

__all__ = ["ProcessSet", "global_process_set"]


class ProcessSet:
    """Ranks of the world. Of use once hvd.init(process_sets=...) or hvd.add_process_set() has
    it: before, process_set_id is None and its methods raise ValueError.

    ranks: global ranks, in rising order; None: all, once that is known."""

    def __init__(self, ranks: Optional[Iterable[int]]) -> None:
        """Local. ValueError: a rank twice, or below 0."""
        self.ranks = None if ranks is None else sorted(int(each) for each in ranks)
        self.process_set_id: Optional[int] = None
        own = self.ranks or []
        if len(set(own)) != len(own) or any(each < 0 for each in own):
            raise ValueError(f"ranks of a process set are {own}: each once, from 0 on")
        self._rank: Optional[int] = None  # of this process, in the world

    def begin(self, number: int, ranks: list[int], rank: int) -> None:
        """Of the context: the set has been made. rank: of this process, in the world."""
        self.process_set_id, self.ranks, self._rank = number, ranks, rank

    def end(self) -> None:
        """Of the context: it is no more."""
        self.process_set_id = self._rank = None

    def _members(self) -> list[int]:
        if self.process_set_id is None or self.ranks is None:
            raise ValueError(
                "the process set is not in use: pass it to hvd.init(process_sets=[...]) or to "
                "hvd.add_process_set() first"
            )
        return self.ranks

    def size(self) -> int:
        """How many ranks it has."""
        return len(self._members())

    def included(self) -> bool:
        """This process is one of them."""
        return self._rank in self._members()

    def rank(self) -> int:
        """This process's place among them. ValueError: it is none of them."""
        members = self._members()
        if self._rank not in members:
            raise ValueError(f"rank {self._rank} is not in the process set of ranks {members}")
        return members.index(self._rank)

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


global_process_set = ProcessSet(None)
"""All ranks; the default of every operation."""
