"""Tensors in memory of a GPU: all that is asked of PyTorch's CUDA, and whether the library can
use one.

`seam` is what asks: PyTorch's own, in whose place tests without a GPU put a stand-in, so that
everything above it runs there, too."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Optional

import torch

from ... import _abi
from ...errors import last_message

log = logging.getLogger("redpoll")

Pair = tuple[torch.Tensor, torch.Tensor]
"""A tensor, and the dense one whose elements it is to get."""

_CUDA = _abi.MEMORIES["CUDA"]


class Seam:
    """PyTorch's CUDA. Streams are those that are current on the calling thread."""

    def __init__(self) -> None:
        self._beside: dict[torch.device, Any] = {}  # a stream a GPU, for copies of our own

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor lies in memory of a GPU."""
        return tensor.is_cuda

    def on(self, device: torch.device) -> AbstractContextManager[Any]:
        """With this GPU as the calling thread's. A thread that has chosen none has the first
        one of the host, which it would open, for hundreds of megabytes, as soon as PyTorch goes
        back to "its" device: a notifier's, and any other that finds an operation done."""
        return torch.cuda.device(device)

    def stream(self, device: torch.device) -> int:
        """The cudaStream_t that is current; 0: the default one."""
        return int(torch.cuda.current_stream(device).cuda_stream)

    def follow(self, handle: Any, device: torch.device, timeout_s: float) -> int:
        """The current stream goes on behind the results of the request: a status, PENDING
        while the host has still to wait."""
        stream = self.stream(device) or None
        return int(_abi.rp_request_wait_stream_for(handle, stream, timeout_s))

    def count(self) -> int:
        """GPUs of this process, as far as that can be told without opening one."""
        return torch.cuda.device_count()

    def pinned(self, like: torch.Tensor) -> torch.Tensor:
        """Memory of the host, of the length and type of a tensor, that its GPU reaches."""
        return torch.empty(like.numel(), dtype=like.dtype, pin_memory=True)

    def fetch(self, device: torch.device, pairs: Sequence[Pair]) -> None:
        """Within `on` the device: tensors of the host get those of the GPU, as the current
        stream leaves them. The host waits for that, and not for what other streams do."""
        beside = self._stream_beside(device)
        beside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(beside):
            self._copy_beside(pairs)
            beside.record_event().synchronize()

    def deliver(self, device: torch.device, pairs: Sequence[Pair]) -> None:
        """Within `on` the device: tensors of the GPU get those of the host, behind what the
        current stream has been given and before what it gets next. Nobody waits: the host's
        may be written again behind the next fetch()."""
        beside = self._stream_beside(device)
        beside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(beside):
            self._copy_beside(pairs)
            event = beside.record_event()
        self.wait_for(device, event)

    def _copy_beside(self, pairs: Sequence[Pair]) -> None:
        with torch.no_grad():
            for to, source in pairs:
                to.copy_(source, non_blocking=True)

    def _stream_beside(self, device: torch.device) -> Any:
        if device not in self._beside:
            self._beside[device] = torch.cuda.Stream(device)
        return self._beside[device]

    def copy_back(self, device: torch.device, pairs: Sequence[Pair]) -> Any:
        """Begin to copy, within `on` the device; an event behind it. What the GPU is at now is
        not waited for."""
        beside = self._stream_beside(device)
        with torch.cuda.stream(beside):
            copy(pairs)
            for each in pairs:
                for tensor in each:
                    tensor.record_stream(beside)
            return beside.record_event()

    def mark(self, device: torch.device) -> Any:
        """An event behind what the current stream has been given."""
        return torch.cuda.current_stream(device).record_event()

    def wait_for(self, device: torch.device, event: Any) -> None:
        """The current stream goes on behind an event."""
        torch.cuda.current_stream(device).wait_event(event)

    def synchronize(self, device: torch.device) -> None:
        """The host waits for what the current stream has been given."""
        torch.cuda.current_stream(device).synchronize()

    def note_use(self, tensor: torch.Tensor) -> None:
        """The current stream uses a tensor that another one may have made: its memory is not
        given to others before that is over."""
        if tensor.is_cuda:
            tensor.record_stream(torch.cuda.current_stream(tensor.device))

    def future(self, tensors: Sequence[torch.Tensor]) -> torch.futures.Future[Any]:
        """One that may be completed with these: whose callbacks, and whoever waits, get streams
        that go on behind what completes it."""
        found = {one.device for one in tensors if one.is_cuda}
        return torch.futures.Future(devices=list(found)) if found else torch.futures.Future()


seam = Seam()


@torch.no_grad()
def copy(pairs: Sequence[Pair]) -> None:
    """On whatever thread, which knows nothing of the modes of the one that posted."""
    for tensor, dense in pairs:
        with torch.inference_mode(tensor.is_inference()):
            tensor.copy_(dense)


_reason: Optional[str] = None  # why the library can use no GPU; empty: it can; None: not asked


def is_usable() -> bool:
    """Whether the library takes memory of a GPU. Where not, that is said once, with the
    reason."""
    global _reason
    if _reason is None:
        _reason = "" if _abi.rp_memory_check(_CUDA) == _abi.RP_OK else last_message()
        if _reason:
            log.warning(
                "CUDA tensors travel in full, through pinned memory of the host: %s; said once",
                _reason,
            )
    return not _reason


def most_memory() -> int:
    """Where the elements of most operations of this process will lie, for which chunks are
    cut: with a GPU, where it has one that the library may use."""
    is_off = os.environ.get("REDPOLL_CUDA", "").lower() in ("off", "0")
    return _CUDA if not is_off and seam.count() > 0 else _abi.MEMORIES["HOST"]


def is_there(tensor: torch.Tensor) -> bool:
    """Whether the library takes the tensor where it is, on a GPU."""
    return seam.holds(tensor) and is_usable()


def on_gpu_of(tensors: Sequence[torch.Tensor]) -> AbstractContextManager[Any]:
    """`seam.on` the GPU of these; nothing where they are on the CPU."""
    for one in tensors:
        if seam.holds(one):
            return seam.on(one.device)
    return contextlib.nullcontext()


def home(tensor: torch.Tensor) -> torch.device:
    """Where what goes with a tensor belongs, as its residual: beside it, or on the CPU where
    the tensor travels through that."""
    return tensor.device if is_there(tensor) else torch.device("cpu")


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's values where the CPU reads them; waits for the GPU."""
    return tensor.cpu() if tensor.is_cuda else tensor


class Place:
    """The GPU of one operation, and what is left to do there when it is over."""

    __slots__ = ("device", "has_copies", "_copies", "_copied")

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.has_copies = False
        """Results go through dense copies: nobody may go on before they are back."""
        self._copies: Sequence[Pair] = ()
        self._copied: Any = None

    def set_copies(self, pairs: Sequence[Pair]) -> None:
        self.has_copies, self._copies = bool(pairs), pairs

    def options(self, options: Any) -> Any:
        """A pointer to options, or None: the same with where the elements lie, behind what the
        current stream has been given."""
        made = _abi.rp_collective_options()
        if options is not None:
            ctypes.memmove(ctypes.byref(made), options, ctypes.sizeof(made))
        made.memory, made.stream = _CUDA, seam.stream(self.device) or None
        return ctypes.pointer(made)

    def copy_back(self) -> None:
        """Once, on whatever thread finds the operation done."""
        with seam.on(self.device):
            self._copied = seam.copy_back(self.device, self._copies)

    def let_go(self) -> None:
        """Of tensors: the operation is over."""
        self._copies = ()

    def follow_copies(self) -> None:
        """After that: the current stream goes on behind it."""
        if self._copied is not None:
            seam.wait_for(self.device, self._copied)
