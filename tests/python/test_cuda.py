"""CUDA tensors: over a stand-in for a GPU (cuda_stand_in.py), and on a GPU where there is one.

What a rank computes is compared, bit for bit, with the same on CPU tensors. The table of all
operations runs over the stand-in, too: the ctest python/cuda has test_conformance.py and
others again, with REDPOLL_TEST_PLACE=stand-in."""

from __future__ import annotations

import gc
import hashlib
import logging
import threading
import time
import weakref
from datetime import timedelta
from typing import Any, Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from cuda_stand_in import ENVIRONMENT, installed, needs_gpu, needs_stand_in
from ranks import refusal, run_group, values
from redpoll.torch.comm import _cuda

PLACES = [
    pytest.param("stand-in", marks=needs_stand_in),
    pytest.param("gpu", marks=[needs_gpu, pytest.mark.gpu]),
]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def run_on(place: str, function: Callable[..., Any], world: int, *args: Any, **options: Any):
    """function(rank, world, device, *args) in each rank; device: "cpu" or "cuda"."""
    environment = {**(ENVIRONMENT if place == "stand-in" else {}), **options.pop("also", {})}
    device = "cuda" if place == "gpu" else "cpu"
    return values(run_group(function, world, device, *args, environment=environment, **options))


def bits(tensor: torch.Tensor) -> str:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).hexdigest()


def same_everywhere(place: str, function: Callable[..., Any], world: int, *args: Any) -> None:
    assert run_on(place, function, world, *args) == run_on("cpu", function, world, *args)


# ---- operations ----


def values_of(rank: int, device: str, count: int, salt: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * salt + rank)
    return torch.randn(count, generator=generator).to(device)


def some_of_each(rank: int, world: int, device: str) -> list[str]:
    """Blocking and not, dense and strided, with all the ways of waiting."""
    found = []
    for turn in range(6):
        for async_op in (False, True):
            flat = values_of(rank, device, 40_000, turn)
            one = flat.view(200, 200).t() if turn % 2 else flat
            work = dist.all_reduce(one, async_op=async_op)
            if async_op:
                work.wait() if turn < 4 else work.get_future().wait()
            found.append(one.clone())
            parts = [torch.zeros_like(flat) for _ in range(world)]
            work = dist.all_gather(parts, flat, async_op=async_op)
            if async_op:
                work.wait(timedelta(seconds=60))
                work.wait()
            found += [each.clone() for each in parts]
            other = torch.zeros(1001, dtype=torch.float64, device=device)[::7]
            work = dist.broadcast(other.add_(rank), src=world - 1, async_op=async_op)
            if async_op:
                while not work.is_completed():
                    time.sleep(0.001)
                work.wait()
            found.append(other.clone())
    to, by = (rank + 1) % world, (rank - 1) % world
    got = torch.zeros(5000, device=device)
    sent = dist.isend(values_of(rank, device, 5000), to)
    dist.recv(got, by)
    sent.wait()
    return [bits(each) for each in [*found, got]]


@pytest.mark.parametrize("place", PLACES)
def test_operations(place: str) -> None:
    same_everywhere(place, some_of_each, 3)


def policy_and_objects(rank: int, world: int, device: str) -> list[Any]:
    flat = values_of(rank, device, 30_000)
    dist.all_reduce(flat)
    told: list[Any] = [None] * world
    dist.all_gather_object(told, {"rank": rank, "name": "x" * (rank + 1)})
    picked: list[Any] = [f"of {rank}"]
    dist.broadcast_object_list(picked, src=1)
    group = dist.new_group([0, 1], use_local_synchronization=False)
    if rank < 2:
        dist.all_reduce(flat, group=group)
    return [bits(flat), told, picked]


@pytest.mark.parametrize("place", PLACES)
def test_a_codec_by_variable_objects_and_groups(place: str) -> None:
    codec = {"REDPOLL_CODEC": "q4:bucket=256"}
    found = run_on(place, policy_and_objects, 3, also=codec)
    assert found == run_on("cpu", policy_and_objects, 3, also=codec)
    assert found[0] != run_on("cpu", policy_and_objects, 3)[0]


def let_go(rank: int, world: int, device: str) -> str:
    """Of Works that are dropped, and of those that were only waited for by stream."""
    watched = []
    for turn in range(20):
        tensor = values_of(rank, device, 100_000, turn)  # small ones may stay (_work.py)
        watched.append(weakref.ref(tensor))
        work = dist.all_reduce(tensor, async_op=True)
        if turn % 2:
            work.wait()
        del work, tensor
    deadline = time.monotonic() + 60
    while any(one() is not None for one in watched):
        gc.collect()
        if time.monotonic() > deadline:
            return f"{sum(one() is not None for one in watched)} tensors are held"
        time.sleep(0.01)
    return "all let go"


@pytest.mark.parametrize("place", PLACES)
def test_tensors_are_let_go(place: str) -> None:
    assert run_on(place, let_go, 2) == ["all let go"] * 2


def calls_of_the_seam(rank: int, world: int, device: str) -> dict[str, int]:
    flat = values_of(rank, device, 1000)
    dist.all_reduce(flat)  # its results are followed
    dist.all_reduce(flat, async_op=True).wait()
    dist.all_reduce(flat.view(10, 100).t())  # those of a dense copy are copied back
    return installed().counts


@needs_stand_in
def test_streams_follow() -> None:
    for counts in run_on("stand-in", calls_of_the_seam, 2):
        assert counts["follow"] == 2
        assert counts["copy_back"] == counts["wait_for"] == 1


# ---- other GPUs stay closed ----


def threads_of_callbacks(rank: int, world: int, device: str) -> list[bool]:
    """Whether each callback, and each copy, was run with the GPU of the operation chosen. One
    that is added to what has ended already is run where it is added."""
    stand_in, seen, adding = installed(), [], False
    own = threading.get_ident()

    def look(_: Any) -> None:
        seen.append(stand_in.is_chosen() or (adding and threading.get_ident() == own))

    for turn in range(4):
        flat = values_of(rank, device, 50_000, turn).view(100, 500)
        work = dist.all_reduce(flat.t() if turn % 2 else flat, async_op=True)
        adding = True
        later = work.get_future().then(look)
        adding = False
        later.wait() if turn < 2 else work.wait()
        later.wait()
    return seen


@needs_stand_in
@pytest.mark.parametrize("also", [{}, {"REDPOLL_CUDA": "off"}])
def test_callbacks_have_the_gpu_chosen(also: dict[str, str]) -> None:
    for seen in run_on("stand-in", threads_of_callbacks, 2, also=also):
        assert seen == [True] * 4


class LazyCuda:
    """PyTorch's choice of devices: going back to a device that is not open is put off, and
    set_stream() opens that of its stream."""

    def __init__(self) -> None:
        self.chosen, self.opened = 0, set()
        outer = self

        class Device:
            def __init__(self, device: torch.device) -> None:
                self.index = device.index

            def __enter__(self) -> None:
                self.before, outer.chosen = outer.chosen, self.index
                outer.opened.add(self.index)

            def __exit__(self, *_: Any) -> None:
                outer.chosen = self.before

        class Stream:
            def __init__(self, device: torch.device) -> None:
                self.device = device

            def record_event(self) -> str:
                return "an event"

        class InStream:
            def __init__(self, stream: Stream) -> None:
                self.index = stream.device.index

            def __enter__(self) -> None:
                self.before, outer.chosen = outer.chosen, self.index
                outer.opened.add(self.index)

            def __exit__(self, *_: Any) -> None:
                outer.chosen = self.before
                outer.opened.add(self.before)

        self.device, self.Stream, self.stream = Device, Stream, InStream


def test_copies_open_their_own_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = LazyCuda()
    for name in ("device", "Stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(cuda, name))
    monkeypatch.setattr(_cuda, "seam", _cuda.Seam())
    place = _cuda.Place(torch.device("cuda", 3))
    place.copy_back()
    assert cuda.opened == {3}


# ---- what is refused ----


def refusals(rank: int, world: int, device: str) -> list[str]:
    import ctypes

    import cuda_stand_in

    seam = installed()
    here = torch.ones(4)
    address = here.data_ptr()
    seam.holds = lambda tensor: tensor.is_cpu and tensor.data_ptr() != address  # type: ignore
    call = lambda: dist.all_gather([torch.ones(4), here], torch.ones(4))  # noqa: E731
    texts = [refusal(ValueError, call)]
    texts.append(refusal(ValueError, lambda: dist.all_reduce(torch.ones(1).expand(4))))
    control = ctypes.CDLL(str(cuda_stand_in.LIBRARY))
    control.stand_in_capture(1)
    texts.append(refusal(RuntimeError, lambda: dist.all_reduce(torch.ones(4))))
    control.stand_in_capture(0)
    ones = torch.ones(4)
    dist.all_reduce(ones)
    return [*texts, str(ones.tolist())]


@needs_stand_in
def test_what_is_refused() -> None:
    for mixed, expanded, captured, after in run_on("stand-in", refusals, 2):
        assert "a tensor is on the CPU, and another one of the same call on cpu" in mixed
        assert "pass its clone()" in expanded
        assert "a CUDA graph is being captured" in captured
        assert after == "[2.0, 2.0, 2.0, 2.0]"


# ---- without a GPU that can be used ----


class Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def through_the_host(rank: int, world: int, device: str) -> tuple[list[str], list[str]]:
    said = Said()
    logging.getLogger("redpoll").addHandler(said)
    found = some_of_each(rank, world, device)
    assert not _cuda.is_usable()
    assert device == "cuda" or not installed().counts["follow"]
    return found, [text for text in said.texts if "CUDA" in text]


@pytest.mark.parametrize("place", PLACES)
def test_turned_off(place: str) -> None:
    found = run_on(place, through_the_host, 3, also={"REDPOLL_CUDA": "off"})
    wanted = run_on("cpu", some_of_each, 3)
    for (results, said), expected in zip(found, wanted):
        assert results == expected
        assert said == [
            "CUDA tensors travel in full, through pinned memory of the host: CUDA: turned off "
            "by REDPOLL_CUDA=off; said once"
        ]


# ---- training ----


def net(device: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers).to(device, dtype)


def exact_net(device: str) -> nn.Module:
    """Of numbers that any device adds and multiplies alike: small integers and halves."""
    model = nn.Sequential(nn.Linear(40, 64), nn.Linear(64, 64), nn.Linear(64, 10))
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        drawn = torch.randint(-1, 2, parameter.shape, generator=generator)
        parameter.data.copy_(drawn)
    return model.to(device)


def gradients_of(model: nn.Module, rank: int, step: int, device: str) -> None:
    """A backward pass whose sums no order of additions rounds."""
    generator = torch.Generator().manual_seed(10 * step + rank)
    x = torch.randint(-2, 3, (8, 40), generator=generator).float().to(device)
    model(x).sum().backward()


def train(rank: int, world: int, device: str, options: dict[str, Any]) -> dict[str, Any]:
    """Some steps of DDP; digests of gradients, and of what is held back."""
    import redpoll.torch

    scaler = torch.amp.GradScaler(device, init_scale=4.0) if options.get("scaler") else None
    model = exact_net(device)
    ddp = DDP(model, bucket_cap_mb=0.01, **options.get("ddp", {}))
    state = None
    if options.get("codec"):
        keys = {"grad_scaler": scaler} if scaler else {}
        state = redpoll.torch.compress(ddp, options["codec"], min_size=200, seed=3, **keys)
        if options.get("from") is not None:
            state.load_state_dict(options["from"][rank])
    seen = []
    for step in range(5):
        ddp.zero_grad()
        gradients_of(ddp, rank, step, device)
        if scaler is not None and step == 2:  # a step that is not finite
            next(model.parameters()).grad.fill_(float("inf"))
        seen.append([bits(parameter.grad) for parameter in model.parameters()])
    held = state.state_dict() if state is not None else {"residuals": {}}
    residuals = {name: bits(one) for name, one in held["residuals"].items()}
    homes = {one.device.type for one in held["residuals"].values()}
    return {"seen": seen, "residuals": residuals, "homes": sorted(homes)}


WAYS = {
    "exact": {},
    "q4": {"codec": "q4:bucket=128"},
    "q3, stochastic": {"codec": "q3:bucket=64,rounding=stochastic"},
    "topk, on the host": {"codec": "topk"},
    "unused": {"codec": "q4:bucket=128", "ddp": {"find_unused_parameters": True}},
    "views": {"codec": "q8:bucket=128", "ddp": {"gradient_as_bucket_view": True}},
    "auto": {"codec": "auto:like=q4,every=2"},
}


def ignore_homes(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: one[key] for key in ("seen", "residuals")} for one in found]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_ddp(place: str, way: str) -> None:
    found, wanted = run_on(place, train, 2, WAYS[way]), run_on("cpu", train, 2, WAYS[way])
    assert ignore_homes(found) == ignore_homes(wanted)
    if WAYS[way].get("codec"):
        assert found[0]["residuals"]
        assert found[0]["homes"] == ["cuda" if place == "gpu" else "cpu"]


def cgx(rank: int, world: int, device: str) -> list[str]:
    import cgx_utils

    model = exact_net(device)
    ddp = DDP(model)
    state = cgx_utils.CGXState(None, 200, {"bits": 4, "bucket_size": 128})
    ddp.register_comm_hook(state, cgx_utils.cgx_hook)
    for step in range(3):
        ddp.zero_grad()
        gradients_of(ddp, rank, step, device)
    return [bits(parameter.grad) for parameter in model.parameters()]


@pytest.mark.parametrize("place", PLACES)
def test_torch_cgx(place: str) -> None:
    same_everywhere(place, cgx, 2)


def sharded(rank: int, world: int, device: str) -> list[str]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import redpoll.torch

    model = exact_net(device)
    mesh = init_device_mesh(device, (world,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    redpoll.torch.compress(model, grads="q8:bucket=64", weights="bf16", min_size=200)
    for step in range(3):
        model.zero_grad()
        gradients_of(model, rank, step, device)
    return [bits(parameter.grad.to_local()) for parameter in model.parameters()]


@pytest.mark.parametrize("place", PLACES)
def test_fsdp2(place: str) -> None:
    pytest.importorskip("torch.distributed.fsdp", reason="no FSDP")
    if not hasattr(torch.distributed.fsdp, "fully_shard"):
        pytest.skip("FSDP2 of this PyTorch is elsewhere")
    same_everywhere(place, sharded, 2)


# ---- on a GPU alone: what only PyTorch's CUDA does ----


def streams_and_graphs(rank: int, world: int, device: str) -> list[str]:
    """Inputs made by a stream that is late, results read by another; a graph is refused."""
    late, reader = torch.cuda.Stream(), torch.cuda.Stream()
    found = []
    for turn in range(10):
        with torch.cuda.stream(late):
            torch.cuda._sleep(10_000_000)
            tensor = torch.full((1 << 20,), float(rank + turn), device=device)
            work = dist.all_reduce(tensor, async_op=True)
        with torch.cuda.stream(reader):
            work.wait()
            copy = tensor * 2
        torch.cuda.synchronize()
        found.append(str(copy[0].item()))
        wanted = 2.0 * sum(each + turn for each in range(world))
        assert bool((copy == wanted).all())
    graph = torch.cuda.CUDAGraph()
    captured = torch.zeros(4, device=device)

    def capture() -> None:
        with torch.cuda.graph(graph):
            dist.all_reduce(captured)

    found.append(refusal(RuntimeError, capture))
    return found


@needs_gpu
@pytest.mark.gpu
def test_streams_and_graphs() -> None:
    for found in run_on("gpu", streams_and_graphs, 2):
        assert "CUDA graph" in found[-1]


def memory_is_flat(rank: int, world: int, device: str, steps: int) -> tuple[int, int]:
    import redpoll.torch

    ddp = DDP(net(device))
    redpoll.torch.compress(ddp, "q4:bucket=128", min_size=200)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
    x = values_of(rank, device, 320).view(8, 40)
    seen = []
    for step in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            loss = ddp(x).square().mean()
        loss.backward()
        optimizer.step()
        if step in (steps // 10, steps - 1):
            torch.cuda.synchronize()
            seen.append(torch.cuda.memory_allocated())
    return seen[0], seen[1]


@needs_gpu
@pytest.mark.gpu
def test_memory_is_flat() -> None:
    for early, late in run_on("gpu", memory_is_flat, 2, 1000, timeout=300.0):
        assert late <= early + (1 << 20)


def test_pytorch_has_what_the_seam_calls() -> None:
    """Names that only run where there is a GPU."""
    for name in ("current_stream", "device", "stream", "Stream", "is_available"):
        assert hasattr(torch.cuda, name)
    for name in ("wait_event", "record_event", "synchronize", "cuda_stream"):
        assert hasattr(torch.cuda.Stream, name), name
    assert hasattr(torch.Tensor, "record_stream")
