"""Error feedback under a GradScaler: gradients are scaled, now by more, now by less, and a step
whose gradients are not finite is skipped.

Residuals are in the units of the gradients they were left by. When the scale changes they
follow it; powers of two, as GradScaler uses, change no bit of what is trained. A step that is
not finite is taken back: its result is thrown away, and with it what residuals had paid out."""

from __future__ import annotations

import gc
import logging
import math
from typing import Any, Callable

import torch

from ..feedback._residuals import Residuals

log = logging.getLogger("redpoll")
_said = False


class LossScale:
    """The scale that residuals are in, and what they were before the step that runs."""

    def __init__(self, scaler: Any, residuals: Residuals, forget: Callable[[], None]) -> None:
        """scaler: a GradScaler, or None: gradients are as they are, and a step that is not
        finite is nobody's to skip. forget: called when residuals that were dropped are back.
        TypeError: no scaler."""
        if scaler is not None and not callable(getattr(scaler, "get_scale", None)):
            raise TypeError(f"grad_scaler is a torch.amp.GradScaler, not {scaler!r}")
        self.scale = 1.0  # of the residuals
        self._scaler = scaler
        self._residuals = residuals
        self._forget = forget
        self._before: dict[str, torch.Tensor] = {}
        self._is_spoiled = False
        self._has_looked = False

    def begin_step(self) -> None:
        """Before the first bucket of a step is posted: residuals are in the units of the
        gradients that come now."""
        self.settle()
        now = 1.0 if self._scaler is None else float(self._scaler.get_scale())
        if now != self.scale and 0 < now < math.inf:
            self._residuals.multiply(now / self.scale)
            self.scale = now
        if self._scaler is not None:
            self._residuals.copy_to(self._before)

    def see(self, reduced: torch.Tensor) -> None:
        """The result of a bucket; any thread."""
        if self._scaler is not None and reduced.numel():
            lowest, highest = torch.aminmax(reduced)
            if not (math.isfinite(lowest.item()) and math.isfinite(highest.item())):
                self._is_spoiled = True

    def settle(self) -> None:
        """After a step: where a result was not finite, residuals are what they were before."""
        if self._is_spoiled:
            self._is_spoiled = False
            if self._residuals.restore(self._before):
                self._forget()

    def warn_of_another(self) -> None:
        """Once a process, before the first step that leaves residuals: a scaler that nobody
        told us of would change the units of gradients unseen."""
        global _said
        if self._has_looked or self._scaler is not None:
            return
        self._has_looked = True
        kind = torch.amp.GradScaler
        every = gc.get_objects()
        if not _said and any(issubclass(type(one), kind) and one.is_enabled() for one in every):
            _said = True
            log.warning(
                "a GradScaler is in use: give it to compress(grad_scaler=...), or what is held "
                "back keeps the old scale when it changes, and is lost when a step is skipped"
            )
