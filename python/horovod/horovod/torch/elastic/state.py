"""What a training goes on with."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Callable, Optional

import torch

from ..functions import allgather_object, broadcast_object, broadcast_parameters
from .sampler import ElasticSampler

__all__ = ["ObjectState", "State", "TorchState"]


class State:
    """save() keeps what restore() goes back to; sync() makes all ranks' equal."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """Called when there are other ranks than before, in order; a learning rate may follow
        hvd.size() there."""
        self._callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """There are other ranks than before."""
        self.reset()
        for each in self._callbacks:
            each()

    def commit(self) -> None:
        """From here training goes on when a rank is lost. Local; costs a copy."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Nothing: no rank joins a job that runs."""

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def reset(self) -> None:
        """For classes that have something to do then."""


class ObjectState(State):
    """Attributes of any kind that can be pickled: ObjectState(epoch=0).epoch."""

    def __init__(self, **objects: Any) -> None:
        super().__init__()
        self._names = list(objects)
        self._saved: dict[str, Any] = {}
        for name, each in objects.items():
            setattr(self, name, each)
        self.save()

    def save(self) -> None:
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._names}

    def restore(self) -> None:
        for name, each in self._saved.items():
            setattr(self, name, copy.deepcopy(each))

    def sync(self) -> None:
        found = broadcast_object({name: getattr(self, name) for name in self._names})
        for name, each in found.items():
            setattr(self, name, each)
        self.save()


class TorchState(ObjectState):
    """A model, an optimizer, samplers and other attributes. model, optimizer, and any other
    that has state_dict(): kept and made equal by that; the rest as of ObjectState."""

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        **objects: Any,
    ) -> None:
        given = {"model": model, "optimizer": optimizer, **objects}
        kept = {name: each for name, each in given.items() if hasattr(each, "state_dict")}
        self._stateful = kept
        self._states: dict[str, Any] = {}
        for name, each in given.items():
            if name in kept or name in ("model", "optimizer"):
                setattr(self, name, each)
        super().__init__(**{name: each for name, each in objects.items() if name not in kept})

    def save(self) -> None:
        self._states = {
            name: copy.deepcopy(each.state_dict()) for name, each in self._stateful.items()
        }
        super().save()

    def restore(self) -> None:
        for name, each in self._stateful.items():
            if hasattr(each, "forget_gradients"):
                each.forget_gradients()
            each.load_state_dict(copy.deepcopy(self._states[name]))
        super().restore()

    def sync(self) -> None:
        for name, each in self._stateful.items():
            if isinstance(each, ElasticSampler):
                self._sync_sampler(name, each)
            elif isinstance(each, torch.nn.Module):
                broadcast_parameters(each.state_dict(), 0, prefix=f"elastic.{name}")
            else:
                each.load_state_dict(broadcast_object(each.state_dict(), 0, f"elastic.{name}"))
        super().sync()

    def _sync_sampler(self, name: str, sampler: ElasticSampler) -> None:
        """Used is what any rank has used."""
        states = allgather_object(sampler.state_dict(), f"elastic.{name}")
        used = {each for state in states for each in state["processed_indices"]}
        sampler.load_state_dict({"epoch": states[0]["epoch"], "processed_indices": used})

    def reset(self) -> None:
        for each in self._stateful.values():
            if isinstance(each, ElasticSampler):
                each.reset()
