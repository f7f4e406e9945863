"""Arguments are checked, the operation is handed to the engine of its process set; its handle.

Local; never blocks. What is wrong with arguments is a ValueError before anything is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

import torch

from ..common.process_sets import ProcessSet
from ._context import context
from ._engine import Engine
from ._handles import numbered
from ._requests import (
    Adasum,
    Average,
    Broadcast,
    Compressed,
    Exchange,
    Gathering,
    Meeting,
    Reduction,
    Request,
    Scale,
    Scattering,
    Sum,
)
from .compression import CodecCompressor

Tensors = list[torch.Tensor]


@dataclass
class Options:
    """Of a reduction. compression: one of Redpoll's, or any other, which has been applied."""

    scale: Scale
    process_set: ProcessSet
    compression: Any = None
    residuals: Optional[Tensors] = None  # of error feedback, one for each tensor


def find_scale(
    average: Optional[bool], op: Optional[int], before: float = 1.0, after: float = 1.0
) -> Scale:
    """ValueError: both are given, or there is no such op."""
    if average is not None and op is not None:
        raise ValueError("average and op say the same thing: give one of them")
    if op is None:
        op = Sum if average is False else Average
    if op == Adasum:
        raise ValueError(
            "op=hvd.Adasum is not supported: use hvd.Average with a learning rate for the "
            "larger batch, or redpoll.torch.DiLoCo for steps that ranks take alone"
        )
    if op not in range(6):
        raise ValueError(f"op is {op!r}; hvd.Average, Sum, Min, Max and Product are known")
    return Scale(op, float(before), float(after))


def _submit(engine: Engine, request: Request) -> int:
    return numbered(engine.submit(request))


def _single(tensors: Tensors, what: str) -> None:
    for each in tensors:
        if not isinstance(each, torch.Tensor):
            raise ValueError(f"{what}: a tensor is wanted, not {type(each).__name__}")
    if len({each.device.type for each in tensors}) > 1:
        raise RuntimeError(f"{what}: tensors of a group are all on the CPU or all on GPUs")


def all_reduce(
    tensors: Tensors,
    options: Options,
    name: Optional[str],
    in_place: bool = False,
    is_single: bool = False,
) -> int:
    """Result: the list of tensors, or is_single: the only one."""
    engine = context.engine_of(options.process_set)
    full = engine.full_name("allreduce", name)
    _single(tensors, full)
    if not in_place:
        tensors = [each.detach().clone() for each in tensors]
    compressed = _compressed(tensors, options)
    request = Reduction(full, tensors, options.scale, compressed, is_single)
    return _submit(engine, request)


def _compressed(tensors: Tensors, options: Options) -> Optional[Compressed]:
    """One codec for a request: all of its tensors are large enough, or none is compressed."""
    if not isinstance(options.compression, CodecCompressor):
        return None
    if options.scale.op not in (Average, Sum):
        return None
    codecs = [options.compression.codec_for(each) for each in tensors]
    if not all(codecs) or codecs[0] is None:
        return None
    return Compressed(codecs[0], options.residuals)


def all_gather(
    tensors: Tensors, process_set: ProcessSet, name: Optional[str], is_single: bool = False
) -> int:
    engine = context.engine_of(process_set)
    full = engine.full_name("allgather", name)
    _single(tensors, full)
    _check_dims(tensors, full)
    return _submit(engine, Gathering(full, tensors, is_single))


def _check_dims(tensors: Tensors, name: str) -> None:
    if any(not each.dim() for each in tensors):
        raise ValueError(f"{name}: a tensor has no dimension; view(1) has one")


def broadcast(
    tensor: torch.Tensor, root_rank: int, process_set: ProcessSet, name: Optional[str]
) -> int:
    """In place. root_rank: of the world."""
    engine = context.engine_of(process_set)
    full = engine.full_name("broadcast", name)
    _single([tensor], full)
    members = process_set.ranks or []
    if root_rank not in members:
        raise ValueError(f"{full}: root rank {root_rank} is none of the ranks {members}")
    return _submit(engine, Broadcast(full, tensor, members.index(root_rank)))


def all_to_all(
    tensor: torch.Tensor,
    splits: Any,
    process_set: ProcessSet,
    name: Optional[str],
    with_counts: bool = True,
) -> int:
    """Result: what came, and, with_counts, how many rows from each rank."""
    engine = context.engine_of(process_set)
    full = engine.full_name("alltoall", name)
    _single([tensor], full)
    _check_dims([tensor], full)
    own = _splits(splits, tensor.shape[0], engine.world, full)
    return _submit(engine, Exchange(full, tensor, own, with_counts))


def _splits(splits: Any, rows: int, world: int, name: str) -> list[int]:
    if splits is None or (isinstance(splits, torch.Tensor) and not splits.numel()):
        if rows % world:
            raise ValueError(f"{name}: {rows} rows do not divide by {world} ranks; give splits")
        return [rows // world] * world
    found = torch.as_tensor(splits)
    if found.dtype.is_floating_point or found.dtype == torch.bool or found.dim() != 1:
        raise ValueError(f"{name}: splits are one row of integers, not {found.dtype}")
    own = [int(each) for each in found.tolist()]
    if len(own) != world or min(own) < 0 or sum(own) > rows:
        raise ValueError(
            f"{name}: splits are {own}: {world} numbers of 0 or more are wanted, together at "
            f"most the tensor's {rows} rows"
        )
    return own


def reduce_scatter(
    tensors: Tensors, options: Options, name: Optional[str], is_single: bool = False
) -> int:
    engine = context.engine_of(options.process_set)
    full = engine.full_name("reducescatter", name)
    _single(tensors, full)
    _check_dims(tensors, full)
    if options.scale.op not in (Average, Sum):
        raise ValueError(f"{full}: hvd.Average and hvd.Sum can be scattered")
    codec = ""
    if isinstance(options.compression, CodecCompressor):
        codec = str(options.compression.codec)
        if not all(options.compression.codec.supports(each.dtype) for each in tensors):
            codec = ""
    return _submit(engine, Scattering(full, tensors, options.scale, codec, is_single))


def barrier(process_set: ProcessSet) -> int:
    engine = context.engine_of(process_set)
    return _submit(engine, Meeting("barrier", engine.full_name("barrier", None), [], []))


def join(process_set: ProcessSet) -> int:
    """Result: the rank that joined last."""
    return _submit(context.engine_of(process_set), Meeting("join", "join", [], []))
