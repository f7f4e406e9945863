"""The parameters of a model in one piece of memory, and how its parts travel."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch import nn

from ... import _abi
from ..codecs._rules import Rules
from ..comm._codec import Codec
from ..comm._dtypes import NUMBER
from ._twin import may_exchange
from ._untrained import Untrained

CHUNK = 1 << 18
"""Elements that are worked on at a time where a whole vector would be one more."""


class FlatParameters:
    """The trainable parameters of a model, moved into one vector of which they become views.

    No memory beyond what they had. parameters: by name, in the model's order, shared ones once.
    values: the vector, float32 or float64, where they lie. untrained: what of the model is not
    in it."""

    def __init__(self, model: nn.Module, who: str) -> None:
        """who: names the caller in errors. ValueError: parameters that cannot be laid out so;
        nothing has changed then."""
        self.who = who
        self.parameters = {
            name: each for name, each in model.named_parameters() if each.requires_grad
        }
        self.untrained = Untrained(model, who)
        self.dtype = self._checked()
        count = sum(each.numel() for each in self.parameters.values())
        place = next(iter(self.parameters.values())).device
        self.values = torch.empty(count, dtype=self.dtype, device=place)
        self._places: list[int] = []
        with torch.no_grad():
            for parameter, part in zip(self.parameters.values(), self.parts(self.values)):
                part.copy_(parameter.reshape(-1))
                parameter.data = part.view(parameter.shape)
                self._places.append(parameter.data_ptr())

    def _checked(self) -> torch.dtype:
        if not self.parameters:
            raise ValueError(f"{self.who}: the model has no parameter that requires a gradient")
        first, like = next(iter(self.parameters.items()))
        for name, each in self.parameters.items():
            if each.dtype not in (torch.float32, torch.float64):
                raise ValueError(
                    f"{self.who}: parameter {name!r} is {each.dtype}; float32 and float64 can "
                    "be averaged: call model.float() first"
                )
            if each.dtype != like.dtype:
                raise ValueError(
                    f"{self.who}: parameter {name!r} is {each.dtype}, and {first!r} is "
                    f"{like.dtype}; all parameters need one type"
                )
            if not may_exchange(each) or each.layout is not torch.strided:
                raise ValueError(
                    f"{self.who}: parameter {name!r} is on {each.device}, {each.layout}; "
                    "dense parameters on the CPU or a GPU are exchanged"
                )
            if each.device != like.device:
                raise ValueError(
                    f"{self.who}: parameter {name!r} is on {each.device}, and {first!r} on "
                    f"{like.device}; all parameters need one place"
                )
        return like.dtype

    def __len__(self) -> int:
        return self.values.numel()

    def parts(self, vector: torch.Tensor) -> Iterator[torch.Tensor]:
        """The part of each parameter in a vector that is laid out as they are."""
        first = 0
        for parameter in self.parameters.values():
            yield vector.narrow(0, first, parameter.numel())
            first += parameter.numel()

    def check(self) -> None:
        """RuntimeError: a parameter is not where it was put, or trains without having a place,
        so that it would neither be sent nor averaged."""
        self.untrained.check()
        for (name, parameter), place in zip(self.parameters.items(), self._places):
            if parameter.data_ptr() != place:
                raise RuntimeError(
                    f"{self.who}: parameter {name!r} has been moved or replaced (model.to(), "
                    "another tensor in .data): do that before the optimizer is wrapped"
                )

    def read_gradients(self, into: torch.Tensor) -> None:
        """Gradients, one behind the other; zeros where there is none."""
        for parameter, part in zip(self.parameters.values(), self.parts(into)):
            gradient = parameter.grad
            if gradient is None:
                part.zero_()
            else:
                dense = gradient.to_dense() if gradient.is_sparse else gradient
                part.copy_(dense.reshape(-1))


def chunks(*vectors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """The same stretch of each, again and again."""
    for first in range(0, vectors[0].numel(), CHUNK):
        count = min(CHUNK, vectors[0].numel() - first)
        yield tuple(each.narrow(0, first, count) for each in vectors)


class Layout:
    """How the parts of a flat vector travel: segments for the library.

    residual: error feedback of what travels lossy, in the order of parameters; None without."""

    def __init__(self, flat: FlatParameters, rules: Rules, error_feedback: bool) -> None:
        """ValueError: a codec that does not take the parameters' type."""
        codecs = [rules.codec_for(name, each.shape) for name, each in flat.parameters.items()]
        for codec in codecs:
            if codec is not None and not codec.supports(flat.dtype):
                raise ValueError(
                    f"{flat.who}: codec {codec} does not take {flat.dtype}; take codec=None "
                    "(exact), or model.float()"
                )
        self._dtype = NUMBER[flat.dtype]
        self._runs = list(_merged(codecs, [each.numel() for each in flat.parameters.values()]))
        lossy = sum(count for _, codec, count in self._runs if not _is_exact(codec, flat.dtype))
        self.residual: Optional[torch.Tensor] = None
        if lossy and error_feedback:
            self.residual = torch.zeros(lossy)

    def segments(self, first_tensor: int = 0, feedback: bool = True) -> Any:
        """An array of rp_segment without data. first_tensor: identity of the first parameter
        for stochastic rounding."""
        array = (_abi.rp_segment * len(self._runs))()
        used = 0
        for segment, (tensor, codec, count) in zip(array, self._runs):
            segment.count, segment.dtype = count, self._dtype
            segment.tensor = first_tensor + tensor
            if codec is None:
                continue
            segment.codec = codec.structure
            if feedback and self.residual is not None:
                segment.residual = self.residual.data_ptr() + 4 * used
                used += count
        return array


def _is_exact(codec: Optional[Codec], dtype: torch.dtype) -> bool:
    return codec is None or codec.is_exact(dtype)


def _merged(
    codecs: list[Optional[Codec]], counts: list[int]
) -> Iterator[tuple[int, Optional[Codec], int]]:
    """(tensor, codec, count): a segment each, but one for a row of exact ones."""
    exact, first = 0, 0
    for i, (codec, count) in enumerate(zip(codecs, counts)):
        if codec is None:
            first = first if exact else i
            exact += count
            continue
        if exact:
            yield first, None, exact
            exact = 0
        yield i, codec, count
    if exact:
        yield first, None, exact


def address(array: Any) -> Any:
    """A pointer to the first of an array of segments."""
    return ctypes.cast(array, ctypes.POINTER(_abi.rp_segment))
