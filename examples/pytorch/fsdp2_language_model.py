#!/usr/bin/env python3
"""A small GPT, sharded by FSDP2, learns the Python standard library byte by byte.

    torchrun --nproc-per-node 2 fsdp2_language_model.py --backend redpoll --grads q8

The text is the source of the interpreter that runs it, so there is nothing to download.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sysconfig
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # before PyTorch 2.6
    from torch.distributed._composable.fsdp import fully_shard

VOCABULARY = 256


class Layer(nn.Module):
    """A pre-norm transformer layer, [N, T, D] to [N, T, D], causal."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        n, t, d = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.projection(y.transpose(1, 2).reshape(n, t, d))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2's shape: learned positions, the embedding is the output layer's weight too."""

    def __init__(
        self, layers: int, width: int, heads: int, context: int, vocabulary: int = VOCABULARY
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.zeros(context, width))
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1 and name != "position":
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.position[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return functional.linear(self.norm(x), self.embedding.weight)


def standard_library(limit: int) -> torch.Tensor:
    """The first `limit` bytes of the standard library's modules, by name; uint8."""
    text = bytearray()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= limit:
            break
    return torch.frombuffer(text[:limit], dtype=torch.uint8)


class Shares:
    """This rank's sequences of each global batch; they depend on seed, step and rank alone."""

    def __init__(self, options: argparse.Namespace):
        self.text, self.options = standard_library(options.bytes), options

    def at(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        batch, context = self.options.batch, self.options.context
        generator = torch.Generator().manual_seed((self.options.seed << 32) + step)
        shape = (dist.get_world_size() * batch,)
        starts = torch.randint(len(self.text) - context, shape, generator=generator)
        starts = starts[dist.get_rank() * batch :][:batch]
        rows = torch.stack([self.text[start : start + context + 1] for start in starts]).long()
        return rows[:, :-1], rows[:, 1:]


def build(options: argparse.Namespace):
    """The sharded model (a group of parameters a layer, one of the rest), its optimizer."""
    torch.manual_seed(options.seed)
    model = GPT(options.layers, options.width, options.heads, options.context)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    if options.grads or options.weights:
        import redpoll.torch

        redpoll.torch.compress(model, grads=options.grads, weights=options.weights)
    return model, torch.optim.AdamW(model.parameters(), lr=options.lr)


def mean_over_ranks(value: torch.Tensor) -> float:
    total = value.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def train(options: argparse.Namespace) -> dict:
    """Trains and returns losses (the mean over ranks, one a step) and the median speed."""
    model, optimizer = build(options)
    shares = Shares(options)
    losses, seconds = [], []
    for step in range(options.steps):
        tokens, targets = shares.at(step)
        begun = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        logits = model(tokens)
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begun)
        losses.append(mean_over_ranks(loss))
        if step % options.log_every == 0 or step + 1 == options.steps:
            rate = speed(options, seconds)
            say(f"step {step:5d}  loss {losses[-1]:.4f}  {rate:8.0f} bytes/s")
    return {"losses": losses, "bytes_s": speed(options, seconds)}


def speed(options: argparse.Namespace, seconds: list[float]) -> float:
    """Bytes of text a second of all ranks; the first two steps do not count."""
    median = statistics.median(seconds[2:] or seconds)
    return options.batch * options.context * dist.get_world_size() / median


def say(line: str) -> None:
    if dist.get_rank() == 0:
        print(line, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("gloo", "redpoll"), default="redpoll")
    parser.add_argument("--grads", help="codec of the reduce-scatter, q8 for example")
    parser.add_argument("--weights", help="codec of the all-gather; exact unless given")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8, help="sequences a rank (%(default)s)")
    parser.add_argument("--context", type=int, default=128, help="bytes of a sequence")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=4 << 20, help="of text")
    parser.add_argument("--log-every", type=int, default=10, help="in steps")
    parser.add_argument("--json", metavar="FILE", help="rank 0 writes losses and speed there")
    options = parser.parse_args()
    if (options.grads or options.weights) and options.backend != "redpoll":
        parser.error("--grads and --weights need --backend redpoll")
    return options


def main() -> None:
    options = parse()
    if options.backend == "redpoll":
        import redpoll.torch

        redpoll.torch.init()  # init_process_group("redpoll"), also under mpirun and srun
    else:
        dist.init_process_group(options.backend)
    result = train(options)
    if options.backend == "redpoll":
        say(str(redpoll.torch.stats()))
    if options.json and dist.get_rank() == 0:
        Path(options.json).write_text(json.dumps(result) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
