"""Where the tensors of an FSDP unit lie in its flat buffers, and which of them travel alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ..codecs._rules import Rules
from ..comm._codec import Codec


class Field(NamedTuple):
    """What a flat buffer holds from somewhere to somewhere."""

    numel: int
    name: str | None  # of the parameter; None: padding
    shape: torch.Size


@dataclass
class Span:
    """A run of elements that travels as one collective: the block of each rank's part."""

    codec: Codec | None
    name: str  # of the tensor; of the first of several exact ones
    blocks: list[tuple[int, int]]  # for each rank: offset in the flat buffer, elements

    def doubled(self) -> Span:
        """In a buffer that has two elements for each."""
        return Span(self.codec, self.name, [(2 * first, 2 * n) for first, n in self.blocks])


def row_spans(fields: Iterable[Field], world: int, rules: Rules) -> list[Span]:
    """Spans of FSDP2's layout: a row for each rank, in it a piece of every tensor. `fields`
    are those of one row."""
    fields = list(fields)
    row = sum(field.numel for field in fields)
    spans: list[Span] = []
    offset = 0
    for field in fields:
        blocks = [(rank * row + offset, field.numel) for rank in range(world)]
        _append(spans, field, blocks, rules)
        offset += field.numel
    return spans


def flat_spans(fields: Iterable[Field], total: int, world: int, rules: Rules) -> list[Span]:
    """Spans of FSDP1's layout: all tensors one behind the other, the whole cut into a shard of
    total / world elements a rank, wherever that falls. What no field covers is padding, to
    shards of one size. RuntimeError: the buffer is not of these fields."""
    fields = list(fields)
    known = sum(field.numel for field in fields)
    if not 0 <= total - known < world or total % world:
        raise RuntimeError(
            f"a flat gradient has {total} elements where its parameters, from "
            f"{fields[0].name if fields else 'none'!r} on, have {known} and {world} ranks a "
            "shard each; they cannot be told apart, and so not be compressed"
        )
    fields.append(Field(total - known, None, torch.Size()))
    shard = total // world
    spans: list[Span] = []
    first = 0
    for field in fields:
        last = first + field.numel
        edges = [(max(first, r * shard), min(last, (r + 1) * shard)) for r in range(world)]
        blocks = [(begin, max(0, end - begin)) for begin, end in edges]
        _append(spans, field, blocks, rules)
        first = last
    return spans


def _append(
    spans: list[Span], field: Field, blocks: list[tuple[int, int]], rules: Rules
) -> None:
    if field.numel == 0:
        return
    codec = None if field.name is None else rules.codec_for(field.name, field.shape)
    name = field.name or "padding"
    if codec is None and spans and spans[-1].codec is None:
        spans[-1].blocks = [_joined(*pair) for pair in zip(spans[-1].blocks, blocks)]
    else:
        spans.append(Span(codec, name, blocks))


def _joined(before: tuple[int, int], after: tuple[int, int]) -> tuple[int, int]:
    """Neighbours as one block; an empty one has no place of its own."""
    if before[1] == 0:
        return after
    return before[0], before[1] + after[1]
