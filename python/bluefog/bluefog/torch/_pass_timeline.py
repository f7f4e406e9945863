"""Forward and backward passes in the timeline, for each parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ._context import context


class _Passes:
    """labels: by the name of a parameter, what the timeline calls it."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = list(labels.values())
        self._waiting: set[str] = set()

    def forward_begins(self, *_: Any) -> None:
        for label in self._labels:
            context.timeline.start(label, "FORWARD")

    def forward_ends(self, _module: Any, _inputs: Any, outputs: Any) -> None:
        for label in self._labels:
            context.timeline.end(label)
        for each in _tensors(outputs):
            if each.requires_grad:
                each.register_hook(self._backward_begins)

    def _backward_begins(self, _gradient: torch.Tensor) -> None:
        """Several outputs, or a backward pass that left parameters out: those go on."""
        for label in self._labels:
            if label not in self._waiting:
                self._waiting.add(label)
                context.timeline.start(label, "GRADIENT COMPT.")

    def gradient_is_there(self, label: str) -> None:
        if label in self._waiting:
            self._waiting.discard(label)
            context.timeline.end(label)


def _tensors(outputs: Any) -> list[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    if isinstance(outputs, (list, tuple)):
        return [tensor for each in outputs for tensor in _tensors(each)]
    return []


def timeline_hooks(
    models: Sequence[torch.nn.Module],
    named: Mapping[str, torch.nn.Parameter],
    labels: Mapping[str, str],
) -> list[Any]:
    """Handles of the hooks; remove() each."""
    hooks: list[Any] = []
    for model in models:
        of_model = {id(each) for each in model.parameters()}
        mine = {name: labels[name] for name, each in named.items() if id(each) in of_model}
        passes = _Passes(mine)
        hooks.append(model.register_forward_pre_hook(passes.forward_begins))
        hooks.append(model.register_forward_hook(passes.forward_ends))
        for name, label in mine.items():
            hooks.append(
                named[name].register_post_accumulate_grad_hook(
                    lambda _, label=label, passes=passes: passes.gradient_is_there(label)
                )
            )
    return hooks
