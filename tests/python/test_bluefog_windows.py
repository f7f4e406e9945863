"""The interface of BlueFog: windows, which neighbours write into while their owners compute."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

nx = pytest.importorskip("networkx", reason="networkx is not installed")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import bluefog.torch as bf  # noqa: E402
import redpoll.torch  # noqa: E402
from bluefog.common import topology_util as tu  # noqa: E402
from bluefog.torch import mpi_ops  # noqa: E402
from ranks import refusal, run_group, values  # noqa: E402

DTYPES = (torch.float32, torch.float64)
SHAPES = ((), (7,), (3, 4), (2, 3, 5))


def is_all(tensor, value):
    return torch.allclose(tensor, torch.full_like(tensor, value), atol=1e-6)


# ---- closed forms: the tensor of rank r is r everywhere ----


def creates_and_updates(rank, world):
    bf.init()
    for dtype in DTYPES:
        for shape in SHAPES:
            tensor = torch.full(shape, float(rank), dtype=dtype)
            name = f"{dtype} {shape}"
            assert bf.win_create(tensor, name)
            assert not bf.win_create(tensor, name)
            assert bf.get_current_created_window_names() == [name]
            assert bf.win_update(name) is not None and is_all(tensor, rank)
            assert bf.win_free(name)
    own = torch.full((5,), float(rank))
    assert bf.win_create(own, "b", zero_init=True)
    assert bf.win_create(own.clone(), "a")
    assert bf.get_current_created_window_names() == ["a", "b"]
    copy = bf.win_update("b", clone=True)
    assert is_all(copy, rank / (len(bf.in_neighbor_ranks()) + 1)) and is_all(own, rank)
    assert bf.win_free() and bf.win_free()
    assert bf.get_current_created_window_names() == []


def keeps_waiting(rank, world):
    """Rank 2 keeps its mutex; rank 1 is a bystander, and gives its own at once."""
    others = [other for other in range(world) if other != rank]
    window = redpoll.torch.Window(torch.zeros(4), "kept", others, others)
    said = ""
    if rank == 2:
        with window.mutex(own=True):
            torch.distributed.barrier()
            torch.distributed.barrier()
    else:
        torch.distributed.barrier()
        if rank == 0:
            for timeout_s in (0.01, 0.26, 0.6):
                lock = window.mutex(timeout_s=timeout_s)
                with pytest.raises(redpoll.torch.RedpollError) as raised, lock:
                    pass
                said += f"{raised.value}\n"
        torch.distributed.barrier()
    window.free()
    return said


def test_who_is_waited_for_is_named_with_the_whole_time():
    short, middle, longer = values(run_group(keeps_waiting, 3))[0].splitlines()
    assert "timed out: a mutex was not given for 0.0 s: rank " in short  # whoever was slower
    for said, seconds in ((middle, 0.3), (longer, 0.6)):  # and what a busy machine adds
        found = re.search(r"timed out: a mutex was not given for ([0-9.]+) s: rank 2 \[", said)
        assert found and seconds <= float(found[1]) < 20, said


def puts(rank, world):
    bf.init()
    sources = bf.in_neighbor_ranks()
    tensor = torch.full((3, 5), float(rank))
    bf.win_create(tensor, "put")
    assert bf.win_put(tensor, "put")
    bf.barrier()
    assert bf.get_win_version("put") == dict.fromkeys(sources, 1)
    assert bf.win_update("put").data_ptr() == tensor.data_ptr()
    assert is_all(tensor, (rank + sum(sources)) / (len(sources) + 1))
    assert bf.get_win_version("put") == dict.fromkeys(sources, 0)
    bf.barrier()
    # Weights of destinations, and what is kept.
    tensor.fill_(float(rank))
    targets = bf.out_neighbor_ranks()
    weights = {each: 1.0 / (each + 1) for each in targets}
    handle = bf.win_put_nonblocking(tensor, "put", self_weight=0.5, dst_weights=weights)
    assert is_all(tensor, rank / 2)  # at once: values have been taken
    assert bf.win_wait(handle) and not bf.win_wait(handle)
    bf.barrier()
    weights = dict.fromkeys(sources, 2.0)
    bf.win_update("put", self_weight=1.0, neighbor_weights=weights, reset=True)
    assert is_all(tensor, rank / 2 + 2 * sum(sources) / (rank + 1))
    bf.barrier()
    bf.win_free()


def accumulates(rank, world):
    bf.init()
    sources = bf.in_neighbor_ranks()
    tensor = torch.full((23, 2), float(rank), dtype=torch.float64)
    bf.win_create(tensor, "accumulate")  # slots begin as the own tensor
    bf.win_accumulate(tensor, "accumulate", require_mutex=True)
    bf.barrier()
    assert bf.get_win_version("accumulate") == dict.fromkeys(sources, 0)
    bf.win_update("accumulate")
    slots = sum(rank + each for each in sources)
    assert is_all(tensor, (rank + slots) / (len(sources) + 1))
    bf.barrier()
    bf.win_free()
    # Integers.
    whole = torch.full((4,), rank, dtype=torch.int64)
    bf.win_create(whole, "whole", zero_init=True)
    bf.win_accumulate(whole, "whole", dst_weights=dict.fromkeys(bf.out_neighbor_ranks(), 3))
    bf.barrier()
    bf.win_update_then_collect("whole")
    assert whole.tolist() == [rank + 3 * sum(sources)] * 4
    bf.win_free("whole")


def gets(rank, world):
    bf.init()
    sources = bf.in_neighbor_ranks()
    tensor = torch.full((10,), float(rank))
    bf.win_create(tensor, "get")
    bf.barrier()
    handle = bf.win_get_nonblocking("get", dict.fromkeys(sources, 0.5))
    assert bf.win_wait(handle)
    assert bf.get_win_version("get") == dict.fromkeys(sources, 1)
    bf.barrier()  # nobody reads any more
    bf.win_update("get")
    assert is_all(tensor, (rank + 0.5 * sum(sources)) / (len(sources) + 1))
    bf.barrier()
    assert bf.neighbor_win_get("get")
    bf.win_free()


def weighted(rank, world):
    bf.init()
    bf.set_topology(tu.StarGraph(world), is_weighted=True)
    own, weights = tu.GetRecvWeights(bf.load_topology(), rank)
    tensor = torch.full((6,), float(rank))
    bf.win_create(tensor, "star")
    assert not bf.set_topology(tu.RingGraph(world))  # there is a window
    bf.win_put(tensor, "star")
    bf.barrier()
    bf.win_update("star")
    assert is_all(tensor, own * rank + sum(w * each for each, w in weights.items()))
    bf.win_free()
    assert bf.set_topology(tu.RingGraph(world))


# ---- without the owner ----


def store():
    return torch.distributed.distributed_c10d._get_default_store()


def sleeps(rank, world):
    bf.init()
    bf.set_topology(tu.RingGraph(world))
    tensor = torch.full((1000,), float(rank))
    bf.win_create(tensor, "asleep")
    bf.barrier()
    if rank == 0:  # takes no part, until they are done
        keys = [f"asleep/{each}" for each in bf.in_neighbor_ranks()]
        store().wait(keys, timedelta(seconds=25))
    elif 0 in bf.out_neighbor_ranks():
        assert bf.win_put(tensor, "asleep", dst_weights={0: 1.0})
        with bf.win_mutex("asleep", ranks=[0]):
            pass
        store().set(f"asleep/{rank}", "done")
    bf.barrier()
    if rank == 0:
        assert bf.get_win_version("asleep") == dict.fromkeys(bf.in_neighbor_ranks(), 1)
    bf.win_free()


def excludes(rank, world):
    bf.init()
    bf.set_topology(tu.FullyConnectedGraph(world))
    tensor = torch.zeros(4)
    bf.win_create(tensor, "mutex")
    if rank == 0:
        with bf.win_mutex("mutex", for_self=True, ranks=[1]):
            bf.barrier()
            time.sleep(0.5)
            assert bf.get_win_version("mutex")[1] == 0
            store().set("mutex/leaves", "now")
    else:
        bf.barrier()
        bf.win_put(tensor, "mutex", dst_weights={0: 1.0}, require_mutex=rank == 1)
        assert rank != 1 or store().check(["mutex/leaves"])
        with bf.win_mutex("mutex", ranks=[0]):
            pass
    bf.barrier()
    bf.win_free()


def all_of_these(rank, world):
    for each in (creates_and_updates, puts, accumulates, gets, weighted, sleeps, excludes):
        each(rank, world)


def test_closed_forms():
    values(run_group(all_of_these, 4))


# ---- push-sum ----


def pushes(rank, world):
    bf.init(lambda size: tu.RingGraph(size, connect_style=2))  # one way
    bf.turn_on_win_ops_with_associated_p()
    torch.manual_seed(rank)
    x = torch.randn(50, dtype=torch.float64)
    mean = bf.allreduce(x)
    bf.win_create(x, "x", zero_init=True)
    targets = bf.out_neighbor_ranks()
    share = 1.0 / (len(targets) + 1)
    for step in range(100):
        bf.win_accumulate(
            x,
            "x",
            self_weight=share,
            dst_weights=dict.fromkeys(targets, share),
            require_mutex=True,
        )
        if step % 3 == rank % 3:
            bf.win_update_then_collect("x")
    bf.barrier()
    bf.win_update_then_collect("x")
    total = bf.allreduce(
        torch.cat([x, torch.tensor([bf.win_associated_p("x")], dtype=torch.float64)])
    )
    assert torch.allclose(total[:-1], mean, atol=1e-12) and abs(total[-1] - 1) < 1e-12
    # In rounds from here on: to the mean of all.
    for _ in range(120):
        bf.win_accumulate(x, "x", self_weight=share, dst_weights=dict.fromkeys(targets, share))
        bf.barrier()
        bf.win_update_then_collect("x")
        bf.barrier()
    assert torch.allclose(x / bf.win_associated_p("x"), mean, atol=1e-9)
    bf.win_free()
    # What is all ones stays what p is, whatever the interleaving.
    ones = torch.ones(7)
    bf.win_create(ones, "ones", zero_init=True)
    for step in range(60):
        how = (step + rank) % 3
        if how == 0:
            bf.win_put(ones, "ones", self_weight=0.5, dst_weights=dict.fromkeys(targets, 0.5))
        elif how == 1:
            bf.win_accumulate(ones, "ones", self_weight=0.7)
        else:
            bf.win_update("ones", 0.5, dict.fromkeys(bf.in_neighbor_ranks(), 0.5))
    assert is_all(ones, bf.win_associated_p("ones"))
    bf.win_free()
    bf.turn_off_win_ops_with_associated_p()
    bf.win_create(ones, "off")
    bf.win_put(ones, "off", self_weight=0.5)
    assert bf.win_associated_p("off") == 1
    bf.win_free()


def test_push_sum():
    values(run_group(pushes, 4))


# ---- the optimizer ----


def trains(rank, world, barrier):
    bf.init()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    bf.broadcast_parameters(model.state_dict(), 0)
    inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    opt = bf.DistributedWinPutOptimizer(inner, model, window_prefix="w")
    opt.force_barrier = barrier
    assert isinstance(opt, torch.optim.SGD)
    assert bf.get_current_created_window_names()[0] == "w.0.bias"
    target = torch.tensor([1.0, -2.0, 0.5, 3.0])
    torch.manual_seed(1 + rank)
    losses = []
    for _ in range(120):
        x = torch.randn(16, 4)
        opt.zero_grad()
        loss = (model(x).squeeze() - torch.tanh(x @ target)).square().mean()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    bf.barrier()
    flat = torch.cat([each.detach().flatten() for each in model.parameters()])
    apart = (flat - bf.allreduce(flat)).norm() / flat.norm()
    assert apart < 0.2
    opt.unregister_window()
    assert bf.get_current_created_window_names() == []


@pytest.mark.parametrize("barrier", [False, True])
def test_win_put_optimizer_trains(barrier):
    values(run_group(trains, 4, barrier))


def one_step(rank, world):
    """x becomes the mean of x - step of the gradient at x."""
    bf.init()
    model = nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, float(rank))
    inner = torch.optim.SGD(model.parameters(), lr=0.5)
    opt = bf.DistributedWinPutOptimizer(inner, model)
    opt.force_barrier = True
    model(torch.ones(1, 2)).sum().backward()  # a gradient of ones
    opt.step()
    sources = bf.in_neighbor_ranks()
    assert is_all(model.weight.detach(), (rank + sum(sources)) / (len(sources) + 1) - 0.5)
    bf.barrier()
    opt.unregister_window()


def test_win_put_optimizer_is_its_equation():
    values(run_group(one_step, 4))


def stop(process):
    """All of its threads: where the machine has no time for them, some go on for a while."""
    os.kill(process, signal.SIGSTOP)
    deadline = time.monotonic() + 20
    tasks = Path(f"/proc/{process}/task")
    while time.monotonic() < deadline:
        states = [(task / "stat").read_text().rpartition(")")[2] for task in tasks.iterdir()]
        if all(state.split()[0] == "T" for state in states):
            return
        time.sleep(0.001)


def brings_its_puts(rank, world):
    """step() is over when the neighbour has what it put, though that takes no step itself."""
    bf.init()
    store = dist.distributed_c10d._get_default_store()
    store.set(f"process {rank}", str(os.getpid()))
    model = nn.Linear(4, 1, bias=False)
    opt = bf.DistributedWinPutOptimizer(torch.optim.SGD(model.parameters(), lr=0.5), model)
    if rank == 0:
        other = int(store.get("process 1"))
        stop(other)
        try:
            model(torch.ones(1, 4)).sum().backward()
            step = threading.Thread(target=opt.step)
            step.start()
            step.join(0.5)
            was_over = not step.is_alive()
        finally:
            os.kill(other, signal.SIGCONT)
        step.join()
        store.set("stepped", "yes")
        assert not was_over
    else:
        store.wait(["stepped"])
        assert bf.get_win_version("weight") == {0: 1}
    bf.barrier()
    opt.unregister_window()


def test_a_step_brings_its_puts():
    values(run_group(brings_its_puts, 2))


# ---- what is refused ----


def refused(rank, world):
    bf.init()
    own = torch.ones(4)
    bf.win_create(own, "x")
    stranger = rank  # no neighbour of itself
    told = {
        "no window 'y'": refusal(KeyError, lambda: bf.win_update("y")),
        "there is no window": refusal(KeyError, lambda: bf.win_free("y")),
        "win_create() makes one": refusal(KeyError, lambda: bf.win_put(own, "y")),
        "no window 'z'": refusal(ValueError, lambda: mpi_ops.win_lock("z").__enter__()),
        "no window 'm'": refusal(ValueError, lambda: bf.win_mutex("m").__enter__()),
        "no out-neighbour": refusal(
            ValueError, lambda: bf.win_put(own, "x", dst_weights={stranger: 1.0})
        ),
        "no in-neighbour": refusal(
            ValueError, lambda: bf.win_get("x", src_weights={stranger: 1.0})
        ),
        "come together": refusal(ValueError, lambda: bf.win_update("x", self_weight=1.0)),
        "a float is wanted": refusal(
            ValueError, lambda: bf.win_update("x", self_weight=1, neighbor_weights={})
        ),
        "are a dict": refusal(
            ValueError, lambda: bf.win_update("x", self_weight=1.0, neighbor_weights=[0])
        ),
        "(5,)": refusal(ValueError, lambda: bf.win_put(torch.ones(5), "x")),
        "not torch.float16": refusal(ValueError, lambda: bf.win_create(own.half(), "half")),
        "not contiguous": refusal(
            ValueError, lambda: bf.win_create(torch.ones(4, 4).T, "transposed")
        ),
        "is unknown": refusal(ValueError, lambda: bf.win_poll(12345)),
    }
    assert not bf.win_wait(12345)
    shapes = refusal(
        redpoll.torch.RedpollError, lambda: bf.win_create(torch.ones(4 + rank), "shapes")
    )
    told["rank 1 has 5 f32"] = shapes if rank == 0 else "rank 1 has 5 f32"
    bf.win_put(own, "x")  # it goes on
    bf.win_free()
    return told


def test_what_cannot_be_is_refused_in_words():
    for told in values(run_group(refused, 2)):
        for part, said in told.items():
            assert part in said, (part, said)


# ---- without BlueFog ----


def by_itself(rank, world):
    x = torch.full((2000,), float(rank))
    left, right = (rank - 1) % world, (rank + 1) % world
    window = redpoll.torch.Window(x, "x", [left], [right], codec="q8", zero_slots=True)
    operation = window.accumulate(weights={right: 0.5}, self_weight=0.5)
    operation.wait()
    assert operation.is_completed()
    redpoll.torch.communicator_of(None).barrier(blocking=True)
    assert torch.allclose(window.slot(left), torch.full_like(x, left / 2), rtol=0.01)
    window.update(1.0, reset=True)
    assert torch.allclose(x, torch.full_like(x, (rank + left) / 2), rtol=0.01)
    with window.mutex(own=True):
        said = refusal(redpoll.torch.RedpollError, lambda: window.mutex(own=True).__enter__())
        assert "already" in said
    window.free()
    window.free()
    assert "was freed" in refusal(redpoll.torch.RedpollError, lambda: window.put())


def test_a_window_by_itself():
    values(run_group(by_itself, 3))
