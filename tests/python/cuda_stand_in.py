"""A GPU for tests where there is none: tensors of the CPU count as a GPU's.

The library opens tests/cuda/stand_in.h in place of libredpoll_cuda.so, and takes memory of the
host as the first GPU's; what it puts into streams is done later by other threads. What PyTorch
would do on the GPU it does at once on the CPU. So results are wrong where somebody reads them
before he has waited, and everything runs but PyTorch's own CUDA calls.

    run_group(work, 2, environment=ENVIRONMENT)      # ranks.py installs it in each rank
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from redpoll import _abi
from redpoll.torch.comm import _cuda

PLACE = "REDPOLL_TEST_PLACE"
LIBRARY = Path(os.environ.get("REDPOLL_BUILD", ".")) / "tests/cuda/libstand_in_cuda.so"
ENVIRONMENT = {
    PLACE: "stand-in",
    "REDPOLL_CUDA": "on",
    "REDPOLL_CUDA_LIBRARY": str(LIBRARY),
    "STAND_IN_HOSTS": "1",
}
needs_stand_in = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


class StandIn(_cuda.Seam):
    """counts: how often the methods were called whose effect cannot be seen here."""

    def __init__(self) -> None:
        super().__init__()
        names = "follow", "copy_back", "wait_for", "note_use", "fetch", "deliver"
        self.counts = dict.fromkeys(names, 0)
        """Of the last two: elements."""
        self.spoils = True
        self._finish: Any = None
        self._thread = threading.local()
        if LIBRARY.exists():
            self._finish = ctypes.CDLL(str(LIBRARY)).stand_in_finish

    def holds(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cpu

    def is_chosen(self) -> bool:
        """This thread has chosen the GPU: PyTorch would open no other one."""
        return getattr(self._thread, "depth", 0) > 0

    @contextlib.contextmanager
    def on(self, device: torch.device) -> Iterator[None]:
        self._thread.depth = getattr(self._thread, "depth", 0) + 1
        try:
            yield
        finally:
            self._thread.depth -= 1

    def stream(self, device: torch.device) -> int:
        return 0

    def follow(self, handle: Any, device: torch.device, timeout_s: float) -> int:
        """What the CPU does next goes on behind the stream."""
        code = super().follow(handle, device, timeout_s)
        if code == _abi.RP_OK:
            self.counts["follow"] += 1
            self._finish()
        return code

    def count(self) -> int:
        return 1 if LIBRARY.exists() else 0

    def pinned(self, like: torch.Tensor) -> torch.Tensor:
        """NaN: nobody counts on what is there before it was fetched."""
        return torch.full((like.numel(),), float("nan"), dtype=like.dtype)

    def fetch(self, device: torch.device, pairs: Any) -> None:
        assert self.is_chosen(), "PyTorch would open the first GPU of the host"
        self.counts["fetch"] += sum(to.numel() for to, _ in pairs)
        _cuda.copy(pairs)

    def deliver(self, device: torch.device, pairs: Any) -> None:
        """Where it `spoils`, NaN behind it on the host: it is fetched before it is used."""
        assert self.is_chosen(), "PyTorch would open the first GPU of the host"
        self.counts["deliver"] += sum(to.numel() for to, _ in pairs)
        _cuda.copy(pairs)
        for _, host in pairs:
            if self.spoils:
                host.fill_(float("nan"))

    def copy_back(self, device: torch.device, pairs: Any) -> Any:
        assert self.is_chosen(), "PyTorch would open the first GPU of the host"
        self.counts["copy_back"] += 1
        _cuda.copy(pairs)
        return self

    def mark(self, device: torch.device) -> Any:
        return self

    def wait_for(self, device: torch.device, event: Any) -> None:
        assert event is self
        self.counts["wait_for"] += 1

    def synchronize(self, device: torch.device) -> None:
        if self._finish is not None:
            self._finish()

    def note_use(self, tensor: torch.Tensor) -> None:
        self.counts["note_use"] += 1


def install() -> StandIn:
    """In this process, for good."""
    stand_in = StandIn()
    _cuda.seam, _cuda._reason = stand_in, None
    return stand_in


def installed() -> StandIn:
    """Of a rank that has it."""
    assert isinstance(_cuda.seam, StandIn)
    return _cuda.seam
