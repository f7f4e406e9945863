"""Tensors in memory that ranks of one host read in place: what they are, how long they live,
and that results are those of any tensor."""

from __future__ import annotations

import gc
import os
import sys
import time

import pytest
import torch
import torch.distributed as dist

import redpoll.torch as rt
from ranks import open_descriptors, run_group, run_script, values

# ---- a tensor ----


def test_shapes_and_types() -> None:
    for size in ((), (3,), (2, 5), (0, 7), ([4, 2],), (torch.Size([6]),)):
        plain = torch.empty(*size) if size else torch.empty(())
        ours = rt.empty(*size) if size else rt.empty(())
        assert ours.shape == plain.shape and ours.dtype is plain.dtype
        assert ours.is_contiguous() and ours.is_cpu and not ours.requires_grad
        assert not ours.any()
    for dtype in (torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        ours = rt.empty(11, dtype=dtype)
        assert ours.dtype is dtype and ours.numel() == 11
    assert rt.empty(3, requires_grad=True).requires_grad
    with pytest.raises(ValueError, match="negative"):
        rt.empty(2, -1)
    with pytest.raises(TypeError):
        rt.empty("three")
    with pytest.raises(rt.Error):
        rt.empty(1 << 50)


def test_a_tensor_computes_and_is_differentiated() -> None:
    weight = rt.empty(4, 3, requires_grad=True)
    with torch.no_grad():
        weight.copy_(torch.arange(12.0).view(4, 3))
    (weight * 2).sum().backward()
    assert torch.equal(weight.grad, torch.full((4, 3), 2.0))


def test_memory_lives_as_long_as_a_view_and_no_longer() -> None:
    gc.collect()
    before = open_descriptors()
    tensor = rt.empty(100_000)
    assert open_descriptors() == before + 1
    view = tensor.view(1000, 100)[3:5].t()
    tensor.fill_(7)
    storage = tensor.untyped_storage()
    del tensor
    gc.collect()
    assert open_descriptors() == before + 1
    assert bool((view == 7).all())
    del view
    assert open_descriptors() == before + 1
    del storage
    gc.collect()
    assert open_descriptors() == before
    for _ in range(200):
        rt.empty(1000)
    gc.collect()
    assert open_descriptors() == before


END = """
import redpoll.torch
kept = redpoll.torch.empty(1 << 20)
kept.fill_(3)
class Late:
    def __init__(self):
        self.kept = kept
    def __del__(self):
        print("sum", int(self.kept.sum()))
late = Late()
print("ended well")
"""


def test_a_process_may_end_with_such_tensors() -> None:
    ended = run_script(END, 1, python=sys.executable)[0]  # whose modules go in Python's order
    assert ended.returncode == 0, ended
    assert "ended well" in ended.stdout and f"sum {3 << 20}" in ended.stdout


def test_a_forked_child_may_drop_them() -> None:
    tensor = rt.empty(10_000)
    tensor.fill_(5)
    child = os.fork()
    if child == 0:
        del tensor
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert bool((tensor == 5).all())


# ---- among ranks ----


def reduce_both(rank: int, world: int) -> list[int]:
    """A plain and a registered tensor of the same values, by turns, until the second is known
    to the others."""
    sums = []
    generator = torch.Generator().manual_seed(rank)
    given = torch.randn(100_003, generator=generator)
    registered = rt.empty(100_003)
    for turn in range(6):
        tensor = registered if turn % 2 else torch.empty(100_003)
        tensor.copy_(given)
        dist.all_reduce(tensor)
        bits = tensor.view(torch.int32).long()
        sums.append(int((bits * torch.arange(1, 100_004)).sum()))
    return sums


@pytest.mark.parametrize("world", [2, 3])
def test_sums_have_the_same_bits(world: int) -> None:
    of_ranks = values(run_group(reduce_both, world))
    assert len({each for sums in of_ranks for each in sums}) == 1


def drop_in_flight(rank: int, world: int) -> list[float]:
    dist.all_reduce(torch.ones(1), async_op=True).wait()
    before = open_descriptors()
    wholes = []
    for turn in range(20):
        work = dist.all_reduce(rt.empty(50_000).fill_(rank + turn), async_op=True)
        gc.collect()
        work.wait()
        (result,) = work.result()
        wholes.append(float(result.sum()) / 50_000)
        del work, result
    deadline = time.monotonic() + 20  # whoever completes operations lets go a moment later
    while open_descriptors() > before:
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.01)
    return wholes


def test_a_tensor_may_be_dropped_while_it_travels() -> None:
    assert values(run_group(drop_in_flight, 2)) == [[1.0 + 2 * turn for turn in range(20)]] * 2
