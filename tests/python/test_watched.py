"""Those who watch a group see what they see of gloo's; nobody else pays for it."""

from __future__ import annotations

import json

import pytest
import torch
import torch.distributed as dist
from torch import nn

import redpoll.torch as rt
from ranks import refusal, run_group, values
from redpoll.torch.c10d._process_group import HAS_DEVICE_BACKENDS
from redpoll.torch.c10d._watched import HAS_HOOKS

pytestmark = pytest.mark.skipif(
    not (HAS_DEVICE_BACKENDS and HAS_HOOKS), reason="this PyTorch's groups have no hooks"
)


def tensor(rank):
    return torch.arange(4.0) + rank


def both(rank, world):
    return torch.stack([tensor(each) for each in range(world)])


# What is called, and what comes out on each rank; None: nothing to compare.
def send_receive(rank, world):
    into = torch.empty(4)
    if rank:
        dist.send(tensor(1), 0)
    else:
        assert dist.recv(into) == 1  # from anybody
    return into if rank == 0 else None


def gathered(rank, world):
    out = torch.empty(world * 4)
    dist.all_gather_into_tensor(out, tensor(rank))
    return out


def scattered(rank, world):
    out = torch.empty(4)
    dist.reduce_scatter_tensor(out, both(rank, world).flatten())
    return out


def exchanged(rank, world):
    out = torch.empty(4)
    dist.all_to_all_single(out, tensor(rank))
    return out


def coalesced(rank, world):
    tensors = [tensor(rank), 2 * tensor(rank)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for one in tensors:
            dist.all_reduce(one)
    manager.wait()
    return torch.cat(tensors)


def later(rank, world):
    one = tensor(rank)
    work = dist.all_reduce(one, async_op=True)
    future = work.get_future()
    assert work.wait() and future.wait()[0] is one
    if dist.get_backend() == "redpoll":
        assert isinstance(work, rt.Work) and work.is_completed() and work.is_success()
    return one


def reduced(rank, world):
    one = tensor(rank)
    dist.all_reduce(one)
    return one


def sent_out(rank, world):
    one = tensor(rank)
    dist.broadcast(one, 1)
    dist.barrier()
    return one


CALLS = [
    reduced,
    later,
    sent_out,
    gathered,
    scattered,
    exchanged,
    coalesced,
    send_receive,
]


def hooked(rank, world):
    """What hooks are told of each call, and what it gives."""
    group, seen, answers = dist.group.WORLD, [], []
    group.register_pre_hook(3, lambda told: seen.append(f"{told.name} {told.async_op}"))
    group.register_post_hook(3, lambda told: seen.append(str(told.name)))
    for call in CALLS:
        found = call(rank, world)
        answers.append(None if found is None else found.tolist())
    group.unregister_pre_hook(3)
    group.unregister_post_hook(3)
    before = len(seen)
    reduced(rank, world)
    assert len(seen) == before
    return seen, answers


def test_hooks_see_what_they_see_of_gloo():
    wanted = values(run_group(hooked, 2, backend="gloo"))
    found = values(run_group(hooked, 2))
    assert found == wanted


def break_by_hook(rank, world):
    def refuse(_told):
        raise ArithmeticError("not this one")

    dist.group.WORLD.register_pre_hook(1, refuse)
    told = refusal(ArithmeticError, lambda: reduced(rank, world))
    dist.group.WORLD.unregister_pre_hook(1)
    return told, reduced(rank, world).tolist()


def test_what_a_hook_raises_comes_out():
    for told, total in values(run_group(break_by_hook, 2)):
        assert told == "not this one" and total == [1.0, 3.0, 5.0, 7.0]


def count_by_mode(rank, world):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.debug import CommDebugMode

    model = fully_shard(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
    with CommDebugMode() as sharded:
        model(torch.ones(2, 8)).sum().backward()
    with CommDebugMode() as plain:
        for call in (reduced, gathered, scattered, exchanged):
            call(rank, world)
    return [
        {str(name): count for name, count in mode.get_comm_counts().items()}
        for mode in (sharded, plain)
    ]


def test_modes_count_what_they_count_of_gloo():
    wanted = values(run_group(count_by_mode, 2, backend="gloo"))
    assert values(run_group(count_by_mode, 2)) == wanted
    assert sum(wanted[0][0].values()) > 1 and sum(wanted[0][1].values()) == 4


def reduce_nan(rank, world):
    return refusal(RuntimeError, lambda: dist.all_reduce(torch.tensor([1.0, float("nan")])))


def test_the_check_for_nan_raises():
    on = {"TORCH_DIST_NAN_CHECK": "1"}
    wanted = values(run_group(reduce_nan, 2, backend="gloo", environment=on, destroy=False))
    assert values(run_group(reduce_nan, 2, environment=on, destroy=False)) == wanted


def record(rank, world):
    from torch._C._distributed_c10d import _dump_fr_trace_json

    side = dist.new_group(group_desc="side")
    reduced(rank, world)
    dist.all_reduce(tensor(rank), group=side)
    later(rank, world)
    name = dist.get_backend()
    entries = json.loads(_dump_fr_trace_json(backend=name)).get("entries", [])
    return [
        (one["process_group"], one["profiling_name"].replace(name, "any"), one["input_sizes"])
        for one in entries
    ]


def test_the_flight_recorder_records_when_it_is_asked_to():
    on = {"TORCH_FR_BUFFER_SIZE": "100"}
    wanted = values(run_group(record, 2, backend="gloo", environment=on))
    assert len(wanted[0]) >= 3
    assert values(run_group(record, 2, environment=on)) == wanted


def fail_watched(rank, world):
    dist.group.WORLD.register_pre_hook(1, lambda told: None)
    sizes = [3, 4]
    return refusal(rt.RedpollError, lambda: dist.all_reduce(torch.ones(sizes[rank])))


def test_errors_are_ours_behind_that_door_too():
    for told in values(run_group(fail_watched, 2, destroy=False)):
        assert "all-reduce of 3 f32" in told and "all-reduce of 4 f32" in told


def nobody_watches(rank, world):
    for call in CALLS:
        call(rank, world)
    watch = dist.group.WORLD.watch
    return watch.is_on, watch._group is None


def test_without_watchers_there_is_no_second_door():
    assert values(run_group(nobody_watches, 2)) == [(False, True)] * 2


def detail(rank, world):
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group, one = dist.new_group(), tensor(rank)
    dist.all_reduce(one, group=group)
    return group.watch.is_on, one.tolist()


def test_detail_is_watched():
    assert values(run_group(detail, 2)) == [(True, [1.0, 3.0, 5.0, 7.0])] * 2
