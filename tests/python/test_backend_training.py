"""PyTorch's own trainers over Redpoll and over gloo: the same losses, the same parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranks import run_group

STEPS = 4


def model() -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 3)
    )


class Branches(nn.Module):
    """Every other step leaves half of the parameters unused."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.left, self.right, self.calls = nn.Linear(12, 3), nn.Linear(12, 3), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.left(x) if self.calls % 2 else self.right(x)


def train(made: nn.Module, optimizer: Any, rank: int, steps: int = STEPS) -> list[float]:
    """Losses of some steps; each rank has images of its own."""
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(steps):
        x = torch.randn(16, 12, generator=generator)
        loss = made(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def checksums(made: nn.Module) -> list[float]:
    full = [getattr(one, "full_tensor", lambda one=one: one)() for one in made.parameters()]
    return [one.double().sum().item() for one in full]


def sgd(made: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(made.parameters(), lr=0.1, momentum=0.9)


# ---- what is trained: (rank, world, folder) -> numbers ----


def ddp(rank: int, world: int, folder: Path) -> list[float]:
    made = DistributedDataParallel(model(), bucket_cap_mb=0.002)
    return train(made, sgd(made), rank) + checksums(made)


def ddp_static(rank: int, world: int, folder: Path) -> list[float]:
    made = DistributedDataParallel(model(), static_graph=True, gradient_as_bucket_view=True)
    return train(made, sgd(made), rank) + checksums(made)


def ddp_unused(rank: int, world: int, folder: Path) -> list[float]:
    made = DistributedDataParallel(Branches(), find_unused_parameters=True)
    return train(made, sgd(made), rank) + checksums(made)


def ddp_no_sync(rank: int, world: int, folder: Path) -> list[float]:
    made = DistributedDataParallel(model())
    optimizer, generator = sgd(made), torch.Generator().manual_seed(rank)
    for step in range(6):
        x = torch.randn(8, 12, generator=generator)
        if step % 3 < 2:
            with made.no_sync():
                made(x).square().mean().backward()
        else:
            made(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return checksums(made)


def ddp_hook(rank: int, world: int, folder: Path) -> list[float]:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    made = DistributedDataParallel(model())
    made.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return train(made, sgd(made), rank) + checksums(made)


def ddp_power_sgd(rank: int, world: int, folder: Path) -> list[float]:
    """Its callbacks post, and wait for the futures of what they post."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    made = DistributedDataParallel(model())
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
    made.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return train(made, sgd(made), rank) + checksums(made)


def ddp_compiled(rank: int, world: int, folder: Path) -> list[float]:
    """The forward pass broadcasts a buffer in the middle of what Dynamo traces."""
    layers = nn.Sequential(nn.BatchNorm1d(12), model())
    made = torch.compile(DistributedDataParallel(layers), backend="eager")
    return train(made, sgd(made), rank) + checksums(made)


def zero(rank: int, world: int, folder: Path) -> list[float]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    made = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(
        made.parameters(), optimizer_class=torch.optim.SGD, lr=0.1, momentum=0.9
    )
    losses = train(made, optimizer, rank)
    optimizer.consolidate_state_dict(to=0)
    return losses + checksums(made)


def sharded() -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    made = model()
    for layer in made:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(made)
    return made


def fsdp2(rank: int, world: int, folder: Path) -> list[float]:
    made = sharded()
    return train(made, sgd(made), rank) + checksums(made)


def fsdp1(rank: int, world: int, folder: Path) -> list[float]:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    made = FSDP(model(), device_id=torch.device("cpu"), use_orig_params=True)
    losses = train(made, sgd(made), rank)
    with FSDP.summon_full_params(made):
        return losses + checksums(made)


def dtensor(rank: int, world: int, folder: Path) -> list[float]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    whole = torch.arange(35.0).reshape(7, 5)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    product = (columns @ columns.T.redistribute(mesh, [Replicate()])).full_tensor()
    return product.reshape(-1).tolist() + rows.sum().full_tensor().reshape(-1).tolist()


def checkpoint(rank: int, world: int, folder: Path) -> list[float]:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    made = sharded()
    optimizer = sgd(made)
    train(made, optimizer, rank)
    weights, state = get_state_dict(made, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=str(folder))
    again = sharded()
    fresh = sgd(again)
    weights, state = get_state_dict(again, fresh)
    loaded = {"model": weights, "optimizer": state}
    dcp.load(loaded, checkpoint_id=str(folder))
    set_state_dict(again, fresh, model_state_dict=weights, optim_state_dict=loaded["optimizer"])
    assert checksums(again) == checksums(made)
    return train(again, fresh, rank) + checksums(again)


def objects(rank: int, world: int, folder: Path) -> list[float]:
    everybody: list[Any] = [None] * world
    dist.all_gather_object(everybody, {"rank": rank, "text": "x" * rank})
    assert everybody == [{"rank": each, "text": "x" * each} for each in range(world)]
    told = [rank, "from the root"] if rank == world - 1 else [None, None]
    dist.broadcast_object_list(told, src=world - 1)
    assert told == [world - 1, "from the root"]
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [10 * each for each in range(world)] if rank == 0 else None)
    assert mine == [10 * rank]
    collected: list[Any] = [None] * world
    dist.gather_object(rank, collected if rank == 0 else None)
    if rank == 0:
        assert collected == list(range(world))
        dist.send_object_list(["to one"], dst=1)
    elif rank == 1:
        got: list[Any] = [None]
        dist.recv_object_list(got, src=0)
        assert got == ["to one"]
    return []


def functional(rank: int, world: int, folder: Path) -> list[float]:
    import torch.distributed._functional_collectives as functions

    gather = getattr(functions, "all_gather_single", functions.all_gather_tensor)
    scatter = getattr(functions, "reduce_scatter_single", functions.reduce_scatter_tensor)
    group, own = dist.group.WORLD, torch.arange(6.0) + rank
    summed = functions.all_reduce(own, "sum", group)
    both = functions.all_reduce_coalesced([own, own * 2], "max", group)
    gathered = gather(own, 0, group)
    scattered = scatter(torch.arange(2.0 * world) * rank, "sum", 0, group)
    exchanged = functions.all_to_all_single(own.repeat(world), None, None, group)
    parts = [summed, *both, gathered, scattered, exchanged]
    return torch.cat([one.reshape(-1) for one in parts]).tolist()


TRAINED: list[Callable[..., list[float]]] = [
    ddp,
    ddp_static,
    ddp_unused,
    ddp_no_sync,
    ddp_hook,
    ddp_power_sgd,
    ddp_compiled,
    zero,
    fsdp2,
    fsdp1,
    dtensor,
    checkpoint,
    objects,
    functional,
]


def run_all(rank: int, world: int, folder: str) -> dict[str, Any]:
    import traceback

    results: dict[str, Any] = {}
    for one in TRAINED:
        try:
            results[one.__name__] = one(rank, world, Path(folder) / one.__name__)
        except Exception:
            results[one.__name__] = traceback.format_exc()
        dist.barrier()
    return results


Results = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """By backend, what each rank got."""
    found: Results = {}
    for backend in ("redpoll", "gloo"):
        folder = str(tmp_path_factory.mktemp(backend))
        outcomes = run_group(run_all, 2, folder, backend=backend, timeout=200, group_timeout=30)
        text = "\n".join(one.error or "" for one in outcomes)
        failed = {one.__name__: text for one in TRAINED}
        found[backend] = [one.value if one.ok else failed for one in outcomes]
    return found


@pytest.mark.parametrize("name", [one.__name__ for one in TRAINED])
def test_same_as_gloo(name: str, results: Results) -> None:
    for rank, (got, wanted) in enumerate(zip(results["redpoll"], results["gloo"])):
        assert not isinstance(wanted[name], str), f"gloo, rank {rank}:\n{wanted[name]}"
        assert not isinstance(got[name], str), f"rank {rank}:\n{got[name]}"
        assert got[name] == pytest.approx(wanted[name], rel=1e-5, abs=1e-6)
