"""The other side of neighbours that only one side knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ._context import context

__all__ = ["InferDestinationFromSourceRanks", "InferSourceFromDestinationRanks"]


def InferSourceFromDestinationRanks(
    dst_ranks: Sequence[int], construct_adjacency_matrix: bool = False
) -> Any:
    """Who names this rank. Collective. With the flag also the matrix of equal weights."""
    return _infer(dst_ranks, construct_adjacency_matrix, transposed=False)


def InferDestinationFromSourceRanks(
    src_ranks: Sequence[int], construct_adjacency_matrix: bool = False
) -> Any:
    """Who names this rank. Collective. With the flag also the matrix of equal weights."""
    return _infer(src_ranks, construct_adjacency_matrix, transposed=True)


def _infer(ranks: Sequence[int], with_matrix: bool, transposed: bool) -> Any:
    size, own = context.size(), context.rank()
    for each in ranks:
        assert isinstance(each, (int, np.integer)), f"{each!r} is no rank"
        assert 0 <= each < size, f"there is no rank {each}; 0 to {size - 1}"
        assert each != own, f"rank {own} names itself"
    assert len(set(ranks)) == len(ranks), f"{list(ranks)} name one twice"
    row = torch.zeros(size, dtype=torch.uint8)
    row[list(ranks)] = 1
    named = torch.empty(size, size, dtype=torch.uint8)
    context.communicator().all_gather(named, row, blocking=True)
    found = [each for each in range(size) if named[each, own]]
    if not with_matrix:
        return found
    sends = named.numpy().T if transposed else named.numpy()
    matrix = np.eye(size) + sends
    return found, matrix / matrix.sum(axis=1)
