"""What optimizers around another optimizer have in common."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class WrappingOptimizer(torch.optim.Optimizer):
    """An optimizer whose groups, state and hyper-parameters are those of `inner`, so that
    schedulers, Accelerate and Lightning see one optimizer."""

    inner: torch.optim.Optimizer

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        if not isinstance(inner, torch.optim.Optimizer):
            raise TypeError(
                f"{type(self).__name__}(inner, model, ...): inner is an optimizer as "
                f"torch.optim.SGD(model.parameters(), lr=0.1); not {inner!r}"
            )
        self.inner = inner
        self._is_made = False
        super().__init__(inner.param_groups, inner.defaults)
        self._is_made = True

    @property
    def param_groups(self) -> Any:  # type: ignore[override]
        return self.inner.param_groups

    @param_groups.setter
    def param_groups(self, groups: Any) -> None:
        if self._is_made:
            self.inner.param_groups = groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.inner.state

    @state.setter
    def state(self, state: Any) -> None:
        if self._is_made:
            self.inner.state = state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """ValueError: parameters have been laid out for the exchange already."""
        if self._is_made:
            raise ValueError(
                f"{type(self).__name__} has laid out the model's parameters already: add "
                "groups to the inner optimizer before it is wrapped"
            )

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)


def check_model(model: nn.Module, inner: torch.optim.Optimizer, who: str) -> None:
    """ValueError: a model that averages gradients by itself, or an optimizer of another one."""
    if isinstance(model, DistributedDataParallel):
        raise ValueError(
            f"{who} averages parameters itself, and DistributedDataParallel would average "
            "gradients too: pass the model that it wraps, and train that"
        )
    if not isinstance(model, nn.Module):
        raise TypeError(f"{who}(inner, model, ...): model is a torch.nn.Module; not {model!r}")
    known = {id(each) for each in model.parameters()}
    for group in inner.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in known:
                raise ValueError(
                    f"{who}: the inner optimizer has a parameter of shape "
                    f"{tuple(parameter.shape)} that the model has not; both must be of one "
                    "model"
                )


def check_state(own: Any, who: str, form: tuple[str, int], here: dict[str, Any]) -> None:
    """ValueError: `own` is no state of this format and version, or one of another place.
    here: what a state must have."""
    known, version = form
    if not isinstance(own, dict) or own.get("format") != known:
        raise ValueError(
            f"{who}: this is no state of {who}.state_dict(); one of the inner optimizer alone "
            "goes to opt.inner.load_state_dict()"
        )
    if own["version"] > version:
        raise ValueError(
            f"{who}: the state is of version {own['version']}, and {version} is known; a newer "
            "redpoll wrote it"
        )
    for name, value in here.items():
        if own[name] != value:
            raise ValueError(
                f"{who}: the state has {name}={own[name]!r}, and here it is {value!r}. Every "
                "rank saves and loads its own; to go on with other ranks or settings, save the "
                "model inside consensus() and load that"
            )


def check_feedback(saved: int, here: int, who: str) -> None:
    """ValueError: a state with so many elements of error feedback is of another codec."""
    if saved != here:
        raise ValueError(
            f"{who}: the state has error feedback of {saved} elements, and here are {here}: "
            "the codec is another"
        )


def agree(group: Any, who: str, facts: dict[str, Any], problem: str) -> None:
    """Have all ranks compare what they were given. Collective. ValueError on every rank: one of
    them has a problem, or other facts."""
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, (problem, facts), group=group)
    for rank, (theirs, _) in enumerate(found):
        if theirs:
            raise ValueError(theirs if theirs == problem else f"rank {rank}: {theirs}")
    _, first = found[0]
    for rank, (_, other) in enumerate(found):
        compare(who, first, other, rank)


def compare(who: str, first: dict[str, Any], other: dict[str, Any], rank: int) -> None:
    """ValueError: rank 0 was given other things than this rank."""
    for name, value in first.items():
        if other.get(name) != value:
            raise ValueError(
                f"{who}: rank 0 has {name}={value!r} and rank {rank} "
                f"{name}={other.get(name)!r}; all ranks need the same"
            )
