"""The same training over Redpoll as over gloo; what 4 bits change; PyTorch's own tutorials.

REDPOLL_LONG_TESTS=1 trains longer, on more images and from more seeds; docs/pytorch.md has its
figures.
"""

from __future__ import annotations

import os
import statistics
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranks import run_group, values

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "pytorch"))
import ddp_image_classification as images  # noqa: E402
import fsdp2_language_model as language  # noqa: E402

LONG = os.environ.get("REDPOLL_LONG_TESTS", "") not in ("", "0")
STEPS = 400 if LONG else 50
DEADLINE = 3000 if LONG else 240
SEEDS = (1, 2, 3, 4, 5) if LONG else (1, 2, 3)

needs_data = pytest.mark.skipif(
    not (images.DEBIAN_FOLDER / "train-images-idx3-ubyte.gz").exists(),
    reason=f"{images.DEBIAN_FOLDER} is missing (Debian's package dataset-fashion-mnist)",
)


def image_losses(rank: int, world: int, seed: int, codec: str | None, feedback: bool) -> list:
    options = Namespace(
        codec=codec,
        no_error_feedback=not feedback,
        steps=STEPS,
        batch=32 if LONG else 16,
        width=8,
        lr=0.02,
        seed=seed,
        images=60000 if LONG else 8000,
        data_dir=str(images.DEBIAN_FOLDER),
        checkpoint=None,
        log_every=1000,
    )
    return images.train(options)["losses"]


def text_losses(rank: int, world: int, grads: str | None) -> list:
    options = Namespace(
        grads=grads,
        weights=None,
        steps=STEPS,
        batch=4,
        context=64,
        layers=2,
        width=64,
        heads=4,
        lr=1e-3,
        seed=1,
        bytes=1 << 20,
        log_every=1000,
    )
    return language.train(options)["losses"]


def train(function, *words, backend: str = "redpoll", world: int = 2) -> list[float]:
    """Losses of every step, which all ranks agree on."""
    outcomes = run_group(function, world, *words, backend=backend, timeout=DEADLINE)
    first, *others = values(outcomes)
    assert all(other == first for other in others)
    return first


def final(losses: list[float]) -> float:
    """The loss at the end: the mean of the last tenth of all steps."""
    return statistics.fmean(losses[-(len(losses) // 10) :])


def assert_close(found: list[float], wanted: list[float]) -> None:
    worst = max(abs(a - b) / abs(b) for a, b in zip(found, wanted))
    print(f"largest relative difference of {len(wanted)} losses: {worst:.1e}")
    assert len(found) == len(wanted) == STEPS
    assert worst <= 1e-4


@pytest.fixture(scope="module")
def exact_runs() -> dict[int, list[float]]:
    return {seed: train(image_losses, seed, None, False) for seed in SEEDS}


@needs_data
def test_ddp_gives_the_losses_of_gloo(exact_runs: dict) -> None:
    assert_close(exact_runs[1], train(image_losses, 1, None, False, backend="gloo"))


@needs_data
def test_four_bits_with_error_feedback(exact_runs: dict, capsys) -> None:
    """The mean over seeds lies within the spread of the exact runs."""
    exact = {seed: final(losses) for seed, losses in exact_runs.items()}
    with_feedback = {s: final(train(image_losses, s, "q4", True)) for s in SEEDS}
    seeds = SEEDS if LONG else SEEDS[:1]
    without = {s: final(train(image_losses, s, "q4", False)) for s in seeds}
    with capsys.disabled():
        print(f"\nfinal loss after {STEPS} steps, seeds {SEEDS}:")
        print_losses("exact", exact)
        print_losses("q4, error feedback", with_feedback)
        print_losses("q4, no error feedback", without)
    assert statistics.fmean(with_feedback.values()) <= max(exact.values())


def print_losses(name: str, by_seed: dict[int, float]) -> None:
    each = "  ".join(f"{loss:.4f}" for loss in by_seed.values())
    print(f"  {name:22} {each}   mean {statistics.fmean(by_seed.values()):.4f}")


@pytest.fixture(scope="module")
def exact_text() -> list[float]:
    return train(text_losses, None)


def test_fsdp2_gives_the_losses_of_gloo(exact_text: list[float]) -> None:
    assert_close(exact_text, train(text_losses, None, backend="gloo"))


def test_fsdp2_with_eight_bits(exact_text: list[float], capsys) -> None:
    exact, lossy = exact_text, train(text_losses, "q8")
    with capsys.disabled():
        print(f"\nGPT under FSDP2, final loss: exact {final(exact):.4f}, q8 {final(lossy):.4f}")
    assert exact != lossy
    assert final(lossy) <= final(exact) * 1.02


# ---- the programs of PyTorch's tutorials, in short ----


class ToyModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net1, self.relu, self.net2 = nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net2(self.relu(self.net1(x)))


def toy_step(model, optimizer, rank: int) -> None:
    optimizer.zero_grad()
    generator = torch.Generator().manual_seed(rank)
    outputs = model(torch.randn(20, 10, generator=generator))
    nn.functional.mse_loss(outputs, torch.randn(20, 5, generator=generator)).backward()
    optimizer.step()


def digest(model: nn.Module) -> list[float]:
    return [parameter.detach().double().sum().item() for parameter in model.parameters()]


def ddp_tutorial(rank: int, world: int, folder: str) -> list[float]:
    """Getting started with DDP: one step, a checkpoint by rank 0, loaded by all, one more."""
    torch.manual_seed(rank)  # DDP itself makes the replicas equal
    model = DistributedDataParallel(ToyModel())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    toy_step(model, optimizer, rank)
    path = f"{folder}/model.checkpoint"
    if rank == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    model.load_state_dict(torch.load(path, weights_only=True))
    toy_step(model, optimizer, rank)
    dist.barrier()
    return digest(model)


def fsdp1_tutorial(rank: int, world: int, folder: str) -> list[float]:
    """Getting started with FSDP: wrap, train, gather the whole state on rank 0."""
    from torch.distributed.fsdp import FullStateDictConfig, StateDictType
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    torch.manual_seed(0)
    model = FSDP(ToyModel(), device_id=torch.device("cpu"))
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.1)
    for _ in range(3):
        toy_step(model, optimizer, rank)
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        state = model.state_dict()
    assert bool(state) == (rank == 0)
    totals = [[tensor.double().sum().item() for tensor in state.values()]]
    dist.broadcast_object_list(totals, src=0)
    return totals[0]


def fsdp2_tutorial(rank: int, world: int, folder: str) -> list[float]:
    """Getting started with fully_shard: layers and root, clipping, a distributed checkpoint."""
    from torch.distributed.checkpoint import load, save
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    torch.manual_seed(0)
    model = nn.Sequential(ToyModel(), nn.ReLU(), nn.Linear(5, 5))
    language.fully_shard(model[0])
    language.fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    toy_step(model, optimizer, rank)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    kept, optimizer_kept = get_state_dict(model, optimizer)
    save({"model": kept, "optimizer": optimizer_kept}, checkpoint_id=f"{folder}/fsdp2")
    toy_step(model, optimizer, rank)
    load({"model": kept, "optimizer": optimizer_kept}, checkpoint_id=f"{folder}/fsdp2")
    set_state_dict(model, optimizer, model_state_dict=kept, optim_state_dict=optimizer_kept)
    toy_step(model, optimizer, rank)
    return [p.full_tensor().detach().double().sum().item() for p in model.parameters()]


@pytest.mark.parametrize("tutorial", [ddp_tutorial, fsdp1_tutorial, fsdp2_tutorial])
def test_tutorials(tutorial, tmp_path: Path) -> None:
    found = {}
    for backend in ("gloo", "redpoll"):
        folder = tmp_path / backend
        folder.mkdir()
        found[backend] = train(tutorial, str(folder), backend=backend)
    assert found["redpoll"] == pytest.approx(found["gloo"], rel=1e-6)
