"""Tensors in memory that ranks of one host read in place (include/redpoll/buffer.h)."""

from __future__ import annotations

import ctypes
import logging
import os
import weakref
from typing import Any, Callable, Optional, Union

import torch

from ... import _abi
from ...errors import check, last_message

log = logging.getLogger("redpoll")

_WRITABLE = 0x200
"""PyBUF_WRITE."""


def empty(
    *size: Union[int, torch.Size, tuple[int, ...], list[int]],
    dtype: Optional[torch.dtype] = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """A dense CPU tensor that ranks of this host read where it lies when it travels exact over
    shared memory, rather than a copy of it. Results have the same bits; everything else takes
    it as any tensor, whether ranks share memory or not. It begins as zeros.

        gradients = redpoll.torch.empty(25_000_000)
        dist.all_reduce(gradients)

    size, dtype, requires_grad: as torch.empty() has them. Worth it for tensors of 32 KiB or
    more that live for many operations: each holds a file descriptor, and the first operations
    on one still copy. Up to 64 of each process are read so, beyond that copies travel: take one
    for many tensors, and views of it.

    The memory lives as long as any view of it, and cannot be resized. A process forked from
    this one does not have it: workers of a DataLoader, too, must not touch it (a fault).

    Local, any thread. Error NOMEM: there is not so much memory; IO: no descriptor is
    left."""
    shape = _shape(size)
    kind = torch.get_default_dtype() if dtype is None else dtype
    count = shape.numel()
    if count == 0:
        return torch.empty(shape, dtype=kind, requires_grad=requires_grad)
    memory = _allocate(count * kind.itemsize)
    tensor = torch.frombuffer(memory, dtype=kind).view(shape)
    return tensor.requires_grad_() if requires_grad else tensor


def _shape(size: tuple[Any, ...]) -> torch.Size:
    """torch.Size says what is wrong with what is no size."""
    whole = len(size) == 1 and not isinstance(size[0], int)
    shape = torch.Size(size[0] if whole else size)
    if any(each < 0 for each in shape):
        raise ValueError(f"a tensor of {list(shape)}: no dimension is negative")
    return shape


def _allocate(nbytes: int) -> memoryview:
    """Freed with the view, which a tensor's storage keeps alive."""
    return _view(_new(nbytes), nbytes, _free)


def _new(nbytes: int) -> int:
    address = ctypes.c_void_p()
    check(_abi.rp_buffer_allocate(nbytes, ctypes.byref(address)))
    return address.value or 0


def _view(place: int, nbytes: int, release: Callable[[int], None]) -> memoryview:
    """release(place) is called with its end."""
    view = ctypes.pythonapi.PyMemoryView_FromMemory
    view.restype, view.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int],
    )
    memory: memoryview = view(place, nbytes, _WRITABLE)
    # Not at the interpreter's end, when tensors may outlive this: the process takes it then.
    weakref.finalize(memory, release, place).atexit = False
    return memory


def _free(address: int) -> None:
    """What travels is held by its operation, and so is not freed before."""
    if _abi.rp_buffer_free(address) != _abi.RP_OK:
        log.warning("memory of a tensor is left: %s", last_message())


class _Pool:
    """Memory of staging buffers, which are taken and let go of again and again: making it anew
    would cost more than reading in place saves. What is let go of waits here for the next of
    its size, as far as there are not too many."""

    def __init__(self) -> None:
        self._idle: dict[int, list[int]] = {}  # addresses by bytes

    def take(self, nbytes: int) -> memoryview:
        idle = self._idle.setdefault(nbytes, [])
        try:
            place = idle.pop()
        except IndexError:
            place = _new(nbytes)

        def release(place: int) -> None:  # of a finalizer: takes no lock
            if len(idle) < _IDLE_OF_A_SIZE and len(self._idle) <= _IDLE_SIZES:
                idle.append(place)
            else:
                _free(place)

        return _view(place, nbytes, release)

    def forget(self) -> None:
        """In a forked child, which does not have this memory."""
        self._idle = {}


_IDLE_OF_A_SIZE, _IDLE_SIZES = 2, 24  # together below what is read in place of a process
_pool = _Pool()
os.register_at_fork(after_in_child=_pool.forget)


def staging(count: int, dtype: torch.dtype) -> torch.Tensor:
    """As empty(count), of any content, for a buffer that lives for one operation or two."""
    if count * dtype.itemsize < _WORTH:
        return torch.empty(count, dtype=dtype)
    return torch.frombuffer(_pool.take(count * dtype.itemsize), dtype=dtype)


_WORTH = 1 << 15  # bytes
