"""Which operations all ranks have asked for: the same answer on all of them.

Ranks may call operations in different orders. Each round every rank says what it has been
asked for since the last one, everybody hears everybody, and this table, of which each rank has
a copy, is fed the same words in the same order: so all ranks post the same operations in the
same order, without anybody who decides for them. Pure: nothing here communicates.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

JOIN = "join"
_REDUCED = ("allreduce", "barrier", JOIN)  # what goes on without a rank that has joined
_KEPT = 4096  # words that have a number, at most


@dataclass
class Word:
    """What one rank asks for.

    agreed: what must be equal on all ranks. own: what need not be (rows, splits)."""

    kind: str
    name: str
    agreed: list[Any]
    own: list[int]

    def text(self) -> str:
        return json.dumps([self.kind, self.name, self.agreed, self.own], separators=(",", ":"))


@dataclass
class Answer:
    """What to do now. name "": everybody has joined, `last` of them last."""

    name: str
    kind: str
    agreed: list[Any] = field(default_factory=list)
    owns: list[Optional[list[int]]] = field(default_factory=list)
    error: str = ""
    last: int = -1


class Table:
    """What is asked for and not answered."""

    def __init__(self, world: int) -> None:
        self._world = world
        self._asked: dict[str, dict[int, Word]] = {}
        self._joined: list[int] = []  # in the order of their joining
        self._numbers: dict[str, int] = {}
        self._words: list[str] = []

    def encode(self, words: Sequence[Word]) -> bytes:
        """One rank's part of a round: numbers for what has been answered before."""
        texts = [word.text() for word in words]
        items = [str(self._numbers[each]) if each in self._numbers else each for each in texts]
        return f"[{','.join(items)}]".encode()

    def take(self, parts: Sequence[bytes]) -> list[Answer]:
        """A round: every rank's part, by rank. What is to be done now, in order."""
        for rank, part in enumerate(parts):
            for item in json.loads(part):
                self._hear(rank, item)
        answers = [self._answer(name) for name in list(self._asked) if self._is_ready(name)]
        if len(self._joined) == self._world:
            answers.append(Answer("", JOIN, last=self._joined[-1]))
            self._joined.clear()
        return answers

    def waiting(self) -> dict[str, list[int]]:
        """By the name of what is asked for: the ranks that have not."""
        return {
            name: [rank for rank in range(self._world) if self._lacks(rank, words)]
            for name, words in self._asked.items()
        }

    def _hear(self, rank: int, item: Any) -> None:
        word = Word(*(json.loads(self._words[item]) if isinstance(item, int) else item))
        if word.kind == JOIN:
            self._joined.append(rank)
        else:
            self._asked.setdefault(word.name, {})[rank] = word

    def _lacks(self, rank: int, words: dict[int, Word]) -> bool:
        return rank not in words and rank not in self._joined

    def _is_ready(self, name: str) -> bool:
        words = self._asked[name]
        return not any(self._lacks(rank, words) for rank in range(self._world))

    def _answer(self, name: str) -> Answer:
        words = self._asked.pop(name)
        first = words[min(words)]
        owns = [words[rank].own if rank in words else None for rank in range(self._world)]
        error = self._disagreement(name, words)
        if not error:
            self._remember(words)
        return Answer(name, first.kind, first.agreed, owns, error)

    def _disagreement(self, name: str, words: dict[int, Word]) -> str:
        one = min(words)
        for rank, word in words.items():
            if word.agreed != words[one].agreed:
                theirs, ours = _differing(words[one], word)
                return f"{name}: ranks differ: rank {one} has {theirs} and rank {rank} {ours}"
        absent = sorted(set(range(self._world)) - set(words))
        if absent and words[one].kind not in _REDUCED:
            return (
                f"{name}: rank {absent[0]} has joined: {words[one].kind} needs all ranks; only "
                "allreduce and barrier go on without those that called join()"
            )
        return ""

    def _remember(self, words: dict[int, Word]) -> None:
        for rank in sorted(words):
            text = words[rank].text()
            if ".noname." in words[rank].name or text in self._numbers:
                continue
            if len(self._words) < _KEPT:
                self._numbers[text] = len(self._words)
                self._words.append(text)


def _differing(one: Word, other: Word) -> tuple[str, str]:
    """What they ask for, as far as it is not the same."""
    if len(one.agreed) != len(other.agreed):
        return f"{len(one.agreed)} tensors", str(len(other.agreed))
    pairs = [pair for pair in zip(one.agreed, other.agreed) if pair[0] != pair[1]]
    first, second = zip(*pairs)
    return ", ".join(map(str, first)), ", ".join(map(str, second))
