"""What the arguments of neighbour operations mean: weights, neighbours, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

import torch

from ..common.topology_util import GetRecvWeights
from ._context import context

Destinations = Union[Mapping[int, float], Sequence[int]]


class Edges(NamedTuple):
    """Of one rank, or machine, in one operation."""

    self_weight: float
    sources: dict[int, float]
    destinations: dict[int, float]


class Side(NamedTuple):
    """Ranks or machines: of which graph an operation is."""

    what: str
    own: int
    number: int
    in_neighbors: list[int]
    out_neighbors: list[int]
    graph: Any
    is_weighted: bool


def ranks() -> Side:
    return Side(
        "rank",
        context.rank(),
        context.size(),
        context.in_neighbors(),
        context.out_neighbors(),
        context.topology,
        context.is_weighted,
    )


def machines() -> Side:
    return Side(
        "machine",
        context.machine_rank(),
        context.machine_size(),
        context.in_machines(),
        context.out_machines(),
        context.machine_topology,
        context.is_machine_weighted,
    )


def edges(
    side: Side,
    self_weight: Optional[float],
    src_weights: Optional[Mapping[int, float]],
    dst_weights: Optional[Destinations],
) -> Edges:
    """ValueError says which argument cannot be."""
    if (self_weight is None) != (src_weights is None):
        raise ValueError("self_weight and the weights of sources come together or not at all")
    if self_weight is None or src_weights is None:
        if dst_weights is not None:
            raise ValueError(
                "weights of destinations need self_weight and the weights of sources too"
            )
        own, sources = _of_graph(side)
        return Edges(own, sources, dict.fromkeys(side.out_neighbors, 1.0))
    if not isinstance(self_weight, float):
        raise ValueError(f"self_weight is {self_weight!r}; a float is wanted, as 1.0")
    if not isinstance(src_weights, Mapping):
        raise ValueError(
            f"the weights of sources are a dict of rank: weight; not {src_weights!r}"
        )
    if dst_weights is None:
        _check_among(src_weights, side.in_neighbors, f"in-neighbours of {side.what} {side.own}")
        sources = {each: float(src_weights.get(each, 0.0)) for each in side.in_neighbors}
        return Edges(float(self_weight), sources, dict.fromkeys(side.out_neighbors, 1.0))
    everyone = [each for each in range(side.number) if each != side.own]
    _check_among(src_weights, everyone, f"other {side.what}s")
    destinations = destinations_of(dst_weights)
    _check_among(destinations, everyone, f"other {side.what}s")
    sources = {each: float(weight) for each, weight in src_weights.items()}
    return Edges(float(self_weight), sources, destinations)


def _of_graph(side: Side) -> tuple[float, dict[int, float]]:
    if side.is_weighted:
        return GetRecvWeights(side.graph, side.own)
    share = 1.0 / (len(side.in_neighbors) + 1)
    return share, dict.fromkeys(side.in_neighbors, share)


def destinations_of(weights: Destinations) -> dict[int, float]:
    """A list gives each 1.0."""
    if isinstance(weights, Mapping):
        return {each: float(weight) for each, weight in weights.items()}
    if not isinstance(weights, (list, tuple)):
        raise ValueError(f"destinations are a dict or a list of ranks; not {weights!r}")
    if len(set(weights)) != len(weights):
        raise ValueError(f"destinations {list(weights)} name one twice")
    return dict.fromkeys(weights, 1.0)


def _check_among(given: Iterable[int], allowed: Sequence[int], what: str) -> None:
    wrong = [each for each in given if each not in allowed]
    if wrong:
        raise ValueError(f"{wrong[0]} is none of the {what}: {list(allowed)}")


def check_both_ends(sources: Iterable[int], destinations: Iterable[int]) -> None:
    """Collective. ValueError on all ranks: one sends what the other does not expect."""
    size = context.size()
    row = torch.zeros(2, size, dtype=torch.uint8)
    row[0, list(destinations)] = 1
    row[1, list(sources)] = 1
    rows = torch.empty(size, 2, size, dtype=torch.uint8)
    context.communicator().all_gather(rows, row, blocking=True)
    wrong = (rows[:, 0] != rows[:, 1].T).nonzero().tolist()
    if wrong:
        sender, receiver = wrong[0]
        sends = "sends to" if rows[sender, 0, receiver] else "does not send to"
        expects = "expects it" if rows[receiver, 1, sender] else "does not expect it"
        raise ValueError(f"rank {sender} {sends} rank {receiver}, which {expects}")
