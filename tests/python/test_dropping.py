"""A group whose last reference goes is closed at once, as by shutdown(): nothing of it stays
here, and the others hear who has left instead of waiting."""

from __future__ import annotations

import gc
import os
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import redpoll.torch as rt
from ranks import refusal, run_group, run_script, values

LIMIT_S = 60


def numbers():
    return torch.ones(3)


def of(group, work):
    work.wait()
    return work


def many(group, tensor):
    for _ in range(20):
        group.allreduce(tensor.clone())


WAYS = {  # what is done before the drop on all ranks, and what is kept of it
    "nothing": lambda group: None,
    "a Work that is done": lambda group: of(group, group.allreduce(numbers())),
    "a future": lambda group: group.allreduce(numbers()).get_future(),
    "a result": lambda group: of(group, group.allreduce(numbers())).result(),
    "Works that nobody waited for": lambda group: many(group, numbers()),
    "a sparse sum": lambda group: of(group, group.allreduce([numbers().to_sparse()])),
    "strided tensors": lambda group: of(group, group.allreduce(torch.ones(3, 2).t())),
    "an exception": lambda group: refusal(ValueError, lambda: group.broadcast(numbers(), 7)),
    "statistics": lambda group: rt.stats(group),
    "a barrier": lambda group: rt.monitored_barrier(timeout=timedelta(seconds=LIMIT_S)),
}


def drop(rank, world, way):
    """What the others hear; for rank 1 which communicators it has then."""
    gc.disable()  # it is not the garbage collector that finds it
    everybody = list(range(world))
    group = dist.group.WORLD.split_group(everybody, timeout=timedelta(seconds=LIMIT_S))
    name = rt.communicator_of(group).name
    kept = WAYS[way](group)
    heard = ""
    if rank == 1:
        del group
    else:
        heard = refusal(RuntimeError, lambda: group.allreduce(numbers()).wait())
    dist.barrier()  # of the default group, which goes on
    left = [one.name for one in rt.communicators() if one.name == name]
    del kept
    return heard, left


@pytest.mark.parametrize("way", WAYS)
def test_the_others_hear_at_once_who_has_left(way):
    for rank, (heard, left) in enumerate(values(run_group(drop, 3, way))):
        if rank == 1:
            assert not left
        else:
            assert "rank 1" in heard and "no progress" not in heard, heard
            assert left  # until it is dropped here


def keep_the_communicator(rank, world):
    """Whoever has the communicator has the group."""
    gc.disable()
    group = dist.group.WORLD.split_group(list(range(world)))
    own = rt.communicator_of(group)
    del group
    for _ in range(3):
        tensor = numbers()
        own.all_reduce([tensor], blocking=True)
        assert tensor.tolist() == [float(world)] * 3


def test_a_communicator_that_is_held_stays():
    values(run_group(keep_the_communicator, 2))


def drop_in_flight(rank, world):
    """What was posted before ends well, and only then the group closes."""
    gc.disable()
    group = dist.group.WORLD.split_group(list(range(world)))
    tensor = torch.full((1 << 20,), float(rank))
    if rank == 1:
        work = group.allreduce(tensor)
        del group
    else:
        time.sleep(0.5)
        work = group.allreduce(tensor)
    work.wait()
    return tensor.unique().tolist()


def test_what_is_in_flight_ends_first():
    assert values(run_group(drop_in_flight, 3)) == [[3.0]] * 3


def drop_many(rank, world):
    """Groups that come and go leave nothing behind."""
    counts = []
    for _ in range(30):
        group = dist.group.WORLD.split_group(list(range(world)))
        group.allreduce(numbers()).wait()
        dist.barrier()
        del group
        counts.append(len(rt.communicators()))
    while rt.comm._registry.are_dropped():
        time.sleep(0.01)
    return counts, len(os.listdir("/proc/self/fd"))


def test_groups_come_and_go():
    for counts, descriptors in values(run_group(drop_many, 2)):
        assert set(counts) == {1}
        assert descriptors < 100


SCRIPT = """
import sys, torch, torch.distributed as dist, redpoll.torch
dist.init_process_group("redpoll")
group = dist.group.WORLD.split_group([0, 1])
group.allreduce(torch.ones(3)).wait()
if sys.argv[1] == "cycle":
    group.itself = group          # left to the garbage collector, or to the end
del group
if sys.argv[1] == "fork":
    import os
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize("way", ["plain", "cycle", "fork"])
def test_the_interpreter_may_end_right_then(way):
    for done in run_script(SCRIPT, 2, arguments=[way]):
        assert done.returncode == 0, done.stderr
        assert "Error" not in done.stderr and "Exception" not in done.stderr, done.stderr
