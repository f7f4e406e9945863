"""Average consensus: every rank ends with the mean of all, and talks to neighbours alone.

bfrun -np 4 python average_consensus.py
bfrun -np 4 python average_consensus.py --virtual-topology ring_topology --max-iters 200
bfrun -np 4 python average_consensus.py --enable-dynamic-topology
bfrun -np 4 python average_consensus.py --asynchronous-mode
"""

from __future__ import annotations

import argparse

import torch

import bluefog.torch as bf
from bluefog.common import topology_util

GRAPHS = {
    "expo2": topology_util.ExponentialTwoGraph,
    "ring_topology": topology_util.RingGraph,
    "mesh_topology": topology_util.MeshGrid2DGraph,
    "star_topology": topology_util.StarGraph,
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-size", type=int, default=100000)
    parser.add_argument("--max-iters", type=int, default=50)
    parser.add_argument("--virtual-topology", choices=GRAPHS, default="expo2")
    parser.add_argument(
        "--enable-dynamic-topology", action="store_true", help="one neighbour a round"
    )
    parser.add_argument(
        "--asynchronous-mode", action="store_true", help="push-sum; nobody waits for anybody"
    )
    return parser.parse_args()


def push_sum(x: torch.Tensor, iterations: int) -> torch.Tensor:
    """The mean of all, of ranks that go on each in its own time."""
    bf.turn_on_win_ops_with_associated_p()
    bf.win_create(x, name="x", zero_init=True)
    targets = bf.out_neighbor_ranks()
    share = 1.0 / (len(targets) + 1)
    for _ in range(iterations):
        bf.win_accumulate(
            x, name="x", self_weight=share, dst_weights=dict.fromkeys(targets, share)
        )
        bf.win_update_then_collect(name="x")
    bf.barrier()  # nothing is under way any more
    bf.win_update_then_collect(name="x")
    p = bf.win_associated_p(name="x")
    print(f"associated p at {bf.rank()} is {p}")
    bf.win_free(name="x")
    return x / p


def main() -> None:
    options = parse()
    bf.init()
    bf.set_topology(GRAPHS[options.virtual_topology](bf.size()), is_weighted=True)
    generator = torch.Generator().manual_seed(bf.rank())
    x = torch.randn(options.data_size, generator=generator, dtype=torch.float64)
    mean = bf.allreduce(x)
    rounds = topology_util.GetDynamicOnePeerSendRecvRanks(bf.load_topology(), bf.rank())
    if options.asynchronous_mode:
        x = push_sum(x, options.max_iters)
    for _ in range(0 if options.asynchronous_mode else options.max_iters):
        if options.enable_dynamic_topology:
            targets, sources = next(rounds)
            share = 1.0 / (len(sources) + 1)
            x = bf.neighbor_allreduce(
                x,
                self_weight=share,
                src_weights=dict.fromkeys(sources, share),
                dst_weights=targets,
            )
        else:
            x = bf.neighbor_allreduce(x)
    error = (x - mean).square().mean().item()
    print(f"[{bf.rank()}] MSE at last iteration: {error:.3e}")
    bf.shutdown()


if __name__ == "__main__":
    main()
