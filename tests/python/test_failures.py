"""What survivors are told when something goes wrong, and what stays behind afterwards: nothing.

No test asserts how long something took. A wait that never ends is caught by the deadline of the
rank, far away, and then the test prints where its threads stood.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import redpoll.torch
from ranks import (
    die,
    open_descriptors,
    resident_bytes,
    run_group,
    run_ranks,
    run_script,
    thread_count,
    values,
)

# Longer than any deadline of a test: whoever ends before was told, and did not time out.
NEVER = 600.0
KILLED = -signal.SIGKILL


def told(action, *arguments) -> dict:
    """What the exception of `action` says; AssertionError when it returns."""
    try:
        action(*arguments)
    except Exception as error:
        posted = getattr(error, "posted_at", "")
        rank, status = getattr(error, "rank", None), getattr(error, "status", "")
        return {"text": str(error), "posted_at": posted, "rank": rank, "status": status}
    raise AssertionError("nothing failed")


def survivors(outcomes, dead: int) -> list[dict]:
    """What the others were told, once `dead` is known to have been killed."""
    assert outcomes[dead].exitcode == KILLED
    return values([one for one in outcomes if one.rank != dead])


def assert_named(answers: list[dict], culprit: int) -> None:
    for answer in answers:
        assert f"rank {culprit}" in answer["text"], answer["text"]


# ---- a rank is killed ----


class Fragile(nn.Module):
    """A model of one layer of 512 x 512 in which a rank can die, in either direction."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(512, 512), nn.Linear(512, 512)
        self.dies_in = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.dies_in == "forward":
            die()
        if self.dies_in == "backward":
            x.register_hook(lambda gradient: die())
        return self.second(x)


def train_until_death(rank: int, world: int, phase: str, codec: str | None) -> dict:
    model = DistributedDataParallel(Fragile(), bucket_cap_mb=0.5)
    if codec:
        redpoll.torch.compress(model, codec=codec)

    def steps() -> None:
        for step in range(1000):
            model.module.dies_in = phase if rank == 1 and step == 3 else ""
            model(torch.randn(4, 512)).square().mean().backward()

    return told(steps)


@pytest.mark.parametrize("codec", [None, "q4"], ids=["exact", "q4"])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_killed_while_training(phase: str, codec: str | None) -> None:
    outcomes = run_group(train_until_death, 3, phase, codec, group_timeout=NEVER)
    assert_named(survivors(outcomes, dead=1), 1)


def die_in_collective(rank: int, world: int, operation: str) -> dict:
    values_ = torch.zeros(1 << 22)
    dist.barrier()
    if rank == 1:
        if operation == "all_reduce":
            dist.all_reduce(values_, async_op=True)
        die()
    if operation == "recv":
        return told(dist.recv, values_, 1)
    return told(getattr(dist, operation), values_, *([1] if operation == "broadcast" else []))


@pytest.mark.parametrize("operation", ["all_reduce", "broadcast", "recv"])
def test_killed_in_a_collective(operation: str) -> None:
    """Survivors are told the rank, the operation and their own line."""
    outcomes = run_group(die_in_collective, 3, operation, group_timeout=NEVER)
    answers = survivors(outcomes, dead=1)
    assert_named(answers, 1)
    for own, answer in zip((0, 2), answers):
        assert answer["posted_at"].startswith("test_failures.py:"), answer
        assert answer["rank"] == own
        assert answer["posted_at"] in answer["text"] and operation in answer["text"]


def die_with_works_in_flight(rank: int, world: int) -> list[dict]:
    tensors = [torch.zeros(1 << 16) for _ in range(8)]
    works = [dist.all_reduce(one, async_op=True) for one in tensors[:4]]
    for work in works:
        work.wait()
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:  # once all others wait for it
        store.wait([f"{other} has posted" for other in range(world) if other != rank])
        die()
    works = [dist.all_reduce(one, async_op=True) for one in tensors]
    store.set(f"{rank} has posted", "")
    return [told(work.wait) for work in works]


def test_every_work_in_flight_fails() -> None:
    for answers in survivors(
        run_group(die_with_works_in_flight, 3, group_timeout=NEVER), dead=1
    ):
        assert len(answers) == 8
        assert_named(answers, 1)


def catch_in_backward(rank: int, world: int, model: str) -> dict:
    """The type of what a backward pass raises, once the other rank has died in it."""
    net = nn.Sequential(nn.Linear(300, 300), nn.Embedding(300, 300, sparse=True))
    ddp = DistributedDataParallel(net[:1] if model != "sparse" else net[1:], bucket_cap_mb=0.1)
    if model == "compressed":
        redpoll.torch.compress(ddp, min_size=0)
    x = torch.ones(2, 300) if model != "sparse" else torch.arange(5)
    for step in range(4):
        loss = ddp(x).sum()
        if rank == 1 and step == 2:
            die()
        try:
            loss.backward()
        except dist.DistBackendError as error:
            assert isinstance(error, redpoll.torch.RedpollError)
            return {"text": str(error), "status": error.status, "rank": error.rank}
    raise AssertionError("nothing failed")


@pytest.mark.parametrize("model", ["exact", "compressed", "sparse"])
def test_a_backward_pass_raises_the_error_itself(model: str) -> None:
    outcomes = run_group(catch_in_backward, 2, model, group_timeout=NEVER, destroy=False)
    (answer,) = survivors(outcomes, 1)
    assert answer["status"] == "PEER" and "rank 1" in answer["text"]


def die_joining(rank: int, world: int, port: int, delay: float, limit: float) -> dict | None:
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    if rank == 1:
        if delay == 0:
            die()
        threading.Timer(delay, die).start()
    try:
        dist.init_process_group(
            "redpoll",
            store=store,
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=limit),
        )
        dist.barrier()
    except Exception as error:
        return {"text": str(error)}
    finally:
        if rank == 1:
            time.sleep(NEVER)
        if dist.is_initialized():
            dist.destroy_process_group()
    return None


@pytest.mark.parametrize("delay", [0, 0.01])
def test_killed_in_init_process_group(delay: float) -> None:
    """Who dies before the others know it is missing at the timeout; later, it is dead. Where
    joining was faster than the timer the others may have been through."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    outcomes = run_ranks(die_joining, 3, server.port, delay, 4.0)
    answers = survivors(outcomes, dead=1)
    assert_named([one for one in answers if one is not None], 1)
    assert delay or all(answers)


# ---- a rank fails otherwise ----


def raise_in_step(rank: int, world: int) -> dict:
    model = DistributedDataParallel(nn.Linear(8, 8))

    def steps() -> None:
        for step in range(1000):
            if rank == 1 and step == 2:
                raise ValueError("the image is broken")
            model(torch.randn(4, 8)).sum().backward()

    if rank == 1:
        steps()
    return told(steps)


def test_a_rank_that_raises() -> None:
    """Its own error is its own; it leaves by destroy_process_group(), and the others hear."""
    outcomes = run_group(raise_in_step, 3, group_timeout=NEVER)
    assert "the image is broken" in outcomes[1].error
    assert_named(values([outcomes[0], outcomes[2]]), 1)


def test_a_rank_that_raises_and_exits() -> None:
    """Without destroy_process_group(): the interpreter ends, and the others hear."""
    text = """
import torch, torch.distributed as dist, redpoll.torch
dist.init_process_group("redpoll")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    raise ValueError("the image is broken")
dist.all_reduce(torch.ones(1))
"""
    ended = run_script(text, 2)
    assert all(one.returncode == 1 for one in ended), [one.stderr for one in ended]
    assert "the image is broken" in ended[1].stderr
    assert "rank 1" in ended[0].stderr and "RedpollError" in ended[0].stderr


def stop_in_step(rank: int, world: int) -> dict | None:
    pids = [None] * world
    dist.all_gather_object(pids, os.getpid())
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        return None
    try:
        return told(dist.all_reduce, torch.ones(4))
    finally:
        if rank == 0:
            time.sleep(1)  # so that rank 2 is told by the deadline as well
            os.kill(pids[1], signal.SIGKILL)


def test_a_stopped_rank_is_named_at_the_timeout() -> None:
    outcomes = run_group(stop_in_step, 3, group_timeout=5.0)
    assert_named(survivors(outcomes, dead=1), 1)


def arrive_late(rank: int, world: int) -> dict | None:
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["done-0", "done-2"], timedelta(seconds=50))
        return None
    answer = told(dist.all_reduce, torch.ones(4))
    store.set(f"done-{rank}", "")
    return answer


def test_timeout_of_the_group_is_honoured() -> None:
    """Rank 1 is alive and busy elsewhere; it is named all the same."""
    outcomes = run_group(arrive_late, 3, group_timeout=4.0)
    answers = values(outcomes)
    assert_named([answers[0], answers[2]], 1)


def wait_a_moment(rank: int, world: int) -> str:
    values_ = torch.ones(4)
    if rank == 1:
        dist.distributed_c10d._get_default_store().wait(["told"], timedelta(seconds=50))
        dist.all_reduce(values_)
        return ""
    work = dist.all_reduce(values_, async_op=True)
    text = told(work.wait, timedelta(milliseconds=300))["text"]
    dist.distributed_c10d._get_default_store().set("told", "")
    work.wait()
    assert values_.tolist() == [2.0] * 4
    return text


def test_timeout_of_a_wait_leaves_the_operation_alive() -> None:
    assert values(run_group(wait_a_moment, 2))[0]


# ---- ranks disagree ----


def post_different(rank: int, world: int, what: str) -> dict:
    odd = rank == 1

    def post() -> None:
        if what == "shapes":
            dist.all_reduce(torch.zeros(5 if odd else 4))
        elif what == "dtypes":
            dist.all_reduce(torch.zeros(4, dtype=torch.float64 if odd else torch.float32))
        elif what == "reductions":
            dist.all_reduce(torch.zeros(4), dist.ReduceOp.MAX if odd else dist.ReduceOp.SUM)
        elif what == "operations" and odd:
            dist.broadcast(torch.zeros(4), 0)
        elif what == "roots":
            dist.broadcast(torch.zeros(4), 1 if odd else 0)
        else:
            dist.all_reduce(torch.zeros(4))
        dist.barrier()  # a rank that had its part done learns of it here

    return told(post)


@pytest.mark.parametrize("what", ["shapes", "dtypes", "reductions", "operations", "roots"])
def test_disagreement_is_named_on_every_rank(what: str) -> None:
    answers = values(run_group(post_different, 3, what, group_timeout=NEVER))
    for answer in answers:
        assert answer["status"] == "MISMATCH", answer
        assert "rank" in answer["text"]


def use_a_failed_group(rank: int, world: int, how: str) -> list[str]:
    """What a later operation, a split and a new group say after a disagreement."""
    works = []
    dist.all_reduce(torch.zeros(4))
    with contextlib.suppress(redpoll.torch.RedpollError):  # it may be known at any of these
        if how == "call":
            dist.all_reduce(torch.zeros(5 if rank else 4))
        works.append(dist.all_reduce(torch.zeros(5 if rank else 4), async_op=True))
        works.append(dist.broadcast(torch.zeros(3), 0, async_op=True))
    for work in reversed(works):  # which is waited for first is not which failed first
        with contextlib.suppress(redpoll.torch.RedpollError):  # a broadcast may have been done
            work.wait()
    group = dist.distributed_c10d._get_default_group()
    store = dist.PrefixStore(f"nobody else {rank}", dist.distributed_c10d._get_default_store())

    def make_a_group() -> None:
        limit = timedelta(seconds=0.5)
        redpoll.torch.comm._communicator.Communicator(store, rank, world, "new", limit)

    later = [
        told(dist.broadcast, torch.zeros(4), 0)["text"],
        told(dist.barrier)["text"],
        told(group.split_group, list(range(world)))["text"],
        told(make_a_group)["text"],
    ]
    dist.destroy_process_group()
    return later


@pytest.mark.parametrize("how", ["in flight", "call"])
def test_a_failed_group_says_what_failed_earlier(how: str) -> None:
    place = r"all_reduce \(test_failures.py:\d+\): operation 2: rank \d posted .*"
    for later in values(
        run_group(use_a_failed_group, 3, how, group_timeout=NEVER, destroy=False)
    ):
        for text in later:
            assert re.search(f"group '0' failed earlier at {place}", text), text
        assert "broadcast posted at test_failures.py" in later[0]
        assert "barrier posted at test_failures.py" in later[1]
        assert "did not arrive within 0.5 s" in later[3]


def hear_of_a_failure(rank: int, world: int) -> list[str]:
    """Rank 1 gives up; the others meet that in the first operation they post."""
    if rank == 1:
        dist.group.WORLD.communicator.abort("the disk is full")
        return []
    first, second = told(dist.barrier)["text"], told(dist.all_reduce, torch.zeros(4))["text"]
    return [first, second]


def test_the_first_to_hear_of_a_failure_is_not_late() -> None:
    answers = values(run_group(hear_of_a_failure, 3, group_timeout=NEVER))
    for first, second in (answers[0], answers[2]):
        assert "the disk is full" in first and "earlier" not in first
        assert "failed earlier at barrier (test_failures.py" in second, second
        assert "the disk is full" in second


def join_wrong_world(rank: int, world: int, port: int, worlds: list[int]) -> dict:
    store = dist.TCPStore("127.0.0.1", port, is_master=False)

    def join() -> None:
        dist.init_process_group(
            "redpoll",
            store=store,
            rank=rank,
            world_size=worlds[rank],
            timeout=timedelta(seconds=3),
        )
        dist.all_reduce(torch.ones(1))

    return told(join)


def test_wrong_world_size() -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    outcomes = run_ranks(join_wrong_world, 2, server.port, [2, 3])
    texts = [answer["text"] for answer in values(outcomes)]
    assert any("2" in text and "3" in text for text in texts), texts


# ---- Ctrl-C ----

INTERRUPTED = """
import os, signal, sys, threading, torch, torch.distributed as dist, redpoll.torch
dist.init_process_group("redpoll")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    signal.pause()
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    {wait}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os.kill(int(dist.distributed_c10d._get_default_store().get("pid")), signal.SIGKILL)
    raise
"""


@pytest.mark.parametrize(
    "wait",
    ["dist.all_reduce(torch.ones(1))", "dist.all_reduce(torch.ones(1), async_op=True).wait()"],
    ids=["call", "wait"],
)
def test_interrupt_ends_a_collective(wait: str) -> None:
    text = INTERRUPTED.format(wait=wait).replace(
        "    signal.pause()",
        '    dist.distributed_c10d._get_default_store().set("pid", str(os.getpid()))\n'
        "    signal.pause()",
    )
    ended = run_script(text, 2)
    assert "interrupted" in ended[0].stdout, ended[0].stderr
    assert "KeyboardInterrupt" in ended[0].stderr


# ---- forked workers ----

LOADER = """
import os, signal, sys, torch, torch.distributed as dist, redpoll.torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("redpoll")
model = DistributedDataParallel(torch.nn.Linear(16, 4))
data = TensorDataset(torch.randn(4000, 16))
loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork")
workers = []
for step, (inputs,) in enumerate(loader):
    model(inputs).sum().backward()
    if step == 5 and len(sys.argv) > 1 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if step == 20:
        break
dist.destroy_process_group()
print("trained", flush=True)
"""


def test_data_loader_with_forked_workers() -> None:
    for one in run_script(LOADER, 2):
        assert one.returncode == 0 and "trained" in one.stdout, one.stderr


def test_killed_rank_with_forked_workers() -> None:
    """The dead rank's workers hold copies of its sockets for a while: no reason to wait."""
    ended = run_script(LOADER, 2, arguments=["die"])
    assert ended[1].returncode == KILLED
    assert ended[0].returncode == 1 and "rank 1" in ended[0].stderr, ended[0].stderr


# ---- nothing stays behind ----


def use_and_destroy(rank: int, world: int, ports: list[int], rounds: int) -> list[tuple]:
    """Threads, descriptors and memory after each life of a group; the first lives warm up."""
    counts = []
    for number in range(rounds):
        store = dist.PrefixStore(
            str(number), dist.TCPStore("127.0.0.1", ports[0], is_master=False)
        )
        dist.init_process_group("redpoll", store=store, rank=rank, world_size=world)
        half = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(1000), async_op=True).wait()
        if rank < 2:
            dist.all_reduce(torch.ones(10), group=half)
        dist.barrier()
        dist.destroy_process_group()
        del store, half
        gc.collect()
        counts.append((thread_count(), open_descriptors(), resident_bytes()))
    return counts


def test_nothing_remains_of_a_group() -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    rounds = 16
    for counts in values(run_ranks(use_and_destroy, 3, [server.port], rounds, timeout=120)):
        threads, descriptors, memory = counts[4]
        assert counts[-1][0] <= threads, counts
        assert counts[-1][1] <= descriptors, counts
        assert counts[-1][2] - memory < 8 << 20, counts


def make_many_groups(rank: int, world: int) -> tuple[int, int, int]:
    def life() -> None:
        group = dist.new_group()
        total = torch.ones(3)
        dist.all_reduce(total, group=group)
        assert total.tolist() == [world] * 3
        dist.destroy_process_group(group)

    for _ in range(20):
        life()
    before = (thread_count(), open_descriptors(), resident_bytes())
    for _ in range(180):
        life()
    after = (thread_count(), open_descriptors(), resident_bytes())
    return tuple(a - b for a, b in zip(after, before))


def test_two_hundred_groups() -> None:
    for threads, descriptors, memory in values(run_group(make_many_groups, 2, timeout=150)):
        assert threads <= 0 and descriptors <= 0
        assert memory < 16 << 20


def many_small_collectives(rank: int, world: int) -> tuple[int, int]:
    small = torch.ones(16)
    gathered = torch.empty(16 * world)

    def burst(count: int) -> None:
        for number in range(count):
            kind = number % 4
            if kind == 0:
                dist.all_reduce(small, dist.ReduceOp.AVG)
            elif kind == 1:
                dist.all_reduce(small, dist.ReduceOp.MAX, async_op=True).wait()
            elif kind == 2:
                dist.all_gather_into_tensor(gathered, small)
            else:
                dist.broadcast(small, 0, async_op=True).get_future().wait()

    burst(4000)
    before = (resident_bytes(), open_descriptors())
    burst(16000)
    return resident_bytes() - before[0], open_descriptors() - before[1]


def test_memory_is_flat_over_many_collectives() -> None:
    for memory, descriptors in values(run_group(many_small_collectives, 2, timeout=200)):
        assert memory < 4 << 20
        assert descriptors <= 0


# ---- names ----


def call_it_otherwise(rank: int, world: int, names: list[str]) -> dict:
    store = dist.PrefixStore("other", dist.distributed_c10d._get_default_store())
    limit = timedelta(seconds=60)
    return told(lambda: redpoll.torch.Communicator(store, rank, world, names[rank], limit))


@pytest.mark.parametrize("names", [["a", "b"], ["a", "a", "a b"], ["a", "", "a"]])
def test_names_that_differ_are_told(names: list[str]) -> None:
    answers = values(run_group(call_it_otherwise, len(names), names))
    odd = next(rank for rank, name in enumerate(names) if name != names[0])
    for answer in answers:
        assert answer["status"] == "MISMATCH"
        assert f"rank 0 says 'a', rank {odd} says '{names[odd]}'" in answer["text"]


def test_names_that_differ_are_told_where_the_address_is_given() -> None:
    """Ranks do not wait for each other there, before they look for each other."""
    answers = values(
        run_group(short_otherwise, 2, ["a", "b"], environment={"REDPOLL_BIND": "127.0.0.1"})
    )
    assert all("rank 0 says 'a', rank 1 says 'b'" in answer["text"] for answer in answers)


def short_otherwise(rank: int, world: int, names: list[str]) -> dict:
    store = dist.PrefixStore("other", dist.distributed_c10d._get_default_store())
    limit = timedelta(seconds=2)
    return told(lambda: redpoll.torch.Communicator(store, rank, world, names[rank], limit))
