"""Graphs as networkx.DiGraph: the weight of edge (i, j) is what j puts on what i sends; every
rank has an edge to itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Optional

import networkx as nx
import numpy as np

__all__ = [
    "ExponentialGraph",
    "ExponentialTwoGraph",
    "FullyConnectedGraph",
    "GetDynamicOnePeerSendRecvRanks",
    "GetExp2DynamicSendRecvMachineRanks",
    "GetInnerOuterExpo2DynamicSendRecvRanks",
    "GetInnerOuterRingDynamicSendRecvRanks",
    "GetRecvWeights",
    "GetSendWeights",
    "IsRegularGraph",
    "IsTopologyEquivalent",
    "MeshGrid2DGraph",
    "RingGraph",
    "StarGraph",
    "SymmetricExponentialGraph",
]

Weights = tuple[float, dict[int, float]]
Pair = tuple[list[int], list[int]]


def _graph(matrix: np.ndarray) -> nx.DiGraph:
    return nx.from_numpy_array(matrix, create_using=nx.DiGraph)


def _check_size(size: int) -> None:
    assert size > 0, f"a graph of {size} ranks; 1 or more are wanted"


def _circulant(size: int, hops: Iterable[int]) -> nx.DiGraph:
    """Each rank sends to those so many further on, and to itself, with equal weights."""
    offsets = sorted({hop % size for hop in hops} | {0})
    matrix = np.zeros((size, size))
    for rank in range(size):
        for offset in offsets:
            matrix[rank, (rank + offset) % size] = 1.0 / len(offsets)
    return _graph(matrix)


def _powers(base: int, below: int) -> list[int]:
    assert base > 1, f"base is {base}; 2 or more are wanted"
    found, hop = [], 1
    while hop < below:
        found.append(hop)
        hop *= base
    return found


def ExponentialTwoGraph(size: int) -> nx.DiGraph:
    """Hops of 1, 2, 4, ... below size."""
    return ExponentialGraph(size, 2)


def ExponentialGraph(size: int, base: int = 2) -> nx.DiGraph:
    """Hops of the powers of base below size; equal weights."""
    _check_size(size)
    return _circulant(size, _powers(base, size))


def SymmetricExponentialGraph(size: int, base: int = 4) -> nx.DiGraph:
    """Hops whose distance, either way round, is a power of base; equal weights."""
    _check_size(size)
    powers = set(_powers(base, size))
    return _circulant(size, [hop for hop in range(1, size) if min(hop, size - hop) in powers])


def MeshGrid2DGraph(size: int, shape: Optional[tuple[int, int]] = None) -> nx.DiGraph:
    """A grid, row by row; None: as square as size allows. Metropolis-Hastings weights."""
    _check_size(size)
    if shape is None:
        rows = next(i for i in range(math.isqrt(size), 0, -1) if size % i == 0)
        shape = (rows, size // rows)
    rows, columns = shape
    assert rows * columns == size, f"a grid of {rows} x {columns} for {size} ranks"
    linked = np.zeros((size, size), dtype=bool)
    for rank in range(size):
        row, column = divmod(rank, columns)
        if column + 1 < columns:
            linked[rank, rank + 1] = linked[rank + 1, rank] = True
        if row + 1 < rows:
            linked[rank, rank + columns] = linked[rank + columns, rank] = True
    degrees = linked.sum(axis=1) + 1
    matrix = np.where(linked, 1.0 / np.maximum.outer(degrees, degrees), 0.0)
    np.fill_diagonal(matrix, 1.0 - matrix.sum(axis=1))
    return _graph(matrix)


def StarGraph(size: int, center_rank: int = 0) -> nx.DiGraph:
    """All to and from the centre; weights 1/size, which leaf ranks fill up with their own."""
    _check_size(size)
    matrix = np.zeros((size, size))
    matrix[center_rank, :] = matrix[:, center_rank] = 1.0 / size
    for rank in range(size):
        if rank != center_rank:
            matrix[rank, rank] = 1.0 - 1.0 / size
    return _graph(matrix)


def RingGraph(size: int, connect_style: int = 0) -> nx.DiGraph:
    """connect_style 0: both neighbours; 1: to the rank before; 2: to the rank after."""
    _check_size(size)
    assert connect_style in (0, 1, 2), f"connect_style is {connect_style}; 0, 1 or 2"
    hops = {0: (1, -1), 1: (-1,), 2: (1,)}[connect_style]
    return _circulant(size, hops if size > 1 else ())


def FullyConnectedGraph(size: int) -> nx.DiGraph:
    """Everybody with everybody, weights 1/size."""
    _check_size(size)
    return _circulant(size, range(size))


def IsTopologyEquivalent(topo1: Optional[nx.DiGraph], topo2: Optional[nx.DiGraph]) -> bool:
    """The same ranks, edges and weights; False where one is None."""
    if topo1 is None or topo2 is None:
        return False
    if topo1.number_of_nodes() != topo2.number_of_nodes():
        return False
    if topo1.number_of_edges() != topo2.number_of_edges():
        return False
    nodes = range(topo1.number_of_nodes())
    first, second = (nx.to_numpy_array(each, nodelist=nodes) for each in (topo1, topo2))
    return bool((first == second).all())


def IsRegularGraph(topo: nx.DiGraph) -> bool:
    """All ranks have as many neighbours."""
    degrees = {topo.degree(rank) for rank in range(topo.number_of_nodes())}
    return len(degrees) <= 1


def GetRecvWeights(topo: nx.DiGraph, rank: int) -> Weights:
    """(what a rank puts on its own, {in-neighbour: what it puts on theirs})."""
    own, weights = 0.0, {}
    for source in sorted(topo.predecessors(rank)):
        weight = float(topo[source][rank].get("weight", 1.0))
        if source == rank:
            own = weight
        else:
            weights[source] = weight
    return own, weights


def GetSendWeights(topo: nx.DiGraph, rank: int) -> Weights:
    """(what a rank keeps, {out-neighbour: what that puts on this rank's})."""
    own, weights = 0.0, {}
    for target in sorted(topo.successors(rank)):
        weight = float(topo[rank][target].get("weight", 1.0))
        if target == rank:
            own = weight
        else:
            weights[target] = weight
    return own, weights


# ---- rounds in which each rank sends to few ----


def _clockwise(topo: nx.DiGraph, rank: int) -> list[int]:
    """Out-neighbours, those behind the rank first."""
    size = topo.number_of_nodes()
    others = [each for each in topo.successors(rank) if each != rank]
    return sorted(others, key=lambda each: (each - rank) % size)


def GetDynamicOnePeerSendRecvRanks(topo: nx.DiGraph, self_rank: int) -> Iterator[Pair]:
    """In round t to the out-neighbour t mod their number, clockwise; from all who pick this
    rank. Endless."""
    lists = [_clockwise(topo, rank) for rank in range(topo.number_of_nodes())]
    step = 0
    while True:
        picks = [each[step % len(each)] if each else None for each in lists]
        own = picks[self_rank]
        sends = [] if own is None else [own]
        receives = [rank for rank, pick in enumerate(picks) if pick == self_rank]
        yield sends, receives
        step += 1


def GetExp2DynamicSendRecvMachineRanks(
    world_size: int, local_size: int, self_rank: int, local_rank: int
) -> Iterator[Pair]:
    """Of machines: to the one 2^k further on, from the one 2^k before, k by turns. Endless."""
    assert self_rank % local_size == local_rank, "local_rank is not that of self_rank"
    assert world_size % local_size == 0, "machines have different numbers of ranks"
    machines, machine = world_size // local_size, self_rank // local_size
    assert machines > 1, "there is one machine; two or more are needed"
    turns, step = (machines - 1).bit_length(), 0
    while True:
        hop = 2 ** (step % turns)
        yield [(machine + hop) % machines], [(machine - hop) % machines]
        step += 1


def _check_inner_outer(world_size: int, local_size: int) -> int:
    assert world_size % local_size == 0, "machines have different numbers of ranks"
    assert local_size > 2, f"local_size is {local_size}; 3 or more are needed"
    return world_size // local_size


def GetInnerOuterRingDynamicSendRecvRanks(
    world_size: int, local_size: int, self_rank: int
) -> Iterator[Pair]:
    """In round t local rank t mod local_size goes to its like on the next machine; the others
    to the next of their own machine, past that one. Endless."""
    machines = _check_inner_outer(world_size, local_size)
    machine, local = divmod(self_rank, local_size)
    step = 0
    while True:
        outside = step % local_size
        if local == outside:
            target = (machine + 1) % machines * local_size + local
            source = (machine - 1) % machines * local_size + local
        else:
            target = machine * local_size + _past(local, 1, outside, local_size)
            source = machine * local_size + _past(local, -1, outside, local_size)
        yield [target], [source]
        step += 1


def _past(local: int, hop: int, outside: int, local_size: int) -> int:
    """The rank `hop` on, one further where that is the one which is outside."""
    found = (local + hop) % local_size
    return (found + hop) % local_size if found == outside else found


def GetInnerOuterExpo2DynamicSendRecvRanks(
    world_size: int, local_size: int, self_rank: int
) -> Iterator[Pair]:
    """In round t local rank t mod local_size goes to its like 2^k machines on; the others 2^k
    on within their own machine, without counting that one. Endless."""
    machines = _check_inner_outer(world_size, local_size)
    assert machines > 1, "there is one machine; two or more are needed"
    machine, local = divmod(self_rank, local_size)
    outer_turns, inner_turns = (machines - 1).bit_length(), (local_size - 2).bit_length()
    step = 0
    while True:
        outside = step % local_size
        if local == outside:
            hop = 2 ** (step % outer_turns)
            target = (machine + hop) % machines * local_size + local
            source = (machine - hop) % machines * local_size + local
        else:
            hop = 2 ** (step % inner_turns)
            on = hop + (hop >= (outside - local) % local_size)
            back = hop + (hop >= (local - outside) % local_size)
            target = machine * local_size + (local + on) % local_size
            source = machine * local_size + (local - back) % local_size
        yield [target], [source]
        step += 1
