"""What PyTorch's own callers do with a group and with what it returns, beyond plain calls: each
case is one that gloo answers and a backend in Python can miss."""

from __future__ import annotations

import contextlib
import gc
import weakref
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import redpoll.torch as rt
from ranks import (
    die,
    open_descriptors,
    refusal,
    run_group,
    run_ranks,
    thread_count,
    values,
)
from redpoll.torch.c10d import _process_group

# ---- the group ----


def ask_what_is_supported(rank: int, world: int) -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    asked = [name for name in dir(backend) if "supports_" in name]
    answers = {name: getattr(backend, name) for name in asked}
    switches = {name: one for name, one in answers.items() if not callable(one)}
    assert all(isinstance(one, bool) for one in switches.values()), switches
    for name in [each for each in dir(dist.group.WORLD) if each.startswith("supports_")]:
        assert isinstance(getattr(dist.group.WORLD, name), bool), name


def test_every_question_about_the_backend_has_an_answer() -> None:
    values(run_group(ask_what_is_supported, 1))


def batch(rank: int, world: int) -> None:
    after, before = (rank + 1) % world, (rank - 1) % world
    mine, theirs = torch.full((300,), float(rank)), torch.empty(300)
    operations = [
        dist.P2POp(dist.irecv, theirs, before, tag=3),
        dist.P2POp(dist.isend, mine, after, tag=3),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert theirs.tolist() == [float(before)] * 300


@pytest.mark.parametrize("world", [2, 3])
def test_batches_of_sends_and_receives(world: int) -> None:
    values(run_group(batch, world))


def use_short_forms(rank: int, world: int) -> None:
    group, last = dist.group.WORLD, world - 1
    one = torch.tensor([float(rank)])
    group.broadcast(one, root=last).wait()
    assert one.item() == last
    group.allreduce(one, op=dist.ReduceOp.MAX).wait()
    assert one.item() == last
    group.reduce(one, root=0, op=dist.ReduceOp.SUM).wait()
    assert one.item() == (last * world if rank == 0 else last)
    parts = [torch.empty(1) for _ in range(world)]
    group.gather(parts if rank == last else [], torch.ones(1), root=last).wait()
    group.scatter(one, parts if rank == last else [], root=last).wait()
    assert one.item() == 1
    group.reduce_scatter(one, [torch.ones(1)] * world, op=dist.ReduceOp.SUM).wait()
    assert one.item() == world

    before = group._get_sequence_number_for_group()
    dist.all_reduce(one)
    dist.barrier()
    assert group._get_sequence_number_for_group() == before + 2

    two = [torch.ones(2), torch.ones(2)]
    for call in (lambda: group.allreduce(two), lambda: group.allreduce([])):
        assert "one is allowed" in refusal(ValueError, call)


def test_short_forms_of_the_groups_methods() -> None:
    values(run_group(use_short_forms, 2))


def bar_by_pytorchs_name(rank: int, world: int) -> None:
    limit = timedelta(seconds=30)
    dist.monitored_barrier(timeout=limit)
    dist.monitored_barrier(timeout=limit, wait_all_ranks=True)
    if rank == 0:  # without any time
        call = lambda: rt.monitored_barrier(timeout=timedelta(0))  # noqa: E731
        assert "rank 1 did not arrive" in refusal(rt.RedpollError, call)


@pytest.mark.skipif(
    not _process_group.HAS_DEVICE_BACKENDS, reason="this PyTorch lets gloo alone have one"
)
def test_monitored_barrier_of_pytorch() -> None:
    values(run_group(bar_by_pytorchs_name, 2))


# ---- works and futures ----

POSTED = {
    "all_reduce": lambda group, one, more: dist.all_reduce(one, group=group, async_op=True),
    "broadcast": lambda group, one, more: dist.broadcast(one, 0, group=group, async_op=True),
    "reduce": lambda group, one, more: dist.reduce(one, 0, group=group, async_op=True),
    "all_gather": lambda group, one, more: dist.all_gather(
        more, one, group=group, async_op=True
    ),
    "reduce_scatter": lambda group, one, more: dist.reduce_scatter(
        one, more, group=group, async_op=True
    ),
    "all_to_all": lambda group, one, more: dist.all_to_all(
        [torch.empty(3) for _ in more], more, group=group, async_op=True
    ),
    "barrier": lambda group, one, more: dist.barrier(group=group, async_op=True),
}
"""A row an operation."""

NOT_OF_GLOO = ("all_to_all", "reduce_scatter")


def say_what_was_posted(rank: int, world: int) -> None:
    limit = timedelta(seconds=77)
    told: dict[str, list[object]] = {}
    for backend in ("gloo", "redpoll"):
        group = dist.new_group(backend=backend, timeout=limit)
        assert group._get_sequence_number_for_group() == 0
        said = told[backend] = []
        for name, post in POSTED.items():
            if backend == "gloo" and name in NOT_OF_GLOO:
                dist.barrier(group)
                continue
            work = post(group, torch.ones(3), [torch.ones(3) for _ in range(world)])
            number = work._get_sequence_number()
            assert number == group._get_sequence_number_for_group()
            work.wait()
            said.append((name, number, work._get_op_type(), work.timeout))
        assert group._get_sequence_number_for_group() == len(POSTED)
    theirs, ours = told["gloo"], [one for one in told["redpoll"] if one[0] not in NOT_OF_GLOO]
    assert ours == theirs
    assert all(one[-1] == limit for one in ours)


def test_a_work_says_which_operation_it_is_and_how_long_it_may_take() -> None:
    values(run_group(say_what_was_posted, 2))


def say_what_else_was_posted(rank: int, world: int) -> None:
    group = dist.group.WORLD
    limit = timedelta(seconds=11)
    options = dist.AllreduceOptions()
    options.timeout = limit
    assert group.allreduce([torch.ones(2)], options).timeout == limit
    quick = group.barrier()
    assert (quick._get_sequence_number(), quick._get_op_type()) == (2, 15)
    index, ones = torch.tensor([[rank]]), torch.ones(1)
    sparse = dist.all_reduce(torch.sparse_coo_tensor(index, ones, (4,)), async_op=True)
    assert sparse._get_sequence_number() == 3 == group._get_sequence_number_for_group()
    sparse.wait()
    refusal(ValueError, lambda: group.allreduce([]))
    assert group._get_sequence_number_for_group() == 3  # nothing was posted
    with dist._coalescing_manager(group, async_ops=True) as both:
        dist.all_reduce(torch.ones(2))
        dist.all_reduce(torch.ones(2))
    both.wait()
    assert group._get_sequence_number_for_group() == 4  # PyTorch makes one of them
    assert dist.isend(ones, 1 - rank)._get_op_type() == 12
    received = dist.irecv(torch.empty(1), 1 - rank)
    assert (received._get_op_type(), received._get_sequence_number()) == (13, 6)
    received.wait()
    assert rt.Work()._get_sequence_number() == 0


def test_operations_of_every_way_are_numbered() -> None:
    values(run_group(say_what_else_was_posted, 2))


def wait_in_callbacks(rank: int, world: int) -> None:
    """A callback waits for an operation of its own, and for what was posted before it ran."""

    def again(future: torch.futures.Future) -> torch.Tensor:
        work = dist.all_reduce(future.value()[0], async_op=True)
        return work.get_future().then(lambda each: each.value()[0]).wait()

    work = dist.all_reduce(torch.ones(100), async_op=True)
    assert work.get_future().then(again).wait()[0] == world**2

    first, second = (dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(2))
    later = second.get_future()
    assert first.get_future().then(lambda _: later.wait()).wait()[0][0] == world


def wait_in_callbacks_often(rank: int, world: int) -> None:
    threads = thread_count()
    for _ in range(10):
        wait_in_callbacks(rank, world)
    assert thread_count() <= threads + 4


def test_a_callback_may_wait_for_another_operation() -> None:
    values(run_group(wait_in_callbacks_often, 2, timeout=60))


def train_with_power_sgd(rank: int, world: int) -> float:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 64) for _ in range(3)]
    # One bucket: its callbacks post operations, and with two their order would be a race.
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=2, start_powerSGD_iter=2
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(4):
        model(torch.ones(4, 64)).sum().backward()
    return sum(one.grad.sum().item() for one in model.parameters())


def test_pytorchs_power_sgd_hook() -> None:
    first, second = values(run_group(train_with_power_sgd, 2, timeout=60))
    assert first == second


def join_with_uneven_inputs(rank: int, world: int) -> None:
    """The reducer is given a Work of which Python keeps nothing."""
    model = DistributedDataParallel(torch.nn.Linear(5, 5, bias=False))
    with model.join(divide_by_initial_world_size=False):
        for _ in range(3 + rank):
            model(torch.ones(1, 5)).sum().backward()
            assert torch.equal(model.module.weight.grad, torch.ones(5, 5))
            model.zero_grad()


def test_uneven_inputs_with_the_number_of_ranks_that_are_left() -> None:
    values(run_group(join_with_uneven_inputs, 2, timeout=60))


def look_into_futures(rank: int, world: int) -> None:
    group = dist.group.WORLD
    inputs = [[torch.tensor([rank + i])] * 2 for i in range(2)]
    outputs = [[[torch.zeros_like(x) for x in xs] for _ in range(world)] for xs in inputs]
    futures = [
        dist.all_gather_coalesced(each, own, async_op=True)
        for each, own in zip(outputs, inputs)
    ]
    torch.futures.wait_all(futures)
    for i, each in enumerate(outputs):
        assert each == [[torch.tensor([other + i])] * 2 for other in range(world)]

    joined = torch.empty(world)
    work = group.alltoall_base(joined, torch.ones(world), [], [])
    assert work.get_future().wait() == [joined]


def test_futures_of_joined_and_of_split_tensors() -> None:
    values(run_group(look_into_futures, 2))


def infer(rank: int, world: int) -> None:
    """Results of strided tensors are put in place by a thread that knows no modes."""
    for mode in (torch.inference_mode(), contextlib.nullcontext()):
        with mode:
            outputs = [torch.zeros(3, 4).t() for _ in range(world)]
            own = torch.full((3, 4), float(rank)).t()
            work = dist.group.WORLD.allgather([outputs], [own])
            work.get_future().wait()
            assert [one[0, 0].item() for one in outputs] == [0.0, 1.0]


def test_inference_tensors() -> None:
    values(run_group(infer, 2))


def be_profiled(rank: int, world: int) -> None:
    with torch.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(torch.ones(3, 4))
        work = dist.all_gather(
            [torch.empty(5) for _ in range(world)], torch.ones(5), async_op=True
        )
        work.wait()
        model = DistributedDataParallel(torch.nn.Linear(3, 3))
        model(torch.ones(1, 3)).sum().backward()
    dist.all_reduce(torch.ones(3, 4))
    spans = [each for each in profile.events() if each.name.startswith("redpoll:")]
    names = [each.name for each in spans]
    assert names.count("redpoll:all_reduce") == 2 and names.count("redpoll:all_gather") >= 1
    assert spans[names.index("redpoll:all_reduce")].input_shapes == [[3, 4]]


def test_operations_are_spans_in_profiles() -> None:
    values(run_group(be_profiled, 2))


def leave_a_coalescing_block(rank: int, world: int, backend: str) -> int:
    """Tensors that are still held after many broadcasts behind a block that was left."""
    group, cpu = dist.new_group(backend=backend), torch.device("cpu")
    with pytest.raises(KeyError):
        with dist._coalescing_manager(group=group, device=cpu):
            dist.broadcast(torch.ones(4), 0, group=group)
            raise KeyError("of the user")
    # PyTorch keeps a list of its own, whatever the backend: it would take later all-reduces.
    assert dist.distributed_c10d._world.pg_coalesce_state.pop(group) == []
    tensors = [torch.ones(4) for _ in range(300)]
    held = [weakref.ref(one) for one in tensors]
    for one in tensors:
        dist.broadcast(one, 0, group=group)
        dist.broadcast(one, 0, group=group, async_op=True).wait()
    del tensors, one
    gc.collect()
    alive = sum(each() is not None for each in held)
    with dist._coalescing_manager(group=group, device=cpu):
        tensor = torch.full((4,), float(rank))
        dist.broadcast(tensor, 1, group=group)
    assert tensor[0] == 1
    dist.all_reduce(tensor, group=group)
    assert tensor[0] == world
    return alive


def test_a_coalescing_block_that_is_left_by_an_exception() -> None:
    assert max(values(run_group(leave_a_coalescing_block, 2, "redpoll"))) < 100


# ---- sparse tensors ----


def own_sparse(rank: int, world: int, dtype: torch.dtype, dense_dims: int) -> torch.Tensor:
    """Indices 0 to rank, some of them twice, and one that only this rank has."""
    indices = torch.tensor([[*range(rank + 1), 0, world + rank], [1] * (rank + 3)])
    shape = (2 * world, 3) + (2,) * dense_dims
    rows = torch.arange(1, rank + 4).reshape(-1, *[1] * dense_dims)
    rows = rows.expand(-1, *[2] * dense_dims).to(dtype)
    return torch.sparse_coo_tensor(indices, rows, shape, check_invariants=True)


def sum_sparse(rank: int, world: int) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
        for dense_dims in (0, 2):
            for async_op in (False, True):
                arguments = (world, dtype, dense_dims)
                total = own_sparse(rank, *arguments)
                work = dist.all_reduce(total, async_op=async_op)
                if async_op:
                    assert work.get_future().wait() == [total]
                    assert work.wait() and work.is_completed() and work.is_success()
                wanted = sum(own_sparse(each, *arguments).to_dense() for each in range(world))
                assert total.is_sparse and total.dtype == dtype
                assert torch.equal(total.to_dense(), wanted), arguments

    empty = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), [], (5,))
    dist.all_reduce(empty)
    assert empty.to_dense().tolist() == [0] * 5

    # Dense operations pass a sparse one for which another rank has not come.
    later = own_sparse(rank, world, torch.float32, 0)
    work = dist.all_reduce(later, async_op=True) if rank == 0 else None
    ones = torch.ones(10)
    dist.all_reduce(ones)
    assert ones[0] == world
    work = work or dist.all_reduce(later, async_op=True)
    work.wait()


@pytest.mark.parametrize("world", [1, 2, 3])
def test_sums_of_sparse_tensors(world: int) -> None:
    values(run_group(sum_sparse, world))


def refuse_sparse(rank: int, world: int) -> None:
    own = own_sparse(rank, world, torch.float32, 0)
    bad = [
        (lambda: dist.all_reduce(own, dist.ReduceOp.MAX), "another reduction"),
        (lambda: dist.all_reduce_coalesced([own]), "to_dense"),
        (lambda: dist.all_reduce(torch.eye(2).to_sparse_csr()), "to_dense"),
        (lambda: dist.broadcast(own, 0), "to_dense"),
    ]
    for call, what in bad:
        assert what in refusal(rt.RedpollValueError, call)
    other = torch.sparse_coo_tensor([[0]], [1.0], (4 + rank,))
    with pytest.raises(rt.RedpollError) as caught:
        dist.all_reduce(other)
    assert caught.value.status == "MISMATCH" and "rank 1" in str(caught.value)
    assert "shape [4]" in str(caught.value) and "shape [5]" in str(caught.value)
    assert caught.value.posted_at.startswith("test_parity.py:")
    dist.all_reduce(own)


def test_sparse_tensors_that_cannot_be_summed() -> None:
    values(run_group(refuse_sparse, 2))


def die_in_sparse(rank: int, world: int) -> str:
    own = own_sparse(rank, world, torch.float32, 0)
    dist.all_reduce(own)
    if rank == 1:
        die()
    with pytest.raises(rt.RedpollError) as caught:
        dist.all_reduce(own)
    with pytest.raises(RuntimeError):
        dist.all_reduce(own, async_op=True).get_future().wait()
    return str(caught.value)


def test_a_rank_killed_in_a_sparse_sum_is_named() -> None:
    outcomes = run_group(die_in_sparse, 3)
    assert "rank 1" in values(outcomes[:1])[0] and "rank 1" in values(outcomes[2:])[0]


def die_before_sparse(rank: int, world: int) -> dict:
    own = own_sparse(rank, world, torch.float32, 0)
    dist.barrier()
    if rank == 1:
        die()
    with pytest.raises(rt.RedpollError) as caught:
        dist.all_reduce(own)
    return {"text": str(caught.value), "operation": caught.value.operation}


def test_a_rank_killed_before_the_first_sparse_sum_is_named() -> None:
    """The sums' own communicator is made by the first one; the group's says who is gone."""
    outcomes = run_group(die_before_sparse, 3, group_timeout=600.0, timeout=90.0)
    for one in values(outcomes[:1] + outcomes[2:]):
        assert "rank 1" in one["text"] and one["operation"] == "all_reduce", one


def leave_before_sparse(rank: int, world: int) -> str:
    group, own = dist.new_group(), own_sparse(rank, world, torch.float32, 0)
    if rank == 1:
        return ""
    work = dist.all_reduce(own, group=group, async_op=True)
    rt.communicator_of(group).close()
    return refusal(rt.RedpollError, work.wait)


def test_closing_ends_the_wait_for_the_first_sparse_sum() -> None:
    said = values(run_group(leave_before_sparse, 2, group_timeout=600.0, timeout=90.0))
    assert "destroyed" in said[0]


def train_with_sparse_gradients(rank: int, world: int) -> list[float]:
    torch.manual_seed(0)
    table = torch.nn.EmbeddingBag(100, 4, sparse=True)
    alone = torch.nn.EmbeddingBag(100, 4, sparse=True)
    alone.load_state_dict(table.state_dict())
    model = DistributedDataParallel(torch.nn.Sequential(table, torch.nn.Linear(4, 1)))
    optimizer = torch.optim.SparseAdam(list(table.parameters()))
    for step in range(3):
        optimizer.zero_grad()
        model(torch.tensor([[rank, 50], [step, 60]])).sum().backward()
        assert table.weight.grad.is_sparse
        optimizer.step()
    assert torch.equal(table.weight[70:], alone.weight[70:])
    return table.weight.sum(1).tolist()


def test_ddp_with_sparse_gradients() -> None:
    first, second = values(run_group(train_with_sparse_gradients, 2))
    assert first == second


def compress_sparse_gradients(rank: int, world: int) -> None:
    table, linear = torch.nn.EmbeddingBag(100, 4, sparse=True), torch.nn.Linear(4, 4)
    model = DistributedDataParallel(torch.nn.Sequential(table, linear))
    rt.compress(model, codec="q4", min_size=8, rules={"0.weight": None})
    model(torch.tensor([[rank, 50]])).sum().backward()
    gradient = table.weight.grad.to_dense()
    wanted = linear.weight.sum(0).detach() / (2 * world)
    for row, times in ((0, 1), (1, 1), (50, world), (2, 0)):
        assert torch.allclose(gradient[row], wanted * times)

    model = DistributedDataParallel(torch.nn.EmbeddingBag(100, 400, sparse=True))
    rt.compress(model, codec="q4")
    call = lambda: model(torch.tensor([[rank, 50]])).sum().backward()  # noqa: E731
    assert "the gradient of 'weight' is sparse" in refusal(Exception, call)


def test_compression_leaves_sparse_gradients_alone_or_refuses() -> None:
    values(run_group(compress_sparse_gradients, 2))


def gather_a_sharded_tensor(rank: int, world: int) -> None:
    """It asks the backend's name for the device to work on."""
    places = [f"rank:{each}/cpu" for each in range(world)]
    spec = ChunkShardingSpec(dim=0, placements=places)
    whole = torch.zeros(8, 4) if rank == 0 else None
    sharded_tensor.full(spec, (8, 4), 3.0).gather(0, whole)
    assert whole is None or torch.equal(whole, torch.full((8, 4), 3.0))


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="works on the GPU where there is one")
def test_sharded_tensors_on_a_host_without_a_gpu() -> None:
    values(run_group(gather_a_sharded_tensor, 2))


def leave_sparse_behind(rank: int, world: int, port: int) -> list[int]:
    """Threads and descriptors after each life of a group; the first lives warm up."""
    left = []
    for i in range(6):
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
        store = dist.PrefixStore(str(i), store)
        dist.init_process_group("redpoll", store=store, rank=rank, world_size=world)
        dist.all_reduce(own_sparse(rank, world, torch.float32, 0))
        dist.destroy_process_group()
        assert rt.communicators() == []
        del store
        gc.collect()
        left.append(thread_count() + open_descriptors())
    return left


def test_nothing_remains_of_sparse_sums() -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for left in values(run_ranks(leave_sparse_behind, 2, server.port)):
        assert left[-1] <= left[2], left
