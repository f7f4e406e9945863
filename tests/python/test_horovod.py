"""The interface of Horovod: what operations compute and how their gradients flow, in whatever
order ranks call them; what is refused, and that it goes on afterwards."""

from __future__ import annotations

import itertools
import json

import pytest
import torch

import horovod.torch as hvd
from horovod.torch._negotiation import Table, Word
from ranks import refusal, run_group, values

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int32, torch.int64)
MOVED = (torch.uint8, torch.int8, torch.int16, torch.bool, *INTEGERS, *FLOATS)


def full(value, dtype=torch.float64, shape=(5,)):
    return torch.full(shape, value, dtype=dtype)


# ---- what all ranks have asked for ----


def rounds(*parts):
    """Answers of each round of words by rank, which every copy of the table gives alike."""
    tables = [Table(len(parts[0])) for _ in parts[0]]
    told = []
    for words in parts:
        texts = [table.encode(own) for table, own in zip(tables, words)]
        answers = [table.take(texts) for table in tables]
        assert all(each == answers[0] for each in answers)
        told.append([(each.name, each.error, each.last) for each in answers[0]])
    return told


def word(name, kind="allreduce", agreed=("x",), own=()):
    return Word(kind, name, list(agreed), list(own))


def test_operations_are_agreed_on_in_any_order():
    a, b = word("a"), word("b")
    told = rounds([[a], [b]], [[], []], [[b], [a]], [[b], [b, a]], [[a], []])
    names = [sorted(name for name, _, _ in each) for each in told]
    assert names == [[], [], ["a", "b"], ["b"], ["a"]]


def test_what_was_agreed_on_before_is_a_number():
    table = Table(1)
    assert json.loads(table.encode([word("a")]))[0][1] == "a"
    table.take([table.encode([word("a")])])
    assert json.loads(table.encode([word("a"), word("a", agreed=["y"])]))[0] == 0
    assert isinstance(json.loads(table.encode([word("a", agreed=["y"])]))[0], list)
    for number in range(3):
        table.take([table.encode([word(f"allreduce.noname.{number}")])])
    assert len(table.encode([word("allreduce.noname.1")])) > 3


def test_joined_ranks_are_not_waited_for():
    join = word("join", "join")
    told = rounds([[word("a")], [join]], [[word("g", "allgather")], []], [[join], []])
    assert told[0] == [("a", "", -1)]
    assert "has joined" in told[1][0][1]
    assert told[2] == [("", "", 0)]


def test_a_difference_is_named_by_rank():
    ((name, error, _),) = rounds([[word("a")], [word("a", agreed=["z"])]])[0]
    assert (name, error) == ("a", "a: ranks differ: rank 0 has x and rank 1 z")


# ---- operations ----


def reductions(rank, world):
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (rank, world)
    for dtype in (*FLOATS, *INTEGERS):
        own = full(rank + 1, dtype)
        assert torch.equal(hvd.allreduce(own, op=hvd.Sum), full(6, dtype))
        assert torch.equal(hvd.allreduce(own), full(2, dtype))
        assert torch.equal(hvd.allreduce(own, op=hvd.Min), full(1, dtype))
        assert torch.equal(hvd.allreduce(own, op=hvd.Max), full(3, dtype))
        assert torch.equal(hvd.allreduce(own, op=hvd.Product), full(6, dtype))
        assert torch.equal(own, full(rank + 1, dtype))
    assert hvd.allreduce(full(rank, torch.int64) - 2).tolist() == [-1] * 5  # rounded down
    assert hvd.allreduce(torch.tensor(float(rank))).dim() == 0
    assert hvd.allreduce(torch.empty(0)).numel() == 0
    inplace = full(rank + 1.0)
    assert hvd.allreduce_(inplace, average=False) is inplace and inplace[0] == 6
    scaled = hvd.allreduce(full(rank + 1.0), op=hvd.Sum, prescale_factor=0.5)
    assert scaled[0] == 3
    scaled = hvd.allreduce(full(5, torch.int32), op=hvd.Sum, prescale_factor=0.5)
    assert scaled[0] == 6  # 2 of each rank
    scaled = hvd.allreduce(full(5, torch.int32), op=hvd.Sum, postscale_factor=0.5)
    assert scaled[0] == 7
    strided = torch.arange(12.0).view(3, 4).t()
    assert torch.equal(hvd.allreduce(strided), strided)
    half = hvd.allreduce(full(rank + 1.0, torch.float32), compression=hvd.Compression.fp16)
    assert half.dtype == torch.float32 and half[0] == 2
    mixed = [full(rank, torch.float32), full(rank, torch.int64)]
    first, second = hvd.grouped_allreduce(mixed, op=hvd.Sum)
    assert first[0] == 3 and second[0] == 3 and second.dtype == torch.int64
    assert hvd.grouped_allreduce_(mixed, op=hvd.Max)[0] is mixed[0] and mixed[1][0] == 2


def test_reductions():
    values(run_group(reductions, 3))


def in_flight(rank, world):
    """Ranks call in different orders, and wait in others; what is small travels together."""
    hvd.init()
    numbers = list(range(20))
    order = numbers if rank == 0 else numbers[::-1]
    handles = {i: hvd.allreduce_async(full(rank + i), name=f"n{i}") for i in order}
    late = hvd.allreduce_async(full(1.0), name="late") if rank == 0 else None
    found = {i: hvd.synchronize(handles[i])[0].item() for i in reversed(order)}
    assert found == {i: i + 0.5 for i in numbers}
    if rank == 1:
        late = hvd.allreduce_async(full(3.0), name="late")
    assert hvd.synchronize(late)[0] == 2
    assert hvd.synchronize(late) is None
    named = hvd.allreduce_async(full(1.0), name="polled")
    while not hvd.poll(named):
        pass
    assert hvd.synchronize(named)[0] == 1
    large = [full(rank, shape=(3000,)) for _ in range(9)]  # above the threshold of this test
    handles = [hvd.allreduce_async(each, name=f"l{i}") for i, each in enumerate(large)]
    assert all(hvd.synchronize(each)[-1] == 0.5 for each in handles)
    long = [f"{'x' * 100}{i}" for i in range(40)]  # more to say than a round's slot holds
    handles = [hvd.allreduce_async(full(1.0), name=each) for each in long]
    assert all(hvd.synchronize(each)[0] == 1 for each in handles)


def test_order_of_calls_does_not_matter():
    values(run_group(in_flight, 2, environment={"HOROVOD_FUSION_THRESHOLD": "50000"}))


def movements(rank, world):
    hvd.init()
    for dtype, dims in itertools.product(MOVED, (1, 2, 3)):
        own = torch.full((rank + 1, *[2] * (dims - 1)), rank, dtype=dtype)
        rows = hvd.allgather(own)
        wanted = torch.tensor([0, 1, 1, 2, 2, 2]).to(dtype)
        assert torch.equal(rows.flatten(1).select(1, 0) if dims > 1 else rows, wanted)
        root = hvd.broadcast(torch.full([3] * dims, rank).to(dtype), 1)
        assert torch.equal(root, torch.ones([3] * dims).to(dtype))
    assert hvd.allgather(torch.empty(0 if rank else 2, 3)).shape == (2, 3)
    pair = hvd.grouped_allgather([torch.full((rank, 1), rank), torch.tensor([rank])])
    assert pair[0].flatten().tolist() == [1, 2, 2] and pair[1].tolist() == [0, 1, 2]
    own = full(rank)
    assert hvd.broadcast_(own, 2) is own and own[0] == 2

    own = torch.arange(world * 2) + 10 * rank
    wanted = [10 * r + 2 * rank + i for r in range(world) for i in range(2)]
    assert hvd.alltoall(own).tolist() == wanted
    splits = torch.tensor([rank] * world, dtype=torch.int32)  # of rank 0: nothing
    came, counts = hvd.alltoall(torch.full((world * rank + 1, 2), rank), splits)
    assert came[:, 0].tolist() == [1, 2, 2] and counts.tolist() == [0, 1, 2]
    handle = hvd.alltoall_async(torch.arange(world), name="all")
    assert hvd.synchronize(handle).tolist() == [rank] * world

    rows = torch.arange(5.0) + rank
    share = hvd.reducescatter(rows, op=hvd.Sum)
    assert share.tolist() == [[3, 6], [9, 12], [15]][rank]
    whole = hvd.reducescatter(torch.arange(5) + rank)
    assert whole.tolist() == [[1, 2], [3, 4], [5]][rank]
    pair = hvd.grouped_reducescatter([rows, rows], op=hvd.Sum, postscale_factor=2.0)
    assert pair[1].tolist() == [2 * each for each in share.tolist()]
    hvd.barrier()


def test_movements():
    values(run_group(movements, 3))


def gradients(rank, world):
    hvd.init()

    def flows(operation, rows=4, of=lambda found: found.sum()):
        own = torch.ones(rows, 2, dtype=torch.float64, requires_grad=True)
        of(operation(own)).backward()
        return own.grad

    def sums(own):
        return hvd.allreduce(own, op=hvd.Sum, prescale_factor=0.5)

    assert torch.equal(flows(hvd.allreduce), full(1, shape=(4, 2)))
    assert torch.equal(flows(sums), full(0.5 * world, shape=(4, 2)))
    gathered = flows(hvd.allgather, rank + 1, lambda found: (found * (rank + 1)).sum())
    assert torch.equal(gathered, full(1.5, shape=(rank + 1, 2)))
    sent = flows(lambda own: hvd.broadcast(own, 1))
    assert torch.equal(sent, full(1 if rank == 1 else 0, shape=(4, 2)))
    swapped = flows(lambda own: hvd.alltoall(own, [1, 2])[0])
    assert swapped[:, 0].tolist() == [1, 1, 1, 0]  # the last row was sent nowhere
    assert torch.equal(flows(hvd.reducescatter), full(1, shape=(4, 2)))
    scattered = flows(lambda own: hvd.reducescatter(own, op=hvd.Sum))
    assert torch.equal(scattered, full(world, shape=(4, 2)))
    tensors = [torch.ones(3, requires_grad=True) for _ in range(3)]
    for each in hvd.grouped_allreduce(tensors, op=hvd.Sum):
        each.sum().backward()
    assert all(each.grad.tolist() == [world] * 3 for each in tensors)


def test_gradients_flow():
    values(run_group(gradients, 2))


def objects(rank, world):
    hvd.init()
    mine = {"rank": rank, "data": "x" * 1000 * rank, "tensor": torch.arange(rank)}
    got = hvd.broadcast_object(mine if rank == 1 else None, root_rank=1)
    assert got["rank"] == 1 and len(got["data"]) == 1000 and got["tensor"].tolist() == [0]
    every = hvd.allgather_object(mine, name="all")
    assert [each["rank"] for each in every] == [0, 1]
    model = torch.nn.Linear(3, 2)
    with torch.no_grad():
        model.weight += rank
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (rank + 1))
    if rank == 0:  # only the root has state
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_parameters(model.named_parameters(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    state = optimizer.state_dict()
    return model.weight.tolist(), state["param_groups"], state["state"][0]["exp_avg"].tolist()


def test_ranks_begin_alike():
    first, second = values(run_group(objects, 2))
    assert first == second and first[1][0]["lr"] == 0.1


# ---- some of the ranks ----


def process_sets(rank, world):
    even, odd = hvd.ProcessSet([0, 2]), hvd.ProcessSet([1])
    early = refusal(ValueError, even.size)
    hvd.init(process_sets=[even, odd])
    assert even.included() == (rank != 1) and even.size() == 2
    own = even if rank != 1 else odd
    mean = hvd.allreduce(full(rank), process_set=own)[0].item()
    gathered = hvd.allgather(torch.tensor([rank]), process_set=own).tolist()
    told = {"not in use": early}
    if rank == 1:
        told["is not in the process set"] = refusal(
            ValueError, lambda: hvd.allreduce(full(rank), process_set=even)
        )
    else:
        assert even.rank() == rank // 2
        assert hvd.broadcast(full(rank), 2, process_set=even)[0] == 2
        told["none of the ranks"] = refusal(
            ValueError, lambda: hvd.broadcast(full(rank), 1, process_set=even)
        )
    last = hvd.add_process_set([1, 2])
    if rank:
        assert hvd.allreduce(full(rank), process_set=last, op=hvd.Sum)[0] == 3
    told["has ranks"] = refusal(ValueError, lambda: hvd.add_process_set([2, 1]))
    told["there are 3 ranks"] = refusal(ValueError, lambda: hvd.add_process_set([3]))
    assert hvd.remove_process_set(last) and not hvd.remove_process_set(last)
    assert not hvd.remove_process_set(hvd.global_process_set)
    told["in use"] = refusal(ValueError, lambda: hvd.allreduce(full(1), process_set=last))
    assert hvd.allreduce(full(rank))[0] == 1
    hvd.shutdown()
    return mean, gathered, told


def test_process_sets():
    everyone = values(run_group(process_sets, 3))
    assert [mean for mean, _, _ in everyone] == [1, 1, 1]
    assert [rows for _, rows, _ in everyone] == [[0, 2], [1], [0, 2]]
    for _, _, told in everyone:
        for part, said in told.items():
            assert part in said


# ---- ranks without data ----


def joins(rank, world):
    hvd.init()
    if rank != 1:
        for step in range(3 if rank else 5):
            mean = hvd.allreduce(full(3.0), name=f"s{step}")[0].item()
            assert mean == (2 if step < 3 else 1)
        if not rank:
            hvd.barrier()
            said = refusal(hvd.HorovodInternalError, lambda: hvd.allgather(full(1)))
            assert "has joined" in said
    last = hvd.join()
    again = hvd.allreduce(full(rank))[0].item()
    return last, again


def test_joined_ranks_count_as_zeros():
    assert values(run_group(joins, 3)) == [(0, 1.0)] * 3


# ---- what is refused ----


def refused(rank, world):
    before = refusal(ValueError, hvd.size)
    hvd.init()
    other = torch.float32 if rank else torch.float64

    def differ(action):
        return refusal(hvd.HorovodInternalError, action)

    def wrong(action):
        return refusal(ValueError, action)

    told = [
        ("hvd.init()", before),
        ("[2]", differ(lambda: hvd.allreduce(torch.ones(2 + rank)))),
        ("float64", differ(lambda: hvd.allreduce(torch.ones(2, dtype=other)))),
        ("[2, 3]", differ(lambda: hvd.allreduce(torch.ones([6] if rank else [2, 3])))),
        ("Sum", differ(lambda: hvd.allreduce(full(1), name="o", average=not rank))),
        ("0.5", differ(lambda: hvd.allreduce(full(1), prescale_factor=0.5 + rank))),
        ("[17]", differ(lambda: hvd.allgather(torch.ones(2, 17 + rank)))),
        ("root rank 1", differ(lambda: hvd.broadcast(full(1), rank))),
        ("float32", differ(lambda: hvd.alltoall(torch.ones(2, dtype=other)))),
        ("[18]", differ(lambda: hvd.reducescatter(torch.ones(17 + rank)))),
        ("one of them", wrong(lambda: hvd.allreduce(full(1), average=True, op=hvd.Sum))),
        ("op=hvd.Adasum", wrong(lambda: hvd.allreduce(full(1), op=hvd.Adasum))),
        ("op is 9", wrong(lambda: hvd.allreduce(full(1), op=9))),
        ("none of the ranks", wrong(lambda: hvd.broadcast(full(1), 2))),
        ("no dimension", wrong(lambda: hvd.allgather(torch.tensor(1)))),
        ("do not divide", wrong(lambda: hvd.alltoall(torch.ones(3)))),
        ("at most", wrong(lambda: hvd.alltoall(torch.ones(1), torch.tensor([1, 1])))),
        ("row of integers", wrong(lambda: hvd.alltoall(torch.ones(2), torch.ones(2)))),
        ("can be scattered", wrong(lambda: hvd.reducescatter(full(1), op=hvd.Max))),
        ("a tensor is wanted", wrong(lambda: hvd.allgather_async([1.0]))),
        ("a dict or a list", wrong(lambda: hvd.broadcast_parameters(full(1), 0))),
        ("unknown", wrong(lambda: hvd.poll(1 << 40))),
        ("no MPI", wrong_init()),
    ]
    first = hvd.allreduce_async(full(1), name="twice") if rank else None
    if rank:
        told.append(("in flight", wrong(lambda: hvd.allreduce_async(full(1), name="twice"))))
    else:
        first = hvd.allreduce_async(full(1), name="twice")
    hvd.synchronize(first)
    assert hvd.allreduce(full(rank))[0] == 0.5  # it goes on
    assert hvd.is_initialized()
    hvd.shutdown()
    assert not hvd.is_initialized()
    told.append(("hvd.init()", wrong(hvd.rank)))
    hvd.init()
    assert hvd.allreduce(full(rank))[0] == 0.5
    return told


def wrong_init():
    hvd.shutdown()
    said = refusal(ValueError, lambda: hvd.init(comm="MPI_COMM_WORLD"))
    hvd.init()
    return said


def test_what_is_refused():
    for told in values(run_group(refused, 2)):
        for part, said in told:
            assert part in said


@pytest.mark.parametrize("part", ["tensorflow", "keras", "mxnet", "spark", "ray"])
def test_other_frameworks_say_so(part):
    said = refusal(ImportError, lambda: __import__(f"horovod.{part}"))
    assert f"horovod.{part} is not supported" in said and "horovod.torch" in said


# ---- timeline ----


def timeline(rank, world, path):
    hvd.init()
    hvd.allreduce(full(1), name="by variable")
    hvd.start_timeline(f"{path}.second", mark_cycles=True)
    hvd.allreduce(full(1), name="shown")
    hvd.broadcast(full(1), 0, name="sent")
    hvd.stop_timeline()
    hvd.allreduce(full(1), name="later")
    hvd.shutdown()


def test_timeline(tmp_path):
    path = tmp_path / "timeline.json"
    values(run_group(timeline, 2, str(path), environment={"HOROVOD_TIMELINE": str(path)}))
    texts = [path.read_text(), (tmp_path / "timeline.json.second").read_text()]
    for text, names in zip(texts, (["by variable"], ["shown"])):
        records = json.loads(text)
        tensors = {r["args"]["name"]: r["pid"] for r in records if r["name"] == "process_name"}
        for name in names:
            own = [r for r in records if r["pid"] == tensors[f"allreduce.{name}"]]
            begun = [r["name"] for r in own if r["ph"] == "B"]
            assert begun == ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"]
            assert [r["ph"] for r in own if r["ph"] in "BE"] == ["B", "E"] * 2
        assert "start_time_since_epoch_in_micros" in text and "allreduce.later" not in text
    assert "CYCLE_START" in texts[1] and "CYCLE_START" not in texts[0]
    assert "NEGOTIATE_BROADCAST" in texts[1]
