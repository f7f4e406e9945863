"""What the library exchanges of a model whose parameters lie with a GPU: it reads and writes
memory of the host, so they have a twin there, which is copied to and fro around an exchange. Of
parameters with the host the twin is the parameters themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import torch

from ..comm import _cuda

VALUES, GRADIENT = 0, 1
"""Of a twin of a vector of parameters, and of what is exchanged beside it."""


class Twin:
    """host: flat tensors that the library may be given, one for each of `tensors`.

    tensors: contiguous, all in one place; they stay where they are."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = [each.detach() for each in tensors]
        self._device: Optional[torch.device] = None
        if self._tensors and _cuda.seam.holds(self._tensors[0]):
            self._device = self._tensors[0].device
        self.host = [self._host_of(each) for each in self._tensors]

    def _host_of(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view(-1) if self._device is None else _cuda.seam.pinned(tensor)

    @property
    def is_apart(self) -> bool:
        """The twin is memory of its own."""
        return self._device is not None

    def fetch(self, which: Optional[Sequence[int]] = None) -> None:
        """The twin has what the tensors have, once the current stream has come so far, for
        which the host waits. which: of these only."""
        if self._device is None:
            return
        with _cuda.seam.on(self._device):
            pairs = [(self.host[i], self._tensors[i].view(-1)) for i in self._all(which)]
            _cuda.seam.fetch(self._device, pairs)

    def deliver(self, which: Optional[Sequence[int]] = None) -> None:
        """The tensors get what the twin has, before the current stream goes on. The twin is
        not written to again before fetch()."""
        if self._device is None:
            return
        with _cuda.seam.on(self._device):
            pairs = [(self._tensors[i].view(-1), self.host[i]) for i in self._all(which)]
            _cuda.seam.deliver(self._device, pairs)

    def _all(self, which: Optional[Sequence[int]]) -> Sequence[int]:
        return range(len(self.host)) if which is None else which


def may_exchange(tensor: torch.Tensor) -> bool:
    """Where it lies there is a way."""
    return tensor.is_cpu or tensor.is_cuda
