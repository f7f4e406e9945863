"""The process group as PyTorch's users meet it: works, futures, errors, groups, stores,
exits."""

from __future__ import annotations

import ctypes
import gc
import inspect
import os
import signal
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import redpoll.torch as rt
from ranks import (
    die,
    open_descriptors,
    refusal,
    run_group,
    run_ranks,
    run_script,
    splits_without_a_device,
    thread_count,
    values,
)
from redpoll.torch.c10d import monitored
from redpoll.torch.comm import _communicator
from redpoll.torch.comm._store import StoreBridge

# ---- works and futures ----


def use_works(rank: int, world: int) -> None:
    ones = torch.ones(1000)
    work = dist.all_reduce(ones, async_op=True)
    assert isinstance(work, rt.Work)
    assert work.wait() is True
    assert work.is_completed() and work.is_success() and work.exception() is None
    assert torch.equal(work.result()[0], torch.full((1000,), float(world)))
    assert work.get_future().value()[0] is ones

    tensors = [torch.full((5000,), float(i)) for i in range(20)]
    futures = [dist.all_reduce(one, async_op=True).get_future() for one in tensors]
    chained = [one.then(lambda each: each.value()[0].sum().item()) for one in futures]
    assert [one.wait() for one in chained] == [5000.0 * i * world for i in range(20)]

    polled = dist.all_reduce(torch.ones(3), async_op=True)
    deadline = time.monotonic() + 20
    while not polled.is_completed():
        assert time.monotonic() < deadline

    strided = torch.ones(50, 40).t()
    dist.all_reduce(strided, async_op=True)  # dropped: finishes all the same
    dist.barrier()
    deadline = time.monotonic() + 20
    while strided[0, 0] != world:
        time.sleep(0.01)
        assert time.monotonic() < deadline


def test_works_and_futures() -> None:
    values(run_group(use_works, 2))


def move_odd_types(rank: int, world: int) -> None:
    """What cannot be added can be moved, bit for bit."""
    names = ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "complex32")
    for name in names:
        dtype = getattr(torch, name)
        pattern = torch.arange(240, dtype=torch.uint8).view(dtype)
        mine = pattern.clone() if rank == 0 else torch.zeros_like(pattern)
        rt.communicator_of().broadcast(mine, 0, blocking=True)
        assert torch.equal(mine.view(torch.uint8), pattern.view(torch.uint8)), name
    with pytest.raises(ValueError, match="float8_e5m2 cannot be reduced"):
        dist.all_reduce(torch.zeros(3).to(torch.float8_e5m2))
    for name in ("uint16", "uint32", "uint64"):
        total = torch.ones(5, dtype=torch.int64).to(getattr(torch, name))
        dist.all_reduce(total)
        assert total.to(torch.int64).tolist() == [world] * 5


def test_types_beyond_gloo() -> None:
    values(run_group(move_odd_types, 2))


# ---- refusals and failures ----


def refuse_bad_arguments(rank: int, world: int) -> None:
    t, rows = torch.ones(4), torch.eye(2).to_sparse_csr()
    bad = [
        (lambda: dist.all_gather([t, t, t], t), "3 output tensors; the group has 2 ranks"),
        (
            lambda: dist.all_gather([t, torch.ones(5)], t),
            "elements, and the other side|mismatch",
        ),
        (lambda: dist.all_reduce(rows), "to_dense"),
        (lambda: dist.all_reduce(torch.ones(3, device="meta")), "is on meta"),
        (lambda: dist.all_reduce(torch.ones(1).expand(4)), "it was expanded"),
        (lambda: dist.all_gather_into_tensor(torch.ones(7), t), "the output has 7 elements"),
        (lambda: dist.reduce_scatter_tensor(t, torch.ones(7)), "the input has 7 elements"),
        (lambda: dist.all_to_all_single(t, t, [3, 2], [2, 2]), "add up to 4"),
        (lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3)), "equal parts"),
        (lambda: dist.send(t, dst=1 - rank, tag=-1), "tag -1"),
        (lambda: dist.isend(t, dst=rank), f"rank {rank} cannot send to .* rank {rank}"),
        (
            lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.AVG),
            "floats",
        ),
    ]
    for i, (call, pattern) in enumerate(bad):
        if i == 1 and rank == 0:
            continue  # only the rank whose own block differs can tell before posting
        with pytest.raises(ValueError, match=pattern):
            call()
    with pytest.raises(rt.RedpollError) as caught:
        dist.all_reduce(rows)
    line = inspect.currentframe().f_lineno - 1
    assert caught.value.status == "INVALID" and caught.value.rank == rank
    assert caught.value.operation == "all_reduce"
    assert caught.value.posted_at == f"test_backend.py:{line}"
    dist.all_reduce(t)  # nothing was posted: the group is as before
    assert t[0] == world


def test_bad_arguments_are_refused_before_anything_is_posted() -> None:
    values(run_group(refuse_bad_arguments, 2))


def wait_in_callbacks(rank: int, world: int) -> None:
    def sum_again(future: torch.futures.Future) -> list[torch.Tensor]:
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()

    dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()
    threads = thread_count()
    for _ in range(20):
        first = dist.all_reduce(torch.ones(10), async_op=True).get_future()
        last = first.then(sum_again).then(sum_again)
        assert last.wait()[0][0].item() == world**3
    deadline = time.monotonic() + 20
    while thread_count() > threads:
        time.sleep(0.01)
        assert time.monotonic() < deadline


def test_callbacks_may_wait_for_what_they_post() -> None:
    values(run_group(wait_in_callbacks, 2, timeout=60))


def fail_a_future(rank: int, world: int) -> str:
    dist.barrier()
    if rank == 1:
        die()
    future = dist.all_reduce(torch.ones(100_000), async_op=True).get_future()
    with pytest.raises(RuntimeError) as caught:
        future.wait()
    return str(caught.value)


def test_a_future_fails_with_the_reason() -> None:
    outcomes = run_group(fail_a_future, 2)
    assert "rank 1" in values(outcomes[:1])[0]


def wait_shortly(rank: int, world: int) -> None:
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        work = dist.barrier(async_op=True)
        with pytest.raises(rt.RedpollError, match="may be waited for again") as caught:
            work.wait(timedelta(seconds=0.3))
        assert caught.value.status == "TIMEOUT"
        with pytest.raises(rt.RedpollError, match="not complete after 0.2 s"):
            dist.barrier(timeout=timedelta(seconds=0.2))
        store.set("waited", "")
    else:
        store.wait(["waited"])
        dist.barrier()
        dist.barrier()
    if rank == 0:
        work.wait()
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total[0] == world


def has_timeout(function) -> bool:
    return "timeout" in inspect.signature(function).parameters


@pytest.mark.skipif(
    not has_timeout(dist.barrier), reason="barrier() of this PyTorch has no timeout"
)
def test_a_call_has_a_timeout_of_its_own() -> None:
    values(run_group(wait_shortly, 2))


def change_the_timeout(rank: int, world: int) -> None:
    """Shorter than what follows takes, longer, and shorter again."""
    store = dist.distributed_c10d._get_default_store()
    dist.set_timeout(timedelta(seconds=1))
    dist.set_timeout(timedelta(seconds=60))
    work = dist.barrier(async_op=True) if rank == 0 else None
    if rank == 1:
        time.sleep(2.5)  # too long for the first timeout
        dist.barrier()
    if work is not None:
        work.wait()
    dist.set_timeout(timedelta(seconds=0.5))
    if rank == 0:
        with pytest.raises(rt.RedpollError) as caught:
            dist.barrier()
        assert caught.value.status == "TIMEOUT"
        store.set("over", "")
    else:
        store.wait(["over"])
    with pytest.raises(rt.Error, match="timeout"):
        dist.set_timeout(timedelta(0))


@pytest.mark.skipif(
    not hasattr(dist, "set_timeout"), reason="this PyTorch has no set_timeout()"
)
def test_a_groups_timeout_can_be_made_longer_and_shorter() -> None:
    values(run_group(change_the_timeout, 2, group_timeout=60.0))


def destroy_under_a_waiting_thread(rank: int, world: int) -> str:
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["destroyed"])
        return "CANCELLED"
    _communicator._DRAIN_S = 0.3
    caught: list[rt.RedpollError] = []

    def block() -> None:
        try:
            dist.barrier()
        except rt.RedpollError as error:
            caught.append(error)

    thread = threading.Thread(target=block)
    communicator = rt.communicator_of()
    thread.start()
    while not communicator.poster.life.has_others():
        time.sleep(0.01)
    dist.destroy_process_group()
    thread.join()
    store.set("destroyed", "")
    return caught[0].status


def test_destroying_a_group_ends_the_waits_of_other_threads() -> None:
    assert values(run_group(destroy_under_a_waiting_thread, 2)) == ["CANCELLED"] * 2


INTERRUPTED_AT_START = """
import os, signal, threading, torch.distributed as dist, redpoll.torch
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    store = dist.HashStore()
    dist.init_process_group("redpoll", store=store, rank=0, world_size=2)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_the_wait_for_ranks_that_do_not_come() -> None:
    (one,) = run_script(INTERRUPTED_AT_START, timeout=60)
    assert "interrupted" in one.stdout, one.stderr


# ---- groups ----


def make_many_groups(rank: int, world: int) -> None:
    alive = [dist.new_group(list(range(world))) for _ in range(8)]
    alive += [dist.new_group([0, 1]), dist.new_group([1, 2])]
    for i, group in enumerate(alive):
        if dist.get_rank(group) < 0:
            continue
        tensor = torch.full((10,), float(i))
        dist.all_reduce(tensor, group=group)
        assert tensor[0] == i * dist.get_world_size(group)
    assert len({one.name for one in rt.communicators()}) == len(rt.communicators())
    assert rt.communicator_of(alive[0]).world == world
    assert dist.get_backend(alive[0]) == "redpoll"


def test_many_groups_at_once() -> None:
    values(run_group(make_many_groups, 3))


def count_what_groups_open(rank: int, world: int) -> None:
    dist.barrier()
    before = (thread_count(), open_descriptors())
    groups = [dist.new_group() for _ in range(20)] + [dist.new_group([0, 2])]
    split = dist.distributed_c10d._get_default_group().split_group([1, 2])
    if split is not None:
        pair = torch.ones(3)
        split.allreduce([pair]).wait()
        assert pair.tolist() == [2.0] * 3
    members = [group for group in groups if dist.get_rank(group) >= 0]
    for number, group in enumerate(members):
        tensor = torch.full((10,), float(number))
        dist.all_reduce(tensor, group=group)
        assert tensor[0] == number * dist.get_world_size(group)
    dist.barrier()
    after = (thread_count(), open_descriptors())  # what joining needed may close meanwhile
    assert after[0] <= before[0] and after[1] <= before[1], (before, after)
    dist.destroy_process_group(members[0])
    dist.all_reduce(torch.ones(3), group=members[1])


def test_groups_share_the_links_of_the_default_group() -> None:
    values(run_group(count_what_groups_open, 3))


def stop_for_a_while(after_s: float, for_s: float) -> None:
    """This process stands still, as one that gets no processor does."""
    me = os.getpid()
    if os.fork() == 0:
        time.sleep(after_s)
        os.kill(me, signal.SIGSTOP)
        time.sleep(for_s)
        os.kill(me, signal.SIGCONT)
        os._exit(0)


def meet_and_leave(rank: int, world: int, port: int, rounds: int) -> None:
    """Rank 0 leaves as soon as it has come, while rank 1 still comes."""
    server = dist.TCPStore("127.0.0.1", port, is_master=False)
    for i in range(rounds):
        server.set(f"{i}/{rank}", "")
        server.wait([f"{i}/{other}" for other in range(world)])
        if rank == 1:
            stop_for_a_while(0.003 * i, 0.4)
        store = dist.PrefixStore(f"round{i}", server)
        dist.init_process_group("redpoll", store=store, rank=rank, world_size=world)
        dist.destroy_process_group()
        if rank == 1:
            os.wait()


def test_a_rank_may_leave_while_a_slow_one_still_comes() -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    values(run_ranks(meet_and_leave, 2, server.port, 10))


def restart_the_world(rank: int, world: int, port: int) -> None:
    threads, before = thread_count(), open_descriptors()
    for _ in range(5):
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
        dist.init_process_group("redpoll", store=store, rank=rank, world_size=world)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor[0] == world
        dist.destroy_process_group()
        del store
        assert not rt.communicators()
        with pytest.raises(ValueError, match="no process group|not been initialized"):
            rt.communicator_of()
    gc.collect()
    assert (thread_count(), open_descriptors()) <= (threads + 1, before + 2)


def test_the_default_group_can_be_made_again_on_the_same_store() -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    values(run_ranks(restart_the_world, 2, server.port))


def split_and_ask(rank: int, world: int) -> None:
    group = dist.group.WORLD
    assert isinstance(group, rt.RedpollGroup) and group.name() == "redpoll"
    assert group._get_backend_name() == "redpoll" and group.options.backend == "redpoll"
    assert group._device_types == [torch.device("cpu")]
    assert group.group_name == rt.communicator_of().name
    backend = group._get_backend(torch.device("cpu"))
    assert rt.communicator_of(group) is backend.communicator
    if splits_without_a_device():
        half = dist.split_group(group, [[1, 0], [2]])
        tensor = torch.ones(2) * (rank + 1)
        dist.all_reduce(tensor, group=half)
        assert tensor[0] == 3
        assert half.rank() == {0: 1, 1: 0, 2: 0}[rank]
        dist.destroy_process_group(half)
    other = dist.new_group([0, 2], backend="gloo")
    if rank != 1:
        with pytest.raises(rt.RedpollValueError, match="is not redpoll"):
            rt.communicator_of(other)
    tensor = torch.ones(1)
    group.allreduce(tensor).wait()
    group.broadcast(tensor, 0).wait()
    group.barrier().wait()
    assert tensor[0] == world
    if hasattr(dist, "set_timeout"):
        dist.set_timeout(timedelta(seconds=7))
        assert rt.communicator_of().timeout_s == 7


def test_names_options_splits() -> None:
    values(run_group(split_and_ask, 3))


# ---- stores ----


def meet_at(rank: int, world: int, kind: str, place: str) -> None:
    if kind == "file":
        store = dist.PrefixStore("deep/", dist.PrefixStore("er/", dist.FileStore(place, world)))
    else:
        store = dist.TCPStore("127.0.0.1", int(place), is_master=False)
    dist.init_process_group("redpoll", store=store, rank=rank, world_size=world)
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor[0] == world
    dist.destroy_process_group()


def test_stores(tmp_path) -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    values(run_ranks(meet_at, 2, "tcp", str(server.port)))
    values(run_ranks(meet_at, 2, "file", str(tmp_path / "store")))


def meet_in_threads(rank: int, world: int) -> None:
    """A HashStore joins ranks that are threads."""
    import threading

    store, results = dist.HashStore(), [None, None]

    def one(own: int) -> None:
        limit = timedelta(seconds=20)
        made = rt.Communicator(store, own, 2, "threads", limit)
        tensor = torch.ones(5)
        made.all_reduce([tensor]).wait()
        results[own] = tensor[0].item()
        made.close()

    threads = [threading.Thread(target=one, args=(own,)) for own in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [2, 2]


def test_hash_store() -> None:
    values(run_ranks(meet_in_threads, 1))


def compare_in_a_store(rank: int, world: int, kind: str) -> list[bytes]:
    port = {"is_master": True, "wait_for_workers": False}
    store = dist.HashStore() if kind == "hash" else dist.TCPStore("127.0.0.1", 0, 1, **port)
    bridge = StoreBridge(store)
    held = ctypes.create_string_buffer(8)
    size = ctypes.c_size_t()

    def put(expected: bytes, desired: bytes) -> bytes:
        code = bridge.structure.ops[0].compare_set(
            None, b"view", expected, len(expected), desired, len(desired), held, 8, size
        )
        assert code == 0
        return held.raw[: size.value]

    return [put(b"", b"one"), put(b"", b"two"), put(b"one", b"two"), put(b"one", b"three")]


@pytest.mark.parametrize("kind", ["hash", "tcp"])
def test_a_store_of_pytorch_compares(kind: str) -> None:
    answers = values(run_ranks(compare_in_a_store, 1, kind))[0]
    assert answers == [b"one", b"one", b"two", b"two"]


class Broken(dist.Store):
    """A store of which one operation fails."""

    def __init__(self, broken: str) -> None:
        super().__init__()
        self.broken = broken

    def set(self, key: str, value: bytes) -> None:
        self._do("set")

    def check(self, keys: list[str]) -> bool:
        return self._do("check") or True

    def get(self, key: str) -> bytes:
        return self._do("get") or b"2 elsewhere"

    def add(self, key: str, amount: int) -> int:
        return self._do("add") or amount

    def _do(self, operation: str) -> None:
        if operation == self.broken:
            raise OSError("the store's disk is full")


def meet_at_a_broken_store(rank: int, world: int, operation: str) -> str:
    with pytest.raises(rt.RedpollError) as caught:
        rt.Communicator(Broken(operation), 0, 2, "broken", timedelta(seconds=5))
    return str(caught.value)


@pytest.mark.parametrize("operation", ["set", "check", "get", "add"])
def test_an_exception_of_the_store_is_told(operation: str) -> None:
    assert "disk is full" in values(run_ranks(meet_at_a_broken_store, 1, operation))[0]


def miss_a_rank(rank: int, world: int) -> str:
    with pytest.raises(rt.RedpollError) as caught:
        store = dist.HashStore()
        limit = timedelta(seconds=1)
        dist.init_process_group("redpoll", store=store, rank=0, world_size=3, timeout=limit)
    return str(caught.value)


def test_ranks_that_do_not_arrive_are_named() -> None:
    text = values(run_ranks(miss_a_rank, 1))[0]
    assert "1, 2" in text


# ---- ends ----

LEAVE = """
import torch, torch.distributed as dist, redpoll.torch
dist.init_process_group("redpoll")
tensors = [torch.ones(1000) for _ in range(4)]
works = [dist.all_reduce(one, async_op=True) for one in tensors]
works[0].get_future()
group = dist.new_group([0, 1])
dist.all_reduce(tensors[0], group=group)
for work in works:
    work.wait()
print("end of script")
"""


@pytest.mark.parametrize("level", ["OFF", "DETAIL"])
def test_leaving_without_destroying_is_quiet(level: str) -> None:
    debug = {"TORCH_DISTRIBUTED_DEBUG": level}
    for one in run_script(LEAVE, 2, timeout=90, at_import=debug, modules=()):
        assert one.returncode == 0 and "end of script" in one.stdout, one.stderr
        assert "Traceback" not in one.stderr and "ault" not in one.stderr


FORKED = """
import os, torch, torch.distributed as dist, redpoll.torch as rt
dist.init_process_group("redpoll")
work = dist.all_reduce(torch.ones(10), async_op=True)
future = work.get_future()
child = os.fork()
if child == 0:
    try:
        dist.all_reduce(torch.ones(3))
    except rt.RedpollError as error:
        assert "fork" in str(error), error
        del work, future
        raise SystemExit(7)
    raise SystemExit(1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
work.wait()
tensor = torch.ones(3)
dist.all_reduce(tensor)
assert tensor[0] == 2
loader = torch.utils.data.DataLoader(list(range(8)), num_workers=2)
assert len(list(loader)) == 8
dist.all_reduce(tensor)
dist.destroy_process_group()
print("fine")
"""


def test_a_forked_child_leaves_the_parents_group_alone() -> None:
    for one in run_script(FORKED, 2, timeout=120):
        assert one.returncode == 0 and "fine" in one.stdout, one.stderr


# ---- the barrier that names ----


def bar_with_names(rank: int, world: int) -> list[str]:
    limit, texts = timedelta(seconds=1), []
    rt.monitored_barrier(timeout=timedelta(seconds=30))
    if rank in (0, 2):
        for wait_all in (False, True):
            with pytest.raises(rt.RedpollError) as caught:
                rt.monitored_barrier(timeout=limit, wait_all_ranks=wait_all)
            texts.append(str(caught.value))
    dist.barrier()
    if rank in (1, 3):
        for _ in range(2):
            with pytest.raises(rt.RedpollError, match="timed out: .* came after the others"):
                rt.monitored_barrier(timeout=limit)
    dist.barrier()
    rt.monitored_barrier(timeout=timedelta(seconds=30))
    dist.barrier()
    return texts


def test_monitored_barrier() -> None:
    answers = values(run_group(bar_with_names, 4))
    for rank in (0, 2):
        first, everybody = answers[rank]
        assert "rank 1 did not arrive within 1 s" in first and "3" not in first.split(" [")[0]
        assert "ranks 1, 3 did not arrive within 1 s" in everybody
        for text in (first, everybody):  # the words by which programs sort errors
            assert "timed out" in text and "failed to pass" in text
        assert "monitored_barrier posted at test_backend.py:" in everybody


def test_a_monitored_barrier_lasts_as_long_as_it_may(monkeypatch) -> None:
    """Nothing that one rank must write keeps another one waiting."""
    waits: list[float] = []
    real = monitored.wait_for_key

    def wait(store, key, limit_s, *more):
        waits.append(limit_s)
        return real(store, key, 0.0, *more)

    monkeypatch.setattr(monitored, "wait_for_key", wait)
    store = dist.HashStore()
    assert monitored._Meeting(store, 0, 3).missing(5.0) == [1, 2]
    assert monitored._Meeting(store, 2, 3).missing(7.0) == [1, 2]  # as was decided
    assert monitored._Meeting(store, 1, 3).missing(9.0) == [1, 2]  # who comes last, and late
    assert waits == [5.0, 7.0]
    assert not store.check(["redpoll/monitored_barrier/1/outcome"])


def bar_for_as_long_as_the_group(rank: int, world: int) -> str:
    short = dist.new_group(timeout=timedelta(seconds=1))
    text = ""
    if rank == 0:
        text = refusal(rt.RedpollError, lambda: rt.monitored_barrier(short))
    dist.barrier()
    return text


def test_a_monitored_barrier_has_the_groups_timeout() -> None:
    text, _ = values(run_group(bar_for_as_long_as_the_group, 2))
    assert "rank 1 did not arrive within 1 s" in text


def test_a_codec_is_a_value() -> None:
    codec = rt.Codec.parse("q4")
    assert (codec.bits, codec.bucket, codec.stochastic) == (4, 512, False)
    assert str(codec) == "q4:bucket=512" and codec == rt.Codec.parse(str(codec))
    assert codec.supports(torch.float16) and not codec.supports(torch.int32)
    assert not codec.is_exact(torch.float32) and rt.Codec("fp32").is_exact(torch.float32)
    assert hash(codec) == hash(rt.Codec("q4:bucket=512"))
    with pytest.raises(rt.Error, match="q9"):
        rt.Codec.parse("q9")


def compress_by_hand(rank: int, world: int) -> float:
    torch.manual_seed(rank)
    communicator, codec = rt.communicator_of(), rt.Codec("q8")
    flat = torch.randn(5000)
    exact = flat.clone()
    dist.all_reduce(exact)
    pieces = [flat.narrow(0, 0, 2000), flat.narrow(0, 2000, 3000)]
    residuals = [torch.zeros(2000), None]
    work = communicator.all_reduce(
        pieces, codecs=[codec, None], residuals=residuals, ids=[3, 4], seed=1, step=2
    )
    assert work.wait() and torch.equal(flat[2000:], exact[2000:])
    assert residuals[0].abs().max() > 0
    again = torch.randn(5000)
    communicator.all_reduce([again], codecs=[[(2048, codec), (2952, None)]]).wait()
    return (flat[:2000] - exact[:2000]).abs().max().item()


def test_communicator_takes_codecs() -> None:
    for error in values(run_group(compress_by_hand, 2)):
        assert 0 < error < 0.2


PREMUL_SUM = dist._make_nccl_premul_sum(0.5)
WITH_FACTORS = {  # by call: what ones become of two ranks, or what is said
    "all_reduce": (lambda own, x: own.all_reduce([x], factor=2.0), "for ReduceOp.PREMUL_SUM"),
    "one of 1": (lambda own, x: own.all_reduce([x], factor=1.0), "for ReduceOp.PREMUL_SUM"),
    "a maximum": (
        lambda own, x: own.all_reduce([x], dist.ReduceOp.MAX, factor=2.0),
        "MAX is not multiplied: leave it out",
    ),
    "reduce_scatter": (
        lambda own, x: own.reduce_scatter(x[:4], x, factor=2.0),
        "SUM is not multiplied: leave it out",
    ),
    "all_gather": (
        lambda own, x: own.all_gather(x, x[:4].clone(), factor=2.0),
        "what is moved and not added is not multiplied",
    ),
    "a multiplied sum": (lambda own, x: own.all_reduce([x], PREMUL_SUM, factor=2.0), 4.0),
    "its own": (lambda own, x: own.all_reduce([x], PREMUL_SUM), 1.0),
    "none": (lambda own, x: own.all_reduce([x], factor=None), 2.0),
}


def multiply(rank: int, world: int) -> dict[str, object]:
    told: dict[str, object] = {}
    for case, (call, _) in WITH_FACTORS.items():
        x = torch.ones(8)
        try:
            call(rt.communicator_of(), x).wait()
            told[case] = x.unique().item()
        except ValueError as error:
            told[case] = str(error)
    return told


def test_a_factor_of_what_is_not_multiplied_is_refused() -> None:
    for told in values(run_group(multiply, 2)):
        for case, (_, expected) in WITH_FACTORS.items():
            is_said = isinstance(expected, str)
            assert told[case] == expected or is_said and expected in str(told[case]), told


def differ_in_key(rank: int, world: int) -> str:
    communicator, ones = rt.communicator_of(), torch.ones(100)
    communicator.all_reduce([ones], key=7, seed=1, step=2).wait()
    assert torch.equal(ones, torch.full((100,), 2.0))
    return refusal(rt.RedpollError, lambda: communicator.all_reduce([ones], key=rank).wait())


def test_keys_of_exact_tensors_are_compared() -> None:
    for said in values(run_group(differ_in_key, 2)):
        assert "rank 0" in said and "rank 1" in said


def sum_subnormals(rank: int, world: int, who: str, future: bool) -> list[str]:
    """The bits of what 4 bits and others make of gradients that have nearly vanished."""
    if who == "all" or who == "one" and rank == 0:
        assert torch.set_flush_denormal(True)
    communicator, sums = rt.communicator_of(), []
    names = ["fp32", "bf16", "fp16", "q1", "q4", "q8:rounding=stochastic"]
    for step, name in enumerate(names * 3):
        generator = torch.Generator().manual_seed(10 * step + rank)
        bits = torch.randint(1, 1 << 22, (3000,), dtype=torch.int32, generator=generator)
        flat = bits.view(torch.float32)
        work = communicator.all_reduce([flat], codecs=[rt.Codec(name)], seed=1, step=step)
        if future:  # the notifier waits, the progress thread computes
            work.get_future().wait()
        else:
            work.wait()
        sums.append(flat.view(torch.uint8).numpy().tobytes().hex())
    return sums


@pytest.mark.parametrize("future", [False, True], ids=["waited for", "as futures"])
def test_flushing_of_subnormals_changes_no_sum(future: bool) -> None:
    kept, *others = values(run_group(sum_subnormals, 2, "nobody", future))
    assert others == [kept] and any(bytes.fromhex(kept[0]))
    for who in ("all", "one"):
        assert values(run_group(sum_subnormals, 2, who, future)) == [kept, kept]
