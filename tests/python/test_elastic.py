"""Groups that shrink, and groups by themselves."""

from __future__ import annotations

import os
import signal

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import redpoll.torch as rt
from ranks import run_group, run_ranks, values


def summed(group=None):
    total = torch.tensor([float(2 ** dist.get_rank(group))])
    dist.all_reduce(total, group=group)
    return total.item()


def lose(rank, lost):
    """An operation fails on the others, as rank `lost` dies."""
    dist.barrier()  # all are there
    if rank == lost:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        for _ in range(100):
            dist.all_reduce(torch.ones(1000))
    except rt.RedpollError as error:
        assert error.status == "PEER", error
        return
    raise AssertionError("nobody was missed")


def shrink_after_a_death(rank, world, lost, named):
    lose(rank, lost)
    shrunk = rt.shrink_group([lost] if named else None)
    assert shrunk is dist.group.WORLD
    sub = dist.new_group([0, 1])
    told = [dist.get_rank(), dist.get_world_size(), summed(), type(shrunk).__name__]
    return [*told, summed(sub) if dist.get_rank() < 2 else None]


@pytest.mark.parametrize("lost, named", [(0, False), (1, True), (3, False)])
def test_those_that_are_left_go_on(lost, named):
    outcomes = run_group(shrink_after_a_death, 4, lost, named)
    told = values([one for rank, one in enumerate(outcomes) if rank != lost])
    assert [one[:4] for one in told] == [[place, 3, 7.0, "RedpollGroup"] for place in range(3)]
    assert [one[4] for one in told] == [3.0, 3.0, None]


def shrink_by_the_living(rank, world):
    """Nobody has died: rank 1 leaves."""
    if rank == 1:
        return dist.get_rank()
    rt.shrink_group([1])
    return dist.get_rank(), summed()


def test_a_rank_that_lives_is_left_out():
    left = values(run_group(shrink_by_the_living, 3))
    assert left == [(0, 3.0), 1, (1, 3.0)]


def shrink_one_of_two_groups(rank, world):
    three, rest = dist.new_group([0, 2, 3]), dist.new_group([0, 1])
    if rank == 1:
        return summed(rest)
    own = rt.Options(codec="q4", codec_min_size=1000)
    codec = dist.new_group([0, 2, 3], pg_options=own, use_local_synchronization=True)
    shrunk = rt.shrink_group([1], three) if rank != 2 else None
    coded = rt.shrink_group([0], codec) if rank != 0 else None
    told = [dist.get_world_size()]
    if shrunk is not None:
        told += [dist.get_process_group_ranks(shrunk), summed(shrunk)]
    if coded is not None:
        noise = torch.randn(1 << 16, generator=torch.Generator().manual_seed(0))
        own = noise.clone()
        dist.all_reduce(own, group=coded)
        told += [dist.get_process_group_ranks(coded), torch.equal(own, 2 * noise)]
    return [*told, summed(rest) if rank < 2 else None]


@pytest.mark.skipif(
    not hasattr(dist, "shrink_group"),
    reason="this PyTorch names such a group differently on each rank",
)
def test_a_group_beside_the_default_one_shrinks():
    """Its ranks keep their numbers in the world, and it its codec."""
    told = values(run_group(shrink_one_of_two_groups, 4))
    assert told[0] == [4, [0, 3], 3.0, 3.0]
    assert told[1] == 3.0
    assert told[2] == [4, [2, 3], False, None]
    assert told[3] == [4, [0, 3], 3.0, [2, 3], False, None]


def refused(call):
    with pytest.raises((rt.RedpollError, rt.RedpollValueError)) as caught:
        call()
    return str(caught.value)


def shrink_wrongly(rank, world):
    return [
        refused(lambda: rt.shrink_group([rank])),
        refused(lambda: rt.shrink_group([2])),
        refused(rt.shrink_group),
        summed(),
    ]


def test_what_cannot_be_shrunk():
    for rank, told in enumerate(values(run_group(shrink_wrongly, 2))):
        assert f"rank {rank} is to be left out, and calls this" in told[0]
        assert "rank 2 is not in a group of 2" in told[1]
        assert "has lost no rank" in told[2], told[2]
        assert told[3] == 3.0


def shrink_by_pytorch(rank, world):
    lose(rank, 1)
    shrunk = dist.shrink_group([1])
    tensor = torch.arange(2.0) if dist.get_rank() == 0 else torch.zeros(2)
    dist.broadcast(tensor, 0)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    parts = [torch.zeros(2) for _ in range(2)]
    dist.all_gather(parts, tensor + dist.get_rank())
    shrinks_again = rt.communicator_of(shrunk).world == dist.get_world_size() == 2
    return summed(), tensor.tolist(), torch.stack(parts).tolist(), shrinks_again


@pytest.mark.skipif(not hasattr(dist, "shrink_group"), reason="this PyTorch cannot shrink")
def test_pytorchs_own_function():
    outcomes = run_group(shrink_by_pytorch, 3)
    told = values([outcomes[0], outcomes[2]])
    assert told == [(3.0, [0.0, 2.0], [[0.0, 2.0], [1.0, 3.0]], True)] * 2


def shrink_by_pytorch_beyond_its_list(rank, world):
    """More have died than are named: PyTorch would number ranks that are not there."""
    dist.barrier()
    if rank in (1, 2):
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(2):  # the second death may come after the first failure
        with pytest.raises(rt.RedpollError):
            while True:
                dist.all_reduce(torch.ones(1000))
    return refused(lambda: dist.shrink_group([1]))


@pytest.mark.skipif(not hasattr(dist, "shrink_group"), reason="this PyTorch cannot shrink")
def test_pytorchs_own_function_names_who_is_left():
    outcomes = run_group(shrink_by_pytorch_beyond_its_list, 4, destroy=False)
    for text in values([outcomes[0], outcomes[3]]):
        assert "ranks [0, 3] are left, and [0, 2, 3] were to be" in text


def train_on(rank, world):
    """DDP and error feedback, before and after a death."""
    torch.manual_seed(0)
    net = torch.nn.Linear(64, 64)
    model = DistributedDataParallel(net)
    state = rt.compress(model, codec="q4", min_size=100)
    train(net, model, steps=range(4), rank=rank)
    lose(rank, 1)
    kept = state.state_dict()
    rt.shrink_group()
    model = DistributedDataParallel(net)
    state = rt.compress(model, codec="q4", min_size=100)
    state.load_state_dict(kept)
    same = residuals(kept) == residuals(state.state_dict()) != 0
    train(net, model, steps=range(4, 8), rank=rank)
    return net.weight.tolist(), state.step, same


def residuals(state):
    return sum(each.double().abs().sum().item() for each in state["residuals"].values())


def train(net, model, steps, rank):
    for step in steps:
        generator = torch.Generator().manual_seed(100 * step + rank)
        inputs = torch.randn(8, 64, generator=generator)
        net.zero_grad()
        (model(inputs) - inputs.flip(1)).square().mean().backward()
        with torch.no_grad():
            for each in net.parameters():
                each -= 0.1 * each.grad


def test_training_goes_on_with_its_feedback():
    outcomes = run_group(train_on, 3)
    (one, step, kept), (other, _, kept_too) = values([outcomes[0], outcomes[2]])
    assert one == other and step == 8 and kept and kept_too


# ---- groups by themselves ----


def meet_again_and_again(rank, world, port):
    """Each time in another order; without init_process_group()."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    told = []
    for epoch in range(3):
        place, keys = (rank + epoch) % world, dist.PrefixStore(f"epoch/{epoch}", store)
        group = rt.new_group(keys, place, world, name=f"epoch {epoch}")
        tensor = torch.tensor([float(place)])
        group.allreduce([tensor]).wait()
        dist.broadcast(tensor, group=group, group_src=0)
        told.append((group.rank(), group.size(), tensor.item()))
        group.shutdown()
    return told


def test_groups_by_themselves():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    told = values(run_ranks(meet_again_and_again, 3, store.port))
    for rank, groups in enumerate(told):
        assert groups == [((rank + epoch) % 3, 3, 3.0) for epoch in range(3)]


def test_a_group_of_one_and_none():
    alone = rt.new_group(None, 0, 1, options=rt.Options(codec="q4"))
    tensor = torch.ones(3)
    alone.allreduce([tensor]).wait()
    assert tensor.tolist() == [1.0] * 3 and rt.communicator_of(alone).policy is not None
    alone.shutdown()
    with pytest.raises(ValueError, match="needs a store"):
        rt.new_group(None, 0, 2)
    with pytest.raises(ValueError, match="rank 2 is not in a group of 2"):
        rt.new_group(dist.HashStore(), 2, 2)
