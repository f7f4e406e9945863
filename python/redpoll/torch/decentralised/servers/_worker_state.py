"""What a worker that comes back has from another, and how it goes over a communicator."""

from __future__ import annotations

import ctypes
import io
from typing import Any

import torch

from ...comm._communicator import Communicator


def donor_of(ranks: Any, first_ranks: list[int], back: list[int]) -> int:
    """Its place in the world: the first worker that lives; else rank 0, which has the buffers
    of the latest meeting, and of the inner optimizer what it was given at the start."""
    for place, rank in enumerate(first_ranks):
        if rank >= ranks.options.servers and rank not in back:
            return place
    return 0


def worker_state(member: Any, steps: int) -> dict[str, Any]:
    """What a worker may have from another: optimizer, buffers of the model, how far it is."""
    return {
        "inner": member.inner.state_dict()["state"],
        "buffers": [each.detach().clone() for each in member.model.buffers()],
        "steps": steps,
    }


@torch.no_grad()
def take_worker_state(member: Any, state: dict[str, Any]) -> None:
    groups = member.inner.state_dict()["param_groups"]  # rates are the script's affair
    member.inner.load_state_dict({"state": state["inner"], "param_groups": groups})
    for own, given in zip(member.model.buffers(), state["buffers"]):
        own.copy_(given)
    member.steps = state["steps"]


def packed(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def unpacked(data: bytes) -> Any:
    """Tensors and plain values: nothing that another rank sends is run."""
    return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")


def shared(communicator: Communicator, root: int, data: bytes) -> bytes:
    """Those of `root`, on all ranks."""
    size = torch.tensor([len(data)])
    communicator.broadcast(size, root, blocking=True)
    vector = torch.empty(int(size.item()), dtype=torch.uint8)
    if communicator.rank == root:
        ctypes.memmove(vector.data_ptr(), data, len(data))
    communicator.broadcast(vector, root, blocking=True)
    return ctypes.string_at(vector.data_ptr(), vector.numel())
