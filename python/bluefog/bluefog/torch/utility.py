"""Having ranks begin alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from ._context import context
from ._handles import synchronize
from .mpi_ops import allreduce_nonblocking_, broadcast_nonblocking_

__all__ = ["allreduce_parameters", "broadcast_optimizer_state", "broadcast_parameters"]


def _tensors(params: Any) -> list[torch.Tensor]:
    """Of a dict, or a list of tensors or of (name, tensor)."""
    if isinstance(params, Mapping):
        values: Iterable[Any] = params.values()
    elif isinstance(params, list):
        values = [each[1] if isinstance(each, tuple) else each for each in params]
    else:
        raise ValueError(
            f"parameters are a dict or a list; not {type(params).__name__}: use "
            "model.state_dict() or list(model.named_parameters())"
        )
    return [each.data for each in values if isinstance(each, torch.Tensor)]


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """root_rank's, in place. ValueError: neither a dict nor a list."""
    for handle in [broadcast_nonblocking_(each, root_rank) for each in _tensors(params)]:
        synchronize(handle)


def allreduce_parameters(params: Any) -> None:
    """The mean of all ranks, in place; integers stay. ValueError: neither a dict nor a list."""
    tensors = [each for each in _tensors(params) if each.is_floating_point()]
    for handle in [allreduce_nonblocking_(each) for each in tensors]:
        synchronize(handle)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int) -> None:
    """State and hyper-parameters of root_rank's. ValueError: LBFGS, whose state has no fixed
    shape."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("broadcast_optimizer_state: LBFGS has state of no fixed shape")
    context.check()
    found: list[Any] = [optimizer.state_dict() if context.rank() == root_rank else None]
    root = dist.get_global_rank(context.group, root_rank)
    dist.broadcast_object_list(found, root, group=context.group)
    if context.rank() != root_rank:
        optimizer.load_state_dict(found[0])
