"""The exchange with neighbours: weighted sums of one's own tensors and theirs."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

import torch

from ... import _abi
from ._all_reduce import runs_of
from ._collective_options import Codecs, CollectiveKeywords, CollectiveOptions, Tensors
from ._posting import Operator, operation_named
from ._work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NAME = "neighbor_all_reduce"
_NEIGHBOR_ALL_REDUCE = operation_named(_NAME)


def neighbor_all_reduce(
    communicator: Operator,
    tensors: Tensors,
    self_weight: float,
    sources: Mapping[int, float],
    destinations: Mapping[int, float],
    *,
    outputs: Optional[Tensors] = None,
    round: int = 0,
    codecs: Optional[Sequence[Codecs]] = None,
    residuals: Optional[Sequence[Optional[torch.Tensor]]] = None,
    ids: Optional[Sequence[int]] = None,
    blocking: bool = False,
    timeout_s: Optional[float] = None,
    **keywords: Unpack[CollectiveKeywords],
) -> Work:
    """self_weight * own + the sum over sources j of sources[j] * (destinations of j for
    this rank) * theirs, in the order of ranks; of floats and complex numbers.

    tensors: one operation for all of them. sources: who sends to this rank, with the
    receiver's weights. destinations: to whom it sends, with the sender's, 1.0 as a rule.
    outputs: of the tensors' shapes and dtypes; None: in place. round: 0 where every rank
    calls in every round, with {} where it has no neighbours; else its number, rising.
    codecs, residuals, ids: as of all_reduce(); residuals are of what is sent. keywords: seed
    and step of CollectiveOptions.
    Only neighbours wait for each other; lists that do not match are an error with both."""
    targets = tensors if outputs is None else outputs
    _check_outputs(communicator, tensors, targets)
    buffers = communicator.checks.buffers(_NAME)
    runs: list[_abi.rp_segment] = []
    places: list[int] = []
    for i, (tensor, target) in enumerate(zip(tensors, targets)):
        if outputs is None:
            dense = into = buffers.written(tensor, fill=True)
        else:
            dense, into = buffers.read(tensor), buffers.written(target)
        codec = codecs[i] if codecs is not None else None
        residual = residuals[i] if residuals is not None else None
        own = runs_of(
            communicator, dense, codec, residual, ids[i] if ids is not None else i, buffers
        )
        runs += own
        places += [into.data_ptr() + run.first * into.element_size() for run in own]
    segments = (_abi.rp_segment * max(len(runs), 1))(*runs)
    addresses = (ctypes.c_void_p * max(len(runs), 1))(*places)
    neighbors = _lists(self_weight, sources, destinations, round)
    options = CollectiveOptions(**keywords).moving()
    arguments = (segments, addresses, len(runs), neighbors, buffers.options(options))
    return communicator.poster.post(
        _NEIGHBOR_ALL_REDUCE, arguments, buffers.lent(targets), blocking, timeout_s
    )


def _check_outputs(communicator: Operator, tensors: Tensors, outputs: Tensors) -> None:
    if len(outputs) != len(tensors):
        communicator.checks.refuse(_NAME, f"{len(outputs)} outputs for {len(tensors)} tensors")
    for tensor, output in zip(tensors, outputs):
        communicator.checks.same_dtype(_NAME, tensor, output)
        if tensor.shape != output.shape:
            communicator.checks.refuse(
                _NAME, f"an output of {tuple(output.shape)} for {tuple(tensor.shape)}"
            )


def _lists(
    self_weight: float,
    sources: Mapping[int, float],
    destinations: Mapping[int, float],
    number: int,
) -> Any:
    def array(weights: Mapping[int, float]) -> Any:
        pairs = [_abi.rp_neighbor(rank, weight) for rank, weight in weights.items()]
        return (_abi.rp_neighbor * max(len(pairs), 1))(*pairs)

    return ctypes.pointer(
        _abi.rp_neighbors(
            self_weight=self_weight,
            sources=array(sources),
            destinations=array(destinations),
            source_count=len(sources),
            destination_count=len(destinations),
            round=number,
        )
    )
