"""What a collective is asked with, but for how it is waited for."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional, TypedDict, Union

import torch

from ... import _abi
from ._codec import Codec
from ._dtypes import reduction

Tensors = Sequence[torch.Tensor]

Codecs = Union[None, Codec, Sequence[tuple[int, Optional[Codec]]]]
"""How one tensor travels: exact, with one codec, or in pieces of (count, codec)."""


class CollectiveKeywords(TypedDict, total=False):
    """CollectiveOptions, field by field: how operations take them."""

    factor: Optional[float]
    seed: int
    step: int
    key: int
    algorithm: Optional[str]


@dataclass(frozen=True)
class CollectiveOptions:
    """Equal on all ranks, but for the factor, which may be each rank's own.

    factor: instead of the one that a PREMUL_SUM carries; a ValueError with anything else, which
    multiplies nothing. seed, step: with the numbers of
    tensors the keys of stochastic rounding. key: what the caller calls this operation; 0 for
    none. Ranks compare these numbers: operations of one shape that another rank has posted in
    another order fail on all ranks, by name. algorithm: "sra", "ring"; None: chosen."""

    factor: Optional[float] = None
    seed: int = 0
    step: int = 0
    key: int = 0
    algorithm: Optional[str] = None

    def moving(self) -> Any:
        """The library's, for an operation that adds nothing."""
        if self.factor is not None:
            raise _unused(self.factor, "what is moved and not added is not multiplied")
        return library_options(0, 1.0, asked=self)

    def reducing(self, op: object) -> Any:
        """The library's, for a reduction by `op`, a ReduceOp."""
        number, factor = reduction(op)
        if self.factor is not None and number != _abi.REDUCTIONS["PREMUL_SUM"]:
            (name,) = (one for one, known in _abi.REDUCTIONS.items() if known == number)
            raise _unused(self.factor, f"ReduceOp.{name} is not multiplied")
        return library_options(
            number, factor if self.factor is None else self.factor, asked=self
        )


def _unused(factor: float, why: str) -> ValueError:
    return ValueError(f"factor={factor} is for ReduceOp.PREMUL_SUM; {why}: leave it out")


_NOTHING = CollectiveOptions()


def library_options(
    number: int, factor: float, root: int = 0, asked: CollectiveOptions = _NOTHING
) -> Any:
    """A pointer to an rp_collective_options. number, factor: of the reduction."""
    return ctypes.pointer(
        _abi.rp_collective_options(
            algorithm=asked.algorithm.encode() if asked.algorithm else None,
            reduce=number,
            seed=asked.seed,
            step=asked.step,
            root=root,
            factor=factor,
            key=asked.key,
        )
    )
