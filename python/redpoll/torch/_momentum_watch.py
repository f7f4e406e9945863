"""Does the outer momentum fit the local steps? As src/plan/local_sgd/momentum_watch.c."""

from __future__ import annotations

import math
from typing import Optional

import torch

_SAMPLES, _ENOUGH = 1 << 16, 8


class MomentumWatch:
    """autocorrelation: the cosine of the latest pseudo-gradient and the one before it. Near 1
    momentum adds them up, and an outer step goes much further than the ranks did."""

    def __init__(self, rate: float, momentum: float) -> None:
        self._rate, self._momentum = rate, momentum
        self._before: Optional[torch.Tensor] = None
        self._mean, self._known, self._has_warned = 0.0, 0, False
        self.autocorrelation: Optional[float] = None

    def look(self, gradient: torch.Tensor, every: int) -> Optional[str]:
        """A warning, once, when enough was seen."""
        stride = max(1, -(-gradient.numel() // _SAMPLES))
        now, before = gradient[::stride].clone(), self._before
        self._before = now
        if before is None or not now.norm() > 0 or not before.norm() > 0:
            return None
        self.autocorrelation = torch.cosine_similarity(now, before, dim=0).item()
        self._mean += (self.autocorrelation - self._mean) / min(self._known + 1, _ENOUGH)
        self._known += 1
        if self._known < _ENOUGH or self._has_warned or self._momentum == 0:
            return None
        text = self._warning(every)
        self._has_warned = text is not None
        return text

    def _warning(self, every: int) -> Optional[str]:
        r = self._mean
        way = self._rate / (1 - self._momentum * r)
        if way > 2:
            advised = max(0.0, math.floor((1 - self._rate / 1.5) / r * 20) / 20)
            return (
                f"outer momentum {self._momentum:g} is high for {every} local steps: "
                f"pseudo-gradients point the same way (autocorrelation {r:.2f}), so that an "
                f"outer step goes {way:.1f} times as far as the ranks went; take {advised:g} "
                "or less, or more local steps"
            )
        if r < -0.3:
            return (
                "outer steps overshoot: pseudo-gradients turn back from one exchange to the "
                f"next (autocorrelation {r:.2f}, {every} local steps); take an outer momentum "
                f"below {self._momentum:g}, or a lower outer rate"
            )
        return None
