#!/usr/bin/env python3
"""One rank of the PyTorch side of bench/parallel.sh: a GPT-2 in a layout of PyTorch's on gloo.

usage: parallel.py LAYOUT DTYPE LAYERS HIDDEN HEADS VOCABULARY SEQUENCE BATCH RUNS STEPS

LAYOUT is one, fsdp, tensor or pipeline, RUNS micro-batches of the last. RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT say who it is. Rank 0 prints the milliseconds of the median step
behind the first two.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A block whose parts can be cut over ranks: queries, keys and values are apart."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.wide, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        y = self.first(x)
        parts = (part(y) for part in (self.query, self.key, self.value))
        q, k, v = (p.view(rows, length, -1, self.size).transpose(1, 2) for p in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, length, -1))
        return x + self.back(functional.gelu(self.wide(self.second(x)), approximate="tanh"))


class Stage(nn.Module):
    """Some blocks of a model, with what comes before the first and behind the last."""

    def __init__(self, sizes: dict[str, int], first: int, end: int) -> None:
        super().__init__()
        width = sizes["hidden"]
        self.begins, self.ends = first == 0, end == sizes["layers"]
        if self.begins:
            self.tokens = nn.Embedding(sizes["vocabulary"], width)
            self.places = nn.Embedding(sizes["sequence"], width)
        self.blocks = nn.ModuleList(Block(width, sizes["heads"]) for _ in range(first, end))
        if self.ends:
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, sizes["vocabulary"], bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.begins:
            x = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if self.ends else x


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def shard(model: Stage) -> None:
    """FSDP2, as its documentation has it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def cut(model: Stage) -> None:
    """Tensor parallel by DTensor, columns and then rows."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {name: ColwiseParallel() for name in ("query", "key", "value", "wide")}
    plan |= {name: RowwiseParallel() for name in ("out", "back")}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)


def make_step(layout: str, sizes: dict[str, int], runs: int, context):
    """A function that takes a step on tokens and labels."""
    rank, world = dist.get_rank(), dist.get_world_size()
    layers = sizes["layers"]
    if layout == "pipeline":
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        first, end = rank * layers // world, (rank + 1) * layers // world
        model = Stage(sizes, first, end)
        stage = PipelineStage(model, rank, world, torch.device("cpu"))
        schedule = Schedule1F1B(stage, n_microbatches=runs, loss_fn=loss_of)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)

        def staged(tokens: torch.Tensor, labels: torch.Tensor) -> None:
            optimizer.zero_grad()
            with context():
                if rank == 0:
                    schedule.step(tokens)
                elif rank == world - 1:
                    schedule.step(target=labels)
                else:
                    schedule.step()
            optimizer.step()

        return staged
    model = Stage(sizes, 0, layers)
    if layout == "fsdp":
        shard(model)
    if layout == "tensor":
        cut(model)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=layout == "one")

    def step(tokens: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad()
        with context():
            loss = loss_of(model(tokens), labels)
        loss.backward()
        optimizer.step()

    return step


def main() -> None:
    layout, dtype = sys.argv[1:3]
    names = ("layers", "hidden", "heads", "vocabulary", "sequence", "batch", "runs", "steps")
    sizes = dict(zip(names, map(int, sys.argv[3:])))
    threads = 2 if layout == "one" else 1
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    dist.init_process_group("gloo")

    def context():
        if dtype == "fp32":
            return contextlib.nullcontext()
        return torch.autocast("cpu", dtype=torch.bfloat16)

    batch = sizes["batch"]
    if layout == "fsdp":
        batch //= dist.get_world_size()
    step = make_step(layout, sizes, sizes["runs"], context)
    shape = (batch, sizes["sequence"])
    tokens = torch.randint(sizes["vocabulary"], shape)
    labels = torch.randint(sizes["vocabulary"], shape)
    times = []
    for _ in range(sizes["steps"]):
        dist.barrier()
        start = time.perf_counter()
        step(tokens, labels)
        times.append(time.perf_counter() - start)
    dist.barrier()
    if dist.get_rank() == 0:
        print(1e3 * statistics.median(times[2:]), flush=True)
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main()
