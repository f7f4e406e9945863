"""Collectives called as methods of a group, in every form that PyTorch's ProcessGroup has: with
lists and single tensors, with options, without, by position and by name, each beside gloo's."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import redpoll.torch as rt
from ranks import refusal, run_group, values

LIMIT = timedelta(seconds=20)
MAX = dist.ReduceOp.MAX


def options(kind, **fields):
    made = getattr(dist, kind, None) or getattr(torch._C._distributed_c10d, kind)
    own = made()
    for name, value in fields.items():
        setattr(own, name, value)
    return own


class Call:
    """What a row has to work with."""

    def __init__(self, group, rank, world):
        self.group, self.rank, self.world = group, rank, world
        self.root, self.last = rank == 0, rank == world - 1

    def own(self, salt=0):
        return torch.arange(4.0) + 10 * self.rank + 100 * salt

    def every(self):
        """A tensor for each rank."""
        return [self.own(salt) for salt in range(self.world)]

    def blanks(self):
        return [torch.zeros(4) for _ in range(self.world)]

    def at(self, is_there, tensors):
        return tensors if is_there else []


def in_place(method):
    """Of a row whose tensor is its result: method(group's call, tensor)."""

    def run(c):
        tensor = c.own()
        method(c, tensor).wait()
        return [tensor]

    return run


def collected(method, where=lambda c: True):
    """Of a row that fills a tensor a rank."""

    def run(c):
        blanks = c.blanks()
        method(c, blanks).wait()
        return blanks if where(c) else []

    return run


def flat(method):
    def run(c):
        output = torch.zeros(4 * c.world)
        method(c, output).wait()
        return [output]

    return run


def at_last(c):
    return c.last


def at_first(c):
    return c.root


def of_root(kind, c):
    return options(kind, rootRank=c.world - 1)


def many(c, method):
    outputs = [torch.zeros(4 * c.world), torch.zeros(4 * c.world)]
    method(outputs).wait()
    return outputs


def two(c):
    return [c.own(), c.own(1)]


def scattered(c, method):
    output = torch.zeros(4)
    method(output).wait()
    return [output]


def coalesced(c, opts):
    tensors = two(c)
    c.group.allreduce_coalesced(tensors, *opts).wait()
    return tensors


def coalesced_lists(c):
    outputs = [[torch.zeros(4), torch.zeros(4)] for _ in range(c.world)]
    c.group.allgather_coalesced(outputs, two(c)).wait()
    return [one for each in outputs for one in each]


def coalesced_parts(c, name):
    outputs = [torch.zeros(4), torch.zeros(4)]
    inputs = [torch.cat(c.every()), torch.cat(c.every()) + 5]
    getattr(c.group, name)(outputs, inputs).wait()
    return outputs


def exchanged(c, name, *rest, **named):
    output = torch.zeros(4 * c.world)
    getattr(c.group, name)(output, torch.cat(c.every()), *rest, **named).wait()
    return [output]


def around(c, receive):
    """To the next rank, from the one before."""
    got = torch.zeros(4)
    work = c.group.send([c.own()], (c.rank + 1) % c.world, 3)
    receive(got, (c.rank - 1) % c.world).wait()
    work.wait()
    return [got]


def barrier(method):
    def run(c):
        method(c).wait()
        return []

    return run


Rows = [  # a stranger adds a row: the method, how it is called, what it gives
    # ---- reductions
    ("allreduce", "a list", in_place(lambda c, t: c.group.allreduce([t]))),
    ("allreduce", "a list and a reduction", in_place(lambda c, t: c.group.allreduce([t], MAX))),
    ("allreduce", "by names", in_place(lambda c, t: c.group.allreduce(tensors=[t], op=MAX))),
    ("allreduce", "a tensor", in_place(lambda c, t: c.group.allreduce(t))),
    ("allreduce", "a reduction", in_place(lambda c, t: c.group.allreduce(t, MAX))),
    ("allreduce", "all of it", in_place(lambda c, t: c.group.allreduce(t, MAX, LIMIT))),
    ("allreduce", "its name", in_place(lambda c, t: c.group.allreduce(tensor=t, op=MAX))),
    (
        "allreduce",
        "options",
        in_place(lambda c, t: c.group.allreduce([t], options("AllreduceOptions"))),
    ),
    (
        "allreduce",
        "options by name",
        in_place(
            lambda c, t: c.group.allreduce(
                [t], opts=options("AllreduceOptions", reduceOp=MAX, timeout=LIMIT)
            )
        ),
    ),
    ("allreduce_coalesced", "lists", lambda c: coalesced(c, [])),
    (
        "allreduce_coalesced",
        "options",
        lambda c: coalesced(c, [options("AllreduceCoalescedOptions", reduceOp=MAX)]),
    ),
    ("reduce", "a list", lambda c: reduced(c, at_first, lambda t: c.group.reduce([t]))),
    (
        "reduce",
        "options",
        lambda c: reduced(
            c, at_last, lambda t: c.group.reduce([t], of_root("ReduceOptions", c))
        ),
    ),
    ("reduce", "a tensor", lambda c: reduced(c, at_first, lambda t: c.group.reduce(t, 0))),
    (
        "reduce",
        "all of it",
        lambda c: reduced(
            c, at_last, lambda t: c.group.reduce(t, c.world - 1, MAX, timeout=LIMIT)
        ),
    ),
    (
        "reduce",
        "by names",
        lambda c: reduced(
            c, at_first, lambda t: c.group.reduce(tensor=t, root=0, op=MAX, timeout=None)
        ),
    ),
    (
        "reduce_scatter",
        "lists",
        lambda c: scattered(c, lambda o: c.group.reduce_scatter([o], [c.every()])),
    ),
    (
        "reduce_scatter",
        "options",
        lambda c: scattered(
            c,
            lambda o: c.group.reduce_scatter(
                output_tensors=[o],
                input_tensors=[c.every()],
                opts=options("ReduceScatterOptions", reduceOp=MAX),
            ),
        ),
    ),
    (
        "reduce_scatter",
        "a tensor",
        lambda c: scattered(c, lambda o: c.group.reduce_scatter(o, c.every())),
    ),
    (
        "reduce_scatter",
        "all of it",
        lambda c: scattered(c, lambda o: c.group.reduce_scatter(o, c.every(), MAX, LIMIT)),
    ),
    (
        "reduce_scatter",
        "by names",
        lambda c: scattered(
            c, lambda o: c.group.reduce_scatter(output=o, input=c.every(), op=MAX)
        ),
    ),
    *(
        (
            name,
            "tensors",
            lambda c, name=name: scattered(
                c, lambda o: getattr(c.group, name)(o, torch.cat(c.every()))
            ),
        )
        for name in ("_reduce_scatter_base", "reduce_scatter_single")
    ),
    *(
        (name, "lists", lambda c, name=name: coalesced_parts(c, name))
        for name in ("reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced")
    ),
    # ---- gathering
    (
        "allgather",
        "lists",
        collected(lambda c, blanks: c.group.allgather([blanks], [c.own()])),
    ),
    (
        "allgather",
        "options",
        collected(
            lambda c, blanks: c.group.allgather(
                output_tensors=[blanks],
                input_tensors=[c.own()],
                opts=options("AllgatherOptions"),
            )
        ),
    ),
    ("allgather", "a tensor", collected(lambda c, blanks: c.group.allgather(blanks, c.own()))),
    (
        "allgather",
        "all of it",
        collected(lambda c, blanks: c.group.allgather(blanks, c.own(), LIMIT)),
    ),
    (
        "allgather",
        "by names",
        collected(
            lambda c, blanks: c.group.allgather(
                output_tensors=blanks, input_tensor=c.own(), timeout=LIMIT
            )
        ),
    ),
    *(
        (name, "tensors", flat(lambda c, o, name=name: getattr(c.group, name)(o, c.own())))
        for name in ("_allgather_base", "all_gather_single")
    ),
    ("allgather_coalesced", "lists", coalesced_lists),
    *(
        (
            name,
            "lists",
            lambda c, name=name: many(c, lambda o: getattr(c.group, name)(o, two(c))),
        )
        for name in ("allgather_into_tensor_coalesced", "all_gather_single_coalesced")
    ),
    (
        "gather",
        "lists",
        collected(
            lambda c, blanks: c.group.gather(c.at(c.root, [blanks]), [c.own()]), at_first
        ),
    ),
    (
        "gather",
        "options",
        collected(
            lambda c, blanks: c.group.gather(
                c.at(c.last, [blanks]), [c.own()], of_root("GatherOptions", c)
            ),
            at_last,
        ),
    ),
    (
        "gather",
        "a tensor",
        collected(
            lambda c, blanks: c.group.gather(c.at(c.last, blanks), c.own(), c.world - 1),
            at_last,
        ),
    ),
    (
        "gather",
        "by names",
        collected(
            lambda c, blanks: c.group.gather(
                output_tensors=c.at(c.root, blanks), input_tensor=c.own(), root=0, timeout=LIMIT
            ),
            at_first,
        ),
    ),
    # ---- from one to all
    (
        "scatter",
        "lists",
        lambda c: scattered(c, lambda o: c.group.scatter([o], c.at(c.root, [c.every()]))),
    ),
    (
        "scatter",
        "options",
        lambda c: scattered(
            c,
            lambda o: c.group.scatter(
                [o], c.at(c.last, [c.every()]), of_root("ScatterOptions", c)
            ),
        ),
    ),
    (
        "scatter",
        "a tensor",
        lambda c: scattered(c, lambda o: c.group.scatter(o, c.at(c.root, c.every()), 0)),
    ),
    (
        "scatter",
        "by names",
        lambda c: scattered(
            c,
            lambda o: c.group.scatter(
                output_tensor=o,
                input_tensors=c.at(c.last, c.every()),
                root=c.world - 1,
                timeout=LIMIT,
            ),
        ),
    ),
    ("broadcast", "a list", in_place(lambda c, t: c.group.broadcast([t]))),
    (
        "broadcast",
        "options",
        in_place(lambda c, t: c.group.broadcast([t], of_root("BroadcastOptions", c))),
    ),
    ("broadcast", "a tensor", in_place(lambda c, t: c.group.broadcast(t, c.world - 1))),
    ("broadcast", "all of it", in_place(lambda c, t: c.group.broadcast(t, 0, LIMIT))),
    (
        "broadcast",
        "by names",
        in_place(lambda c, t: c.group.broadcast(tensor=t, root=c.world - 1, timeout=LIMIT)),
    ),
    # ---- exchange
    (
        "alltoall",
        "lists",
        collected(lambda c, blanks: c.group.alltoall(blanks, c.every())),
    ),
    (
        "alltoall",
        "options",
        collected(
            lambda c, blanks: c.group.alltoall(
                output_tensors=blanks, input_tensors=c.every(), opts=options("AllToAllOptions")
            )
        ),
    ),
    *(
        row
        for name in ("alltoall_base", "all_to_all_single")
        for row in (
            (name, "equal parts", lambda c, name=name: exchanged(c, name, [], [])),
            (
                name,
                "sizes",
                lambda c, name=name: exchanged(c, name, [4] * c.world, [4] * c.world, LIMIT),
            ),
            (
                name,
                "by names",
                lambda c, name=name: exchanged(
                    c,
                    name,
                    output_split_sizes=[],
                    input_split_sizes=[],
                    opts=options("AllToAllOptions"),
                ),
            ),
        )
    ),
    # ---- point to point, and the barrier
    ("send", "a ring", lambda c: around(c, lambda t, by: c.group.recv([t], by, 3))),
    ("recv", "a ring", lambda c: around(c, lambda t, by: c.group.recv([t], by, 3))),
    ("recv_anysource", "a ring", lambda c: around(c, lambda t, _: any_of(c, t))),
    ("barrier", "alone", barrier(lambda c: c.group.barrier())),
    ("barrier", "a timeout", barrier(lambda c: c.group.barrier(LIMIT))),
    ("barrier", "by name", barrier(lambda c: c.group.barrier(timeout=LIMIT))),
    ("barrier", "options", barrier(lambda c: c.group.barrier(options("BarrierOptions")))),
]

NOT_HERE = {  # of methods that give a Work: why no row compares them with gloo's
    "_end_coalescing": "gloo cannot; test_parity.py has it",
    "gather_into_tensor": "gloo cannot; below",
    "gather_single": "gloo cannot; below",
    "reconfigure": "of backends whose worlds change under a group; it is refused",
}


def reduced(c, where, method):
    tensor = c.own()
    method(tensor).wait()
    return [tensor] if where(c) else []


def any_of(c, tensor):
    return c.group.recv_anysource([tensor], 3)


def compare(rank, world):
    """Of each row: what gloo gives, and we; or what was raised."""
    gloo = dist.new_group(backend="gloo")
    found = []
    for method, way, run in Rows:
        if not hasattr(dist.ProcessGroup, method):
            continue  # of another release
        pair = []
        for group in (gloo, dist.group.WORLD):
            try:
                pair.append([one.tolist() for one in run(Call(group, rank, world))])
            except Exception as error:
                pair.append(f"{type(error).__name__}: {error}")
            dist.barrier()
        found.append((method, way, *pair))
    return found


TO_ITSELF = ("send", "recv", "recv_anysource")  # in a world of one, where both refuse


@pytest.mark.parametrize("world", [1, 2, 3])
def test_methods_answer_as_gloos(world):
    for found in values(run_group(compare, world)):
        for method, way, theirs, ours in found:
            if world == 1 and method in TO_ITSELF:
                assert isinstance(theirs, str) and isinstance(ours, str)
            else:
                if isinstance(theirs, str) and "gloo does not support" in theirs:
                    assert not isinstance(ours, str), f"{method}, {way}: {ours}"
                    continue  # gloo of an older release
                assert not isinstance(theirs, str), f"gloo's {method}, {way}: {theirs}"
                assert ours == theirs, f"{method}, {way}"


def gather_singles(rank, world):
    for name in ("gather_single", "gather_into_tensor"):
        method = getattr(dist.group.WORLD, name)
        output = torch.zeros(4 * world)
        method(output, torch.full((4,), float(rank))).wait()
        wanted = [float(each) for each in range(world) for _ in range(4)]
        assert output.tolist() == (wanted if rank == 0 else [0.0] * 4 * world)


@pytest.mark.skipif(not hasattr(dist.ProcessGroup, "gather_single"), reason="of newer releases")
def test_a_gather_into_one_tensor():
    values(run_group(gather_singles, 3))


# ---- PyTorch's own list of methods ----


def overloads():
    """(method, names of the arguments) of every method of a group that gives a Work."""
    for name, method in vars(dist.ProcessGroup).items():
        for line in (getattr(method, "__doc__", None) or "").splitlines():
            found = re.match(r"(?:\d+\. )?(\w+)\((self: .*)\) -> c10d::Work", line.strip())
            if found and found.group(1) == name:
                names = re.findall(r"(?:^|, )(\w+): ", found.group(2))
                yield name, [each for each in names if each != "self"]


@pytest.mark.host
def test_every_method_has_a_row():
    rows = {method for method, _, _ in Rows}
    assert {name for name, _ in overloads()} <= rows | set(NOT_HERE)


@pytest.mark.host
def test_arguments_have_pytorchs_names():
    checked = 0
    for method, names in overloads():
        own = getattr(rt.RedpollGroup, method)
        if method in ("reconfigure", "_end_coalescing"):
            continue
        known = set(inspect.signature(own).parameters)
        named = [name for name in names if not re.fullmatch(r"arg\d", name)]
        assert set(named) <= known, f"{method}: {sorted(set(named) - known)}"
        checked += 1
    assert checked > 20


# ---- what other backends refuse ----


def mixed_types(rank, world):
    mixed = [torch.ones(3), torch.ones(2, dtype=torch.float64)]
    group = dist.group.WORLD
    theirs = refusal(
        RuntimeError, lambda: dist.new_group(backend="gloo").allreduce_coalesced(mixed)
    )
    ours = refusal(ValueError, lambda: group.allreduce_coalesced(mixed))
    assert "tensors must all have the same type" in theirs
    assert "tensors must all have the same type" in ours
    assert [one.tolist() for one in mixed] == [[1.0] * 3, [1.0] * 2]
    mean = torch.ones(3)
    group.allreduce_coalesced([mean, torch.ones(2)]).wait()  # the group goes on
    assert mean.tolist() == [float(world)] * 3


def test_coalesced_tensors_of_several_types_are_refused_as_gloo_does():
    values(run_group(mixed_types, 2))


def strided(rank, world):
    """By their elements, whatever their strides."""
    rows = torch.arange(2.0 * world).view(world, 2) + 100 * rank
    wanted = torch.stack([rank * 2 + torch.arange(2.0) + 100 * by for by in range(world)])
    for source in (rows, rows.t().contiguous().t()):
        for output in (torch.zeros(world, 2), torch.zeros(2, world).t()):
            dist.all_to_all_single(output, source)
            assert torch.equal(output, wanted), (source.stride(), output.stride())


@pytest.mark.parametrize("world", [2, 3])
def test_transposed_tensors_are_exchanged_by_their_elements(world):
    values(run_group(strided, world))
