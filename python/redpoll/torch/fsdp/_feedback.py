"""Error feedback of sharded models: what this rank's encodings lose, by kind and parameter.

"grads/NAME" is what the reduce-scatter's encodings lost of a whole parameter's gradient, in
units of this rank's contributions; "replicate/NAME" what the all-reduce between replicas lost
of this rank's shard of it, in units of the mean.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

log = logging.getLogger("redpoll")


class Layout(NamedTuple):
    """How the elements of a parameter follow one another in its residual: a row for each of
    `world` ranks, each with that rank's part along dimension `dim`, rows padded to one
    length."""

    shape: torch.Size
    world: int
    dim: int
    is_complex: bool
    numel: int  # with padding; of a complex parameter pairs are two

    def shaped(self, flat: torch.Tensor) -> torch.Tensor:
        """With the parameter's shape; a view where no padding lies between."""
        if self.is_complex:
            flat = torch.view_as_complex(flat.view(-1, 2))
        if self.dim == 0 or self.world == 1:
            return flat[: self.shape.numel()].view(self.shape)
        part = list(self.shape)
        part[self.dim] //= self.world
        return torch.cat(flat.view(self.world, *part).unbind(0), self.dim)

    def flattened(self, values: torch.Tensor, device: torch.device) -> torch.Tensor:
        """A new residual from values of the parameter's shape."""
        if self.dim and self.world > 1:
            values = torch.stack(values.chunk(self.world, self.dim))
        dense = values.contiguous()
        flat = (torch.view_as_real(dense) if dense.is_complex() else dense).reshape(-1)
        residual = torch.zeros(self.numel, dtype=torch.float32, device=device)
        residual[: flat.numel()].copy_(flat)
        return residual

    def stand_in(self) -> torch.Tensor:
        """Of the shape and kind that shaped() has, without memory."""
        dtype = torch.complex64 if self.is_complex else torch.float32
        return torch.empty(self.shape, dtype=dtype, device="meta")


class Feedback:
    """Residuals by key, flat, in the order in which elements travel."""

    def __init__(self) -> None:
        self._flat: dict[str, torch.Tensor] = {}
        self.changes = 0  # of which tensors these are

    def get(self, key: str) -> torch.Tensor | None:
        return self._flat.get(key)

    def ensure(self, key: str, numel: int, device: torch.device) -> torch.Tensor:
        """Zeros when it is new."""
        flat = self._flat.get(key)
        if flat is None or flat.numel() != numel:
            flat = self._flat[key] = torch.zeros(numel, dtype=torch.float32, device=device)
            self.changes += 1
        return flat

    def keys(self) -> list[str]:
        return list(self._flat)

    def replace(self, flats: Mapping[str, torch.Tensor]) -> None:
        self._flat = dict(flats)
        self.changes += 1


def carried(
    chosen: Sequence[Mapping[str, Any]], share: int | None, layouts: Mapping[str, Layout]
) -> list[dict[str, torch.Tensor]]:
    """Residuals of states of a run of another world, in this one's units: contributions count
    for more or less in the mean. share: among how many ranks a mean is, where that is all
    ranks; None: ranks hold different models, or parts that are cut otherwise. Says what is
    dropped."""
    carried_ones: list[dict[str, torch.Tensor]] = []
    dropped: set[str] = set()
    for state in chosen:
        own: dict[str, torch.Tensor] = {}
        is_plain = share is not None and state["share"] == state["world"]
        for key, values in state["residuals"].items():
            kind = key.split("/", 1)[0]
            fits = key in layouts and layouts[key].shape == values.shape
            if not is_plain or not (fits or kind == "grads"):
                dropped.add(key)
                continue
            averages = kind == "grads" and state["averages"]
            assert share is not None  # is_plain
            own[key] = values * (share / state["share"]) if averages else values
        carried_ones.append(own)
    if dropped:
        log.warning(
            "what %d tensors held back is dropped (%s ...): the ranks share this model "
            "otherwise than those that saved it, so that shards cannot be handed on",
            len(dropped),
            min(dropped),
        )
    return carried_ones


def summed(
    states: Sequence[Mapping[str, torch.Tensor]],
    layouts: Mapping[str, Layout],
    device_of: Mapping[str, torch.device],
) -> tuple[dict[str, torch.Tensor], list[str], list[str]]:
    """Flat sums by key; keys that nothing here has; texts of shapes that do not fit."""
    flats: dict[str, torch.Tensor] = {}
    unexpected: dict[str, None] = {}
    misfits: list[str] = []
    for residuals in states:
        for key, values in residuals.items():
            layout = layouts.get(key)
            if layout is None:
                unexpected[key] = None
            elif layout.shape != values.shape:
                misfits.append(f"{key}: {list(values.shape)}, not {list(layout.shape)}")
            else:
                flat = layout.flattened(values, device_of[key])
                flats[key] = flats[key].add_(flat) if key in flats else flat
    return flats, list(unexpected), misfits
