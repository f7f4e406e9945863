"""Having ranks begin alike, and exchanging objects."""

from __future__ import annotations

import ctypes
import io
import pickle
from collections.abc import Iterable, Mapping
from typing import Any, Optional

import torch

from ..common.process_sets import ProcessSet, global_process_set
from . import _posting as post
from ._context import context
from ._handles import synchronize

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]


def broadcast_parameters(
    params: Any,
    root_rank: int,
    prefix: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """root_rank's, in place.

    params: a state_dict, or a list of tensors or of (name, tensor); what is no tensor stays.
    prefix: of the operations' names. ValueError: neither."""
    handles = []
    for name, tensor in _named(params):
        if isinstance(tensor, torch.Tensor):
            full = f"{prefix or 'parameter'}.{name}"
            handles.append(post.broadcast(tensor.data, root_rank, process_set, full))
    for handle in handles:
        synchronize(handle)


def _named(params: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(params, Mapping):
        return sorted(params.items())
    if isinstance(params, (str, torch.Tensor)) or not isinstance(params, Iterable):
        raise ValueError(
            f"parameters are a dict or a list; not {type(params).__name__}: use "
            "model.state_dict() or model.named_parameters()"
        )
    items = list(params)
    return [
        each if isinstance(each, tuple) else (str(index), each)
        for index, each in enumerate(items)
    ]


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: Optional[torch.nn.Module] = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """State and options of root_rank's, also where others have none yet. model: of no meaning
    here. ValueError: LBFGS, whose state has no fixed shape."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("broadcast_optimizer_state: LBFGS has state of no fixed shape")
    found = broadcast_object(optimizer.state_dict(), root_rank, "optimizer_state", process_set)
    if context.rank() != root_rank:
        optimizer.load_state_dict(found)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """root_rank's object, pickled on its way; other ranks' is not looked at."""
    full = f"object.{name}" if name is not None else None
    is_root = context.rank() == root_rank
    data = _packed(obj) if is_root else torch.empty(0, dtype=torch.uint8)
    size = torch.tensor([data.numel()])
    synchronize(post.broadcast(size, root_rank, process_set, full and f"{full}.size"))
    if not is_root:
        data = torch.empty(int(size), dtype=torch.uint8)
    synchronize(post.broadcast(data, root_rank, process_set, full))
    return obj if is_root else _unpacked(data)


def allgather_object(
    obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Everybody's object, by rank, pickled on its way."""
    full = f"object.{name}" if name is not None else None
    data = _packed(obj)
    counts = torch.tensor([data.numel()])
    handle = post.all_gather([counts, data], process_set, full)
    sizes, everything = synchronize(handle)
    return [_unpacked(each) for each in everything.split(sizes.tolist())]


def _packed(obj: Any) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(obj, file, pickle_protocol=pickle.HIGHEST_PROTOCOL)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def _bytes(data: torch.Tensor) -> bytes:
    return ctypes.string_at(data.data_ptr(), data.numel())


def _unpacked(data: torch.Tensor) -> Any:
    """Of another rank of this job, which runs the same program."""
    return torch.load(io.BytesIO(_bytes(data)), map_location="cpu", weights_only=False)
