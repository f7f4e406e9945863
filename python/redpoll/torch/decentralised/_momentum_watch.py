"""Does the outer momentum fit the local steps? (rp_momentum_watch of redpoll/local_sgd.h)"""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import Optional

import torch

from ... import _abi
from ...errors import check


class MomentumWatch:
    """autocorrelation: the cosine of the latest pseudo-gradient and the one before it; None:
    there was none before."""

    def __init__(self, rate: float, momentum: float) -> None:
        self._numbers = (rate, momentum)
        self._watch = ctypes.c_void_p()
        self.autocorrelation: Optional[float] = None

    def look(self, gradient: torch.Tensor, every: int) -> Optional[str]:
        """A warning, once, when enough was seen. gradient: contiguous, float32, on the CPU, of
        as many elements as the first."""
        if not self._watch:
            made = ctypes.byref(self._watch)
            check(_abi.rp_momentum_watch_create(gradient.numel(), *self._numbers, made))
            address = ctypes.c_void_p(self._watch.value)
            weakref.finalize(self, _abi.rp_momentum_watch_destroy, address)
        found, warning = ctypes.c_double(), ctypes.c_char_p()
        check(
            _abi.rp_momentum_watch_look(
                self._watch,
                gradient.data_ptr(),
                every,
                ctypes.byref(found),
                ctypes.byref(warning),
            )
        )
        if not math.isnan(found.value):
            self.autocorrelation = found.value
        return warning.value.decode() if warning.value else None
