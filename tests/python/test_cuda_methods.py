"""Gossip, local SGD, parameter servers and windows of models on a GPU: over a stand-in for one
(cuda_stand_in.py), and on a GPU where there is one. Bit for bit what they are on the CPU.

A method has a row in METHODS, and is trained in every place."""

from __future__ import annotations

from typing import Any, Optional

import pytest
import torch
from torch import nn

from cuda_stand_in import StandIn
from redpoll.torch.comm import _cuda
from test_cuda import PLACES, bits, run_on

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "local SGD": ("LocalSGD", {"every": 3}),
    "local SGD, own part kept": ("LocalSGD", {"every": 2, "delay": 1, "mixing": 0.5}),
    "DiLoCo": ("DiLoCo", {"every": 4, "codec": "q4:bucket=128", "min_size": 100}),
    "DiLoCo, streaming": ("DiLoCo", {"every": 4, "fragments": 2, "delay": 1}),
    "SlowMo": ("SlowMo", {"every": 2}),
    "NoLoCo": ("NoLoCo", {"every": 2, "seed": 5}),
    "SparseLoCo": ("SparseLoCo", {"every": 2, "min_size": 100}),
    "gossip": ("Gossip", {"codec": "q8:bucket=128", "min_size": 100}),
    "gossip under the computation": ("Gossip", {"algorithm": "awc", "topology": "ring"}),
    "exact diffusion": ("Gossip", {"algorithm": "exact-diffusion"}),
    "choco": ("Gossip", {"algorithm": "choco", "codec": "q4:bucket=128", "min_size": 100}),
    "gradient tracking": ("Gossip", {"algorithm": "gradient-tracking", "topology": "ring"}),
    "push-sum": ("Gossip", {"algorithm": "push-sum", "topology": "exponential"}),
    "parameter servers": ("ParameterServer", {"codec": "q4:bucket=128", "min_size": 100}),
    "a parameter server": ("ParameterServer", {"servers": 1}),
    "asynchronous local SGD": ("AsyncLocalSGD", {"every": 2, "staleness": 0}),
}


class Net(nn.Module):
    """Gradients are given, so that no order of additions makes a difference."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(20, 30), nn.Linear(30, 7)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def learn(model: Net, rank: int, step: int, device: str) -> None:
    generator = torch.Generator().manual_seed(100 * step + rank)
    model(torch.ones(1, 20, device=device))  # a forward pass, at which some exchanges begin
    for parameter in model.parameters():
        drawn = torch.randn(parameter.shape, generator=generator)
        parameter.grad = drawn.to(device)
    model.seen += rank


def made(model: Net, method: str) -> Any:
    import redpoll.torch

    name, options = METHODS[method]
    inner = torch.optim.SGD(model.parameters(), lr=0.25)
    goes_first = inner if name in ("Gossip", "ParameterServer") else model
    goes_next = model if goes_first is inner else inner
    return getattr(redpoll.torch, name)(goes_first, goes_next, **options)


def is_worker(opt: Any) -> bool:
    return bool(getattr(opt, "is_worker", True))


def train(rank: int, world: int, device: str, method: str) -> dict[str, Any]:
    model = Net().to(device)
    if rank:
        with torch.no_grad():
            model.first.weight.zero_()  # rank 0's are taken
    opt, seen = made(model, method), []
    for step in range(6):
        if not is_worker(opt):
            break
        learn(model, rank, step, device)
        opt.step()
        seen.append([bits(each) for each in model.parameters()])
    with opt.consensus():
        seen.append([bits(each) for each in [*model.parameters(), *model.buffers()]])
    state = opt.state_dict()
    again = Net().to(device)
    again.load_state_dict(model.state_dict())
    other = made(again, method)
    again.load_state_dict(model.state_dict())
    other.load_state_dict(state)
    for step in range(6, 9):
        if not is_worker(other):
            break
        learn(again, rank, step, device)
        other.step()
        seen.append([bits(each) for each in again.parameters()])
    if hasattr(other, "finish"):
        other.finish()
    average = getattr(other, "average_parameters", lambda: None)
    average()
    seen.append([bits(each) for each in again.parameters()])
    return {"seen": seen, "places": sorted({each.device.type for each in again.parameters()})}


def train_all(rank: int, world: int, device: str) -> dict[str, Any]:
    found = {}
    for method in METHODS:
        before = counted()
        found[method] = train(rank, world, device, method)
        assert before is None or all(now > old for now, old in zip(counted() or (), before))
    return found


def counted() -> Optional[tuple[int, int]]:
    """Elements that went to and fro so far; None: that is not counted here."""
    if not isinstance(_cuda.seam, StandIn):
        return None
    return _cuda.seam.counts["fetch"], _cuda.seam.counts["deliver"]


@pytest.mark.parametrize("place", PLACES)
def test_training(place: str) -> None:
    """One group for all methods: to start one takes longer."""
    found, wanted = run_on(place, train_all, 2), run_on("cpu", train_all, 2)
    for rank in range(2):
        for method in METHODS:
            assert found[rank][method]["seen"] == wanted[rank][method]["seen"], method
            home = "cuda" if place == "gpu" else "cpu"
            assert found[rank][method]["places"] == [home], method


# ---- windows ----


def windows(rank: int, world: int, device: str) -> list[str]:
    import torch.distributed as dist

    import redpoll.torch

    if isinstance(_cuda.seam, StandIn):
        _cuda.seam.spoils = False  # neighbours read the twin at any time
    left, right = (rank - 1) % world, (rank + 1) % world
    x = torch.arange(1000.0, device=device) + rank
    found = []
    window = redpoll.torch.Window(x, "x", [left], [right], zero_slots=True, follow_p=True)
    for step in range(3):
        x.add_(step)  # on the GPU, behind the window's back
        window.accumulate(weights={right: 0.5}, self_weight=0.5).wait()
        window.flush()
        dist.barrier()
        found.append(x.clone())
        window.update(1.0, reset=True)
        dist.barrier()
        found.append(x.clone())
    other = torch.full((1000,), 3.0 + rank, device=device)
    window.put(other, {right: 2.0}, self_weight=0.25)
    window.flush()
    dist.barrier()
    found += [window.slot(left), other]
    output = torch.zeros(1000, device=device)
    window.update(output=output)
    dist.barrier()  # all have read their slots
    window.put()  # what a neighbour's get() reads is as of the latest push or update
    window.flush()
    dist.barrier()
    window.get({left: 1.0}).wait()
    found += [output, window.slot(left), x]
    dist.barrier()
    window.free()
    assert {each.device.type for each in found} == {device}
    return [bits(each) for each in found]


@pytest.mark.parametrize("place", PLACES)
def test_windows(place: str) -> None:
    assert run_on(place, windows, 3) == run_on("cpu", windows, 3)


# ---- what is refused ----


def refused(rank: int, world: int, device: str) -> list[str]:
    import redpoll.torch

    model, texts = Net().to("meta"), []
    for name in ("LocalSGD", "Gossip", "ParameterServer"):
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        arguments = (model, inner) if name == "LocalSGD" else (inner, model)
        try:
            getattr(redpoll.torch, name)(*arguments)
        except ValueError as error:
            texts.append(str(error))
    return texts


def test_other_places_are_refused() -> None:
    for texts in run_on("cpu", refused, 2):
        assert len(texts) == 3
        assert all("on the CPU or a GPU" in text for text in texts)
