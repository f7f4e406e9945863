"""What error feedback holds back: one float32 tensor a parameter, kept by the parameter's name.
That of a complex parameter holds pairs, as its gradient does in a bucket.

A residual is in units of the mean gradient, whoever holds it: gradients are divided by the
world before they are summed, so what a sender failed to send and what an owner failed to
announce both count fully in the mean. Therefore only the total over ranks matters to training:
elements may change owners when buckets are rebuilt, and ranks may hand their residuals to
others when the world changes, and nothing is lost or counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..codecs._buckets import held_count
from ..comm import _cuda

FORMAT = "redpoll.compress"
VERSION = 1


class Format(NamedTuple):
    """What states are of one kind."""

    name: str
    version: int
    keys: tuple[str, ...]


_OF_DDP = Format(FORMAT, VERSION, ("rank", "world", "step", "buckets", "residuals"))


class Residuals:
    """Residuals by name, flat and in the order of the parameter's memory, which is the order in
    which gradients lie in buckets. Beside their parameter, on a GPU that encodes; on the CPU
    where gradients travel through that."""

    def __init__(self) -> None:
        self._flat: dict[str, torch.Tensor] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._flat

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._flat))

    def get(self, name: str) -> torch.Tensor | None:
        """The flat residual, or None where nothing was held back."""
        return self._flat.get(name)

    def ensure(self, name: str, parameter: torch.Tensor) -> torch.Tensor:
        """The flat residual of the parameter's elements; zeros when it is new."""
        flat = self._flat.get(name)
        if flat is None:
            flat = self._flat[name] = _zeros_of(parameter)
        return flat

    def drop(self, name: str) -> None:
        """Forget a residual that was paid out."""
        self._flat.pop(name, None)

    def multiply(self, factor: float) -> None:
        """Into other units."""
        for flat in self._flat.values():
            flat.mul_(factor)

    def copy_to(self, kept: dict[str, torch.Tensor]) -> None:
        """Make `kept` a copy; memory it has is used again."""
        for name in set(kept) - set(self._flat):
            del kept[name]
        for name, flat in self._flat.items():
            if name in kept and kept[name].shape == flat.shape:
                kept[name].copy_(flat)
            else:
                kept[name] = flat.clone()

    def restore(self, kept: Mapping[str, torch.Tensor]) -> bool:
        """Be what copy_to() saw. True: residuals that were dropped are back, as other
        tensors."""
        for name, flat in self._flat.items():
            if name in kept:
                flat.copy_(kept[name])
            else:
                flat.zero_()
        dropped = [name for name in kept if name not in self._flat]
        self._flat.update((name, kept[name].clone()) for name in dropped)
        return bool(dropped)

    def replace(self, flats: Mapping[str, torch.Tensor]) -> None:
        self._flat = dict(flats)


def _zeros_of(parameter: torch.Tensor) -> torch.Tensor:
    device = _cuda.home(parameter)
    return torch.zeros(held_count(parameter), dtype=torch.float32, device=device)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlap, in any order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def shaped(flat: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A view of a flat residual with the parameter's shape: element for element that of the
    parameter, also where its memory is ordered otherwise (channels_last). Of a complex
    parameter: complex64."""
    if parameter.is_complex():
        flat = torch.view_as_complex(flat.view(-1, 2))
    if parameter.numel() and is_dense(parameter):
        return flat.as_strided(parameter.shape, parameter.stride())
    return flat.view(parameter.shape)


def flattened(values: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A new flat residual from values of the parameter's shape."""
    flat = _zeros_of(parameter)
    shaped(flat, parameter).copy_(values)
    return flat


def choose_states(
    states: Sequence[Mapping[str, Any]], rank: int, world: int, of: Format = _OF_DDP
) -> list[Mapping[str, Any]]:
    """The states whose residuals this rank takes over: of a run of as many ranks its own, else
    those of ranks r with r % world == rank. Each old rank's goes to exactly one new rank, so
    the total over ranks stays what it was. The sequence need not hold the other ones."""
    for state in states:
        _check_format(state, of)
    worlds = sorted({state["world"] for state in states})
    steps = sorted({state["step"] for state in states})
    if len(worlds) != 1:
        raise ValueError(
            f"the states come from runs of {_and(worlds)} ranks; one run is wanted"
        )
    if len(steps) != 1:
        raise ValueError(f"the states were saved after {_and(steps)} steps; one step is wanted")
    by_rank = {state["rank"]: state for state in states}
    if len(by_rank) != len(states):
        ranks = [state["rank"] for state in states]
        raise ValueError(f"the states are of ranks {ranks}; each rank once is wanted")
    wanted = range(rank, worlds[0], world)
    missing = [one for one in wanted if one not in by_rank]
    if missing:
        raise ValueError(_missing_text(missing, sorted(by_rank), worlds[0], rank, world))
    return [by_rank[one] for one in wanted]


def _missing_text(missing: list[int], given: list[int], old: int, rank: int, world: int) -> str:
    text = (
        f"rank {rank} of {world} takes over what rank {_and(missing)} of {old} held back, but "
        f"got the state of rank {_and(given)}"
    )
    if len(given) == 1:
        text += (
            "; pass this rank's own state, or that of all ranks: where one rank's is saved for "
            "all, that is state_dict(of='all') (state.of_all in Accelerate and Lightning)"
        )
    return text


def _check_format(state: object, of: Format) -> None:
    if not isinstance(state, Mapping) or state.get("format") != of.name:
        raise ValueError(f"this is no state of compress(): {str(state)[:80]}")
    if state.get("version") != of.version:
        raise ValueError(
            f"the state has format version {state.get('version')}; {of.version} is known"
        )
    lacking = [key for key in of.keys if key not in state]
    if lacking:
        raise ValueError(f"the state lacks {', '.join(lacking)}")


def sum_residuals(
    states: Sequence[Mapping[str, Any]], parameters: Mapping[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], list[str], list[str]]:
    """Flat sums of the states' residuals by name; names that are no parameter; texts of shapes
    that do not fit."""
    flats: dict[str, torch.Tensor] = {}
    unexpected: dict[str, None] = {}
    misfits: list[str] = []
    for state in states:
        for name, values in state["residuals"].items():
            parameter = parameters.get(name)
            if parameter is None:
                unexpected[name] = None
            elif values.shape != parameter.shape:
                misfits.append(f"{name}: {list(values.shape)}, not {list(parameter.shape)}")
            elif name in flats:
                shaped(flats[name], parameter).add_(values.to(flats[name].device))
            else:
                flats[name] = flattened(values, parameter)
    return flats, list(unexpected), misfits


def _and(values: Sequence[object]) -> str:
    return " and ".join(str(value) for value in values)
