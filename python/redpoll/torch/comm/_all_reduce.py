"""The all-reduce: of one plain tensor at little cost, of many with codecs and residuals."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref
from typing import TYPE_CHECKING, Optional

import torch
import torch.distributed as dist

from ... import _abi
from ._buffers import Buffers, Lent, is_plain
from ._codec import Codec
from ._collective_options import Codecs, CollectiveKeywords, CollectiveOptions, Tensors
from ._dtypes import NUMBER, reduction
from ._posting import Operator, operation_named
from ._work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ALL_REDUCE = operation_named("all_reduce")


def all_reduce(
    communicator: Operator,
    tensors: Tensors,
    op: object = dist.ReduceOp.SUM,
    *,
    codecs: Optional[Sequence[Codecs]] = None,
    residuals: Optional[Sequence[Optional[torch.Tensor]]] = None,
    ids: Optional[Sequence[int]] = None,
    blocking: bool = False,
    timeout_s: Optional[float] = None,
    **keywords: Unpack[CollectiveKeywords],
) -> Work:
    """Reduce each tensor over all ranks, in place; bit-identical on all ranks.

    tensors: one operation for all of them, of any shapes and dtypes, equal on all ranks; to
    give parts of one flat tensor codecs of their own, pass narrow() views of it.
    op: a ReduceOp.
    codecs: for each tensor a Codec, None (exact), or a list of pieces (count, Codec or
    None) that add up to its elements and begin at granules. residuals: error feedback, for
    each tensor a dense float32 tensor of as many elements on the same device, or None; read
    and rewritten, it belongs to the operation until the Work is complete. ids: stable
    numbers of the tensors, with seed and step the keys of stochastic rounding; equal on all
    ranks. keywords: fields of CollectiveOptions. Outputs of the Work: the tensors."""
    if codecs is None and residuals is None and len(tensors) == 1 and is_plain(tensors[0]):
        if not keywords:
            return _reduce_one(communicator, tensors, *reduction(op), blocking, timeout_s)
    options = CollectiveOptions(**keywords).reducing(op)
    buffers = communicator.checks.buffers("all_reduce")
    runs: list[_abi.rp_segment] = []
    for i, tensor in enumerate(tensors):
        dense = buffers.written(tensor, fill=True)
        codec = codecs[i] if codecs is not None else None
        residual = residuals[i] if residuals is not None else None
        number_of_it = ids[i] if ids is not None else i
        runs.extend(runs_of(communicator, dense, codec, residual, number_of_it, buffers))
    segments = (_abi.rp_segment * max(len(runs), 1))(*runs)
    arguments = (segments, len(runs), buffers.options(options))
    return communicator.poster.post(
        _ALL_REDUCE, arguments, buffers.lent(tensors), blocking, timeout_s
    )


def _reduce_one(
    communicator: Operator,
    tensors: Tensors,
    number: int,
    factor: float,
    blocking: bool,
    timeout_s: Optional[float],
) -> Work:
    """The common case, without making structures anew."""
    tensor = tensors[0]
    poster = communicator.poster
    try:
        segment = poster.segments.pop()
    except IndexError:
        segment = _abi.rp_segment()
    segment.data = tensor.data_ptr()
    segment.count = tensor.numel()
    segment.dtype = NUMBER.get(tensor.dtype) or communicator.checks.reduced(
        tensor, "all_reduce"
    )
    arguments = (byref(segment), 1, poster.plain_options(number, 0, factor))
    lent = tuple.__new__(Lent, (tensors, tensors, None, None))  # in half the time
    work = poster.post(_ALL_REDUCE, arguments, lent, blocking, timeout_s)
    poster.segments.append(segment)
    return work


def runs_of(
    communicator: Operator,
    tensor: torch.Tensor,
    codec: Codecs,
    residual: Optional[torch.Tensor],
    tensor_id: int,
    buffers: Buffers,
) -> list[_abi.rp_segment]:
    """The segments of one dense tensor."""
    dtype, size = communicator.checks.reduced(tensor, "all_reduce"), tensor.element_size()
    data, feedback = tensor.data_ptr(), None
    if residual is not None:
        feedback = _residual(communicator, residual, tensor, buffers)
    pieces = codec if isinstance(codec, (list, tuple)) else [(tensor.numel(), codec)]
    runs, first = [], 0
    for count, one in pieces:
        run = _abi.rp_segment(data=data + first * size, count=count, dtype=dtype)
        run.tensor, run.first = tensor_id, first
        if isinstance(one, Codec):
            run.codec = one.structure
        if feedback is not None:
            run.residual = feedback + 4 * first
        runs.append(run)
        first += count
    if first != tensor.numel():
        communicator.checks.refuse(
            "all_reduce", f"pieces of {first} elements for {tensor.numel()}"
        )
    return runs


def _residual(
    communicator: Operator, residual: torch.Tensor, tensor: torch.Tensor, buffers: Buffers
) -> int:
    fits = residual.dtype == torch.float32 and residual.numel() == tensor.numel()
    if not (fits and residual.is_contiguous()):
        communicator.checks.refuse(
            "all_reduce",
            f"a residual must be a dense float32 tensor of {tensor.numel()} elements",
        )
    return buffers.written(residual, fill=True).data_ptr()
