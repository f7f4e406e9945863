"""The operations of torch.distributed, as bench/torch.py times them."""

from __future__ import annotations

import torch
import torch.distributed as dist


def calls(count: int) -> dict:
    """Name to a callable that takes the group: synchronous, of blocks of `count` float32."""
    rank, world = dist.get_rank(), dist.get_world_size()
    block, into = torch.ones(count), torch.zeros(count)
    row, into_row = torch.ones(count * world), torch.zeros(count * world)
    blocks, into_blocks = list(row.split(count)), list(into_row.split(count))
    at_root = rank == 0

    def ping_pong(group) -> None:
        if rank == 0:
            dist.send(block, 1, group=group)
            dist.recv(into, 1, group=group)
        elif rank == 1:
            dist.recv(into, 0, group=group)
            dist.send(block, 0, group=group)

    return {
        "all_reduce": lambda g: dist.all_reduce(into, group=g),
        "all_reduce, async": lambda g: dist.all_reduce(into, group=g, async_op=True).wait(),
        "broadcast": lambda g: dist.broadcast(into, 0, group=g),
        "reduce": lambda g: dist.reduce(into, 0, group=g),
        "all_gather_into_tensor": lambda g: dist.all_gather_into_tensor(
            into_row, block, group=g
        ),
        "all_gather": lambda g: dist.all_gather(into_blocks, block, group=g),
        "reduce_scatter_tensor": lambda g: dist.reduce_scatter_tensor(into, row, group=g),
        "reduce_scatter": lambda g: dist.reduce_scatter(into, blocks, group=g),
        "gather": lambda g: dist.gather(block, into_blocks if at_root else None, 0, group=g),
        "scatter": lambda g: dist.scatter(into, blocks if at_root else None, 0, group=g),
        "all_to_all_single": lambda g: dist.all_to_all_single(into_row, row, group=g),
        "send and recv": ping_pong,
        "barrier": lambda g: dist.barrier(group=g),
    }
