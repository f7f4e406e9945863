"""The table of cases that test_conformance.py runs with gloo and with Redpoll, and compares.

A case is a function of (group, rank, world, dtype, shape, async_op) that calls one operation of
torch.distributed and returns the tensors that it wrote. Inputs follow from rank, dtype and
shape alone, so that both backends see the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Callable

import torch
import torch.distributed as dist

ReduceOp = dist.ReduceOp

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
BOOL = (torch.bool,)
EVERYTHING = FLOATS + INTEGERS + COMPLEX + BOOL

SHAPES = {
    "scalar": (),
    "one": (1,),
    "empty": (0, 3),
    "vector": (103,),
    "matrix": (7, 5),
    "strided": (6, 4),  # transposed by source()
    "large": (70_001,),
}


def source(rank: int, dtype: torch.dtype, shape: str, salt: int = 0) -> torch.Tensor:
    """The input of a rank: small values, so that sums of integers do not overflow int8."""
    generator = torch.Generator().manual_seed(1000 * salt + 17 * rank + 3)
    size = SHAPES[shape]
    if dtype == torch.bool:
        made = torch.randint(0, 2, size, generator=generator).to(dtype)
    elif dtype.is_complex:
        made = torch.randn(size, generator=generator, dtype=dtype)
    elif dtype.is_floating_point:
        made = torch.randn(size, generator=generator).to(dtype)
    else:
        made = torch.randint(1, 4, size, generator=generator).to(dtype)
    return made.t() if shape == "strided" else made


def blank(like: torch.Tensor, rows: int = 1) -> torch.Tensor:
    """Memory to write to, with the layout of `like`; rows: so many times its first
    dimension."""
    if rows == 1:
        return torch.zeros_like(like)
    shape = (rows * like.shape[0], *like.shape[1:]) if like.dim() else (rows,)
    return torch.zeros(shape, dtype=like.dtype)


def done(work: Any, async_op: bool) -> None:
    if async_op:
        assert work.wait()


# ---- operations ----


def all_reduce(op: Any) -> Callable[..., list[torch.Tensor]]:
    def run(group, rank, world, dtype, shape, async_op):
        tensor = source(rank, dtype, shape)
        done(dist.all_reduce(tensor, op, group=group, async_op=async_op), async_op)
        return [tensor]

    return run


def reduce(op: Any) -> Callable[..., list[torch.Tensor]]:
    def run(group, rank, world, dtype, shape, async_op):
        tensor = source(rank, dtype, shape)
        root = world - 1
        work = dist.reduce(tensor, group_dst=root, op=op, group=group, async_op=async_op)
        done(work, async_op)
        return [tensor] if rank == root else []  # gloo leaves partial sums elsewhere

    return run


def reduce_scatter(group, rank, world, dtype, shape, async_op):
    inputs = [source(rank, dtype, shape, salt=to) for to in range(world)]
    output = blank(inputs[0])
    done(dist.reduce_scatter(output, inputs, group=group, async_op=async_op), async_op)
    return [output]


def reduce_scatter_tensor(group, rank, world, dtype, shape, async_op):
    parts = [source(rank, dtype, shape, salt=to).reshape(-1) for to in range(world)]
    output = torch.zeros_like(parts[0])
    work = dist.reduce_scatter_tensor(output, torch.cat(parts), group=group, async_op=async_op)
    done(work, async_op)
    return [output]


def broadcast(group, rank, world, dtype, shape, async_op):
    tensor = source(rank, dtype, shape)
    done(dist.broadcast(tensor, group_src=world - 1, group=group, async_op=async_op), async_op)
    return [tensor]


def all_gather(group, rank, world, dtype, shape, async_op):
    tensor = source(rank, dtype, shape)
    outputs = [blank(tensor) for _ in range(world)]
    done(dist.all_gather(outputs, tensor, group=group, async_op=async_op), async_op)
    return outputs


def all_gather_into_tensor(group, rank, world, dtype, shape, async_op):
    tensor = source(rank, dtype, shape).reshape(-1)
    output = torch.zeros(world * tensor.numel(), dtype=dtype)
    work = dist.all_gather_into_tensor(output, tensor, group=group, async_op=async_op)
    done(work, async_op)
    return [output]


def gather(group, rank, world, dtype, shape, async_op):
    tensor, root = source(rank, dtype, shape), world // 2
    outputs = [blank(tensor) for _ in range(world)] if rank == root else None
    work = dist.gather(tensor, outputs, group_dst=root, group=group, async_op=async_op)
    done(work, async_op)
    return outputs or []


def scatter(group, rank, world, dtype, shape, async_op):
    root = world // 2
    inputs = [source(to, dtype, shape, salt=1) for to in range(world)] if rank == root else None
    output = blank(source(rank, dtype, shape))
    work = dist.scatter(output, inputs, group_src=root, group=group, async_op=async_op)
    done(work, async_op)
    return [output]


def all_to_all_single(group, rank, world, dtype, shape, async_op):
    parts = [source(rank, dtype, shape, salt=to).reshape(-1) for to in range(world)]
    joined = torch.cat(parts)
    output = torch.zeros_like(joined)
    done(dist.all_to_all_single(output, joined, group=group, async_op=async_op), async_op)
    return [output]


def all_to_all_uneven(group, rank, world, dtype, shape, async_op):
    """Rank r sends (r + to) % 3 rows to rank `to`."""
    sends = [(rank + to) % 3 for to in range(world)]
    receives = [(by + rank) % 3 for by in range(world)]
    rows = source(rank, dtype, shape).reshape(-1)[:4]
    joined = torch.cat([rows.expand(count, -1) for count in sends])
    output = torch.zeros((sum(receives), rows.numel()), dtype=dtype)
    work = dist.all_to_all_single(
        output, joined, receives, sends, group=group, async_op=async_op
    )
    done(work, async_op)
    return [output]


def all_to_all(group, rank, world, dtype, shape, async_op):
    inputs = [source(rank, dtype, shape, salt=to) for to in range(world)]
    outputs = [blank(one) for one in inputs]
    done(dist.all_to_all(outputs, inputs, group=group, async_op=async_op), async_op)
    return outputs


def all_reduce_coalesced(group, rank, world, dtype, shape, async_op):
    tensors = [source(rank, dtype, shape, salt=i) for i in range(3)]
    with dist._coalescing_manager(group=group, async_ops=async_op) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    if async_op:
        manager.wait()
    return tensors


def all_gather_coalesced(group, rank, world, dtype, shape, async_op):
    inputs = [source(rank, dtype, shape, salt=i).reshape(-1) for i in range(3)]
    outputs = [torch.zeros(world * one.numel(), dtype=dtype) for one in inputs]
    with dist._coalescing_manager(group=group, async_ops=async_op) as manager:
        for output, one in zip(outputs, inputs):
            dist.all_gather_into_tensor(output, one, group=group)
    if async_op:
        manager.wait()
    return outputs


def reduce_scatter_coalesced(group, rank, world, dtype, shape, async_op):
    inputs = [source(rank, dtype, shape, salt=i).reshape(-1).repeat(world) for i in range(2)]
    outputs = [torch.zeros(one.numel() // world, dtype=dtype) for one in inputs]
    with dist._coalescing_manager(group=group, async_ops=async_op) as manager:
        for output, one in zip(outputs, inputs):
            dist.reduce_scatter_tensor(output, one, group=group)
    if async_op:
        manager.wait()
    return outputs


def ring(group, rank, world, dtype, shape, async_op):
    """isend to the next, irecv from the one before, two tags received in the other order."""
    if world == 1:
        return []
    first, second = source(rank, dtype, shape), source(rank, dtype, shape, salt=1)
    to, by = (rank + 1) % world, (rank - 1) % world
    got, got_second = blank(first), blank(second)
    works = [
        dist.isend(first, group_dst=to, group=group, tag=1),
        dist.isend(second, group_dst=to, group=group, tag=2),
        dist.irecv(got_second, group_src=by, group=group, tag=2),
        dist.irecv(got, group_src=by, group=group, tag=1),
    ]
    for work in works:
        work.wait()
    return [got, got_second]


def from_anybody(group, rank, world, dtype, shape, async_op):
    """Rank 0 receives from all others without saying from whom; what it got, sorted by
    sender."""
    if world == 1:
        return []
    if rank != 0:
        dist.send(source(rank, dtype, shape), group_dst=0, group=group, tag=5)
        return []
    got = {}
    for _ in range(world - 1):
        tensor = blank(source(0, dtype, shape))
        sender = dist.recv(tensor, group=group, tag=5)
        got[dist.get_group_rank(group, sender)] = tensor
    assert sorted(got) == list(range(1, world))
    return [got[each] for each in sorted(got)]


# ---- the table ----


@dataclass(frozen=True)
class Case:
    name: str
    run: Callable[..., list[torch.Tensor]]
    dtypes: Sequence[torch.dtype] = EVERYTHING
    shapes: Sequence[str] = ("scalar", "empty", "vector", "strided")
    modes: Sequence[bool] = (False, True)  # async_op
    sums: bool = False  # floats are compared within rounding
    expect: Callable[..., list[torch.Tensor]] | None = None  # where gloo cannot

    def wanted(self, group, rank, world, dtype, shape, async_op) -> list[torch.Tensor]:
        """The answer: of `expect`, or of gloo in `group`, which does 16-bit integers as 32."""
        if self.expect is not None:
            return self.expect(group, rank, world, dtype, shape, async_op)
        wide = torch.int32 if dtype == torch.int16 else dtype
        found = self.run(group, rank, world, wide, shape, async_op)
        return [one.to(dtype) for one in found]

    def instances(self) -> Iterator[tuple[torch.dtype, str, bool]]:
        for dtype in self.dtypes:
            for shape in self.shapes:
                for async_op in self.modes:
                    yield dtype, shape, async_op


NUMBERS = FLOATS + INTEGERS
REAL = ("scalar", "empty", "vector", "strided", "large")


def mean(group, rank, world, dtype, shape, async_op):
    total = sum(source(each, dtype, shape).double() for each in range(world))
    return [(total / world).to(dtype)]


def scaled(group, rank, world, dtype, shape, async_op):
    return [sum(source(each, dtype, shape).double() * 0.5 for each in range(world)).to(dtype)]


def gathered(group, rank, world, dtype, shape, async_op):
    is_root = rank == world // 2
    return [source(each, dtype, shape) for each in range(world)] if is_root else []


def from_the_one_before(group, rank, world, dtype, shape, async_op):
    by = (rank - 1) % world
    salts = (0, 1) if world > 1 else ()
    return [source(by, dtype, shape, salt) for salt in salts]


def reductions(name: str, make: Callable[..., Any]) -> list[Case]:
    few = ("vector", "strided")
    return [
        Case(f"{name}[SUM]", make(ReduceOp.SUM), NUMBERS + COMPLEX, REAL, sums=True),
        Case(f"{name}[PRODUCT]", make(ReduceOp.PRODUCT), NUMBERS, few, sums=True),
        Case(f"{name}[MIN]", make(ReduceOp.MIN), NUMBERS + BOOL, few),
        Case(f"{name}[MAX]", make(ReduceOp.MAX), NUMBERS + BOOL, few),
        Case(f"{name}[BAND]", make(ReduceOp.BAND), INTEGERS + BOOL, few),
        Case(f"{name}[BOR]", make(ReduceOp.BOR), INTEGERS + BOOL, few),
        Case(f"{name}[BXOR]", make(ReduceOp.BXOR), INTEGERS + BOOL, few),
    ]


CASES = [
    *reductions("all_reduce", all_reduce),
    Case("all_reduce[AVG]", all_reduce(ReduceOp.AVG), FLOATS, REAL, sums=True, expect=mean),
    Case(
        "all_reduce[PREMUL_SUM]",
        all_reduce(dist._make_nccl_premul_sum(0.5)),
        FLOATS,
        ("vector",),
        sums=True,
        expect=scaled,
    ),
    *reductions("reduce", reduce),
    Case("reduce_scatter", reduce_scatter, NUMBERS, sums=True),
    Case(
        "reduce_scatter_tensor", reduce_scatter_tensor, NUMBERS, ("vector", "large"), sums=True
    ),
    Case("broadcast", broadcast, shapes=REAL),
    Case("all_gather", all_gather, shapes=REAL),
    Case("all_gather_into_tensor", all_gather_into_tensor, shapes=("one", "vector", "large")),
    Case("gather", gather, expect=gathered),
    Case("scatter", scatter),
    Case("all_to_all_single", all_to_all_single, shapes=("one", "vector")),
    Case("all_to_all_uneven", all_to_all_uneven, shapes=("vector",)),
    Case("all_to_all", all_to_all, shapes=("scalar", "vector", "strided")),
    Case("all_reduce_coalesced", all_reduce_coalesced, NUMBERS, ("vector",), sums=True),
    Case("all_gather_coalesced", all_gather_coalesced, shapes=("vector",)),
    Case("reduce_scatter_coalesced", reduce_scatter_coalesced, NUMBERS, ("vector",), sums=True),
    Case("ring", ring, modes=(True,), expect=from_the_one_before),
    Case("from_anybody", from_anybody, FLOATS + BOOL, ("vector",), modes=(False,)),
]
"""Every operation; each runs in groups of 1, 2, 3 and 5."""
