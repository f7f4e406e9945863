"""Where the tensors of an FSDP unit lie in its flat buffers, and which of them travel alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ..codecs._buckets import held_dtype
from ..codecs._rules import Rules
from ..comm._codec import Codec


class Field(NamedTuple):
    """What a flat buffer holds from somewhere to somewhere."""

    numel: int
    name: str | None  # of the parameter; None: padding
    shape: torch.Size
    dtype: torch.dtype = torch.float32  # of what byte_spans() cuts


@dataclass
class Span:
    """A run of elements that travels alike: the block of each rank's part."""

    codec: Codec | None
    name: str  # of the tensor; of the first of several exact ones
    blocks: list[tuple[int, int]]  # for each rank: offset in the flat buffer, elements
    dtype: torch.dtype | None = None  # of the elements of a buffer of bytes; blocks are bytes

    def in_bytes(self, dtype: torch.dtype) -> tuple[torch.dtype, list[tuple[int, int]]]:
        """In a buffer of `dtype`: of what real type its elements are, and for each rank where
        they begin, in bytes, and how many they are."""
        real = held_dtype(dtype if self.dtype is None else self.dtype)
        if self.dtype is not None:
            return real, [(first, n // real.itemsize) for first, n in self.blocks]
        each = 2 if dtype.is_complex else 1
        return real, [(each * real.itemsize * first, each * n) for first, n in self.blocks]


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


def byte_spans(fields: Iterable[Field], world: int, rules: Rules, lenient: bool) -> list[Span]:
    """The same of a buffer of bytes, which has tensors of several types. Integers travel exact,
    and so do tensors that do not begin at a multiple of their elements in each row. lenient:
    types that the codec does not take, too."""
    fields = list(fields)
    row = sum(field.numel * field.dtype.itemsize for field in fields)
    spans: list[Span] = []
    offset = 0
    for field in fields:
        size, real = field.numel * field.dtype.itemsize, held_dtype(field.dtype)
        blocks = [(rank * row + offset, size) for rank in range(world)]
        codec = rules.codec_for(field.name or "", field.shape)
        is_whole = all(first % real.itemsize == 0 for first, _ in blocks)
        takes = codec is not None and (not lenient or codec.supports(real))
        lossy = codec if takes and is_whole and real.is_floating_point else None
        _add(
            spans, Span(lossy, field.name or "padding", blocks, real if lossy else torch.uint8)
        )
        offset += size
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
    codec = None if field.name is None else rules.codec_for(field.name, field.shape)
    _add(spans, Span(codec, field.name or "padding", blocks))


def _add(spans: list[Span], span: Span) -> None:
    """Exact neighbours are one."""
    if not any(count for _, count in span.blocks):
        return
    if span.codec is None and spans and spans[-1].codec is None:
        spans[-1].blocks = [_joined(*pair) for pair in zip(spans[-1].blocks, span.blocks)]
    else:
        spans.append(span)


def _joined(before: tuple[int, int], after: tuple[int, int]) -> tuple[int, int]:
    """Neighbours as one block; an empty one has no place of its own."""
    if before[1] == 0:
        return after
    return before[0], before[1] + after[1]
