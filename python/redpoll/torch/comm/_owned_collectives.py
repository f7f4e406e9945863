"""Collectives of lists of segments that ranks own: functions of a communicator, which has them
as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import torch
import torch.distributed as dist

from ._buffers import Buffers
from ._collective_options import CollectiveKeywords, CollectiveOptions
from ._owned import OwnedRuns
from ._posting import Operator, operation_named
from ._work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack


def reduce_scatter_segments(
    communicator: Operator,
    output: torch.Tensor,
    input: torch.Tensor,
    runs: OwnedRuns,
    op: object = dist.ReduceOp.SUM,
    *,
    blocking: bool = False,
    timeout_s: Optional[float] = None,
    **keywords: Unpack[CollectiveKeywords],
) -> Work:
    """`output` gets the sum of everybody's `input`, as far as this rank owns runs of it.

    runs: where each lies in both, which are flat, and how it travels. Residuals are of what
    this rank sends: the sum of all results and of all residuals is that of all inputs.
    keywords: fields of CollectiveOptions."""
    communicator.checks.reduced(output, "reduce_scatter")
    options = CollectiveOptions(**keywords).reducing(op)
    buffers = communicator.checks.buffers("reduce_scatter")
    flat, own = buffers.read(input), buffers.written(output)
    return _post_runs(
        communicator,
        "reduce_scatter",
        (output, flat, own),
        runs,
        options,
        buffers,
        blocking,
        timeout_s,
    )


def all_gather_segments(
    communicator: Operator,
    output: torch.Tensor,
    input: torch.Tensor,
    runs: OwnedRuns,
    *,
    blocking: bool = False,
    timeout_s: Optional[float] = None,
    **keywords: Unpack[CollectiveKeywords],
) -> Work:
    """`output` of every rank gets the runs of all of them, of which `input` has this
    rank's; it may be a view of its part. What is lossy is encoded once, and has the same
    bits on all ranks. runs, keywords: as of reduce_scatter_segments()."""
    options = CollectiveOptions(**keywords).moving()
    buffers = communicator.checks.buffers("all_gather")
    own, flat = buffers.read(input), buffers.written(output)
    return _post_runs(
        communicator,
        "all_gather",
        (output, flat, own),
        runs,
        options,
        buffers,
        blocking,
        timeout_s,
    )


def _post_runs(
    communicator: Operator,
    operation: str,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    runs: OwnedRuns,
    options: Any,
    buffers: Buffers,
    blocking: bool,
    timeout_s: Optional[float],
) -> Work:
    """tensors: the output, and dense memory of all ranks' elements and of this one's."""
    output, flat, own = tensors
    if runs.flat_bytes > flat.nbytes or runs.own_bytes > own.nbytes:
        communicator.checks.refuse(
            operation,
            f"runs of {runs.flat_bytes} and {runs.own_bytes} bytes for buffers of "
            f"{flat.nbytes} and {own.nbytes}",
        )
    array = runs.placed(flat.data_ptr(), own.data_ptr(), buffers)
    arguments = (array, len(runs), buffers.options(options))
    lent = buffers.lent([output])
    return communicator.poster.post(
        operation_named(f"{operation}_segments"), arguments, lent, blocking, timeout_s
    )
