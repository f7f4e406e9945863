"""What a bucket of DDP holds: the gradients of some parameters, one behind the other, and those
of complex ones as pairs of real numbers.

GradBucket.gradients() goes by the parameters' elements, and would give half of a complex one.
So the buffer is cut here, by what each gradient takes of it, and what does not add up is an
error.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import torch

from ..comm._codec import Codec


def held_dtype(dtype: torch.dtype) -> torch.dtype:
    """Of the elements that the gradient of a parameter of this type has in a bucket."""
    return dtype.to_real() if dtype.is_complex else dtype


def held_count(parameter: torch.Tensor) -> int:
    """How many elements the gradient of a parameter has in a bucket."""
    return parameter.numel() * (2 if parameter.is_complex() else 1)


def in_reals(flat: torch.Tensor) -> torch.Tensor:
    """A flat buffer's own memory, complex elements as pairs of real numbers: PyTorch 2.9 has
    buckets of complex elements. A sparse one is returned as it is."""
    if not flat.is_complex() or flat.layout is not torch.strided:
        return flat
    return torch.view_as_real(flat).view(-1)


def check_holds(buffer: torch.Tensor, parameters: Sequence[torch.Tensor]) -> None:
    """RuntimeError: the buffer of a bucket is not as long as the gradients of its parameters,
    so that nobody knows which element is whose. A sparse one is as large as its parameter."""
    if buffer.layout is torch.sparse_coo:
        fits = [buffer.shape] == [parameter.shape for parameter in parameters]
        held, wanted = str(tuple(buffer.shape)), " and ".join(_shapes(parameters))
    else:
        count = sum(map(held_count, parameters))
        fits = buffer.numel() == count
        held, wanted = f"{buffer.numel()} elements", f"{count}: shapes {_shapes(parameters)}"
    if not fits:
        raise RuntimeError(
            f"a bucket of {buffer.dtype} holds {held}, and its parameters have {wanted}; were "
            "they replaced after DistributedDataParallel was made? Make a new one"
        )


def gradients_of(bucket: Any) -> list[torch.Tensor]:
    """The gradients in a dist.GradBucket, one a parameter, each a flat view of its buffer: what
    `parameters()` has in the order of their memory, complex ones as pairs of real numbers.
    RuntimeError: the bucket holds something else."""
    buffer, parameters = in_reals(bucket.buffer()), bucket.parameters()
    check_holds(buffer, parameters)
    return list(buffer.view(-1).split([held_count(parameter) for parameter in parameters]))


def _shapes(parameters: Sequence[torch.Tensor]) -> list[str]:
    most = 4
    texts = [f"{tuple(one.shape)} of {one.dtype}" for one in parameters[:most]]
    return [*texts, "..."] if len(parameters) > most else texts


def tensor_id(name: str) -> int:
    """A stable number for stochastic rounding: it depends on the name alone, so that parameters
    added elsewhere change nothing. Two names of one number would share random bits, once in
    four billion pairs; each would still be rounded without bias."""
    return zlib.crc32(name.encode())


def check_dtype(codec: Codec, dtype: torch.dtype, name: str) -> None:
    """TypeError when `codec` does not take elements of `dtype`."""
    if not codec.supports(dtype):
        raise TypeError(
            f"{codec} does not take the gradient of {name!r}, whose type is {dtype}; "
            f"send it exact with rules={{{name!r}: None}}"
        )
