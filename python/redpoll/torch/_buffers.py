"""Tensors as memory that the library can read and write."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from typing import Any, Callable, Optional

import torch

from .. import _abi

log = logging.getLogger("redpoll")

Lent = tuple[Sequence[torch.Tensor], Any, Optional[Callable[[], None]]]
"""What goes with an operation: its outputs; what must live until it is done; what is left to do
then (copying staged results back)."""

_STRIDED = torch.strided
_said_pinned = False


class Buffers:
    """What one operation lends to the library, and what it copies back afterwards.

    Dense CPU tensors are lent as they are. Others (strided, conjugated, on a GPU) go through a
    dense copy: read() fills it, written() also copies it back when the operation is done.
    `keep` holds everything alive until then."""

    __slots__ = ("keep", "_back", "_refuse")

    def __init__(self, refuse: Callable[[str], Exception]) -> None:
        """refuse: makes the exception for a tensor that cannot travel."""
        self._refuse = refuse
        self.keep: list[Any] = []
        self._back: list[tuple[torch.Tensor, torch.Tensor]] = []

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """Dense memory with the tensor's elements in row-major order."""
        if not is_plain(tensor):
            tensor = self._staged(tensor, fill=True)
        self.keep.append(tensor)
        return tensor

    def written(self, tensor: torch.Tensor, fill: bool = False) -> torch.Tensor:
        """Dense memory whose elements end in the tensor; fill: they are also read."""
        if is_plain(tensor):
            self.keep.append(tensor)
            return tensor
        dense = self._staged(tensor, fill)
        if any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride())):
            raise self._refuse(
                "an output has several elements at one address (it was expanded): "
                "pass its clone()"
            )
        self._back.append((tensor, dense))
        return dense

    def blocks(self, tensors: Sequence[torch.Tensor], write: bool) -> ctypes.Array:
        """An array of rp_block, one a tensor."""
        array = (_abi.rp_block * max(len(tensors), 1))()
        for block, tensor in zip(array, tensors):
            dense = self.written(tensor) if write else self.read(tensor)
            block.data, block.count = dense.data_ptr(), dense.numel()
        self.keep.append(array)
        return array

    @torch.no_grad()
    def _staged(self, tensor: torch.Tensor, fill: bool) -> torch.Tensor:
        if tensor.layout is not _STRIDED:
            raise self._refuse(f"a tensor is {tensor.layout}: convert it with to_dense()")
        if tensor.device.type not in ("cpu", "cuda"):
            raise self._refuse(
                f"a tensor is on {tensor.device}; CPU and CUDA tensors can travel"
            )
        if tensor.is_cuda:
            _say_pinned()
        dense = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        return dense.copy_(tensor) if fill else dense

    def lent(self, outputs: Sequence[torch.Tensor]) -> Lent:
        """What goes with an operation that has all its buffers, and these outputs."""
        return outputs, self.keep, self._copy_back if self._back else None

    @torch.no_grad()
    def _copy_back(self) -> None:
        """On whatever thread finds the operation done, which knows nothing of the modes of the
        one that posted it."""
        for tensor, dense in self._back:
            with torch.inference_mode(tensor.is_inference()):
                tensor.copy_(dense)


def is_plain(tensor: torch.Tensor) -> bool:
    """True when the elements lie in CPU memory, dense and row-major."""
    return (
        tensor.layout is _STRIDED
        and tensor.is_cpu
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor.is_conj()
    )


def _say_pinned() -> None:
    global _said_pinned
    if not _said_pinned:
        _said_pinned = True
        log.warning("CUDA tensors travel through pinned host memory; said once")
