#!/usr/bin/env python3
"""One rank of bench/local_steps.py: how long windows of DiLoCo take whose steps are sleeps.

Its first argument is a JSON object; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who it
is. Rank 0 prints a line of JSON for each cell, as soon as it is measured.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

import redpoll.torch

LIMIT = timedelta(minutes=10)
TOUCHED = 16  # a window changes one element in so many: computing is not what is measured


class Transformer(nn.Module):
    """The parameters of a transformer, a fifth or more of `count` in its embedding."""

    def __init__(self, count: int) -> None:
        super().__init__()
        width = max(32, int((count / 117) ** 0.5) // 32 * 32)  # 512 of 30.8 M
        block = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
        elements = sum(rows * columns for rows, columns in block)
        shapes = block * (4 * count // 5 // elements)
        rest = count - elements * (len(shapes) // len(block))
        shapes.append((-(-rest // width), width))
        torch.manual_seed(1)
        self.weights = nn.ParameterList(nn.Parameter(0.02 * torch.randn(s)) for s in shapes)


class Sleeper(torch.optim.Optimizer):
    """Stands for steps of training: moves some of the parameters once a window, and sleeps
    until `step_s` have gone by since the step before. What one sleep is late, the next is
    shorter, within a window: on a busy machine steps are on average what they should be."""

    def __init__(self, parameters, step_s: float) -> None:
        super().__init__(parameters, {"lr": 1.0})
        self.step_s, self.due = step_s, 0.0

    @torch.no_grad()
    def begin_window(self) -> None:
        self.due = time.perf_counter()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.view(-1)[: parameter.numel() // TOUCHED].add_(1e-4)

    def step(self, closure=None) -> None:
        self.due += self.step_s
        time.sleep(max(0.0, self.due - time.perf_counter()))


def measure(model: nn.Module, cell: dict, step_s: float, min_size: int) -> dict:
    """cell: codec, every, windows. Seconds of all windows, from a barrier on."""
    inner = Sleeper(model.parameters(), step_s)
    how = {"codec": cell["codec"], "min_size": min_size, "broadcast": False}
    opt = redpoll.torch.DiLoCo(model, inner, every=cell["every"], **how)
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(cell["windows"]):
        inner.begin_window()
        for _ in range(cell["every"]):
            opt.step()
    seconds = time.perf_counter() - begun
    computing = cell["windows"] * cell["every"] * step_s
    return {**cell, "seconds": seconds, "utilisation": computing / seconds}


def main() -> None:
    job = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("redpoll", timeout=LIMIT)
    model = Transformer(job["parameters"])
    warm_up = {"codec": "q4", "every": 1, "windows": 1}  # buffers are made
    measure(model, warm_up, 0.0, job["min_size"])
    for cell in job["cells"]:
        gc.collect()
        all_of_it = [
            measure(model, cell, job["step_s"], job["min_size"]) for _ in range(job["repeats"])
        ]
        if dist.get_rank() == 0:
            quickest = min(all_of_it, key=lambda each: each["seconds"])
            print(json.dumps(quickest), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
