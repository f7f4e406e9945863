"""Two ranks on one GPU train a GPT-2 of 124 M parameters in bf16: milliseconds a step alone, by
gloo, by Redpoll as it is, and by Redpoll with q8 and q4, on links as they are and of 10 Gbit/s.

    python3 train.py        # LAYERS, WIDTH, VOCABULARY, CONTEXT, STEPS, DEVICE=cpu: smaller

REDPOLL_LINK shapes Redpoll's links, without privileges; gloo goes over loopback as it is."""

from __future__ import annotations

import copy
import os
import statistics
import time
from typing import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel as DDP


def number(name: str, usual: int) -> int:
    return int(os.environ.get(name, usual))


LAYERS, WIDTH, STEPS = number("LAYERS", 12), number("WIDTH", 768), number("STEPS", 12)
VOCABULARY, CONTEXT, BATCH = number("VOCABULARY", 50257), number("CONTEXT", 512), 4
DEVICE = os.environ.get("DEVICE", "cuda")
LINKS = ["", "10Gbit,50us"]
WARM = 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(self.norms[0](x)).unflatten(2, (3, WIDTH // 64, 64))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        return self.norm(self.blocks(x)) @ self.words.weight.t()


def stepper(model: nn.Module, tokens: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = model(tokens[:, :-1]).flatten(0, 1)
            loss = functional.cross_entropy(logits, tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    return step


def ways_of(base: nn.Module, tokens: torch.Tensor) -> dict[str, Callable[[], None]]:
    import redpoll.torch

    gloo = dist.new_group(backend="gloo")
    ways = {
        "alone": stepper(copy.deepcopy(base), tokens),
        "gloo": stepper(DDP(copy.deepcopy(base), process_group=gloo), tokens),
        "redpoll": stepper(DDP(copy.deepcopy(base)), tokens),
    }
    for name, codec, feedback in [
        ("q8", "q8", True),
        ("q4", "q4", True),
        ("q4 without feedback", "q4", False),
    ]:
        model = DDP(copy.deepcopy(base))
        redpoll.torch.compress(model, codec, error_feedback=feedback)
        ways[name] = stepper(model, tokens)
    return ways


def rank_main(rank: int, link: str, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), LOCAL_RANK="0")
    if link:
        os.environ["REDPOLL_LINK"] = link
    import redpoll.torch  # noqa: F401

    if DEVICE == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group("redpoll", rank=rank, world_size=2)
    torch.manual_seed(0)
    base = Transformer().to(DEVICE)
    tokens = torch.randint(0, VOCABULARY, (BATCH, CONTEXT + 1), device=DEVICE)
    ways = ways_of(base, tokens)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(WARM + STEPS):
        for name, step in ways.items():
            dist.barrier()
            begun = time.perf_counter()
            step()
            if turn >= WARM:
                found[name].append(1e3 * (time.perf_counter() - begun))
    if rank == 0:
        size = 1e-6 * sum(each.numel() for each in base.parameters())
        times = ", ".join(f"{name} {statistics.median(t):.1f} ms" for name, t in found.items())
        print(f"{size:.1f} M parameters, link {link or 'as it is'}: {times}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    for i, link in enumerate(LINKS):
        torch.multiprocessing.spawn(rank_main, args=(link, 29610 + i), nprocs=2)
