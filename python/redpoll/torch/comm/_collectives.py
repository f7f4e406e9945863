"""Collectives but for the all-reduce: functions of a communicator, which has them as methods.

Arguments are checked and lent to the library; results are the Work's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Union

import torch
import torch.distributed as dist

from ._buffers import Lent
from ._codec import Codec
from ._collective_options import CollectiveKeywords, CollectiveOptions, Tensors
from ._dtypes import reduction
from ._posting import Operator, operation_named
from ._work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

_BROADCAST = operation_named("broadcast")
_REDUCE = operation_named("reduce")
_GATHER = operation_named("gather")
_SCATTER = operation_named("scatter")
_ALL_TO_ALL = operation_named("all_to_all")
_BARRIER = operation_named("barrier")


def reduce_scatter(
    communicator: Operator,
    output: torch.Tensor,
    inputs: Union[torch.Tensor, Tensors],
    op: object = dist.ReduceOp.SUM,
    *,
    codec: Optional[Codec] = None,
    blocking: bool = False,
    timeout_s: Optional[float] = None,
    **keywords: Unpack[CollectiveKeywords],
) -> Work:
    """`output` gets the sum of everybody's part for this rank.

    inputs: one tensor of world times output's elements, or a list of `world` tensors, whose
    sizes may differ (the same on all ranks; empty ones are fine) and of which
    inputs[rank] has output's. They are only read; output may be a view of this rank's part.
    codec: as of all_reduce(), without error feedback. keywords: fields of
    CollectiveOptions."""
    dtype = communicator.checks.reduced(output, "reduce_scatter")
    options = CollectiveOptions(**keywords).reducing(op)
    code = codec.reference if codec is not None else None
    buffers = communicator.checks.buffers("reduce_scatter")
    out = buffers.written(output)
    if isinstance(inputs, torch.Tensor):
        communicator.checks.check_flat("reduce_scatter", inputs, output, "input")
        source = buffers.read(inputs)
        arguments: tuple[Any, ...] = (
            source.data_ptr(),
            out.data_ptr(),
            out.numel(),
            dtype,
            code,
            buffers.options(options),
        )
        name = "reduce_scatter"
    else:
        communicator.checks.check_list("reduce_scatter", inputs, output, "input")
        blocks = buffers.blocks(inputs, write=False)
        arguments = (blocks, out.data_ptr(), dtype, code, buffers.options(options))
        name = "reduce_scatter_v"
    return communicator.poster.post(
        operation_named(name), arguments, buffers.lent([output]), blocking, timeout_s
    )


def all_gather(
    communicator: Operator,
    outputs: Union[torch.Tensor, Tensors],
    input: torch.Tensor,
    *,
    codec: Optional[Codec] = None,
    blocking: bool = False,
    timeout_s: Optional[float] = None,
    **keywords: Unpack[CollectiveKeywords],
) -> Work:
    """Every rank's outputs get everybody's input.

    outputs: one tensor of world times input's elements, or a list of `world` tensors, whose
    sizes may differ (the same on all ranks) and of which outputs[rank] has input's. input
    may be a view of this rank's part. codec: None for bit-identical; a lossy one needs
    floats. keywords: fields of CollectiveOptions."""
    dtype = (
        communicator.checks.moved(input)
        if codec is None
        else communicator.checks.reduced(input, "all_gather")
    )
    options = CollectiveOptions(**keywords).moving()
    code = codec.reference if codec is not None else None
    buffers = communicator.checks.buffers("all_gather")
    source = buffers.read(input)
    if isinstance(outputs, torch.Tensor):
        communicator.checks.check_flat("all_gather", outputs, input, "output")
        out = buffers.written(outputs)
        arguments: tuple[Any, ...] = (
            source.data_ptr(),
            out.data_ptr(),
            source.numel(),
            dtype,
            code,
            buffers.options(options),
        )
        name, outputs = "all_gather", [outputs]
    else:
        communicator.checks.check_list("all_gather", outputs, input, "output")
        blocks = buffers.blocks(outputs, write=True)
        arguments = (source.data_ptr(), blocks, dtype, code, buffers.options(options))
        name = "all_gather_v"
    return communicator.poster.post(
        operation_named(name), arguments, buffers.lent(outputs), blocking, timeout_s
    )


def broadcast(
    communicator: Operator,
    tensor: torch.Tensor,
    root: int,
    *,
    blocking: bool = False,
    timeout_s: Optional[float] = None,
) -> Work:
    """`tensor` of every rank gets that of group rank `root`."""
    communicator.checks.check_rank("broadcast", root)
    buffers = communicator.checks.buffers("broadcast")
    dense = buffers.written(tensor, fill=communicator.rank == root)
    options = buffers.options(communicator.poster.plain_options(0, root))
    arguments = (dense.data_ptr(), dense.numel(), communicator.checks.moved(dense), options)
    return communicator.poster.post(
        _BROADCAST, arguments, buffers.lent([tensor]), blocking, timeout_s
    )


def reduce(
    communicator: Operator,
    tensor: torch.Tensor,
    root: int,
    op: object = dist.ReduceOp.SUM,
    *,
    blocking: bool = False,
    timeout_s: Optional[float] = None,
) -> Work:
    """`tensor` of group rank `root` gets the reduction of everybody's; others keep
    theirs."""
    communicator.checks.check_rank("reduce", root)
    number, factor = reduction(op)
    dtype = communicator.checks.reduced(tensor, "reduce")
    buffers = communicator.checks.buffers("reduce")
    at_root = communicator.rank == root
    dense = buffers.written(tensor, fill=True) if at_root else buffers.read(tensor)
    address = dense.data_ptr()
    options = buffers.options(communicator.poster.plain_options(number, root, factor))
    arguments = (address, address if at_root else None, dense.numel(), dtype, options)
    return communicator.poster.post(
        _REDUCE, arguments, buffers.lent([tensor]), blocking, timeout_s
    )


def gather(
    communicator: Operator,
    outputs: Optional[Tensors],
    input: torch.Tensor,
    root: int,
    *,
    blocking: bool = False,
    timeout_s: Optional[float] = None,
) -> Work:
    """outputs[r] of group rank `root` gets rank r's input. outputs: on the root a list of
    `world` tensors, of the sizes that ranks send; else None."""
    communicator.checks.check_rank("gather", root)
    buffers = communicator.checks.buffers("gather")
    source = buffers.read(input)
    blocks = None
    if communicator.rank == root:
        communicator.checks.check_list("gather", outputs or (), input, "output")
        blocks = buffers.blocks(outputs or (), write=True)
    options = buffers.options(communicator.poster.plain_options(0, root))
    arguments = (
        source.data_ptr(),
        source.numel(),
        blocks,
        communicator.checks.moved(source),
        options,
    )
    return communicator.poster.post(
        _GATHER, arguments, buffers.lent(outputs or ()), blocking, timeout_s
    )


def scatter(
    communicator: Operator,
    output: torch.Tensor,
    inputs: Optional[Tensors],
    root: int,
    *,
    blocking: bool = False,
    timeout_s: Optional[float] = None,
) -> Work:
    """`output` of rank r gets inputs[r] of group rank `root`. inputs: on the root a list of
    `world` tensors, else None."""
    communicator.checks.check_rank("scatter", root)
    buffers = communicator.checks.buffers("scatter")
    out = buffers.written(output)
    blocks = None
    if communicator.rank == root:
        communicator.checks.check_list("scatter", inputs or (), output, "input")
        blocks = buffers.blocks(inputs or (), write=False)
    options = buffers.options(communicator.poster.plain_options(0, root))
    arguments = (blocks, out.data_ptr(), out.numel(), communicator.checks.moved(out), options)
    return communicator.poster.post(
        _SCATTER, arguments, buffers.lent([output]), blocking, timeout_s
    )


def all_to_all(
    communicator: Operator,
    outputs: Tensors,
    inputs: Tensors,
    *,
    blocking: bool = False,
    timeout_s: Optional[float] = None,
) -> Work:
    """outputs[s] gets inputs[this rank] of rank s. `world` tensors each, of any sizes, as
    long as both ends of each pair agree; they may not overlap."""
    if not len(inputs) == len(outputs) == communicator.world:
        communicator.checks.refuse(
            "all_to_all",
            f"{len(inputs)} inputs and {len(outputs)} outputs; "
            f"the group has {communicator.world} ranks",
        )
    communicator.checks.same_dtype("all_to_all", inputs[0], *inputs, *outputs)
    buffers = communicator.checks.buffers("all_to_all")
    arguments = (
        buffers.blocks(inputs, write=False),
        buffers.blocks(outputs, write=True),
        communicator.checks.moved(inputs[0]),
        buffers.options(communicator.poster.plain_options(0, 0)),
    )
    return communicator.poster.post(
        _ALL_TO_ALL, arguments, buffers.lent(outputs), blocking, timeout_s
    )


def barrier(
    communicator: Operator, *, blocking: bool = False, timeout_s: Optional[float] = None
) -> Work:
    """Complete when all ranks have posted it."""
    return communicator.poster.post(_BARRIER, (), Lent((), (), None), blocking, timeout_s)
