"""What of a model does not train, frozen parameters and buffers, is rank 0's on all ranks when
an optimizer has been wrapped, whatever its type and layout."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import redpoll.torch as rt
from ranks import refusal, run_group, values

KINDS = {  # a stranger adds a row: what can stay untrained in a model
    "float32": lambda: torch.randn(4, 6),
    "float64": lambda: torch.randn(5, dtype=torch.float64),
    "float16": lambda: torch.randn(4, 3).half(),
    "bfloat16": lambda: torch.randn(7).bfloat16(),
    "complex64": lambda: torch.randn(3, 3, dtype=torch.complex64),
    "complex128": lambda: torch.randn(3, dtype=torch.complex128),
    "conjugated": lambda: torch.randn(3, 3, dtype=torch.complex64).conj(),
    "int8": lambda: torch.randint(-100, 100, (5, 5), dtype=torch.int8),
    "uint8": lambda: torch.randint(0, 200, (9,), dtype=torch.uint8),
    "int64": lambda: torch.randint(0, 1 << 40, (3,)),
    "bool": lambda: torch.rand(40) > 0.5,
    "scalar": lambda: torch.randn(()),
    "empty": lambda: torch.zeros(0, 4),
    "transposed": lambda: torch.randn(4, 6).t(),
    "channels last": lambda: torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "every other": lambda: torch.randn(8, 8)[:, ::2],
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.trained = nn.Linear(4, 4)
        self.frozen = nn.ParameterList(
            nn.Parameter(make(), requires_grad=False) for make in KINDS.values()
        )
        for i, make in enumerate(KINDS.values()):
            self.register_buffer(f"kept{i}", make())
            self.register_buffer(f"unsaved{i}", make(), persistent=False)

    def untrained(self):
        found = [*self.frozen, *self.buffers()]
        return [each.resolve_conj().contiguous().flatten() for each in found]


def sgd(model):
    return torch.optim.SGD(model.trained.parameters(), lr=0.1)


OPTIMIZERS = {
    "Gossip": lambda model, **more: rt.Gossip(sgd(model), model, **more),
    "LocalSGD": lambda model, **more: rt.LocalSGD(model, sgd(model), every=2, **more),
    "DiLoCo": lambda model, **more: rt.DiLoCo(model, sgd(model), every=2, **more),
    "SlowMo": lambda model, **more: rt.SlowMo(model, sgd(model), every=2, **more),
    "NoLoCo": lambda model, **more: rt.NoLoCo(model, sgd(model), every=2, **more),
    "SparseLoCo": lambda model, **more: rt.SparseLoCo(model, sgd(model), every=2, **more),
    "ParameterServer": lambda model, **more: rt.ParameterServer(sgd(model), model, **more),
    "one server": lambda model, **more: rt.ParameterServer(
        sgd(model), model, servers=1, **more
    ),
    "AsyncLocalSGD": lambda model, **more: rt.AsyncLocalSGD(model, sgd(model), 2, **more),
}


def begin(rank, world, name, broadcast):
    """The bytes of what is untrained, before and after the optimizer is wrapped."""
    torch.manual_seed(rank)
    model = Model()
    before = [each.view(torch.uint8).tolist() for each in model.untrained()]
    opt = OPTIMIZERS[name](model, broadcast=broadcast)
    after = [each.view(torch.uint8).tolist() for each in model.untrained()]
    if hasattr(opt, "finish"):
        opt.finish()
    return before, after


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ranks_begin_with_rank_0s(name):
    found = values(run_group(begin, 3, name, True))
    names = [*(f"frozen {kind}" for kind in KINDS)]
    names += [f"buffer {kind}, {way}" for kind in KINDS for way in ("kept", "unsaved")]
    for rank, (before, after) in enumerate(found):
        for what, own, first in zip(names, after, found[0][0]):
            assert own == first, f"{what} of rank {rank}"
        assert rank == 0 or before != after


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_without_a_broadcast_they_are_left_alone(name):
    for before, after in values(run_group(begin, 2, name, False)):
        assert before == after


def bluefog_begins(rank, world):
    import bluefog.torch as bf

    bf.init()
    torch.manual_seed(rank)
    model = Model()
    bf.broadcast_parameters(model.state_dict(), root_rank=0)
    kept = [*model.frozen, *(model.get_buffer(f"kept{i}") for i in range(len(KINDS)))]
    return [each.resolve_conj().contiguous().flatten().tolist() for each in kept]


def test_bluefogs_broadcast_of_a_state_dict_has_all_of_it():
    found = values(run_group(bluefog_begins, 2))
    assert found[0] == found[1]


def other_shapes(rank, world, name):
    model = Model()
    model.register_buffer("mine", torch.zeros(2 + rank))
    return refusal(ValueError, lambda: OPTIMIZERS[name](model))


@pytest.mark.parametrize("name", ["Gossip", "LocalSGD", "ParameterServer"])
def test_ranks_with_other_buffers_are_told(name):
    for said in values(run_group(other_shapes, 2, name)):
        assert "frozen parameters and buffers" in said and "'mine', (3,)" in said


def unfreeze(rank, world, name):
    model = Model()
    opt = OPTIMIZERS[name](model)
    model.frozen[0].requires_grad_(True)

    def steps():
        for _ in range(2):
            model.trained(torch.ones(4)).sum().backward()
            opt.step()

    return refusal(RuntimeError, steps)


@pytest.mark.parametrize("name", [each for each in OPTIMIZERS if each != "one server"])
def test_a_parameter_that_trains_later_is_an_error(name):
    for said in values(run_group(unfreeze, 2, name)):
        assert "'frozen.0' required no gradient" in said, said
