"""What of a model is not trained: frozen parameters, and buffers. Optimizers that exchange the
others have them begin alike."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..comm._communicator import Communicator


class Untrained:
    """frozen: parameters that require no gradient. buffers: those that are in no state_dict()
    are among them."""

    def __init__(self, model: nn.Module, who: str) -> None:
        """who: names the caller in errors."""
        self._who = who
        self.frozen = {
            name: each for name, each in model.named_parameters() if not each.requires_grad
        }
        self.buffers = dict(model.named_buffers())

    def facts(self, broadcast: bool) -> dict[str, Any]:
        """What ranks need alike, where these are to be broadcast()."""
        every = {**self.frozen, **self.buffers} if broadcast else {}
        shapes = [(name, tuple(each.shape), str(each.dtype)) for name, each in every.items()]
        return {"frozen parameters and buffers": shapes}

    def broadcast(self, communicator: Communicator, root: int = 0) -> None:
        """Those of rank `root` on all ranks. Collective."""
        for each in (*self.frozen.values(), *self.buffers.values()):
            communicator.broadcast(each.detach(), root, blocking=True)

    def broadcast_frozen(self, communicator: Communicator, root: int = 0) -> None:
        """The same without buffers, which are each rank's own once it trains."""
        for each in self.frozen.values():
            communicator.broadcast(each.detach(), root, blocking=True)

    def check(self) -> None:
        """RuntimeError: a parameter trains that was frozen when the others were laid out, and
        would be exchanged by nobody."""
        for name, each in self.frozen.items():
            if each.requires_grad:
                raise RuntimeError(
                    f"{self._who}: parameter {name!r} required no gradient when the optimizer "
                    "was wrapped and does now; it is not exchanged: unfreeze it before, or "
                    "wrap the optimizer anew"
                )
