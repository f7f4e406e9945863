"""Lists of segments that ranks own, made once and pointed at the buffers of each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

import torch

from ... import _abi
from ._buffers import Buffers
from ._codec import Codec
from ._dtypes import moved_number, reduced_number


class OwnedRun(NamedTuple):
    """Elements of one tensor that one rank owns: where they lie in the flat buffer that has
    everybody's, and in the owner's own."""

    owner: int
    start: int  # bytes from the beginning of the flat buffer
    own_start: int  # the same of the owner's buffer
    numel: int
    dtype: torch.dtype
    codec: Optional[Codec]  # None: exact
    number: int  # of the tensor's part: what keys stochastic rounding, equal on all ranks
    residual: Optional[torch.Tensor] = None  # error feedback of the whole tensor, float32
    residual_start: int = 0  # where these elements begin in it


class OwnedRuns:
    """A list of runs, the same on all ranks but for the residuals."""

    def __init__(self, runs: Sequence[OwnedRun], rank: int) -> None:
        """rank: this process's. TypeError: a codec's elements are of a type that the library
        does not have."""
        self._runs = list(runs)
        self._rank = rank
        self.made_at = 0
        """For whoever keeps it: what it was made of."""
        self._array = (_abi.rp_owned_segment * max(len(self._runs), 1))()
        residuals = [run.residual for run in self._runs if run.residual is not None]
        self._residuals = list({id(one): one for one in residuals}.values())
        for entry, run in zip(self._array, self._runs):
            segment = entry.segment
            exact = run.codec is None
            segment.dtype = moved_number(run.dtype) if exact else reduced_number(run.dtype)
            segment.count, segment.tensor, entry.owner = run.numel, run.number, run.owner
            if run.codec is not None:
                segment.codec = run.codec.structure
        self.flat_bytes = max((_end(run, run.start) for run in self._runs), default=0)
        own = [_end(run, run.own_start) for run in self._runs if run.owner == rank]
        self.own_bytes = max(own, default=0)

    def __len__(self) -> int:
        return len(self._runs)

    def placed(self, flat: int, own: int, buffers: Buffers) -> object:
        """An array of rp_owned_segment for buffers at these addresses, until the next call.
        Residuals are lent to the operation."""
        held = {id(one): buffers.written(one, fill=True).data_ptr() for one in self._residuals}
        for entry, run in zip(self._array, self._runs):
            data = flat + run.start
            entry.segment.data = data
            if run.residual is not None:
                entry.segment.residual = held[id(run.residual)] + 4 * run.residual_start
            if run.owner == self._rank:
                beside = own + run.own_start
                entry.own = None if beside == data else beside
        return self._array


def _end(run: OwnedRun, start: int) -> int:
    return start + run.numel * run.dtype.itemsize
