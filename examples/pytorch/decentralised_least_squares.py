"""Decentralised least squares: ranks with different data find one optimum by their neighbours.

    torchrun --nproc-per-node 4 decentralised_least_squares.py
    torchrun --nproc-per-node 4 decentralised_least_squares.py --topology exponential --codec q8

Each rank has rows of its own, A x = b, noise included. Prints, for each algorithm, how far the
worst rank ends from the optimum of all rows, and how far ranks are apart. atc and awc end near
it, the others at it.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn

import redpoll.torch

ALGORITHMS = ("atc", "awc", "exact-diffusion", "gradient-tracking")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topology", default="ring", help="docs/topologies.md has them")
    parser.add_argument("--algorithms", nargs="+", default=ALGORITHMS)
    parser.add_argument("--codec", default=None, help="how parameters travel; exact")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--unknowns", type=int, default=20)
    parser.add_argument("--rows", type=int, default=100, help="of each rank")
    return parser.parse_args()


class Unknowns(nn.Module):
    """x of A x = b; its output is the rank's mean square error."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(count))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a @ self.x - b).square().mean()


def optimum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Of the rows of all ranks."""
    normal, right = a.T @ a, a.T @ b
    dist.all_reduce(normal)
    dist.all_reduce(right)
    return torch.linalg.solve(normal, right)


def solve(
    algorithm: str, options: argparse.Namespace, a: torch.Tensor, b: torch.Tensor
) -> redpoll.torch.Gossip:
    model = Unknowns(options.unknowns)
    inner = torch.optim.SGD(model.parameters(), lr=options.lr)
    opt = redpoll.torch.Gossip(
        inner, model, options.topology, algorithm, options.codec, rules={"x": options.codec}
    )
    for _ in range(options.steps):
        opt.zero_grad()
        model(a, b).backward()
        opt.step()
    return opt


def main() -> None:
    options = parse()
    redpoll.torch.init()
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(rank)
    a = torch.randn(options.rows, options.unknowns, generator=generator)
    b = a @ (torch.ones(options.unknowns) * (1 + rank)) + torch.randn(
        options.rows, generator=generator
    )
    best = optimum(a, b)
    for algorithm in options.algorithms:
        opt = solve(algorithm, options, a, b)
        error = (opt.model.x.detach() - best).norm() / best.norm()
        dist.all_reduce(error, dist.ReduceOp.MAX)
        apart = opt.consensus_distance()
        if rank == 0:
            print(f"{algorithm:18} error of the worst rank {error:.2e}  apart {apart:.2e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
