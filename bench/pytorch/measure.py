#!/usr/bin/env python3
"""One rank of bench/torch.py: measures what its first argument, a JSON object, asks for.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who it is. Rank 0 prints one line of JSON.
Backends are compared in the same processes, taking turns, so that a machine that becomes slower
becomes slower for all of them; the order of turns is reversed every other round.
"""

from __future__ import annotations

import copy
import ctypes
import json
import resource
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from calls import calls
from resnet50 import ResNet50
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import redpoll.torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "pytorch"))
from ddp_image_classification import ResNet18  # noqa: E402
from fsdp2_language_model import GPT  # noqa: E402

LIMIT = timedelta(minutes=5)


def take_turns(contestants: dict, rounds: int, device: str = "cpu") -> dict[str, list[float]]:
    """Seconds of each callable, `rounds` times; one round more, the first, does not count. Of
    a GPU: until it is through."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        names = list(contestants)
        for name in names if turn % 2 else reversed(names):
            dist.barrier()
            begun = time.perf_counter()
            contestants[name]()
            if device == "cuda":
                torch.cuda.synchronize()
            if turn:
                seconds[name].append(time.perf_counter() - begun)
    return seconds


def groups() -> dict:
    """The same ranks twice: over gloo and over Redpoll."""
    dist.init_process_group("gloo", timeout=LIMIT)
    return {
        "gloo": dist.group.WORLD,
        "redpoll": dist.new_group(backend="redpoll", timeout=LIMIT),
    }


def seconds_a_call(call, group_of: dict, job: dict) -> dict[str, list[float]]:
    """Of each backend: `call` takes its group, job["iterations"] times a turn."""

    def repeat(group) -> None:
        for _ in range(job["iterations"]):
            call(group)

    turns = {name: lambda group=group: repeat(group) for name, group in group_of.items()}
    seconds = take_turns(turns, job["rounds"])
    return {name: [s / job["iterations"] for s in list_] for name, list_ in seconds.items()}


def all_reduce(job: dict) -> dict:
    """Seconds of one exact float32 all-reduce of job["bytes"], in place; of Redpoll also in
    memory that the ranks read where it lies."""
    group_of = groups()
    plain = torch.zeros(job["bytes"] // 4)
    registered = redpoll.torch.empty(job["bytes"] // 4)
    calls_of = {name: (group, plain) for name, group in group_of.items()}
    calls_of["registered"] = (group_of["redpoll"], registered)
    return seconds_a_call(lambda call: dist.all_reduce(call[1], group=call[0]), calls_of, job)


def operations(job: dict) -> dict:
    """Seconds of every operation on blocks of job["bytes"]: name to seconds of each backend."""
    group_of = groups()
    each = calls(job["bytes"] // 4)
    return {name: seconds_a_call(call, group_of, job) for name, call in each.items()}


def resident_bytes() -> int:
    """Of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def new_groups(job: dict) -> dict:
    """Of a new group of all ranks, beside all that have been made before: seconds and resident
    bytes of each backend, where the default group is Redpoll's."""
    dist.init_process_group("redpoll", timeout=LIMIT)
    count = job["iterations"]
    sizes: dict[str, list[float]] = {"gloo": [], "redpoll": []}

    def make(backend: str) -> None:
        before = resident_bytes()
        for _ in range(count):
            dist.new_group(backend=backend, timeout=LIMIT)
        sizes[backend].append((resident_bytes() - before) / count)

    turns = {backend: lambda backend=backend: make(backend) for backend in sizes}
    seconds = take_turns(turns, job["rounds"])
    seconds = {name: [s / count for s in list_] for name, list_ in seconds.items()}
    return {"seconds": seconds, "bytes": {name: each[1:] for name, each in sizes.items()}}


def model_and_batch(job: dict):
    """The module, its inputs and targets, and how many samples they are."""
    torch.manual_seed(1)
    batch = job["batch"]
    if job["model"] == "resnet50":
        images = torch.randn(batch, 3, 224, 224)
        return ResNet50(), images, torch.randint(0, 1000, (batch,))
    if job["model"] == "resnet18":
        model = ResNet18(job.get("width", 64)).to(memory_format=torch.channels_last)
        images = torch.randn(batch, 1, 28, 28).contiguous(memory_format=torch.channels_last)
        return model, images, torch.randint(0, 10, (batch,))
    layers, width, context = job["layers"], job["width"], job["context"]
    model = GPT(layers, width, width // 64, context, job["vocabulary"])
    tokens = torch.randint(0, job["vocabulary"], (batch, context + 1))
    return model, tokens[:, :-1], tokens[:, 1:]


def stepper(model, inputs, targets):
    """One training step; on a GPU under autocast, in bf16."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    on_gpu = inputs.is_cuda

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=on_gpu):
            logits = model(inputs)
            loss = functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()

    return step


def encoded_bytes(model, codec: str | None) -> int:
    """Bytes of all gradients: q4 is half a byte an element and two floats a bucket of 512;
    parameters of one dimension or fewer than 10,000 elements travel exact."""
    total = 0
    for parameter in model.parameters():
        count = parameter.numel()
        lossy = codec == "q4" and parameter.dim() > 1 and count >= 10000
        total += count // 2 + -(-count // 512) * 8 if lossy else 4 * count
    return total


def steps(job: dict) -> dict:
    """Seconds of one training step, of the model alone and under DDP for each contestant.

    job["contestants"]: name to [backend, codec or null]. "alone" computes without any
    communication, on all ranks at once: what a link without limits could at best give."""
    group_of = groups()
    device = job.get("device", "cpu")
    module, inputs, targets = (each.to(device) for each in model_and_batch(job))
    turns = {"alone": stepper(copy.deepcopy(module), inputs, targets)}
    gradient_bytes = {}
    for name, (backend, codec) in job["contestants"].items():
        model = DistributedDataParallel(copy.deepcopy(module), process_group=group_of[backend])
        if codec:
            redpoll.torch.compress(model, codec=codec)
        turns[name] = stepper(model, inputs, targets)
        gradient_bytes[name] = encoded_bytes(module, codec)
    for warm_up in turns.values():  # the first step builds DDP's buckets, the second uses them
        warm_up()
    seconds = take_turns(turns, job["rounds"], device)
    return {"seconds": seconds, "gradient_bytes": gradient_bytes}


def sharded(module, group, options: dict | None):
    """The module under FSDP2, a unit a block; compressed if options are given."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(group, "cpu")
    for block in module.layers:
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    if options is not None:
        redpoll.torch.compress(module, **options)
    return module


def fsdp(job: dict) -> dict:
    """Seconds of one training step of the model alone and under FSDP2 for each contestant, and
    the bytes that a rank of it sends in a step (of gloo: as many as of Redpoll's exact).

    job["contestants"]: name to [backend, options of compress() or null]."""
    group_of = groups()
    module, inputs, targets = model_and_batch(job)
    turns = {"alone": stepper(copy.deepcopy(module), inputs, targets)}
    for name, (backend, options) in job["contestants"].items():
        model = sharded(copy.deepcopy(module), group_of[backend], options)
        turns[name] = stepper(model, inputs, targets)
    sent = {}
    for name, step in turns.items():
        step()  # the first one makes what later ones use again
        before = sum(one.wire_bytes_sent for one in redpoll.torch.stats().values())
        step()
        after = sum(one.wire_bytes_sent for one in redpoll.torch.stats().values())
        sent[name] = after - before
    return {"seconds": take_turns(turns, job["rounds"]), "sent": sent}


def bare_all_reduce(values: torch.Tensor):
    """The library's blocking all-reduce over a communicator without Python in between: every
    structure is made once, and a call is one call through ctypes."""
    from redpoll import _abi, _library
    from redpoll.torch.comm._dtypes import NUMBER
    from redpoll.torch.comm._store import StoreBridge, bind_host

    library = _library.load()
    store = dist.PrefixStore("bench", dist.distributed_c10d._get_default_store())
    place = (dist.get_rank(), dist.get_world_size())
    bridge, host = StoreBridge(store), bind_host(store, *place, "bench", timeout_s=60)
    options = _abi.rp_comm_options(name=b"bench", bind_host=host.encode() if host else None)
    comm = ctypes.c_void_p()
    arguments = (ctypes.byref(bridge.structure), *place, ctypes.byref(options))
    assert _abi.rp_comm_create(*arguments, ctypes.byref(comm)) == 0
    segment = _abi.rp_segment(
        data=values.data_ptr(), count=values.numel(), dtype=NUMBER[torch.float32]
    )
    call = library.rp_all_reduce
    call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    reference = ctypes.byref(segment)

    def repeat(calls: int) -> None:
        for _ in range(calls):
            assert call(comm, reference, 1, None) == 0

    repeat.keep = (bridge, segment, comm, values)
    repeat.close = lambda: _abi.rp_comm_destroy(comm)
    return repeat


def overhead(job: dict) -> dict:
    """Seconds of an all-reduce of one element: in C, through PyTorch, with async_op."""
    values = torch.zeros(1)
    calls = job["calls"]

    def repeat(group) -> None:
        for _ in range(calls):
            dist.all_reduce(values, group=group)

    def repeat_later(group) -> None:
        for _ in range(calls):
            dist.all_reduce(values, group=group, async_op=True).wait()

    turns = {}
    for name, group in groups().items():
        turns[name] = lambda group=group: repeat(group)
        turns[f"{name}_async"] = lambda group=group: repeat_later(group)
    bare = bare_all_reduce(values)
    turns["c"] = lambda: bare(calls)
    seconds = take_turns(turns, job["rounds"])
    dist.barrier()
    bare.close()
    return {name: [s / calls for s in list_] for name, list_ in seconds.items()}


def integrations(job: dict) -> dict:
    """Seconds of a step of the same training as a plain script and in frameworks. Those that
    are not installed are left out."""
    import importlib.util

    import frameworks

    package = {"trainer": "transformers", "lightning": "pytorch_lightning"}
    package["plain again"] = "torch"
    dist.init_process_group("redpoll", timeout=LIMIT)
    module, *batch = model_and_batch(job)
    seconds: dict[str, list[float]] = {
        kind: []
        for kind in frameworks.KINDS
        if kind == "plain" or importlib.util.find_spec(package.get(kind, kind))
    }
    for turn in range(job["rounds"]):
        for kind in seconds if turn % 2 else reversed(list(seconds)):
            dist.barrier()
            taken = frameworks.step_seconds(kind, module, tuple(batch), job["steps"])
            seconds[kind].append(taken)
    return {"seconds": seconds}


MEASUREMENTS = {
    "all-reduce": all_reduce,
    "operations": operations,
    "groups": new_groups,
    "steps": steps,
    "fsdp": fsdp,
    "overhead": overhead,
    "integrations": integrations,
}


def main() -> None:
    job = json.loads(sys.argv[1])
    result = MEASUREMENTS[job["what"]](job)
    if dist.get_rank() == 0:
        print(json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
