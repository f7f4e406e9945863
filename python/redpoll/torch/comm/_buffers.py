"""Tensors as memory that the library can read and write."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

import torch

from ... import _abi
from . import _cuda
from ._cuda import Pair, Place


class Lent(NamedTuple):
    """What goes with an operation."""

    outputs: Sequence[torch.Tensor]
    keep: Any  # must live until it is done
    finish: Optional[Callable[[], None]]  # what is left to do then
    place: Optional[Place] = None  # the GPU on which the elements are; None: with the host


_STRIDED = torch.strided


class Buffers:
    """What one operation lends to the library, and what it copies back afterwards.

    Dense tensors are lent as they are, on the CPU or on a GPU. Others (strided, conjugated)
    go through a dense copy beside them, and all those on a GPU that the library cannot use
    through pinned memory of the host: read() fills it, written() also copies it back when the
    operation is done. `keep` holds everything alive until then. All lie with the host or on
    one GPU."""

    __slots__ = ("keep", "place", "_back", "_is_settled", "_refuse", "_waited")

    def __init__(self, refuse: Callable[[str], Exception]) -> None:
        """refuse: makes the exception for a tensor that cannot travel."""
        self._refuse = refuse
        self.keep: list[Any] = []
        self.place: Optional[Place] = None
        self._is_settled = False  # where elements lie
        self._waited: set[torch.device] = set()
        self._back: list[Pair] = []

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """Dense memory with the tensor's elements in row-major order."""
        if not self._is_lent(tensor):
            tensor = self._staged(tensor, fill=True)
        self.keep.append(tensor)
        return tensor

    def written(self, tensor: torch.Tensor, fill: bool = False) -> torch.Tensor:
        """Dense memory whose elements end in the tensor; fill: they are also read."""
        if self._is_lent(tensor):
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

    def options(self, options: Any) -> Any:
        """Options for all that was lent: those given, which say where it lies on a GPU."""
        return options if self.place is None else self.place.options(options)

    def lent(self, outputs: Sequence[torch.Tensor]) -> Lent:
        """What goes with an operation that has all its buffers, and these outputs."""
        if not self._back:
            return Lent(outputs, self.keep, None, self.place)
        if self.place is None:
            return Lent(outputs, self.keep, self._copy_back)
        self.place.set_copies(self._back)
        return Lent(outputs, self.keep, self.place.copy_back, self.place)

    def _is_lent(self, tensor: torch.Tensor) -> bool:
        """As it is. The first tensor decides where all of them are."""
        if not _is_dense(tensor):
            return False
        if not tensor.numel():
            return tensor.device.type in ("cpu", "cuda")
        there = tensor.device if _cuda.is_there(tensor) else None
        self._settle(there)
        return there is not None or _is_on_host(tensor)

    def _settle(self, there: Optional[torch.device]) -> None:
        own = None if self.place is None else self.place.device
        if not self._is_settled:
            self._is_settled = True
            self.place = None if there is None else Place(there)
        elif own != there:
            raise self._refuse(
                f"a tensor is on {there or 'the CPU'}, and another one of the same call on "
                f"{own or 'the CPU'}"
            )

    @torch.no_grad()
    def _staged(self, tensor: torch.Tensor, fill: bool) -> torch.Tensor:
        if tensor.layout is not _STRIDED:
            raise self._refuse(f"a tensor is {tensor.layout}: convert it with to_dense()")
        if tensor.device.type not in ("cpu", "cuda"):
            raise self._refuse(
                f"a tensor is on {tensor.device}; CPU and CUDA tensors can travel"
            )
        if _cuda.is_there(tensor):
            self._settle(tensor.device)
            dense = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        else:
            self._settle(None)
            dense = self._on_host(tensor, fill)
        return dense.copy_(tensor) if fill else dense

    def _on_host(self, tensor: torch.Tensor, fill: bool) -> torch.Tensor:
        """What is read of it before it is overwritten has to be over: copy_() into the dense
        one waits for the GPU, and where nothing is copied that is done here."""
        is_there = _cuda.seam.holds(tensor)
        if is_there and not fill and tensor.device not in self._waited:
            _cuda.seam.synchronize(tensor.device)
            self._waited.add(tensor.device)
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)

    def _copy_back(self) -> None:
        _cuda.copy(self._back)


def is_plain(tensor: torch.Tensor) -> bool:
    """True when the elements lie in CPU memory, dense and row-major."""
    return (
        tensor.is_cpu
        and not _cuda.seam.holds(tensor)
        and tensor.layout is _STRIDED
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor.is_conj()
    )


def _is_on_host(tensor: torch.Tensor) -> bool:
    return tensor.is_cpu and not _cuda.seam.holds(tensor)


def _is_dense(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout is _STRIDED
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor.is_conj()
    )
