"""Does the installed redpoll work under the installed PyTorch? One line a step, two ranks.

    python release_smoke.py [--control] [--json FILE] [STEP ...]

Run by tools/try_torch_releases.sh in an environment that holds one PyTorch release and the
wheel; every step is a world of its own, so that one that fails cannot disturb the next.
--control runs each failing step with gloo as well, to tell what this release lacks from what
Redpoll lacks. Exit 0 when every step passed, or failed with gloo too.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ranks
import redpoll.torch

WORLD = 2


def door(rank: int, world: int) -> str:
    """By which door the backend stands in this release."""
    dist.barrier()
    group = type(dist.group.WORLD)
    if group is not dist.ProcessGroup:
        return "process group"
    backend = type(dist.group.WORLD._get_backend(torch.device("cpu")))
    return "backend" if backend.__module__.startswith("redpoll") else f"? {backend}"


def collectives(rank: int, world: int) -> None:
    """Each operation on tensors, with its known answer."""
    ones = torch.full((1000,), float(rank + 1))
    dist.all_reduce(ones)
    assert torch.equal(ones, torch.full((1000,), 3.0))
    work = dist.all_reduce(ones, op=dist.ReduceOp.MAX, async_op=True)
    work.wait()
    whole = torch.empty(2, dtype=torch.int64)
    dist.all_gather_into_tensor(whole, torch.tensor([rank]))
    assert whole.tolist() == [0, 1]
    parts = [torch.empty(1, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(parts, torch.tensor([rank]))
    assert [part.item() for part in parts] == [0, 1]
    mine = torch.empty(3)
    dist.reduce_scatter_tensor(mine, torch.arange(6.0))
    assert torch.equal(mine, 2 * torch.arange(6.0)[3 * rank : 3 * rank + 3])
    from_all = torch.empty(2, dtype=torch.int64)
    dist.all_to_all_single(from_all, torch.tensor([10 * rank, 10 * rank + 1]))
    assert from_all.tolist() == [rank, 10 + rank]
    root = torch.tensor([float(rank)], dtype=torch.bfloat16)
    dist.broadcast(root, 1)
    assert root.item() == 1.0
    dist.reduce(root, 0)
    dist.barrier()


def point_to_point(rank: int, world: int) -> None:
    """send and recv with a tag, from a named source and from any."""
    buffer = torch.zeros(3)
    if rank == 0:
        dist.send(torch.arange(3.0), 1, tag=7)
        assert dist.recv(buffer) == 1
    else:
        dist.recv(buffer, 0, tag=7)
        dist.isend(buffer, 0).wait()
    assert torch.equal(buffer, torch.arange(3.0))


def objects(rank: int, world: int) -> None:
    """Object collectives: pickles as bytes."""
    found: list[Any] = [None] * world
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": 0}, {"rank": 1}]
    box = [f"from {rank}"]
    dist.broadcast_object_list(box, src=1)
    assert box == ["from 1"]


def groups(rank: int, world: int) -> None:
    """Groups made, used, destroyed, and made again; one of one rank."""
    for _ in range(3):
        both, alone = dist.new_group([0, 1]), dist.new_group([1])
        value = torch.ones(2)
        dist.all_reduce(value, group=both)
        if rank == 1:
            dist.all_reduce(value, group=alone)
            dist.destroy_process_group(alone)
        assert value.tolist() == [2.0, 2.0]
        dist.destroy_process_group(both)


def device_maps(rank: int, world: int) -> None:
    """Another backend for another device, in either order; gloo stands in for NCCL."""
    cuda = torch.device("cuda")
    for config in ("cpu:redpoll,cuda:gloo", "cuda:gloo,cpu:redpoll"):
        mixed = dist.new_group(backend=config)
        assert "gloo" in type(mixed._get_backend(cuda)).__name__.lower(), config
        value = torch.ones(2)
        dist.all_reduce(value, group=mixed)
        assert value.tolist() == [2.0, 2.0]
        assert redpoll.torch.communicator_of(mixed).world == world
        mixed._get_backend(cuda).allreduce([value]).wait()
        assert value.tolist() == [4.0, 4.0]
        redpoll.torch.communicator_of(mixed).set_timeout(timedelta(seconds=20))
        dist.destroy_process_group(mixed)


def described(rank: int, world: int) -> None:
    """Options and a description reach the group."""
    options = redpoll.torch.Options(codec="q8", codec_min_size=100)
    lossy = dist.new_group(pg_options=options, group_desc="lossy")
    value = torch.linspace(0, 1, 200)
    dist.all_reduce(value, group=lossy)
    assert not torch.equal(value, torch.linspace(0, 1, 200) * 2)
    assert list(redpoll.torch.stats(lossy)) == ["lossy"]


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))


def _steps(model: nn.Module, rank: int) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(4):
        inputs = torch.randn(16, 64, generator=generator)
        loss = (model(inputs) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def ddp(rank: int, world: int) -> list[float]:
    """Four steps of DDP; the losses."""
    return _steps(DistributedDataParallel(_network(), bucket_cap_mb=0.01), rank)


def ddp_q4(rank: int, world: int) -> list[float]:
    """The same through the compressing hook; with gloo there is none."""
    model = DistributedDataParallel(_network(), bucket_cap_mb=0.01)
    redpoll.torch.compress(model, codec="q4", min_size=0)
    return _steps(model, rank)


def fsdp2(rank: int, world: int) -> list[float]:
    """fully_shard on the CPU, where this release has it."""
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh

    model = _network()
    mesh = init_device_mesh("cpu", (world,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    return _steps(model, rank)


def fsdp1(rank: int, world: int) -> list[float]:
    """FullyShardedDataParallel on the CPU, where this release has it."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(_network(), device_id=torch.device("cpu"))
    return _steps(model, rank)


def functional(rank: int, world: int) -> None:
    """A functional collective and a DTensor."""
    from torch.distributed import _functional_collectives as collectives_of
    from torch.distributed.device_mesh import init_device_mesh

    total = collectives_of.all_reduce(torch.ones(4), "sum", dist.group.WORLD)
    assert torch.equal(total + 0, torch.full((4,), 2.0))
    try:
        from torch.distributed.tensor import Shard, distribute_tensor
    except ImportError:
        from torch.distributed._tensor import Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (world,))
    table = torch.arange(8.0).reshape(4, 2)
    assert torch.equal(distribute_tensor(table, mesh, [Shard(0)]).full_tensor(), table)


STEPS: dict[str, Callable[..., Any]] = {
    step.__name__: step
    for step in (
        door,
        collectives,
        point_to_point,
        objects,
        groups,
        device_maps,
        described,
        ddp,
        ddp_q4,
        fsdp2,
        fsdp1,
        functional,
    )
}


def attempt(step: Callable[..., Any], backend: str) -> tuple[Any, str]:
    """Rank 0's value, and "" or the last line of the first failure."""
    outcomes = ranks.run_group(step, WORLD, backend=backend, timeout=90)
    for outcome in outcomes:
        if not outcome.ok:
            return None, f"rank {outcome.rank}: {brief(outcome.error or '?')}"
    return outcomes[0].value, ""


def brief(error: str) -> str:
    """The last line of a traceback, or where the main thread of a late rank stands."""
    lines = error.strip().splitlines()
    if not lines[0].startswith("late"):
        return lines[-1]
    main = max(number for number, line in enumerate(lines) if line.startswith("Thread"))
    return f"hangs:{lines[min(main + 1, len(lines) - 1)].replace('  File', '')}"


def same(mine: Any, theirs: Any) -> bool:
    """Losses as gloo's; anything else is not compared."""
    if not isinstance(mine, list):
        return True
    return all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(mine, theirs))


def judge(name: str, control: bool) -> tuple[str, str]:
    """ "passed", "not with gloo either" or "failed", and a detail."""
    value, error = attempt(STEPS[name], "redpoll")
    if not error and not (control and isinstance(value, list)):
        return "passed", value if isinstance(value, str) else ""
    if not control or name in ("door", "device_maps", "described", "ddp_q4"):
        return ("failed", error) if error else ("passed", "")
    theirs, their_error = attempt(STEPS[name], "gloo")
    if error:
        return ("not with gloo either" if their_error else "failed"), error
    agree = not their_error and same(value, theirs)
    return ("passed", "") if agree else ("failed", f"losses {value}, with gloo {theirs}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="*", choices=[*STEPS, []], metavar="STEP")
    parser.add_argument("--control", action="store_true", help="compare with gloo")
    parser.add_argument("--json", type=Path, help="write the results there")
    arguments = parser.parse_args()

    results = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "redpoll": redpoll.__version__,
    }
    bad = 0
    for name in arguments.steps or STEPS:
        verdict, detail = judge(name, arguments.control)
        print(f"{name:16} {verdict}" + (f": {detail}" if detail else ""), flush=True)
        results[name] = detail if name == "door" and verdict == "passed" else verdict
        bad += verdict == "failed"
    if arguments.json:
        arguments.json.write_text(json.dumps(results))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
