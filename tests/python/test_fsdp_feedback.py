"""Error feedback of compress() for FSDP, and one operation a unit: what is lost comes later."""

from __future__ import annotations

import copy
import functools
import io

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ranks import refusal, run_group, values

MIN_SIZE = 400
STEPS = 8


class Net(nn.Module):
    """Rows that no world divides, a frozen matrix, biases that travel exact."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(40, 37)
        self.frozen = nn.Linear(37, 37).requires_grad_(False)
        self.last = nn.Linear(37, 23)

    def forward(self, x):
        return self.last(torch.relu(self.frozen(self.first(x))))


def make(kind, dtype=None, **options):
    torch.manual_seed(0)
    net = Net()
    if kind == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(
            net, device_id=torch.device("cpu"), use_orig_params=True
        )
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
    fully_shard(net.last, mp_policy=policy, **options)
    return fully_shard(net, mp_policy=policy, **options)


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 40, generator=generator)


def backward(model, rank, step):
    model(batch(rank, step)).square().mean().backward()


def gradients(model, kind):
    """Of every trained parameter, whole and as float."""
    if kind != "fsdp1":
        named = {
            n: p.grad.full_tensor() for n, p in model.named_parameters() if p.requires_grad
        }
    else:
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        with FSDP.summon_full_params(model, with_grads=True):
            named = {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}
    return {
        name.replace("_fsdp_wrapped_module.", ""): one.float() for name, one in named.items()
    }


def exact_means(rank, world, steps):
    """Of `steps`, added up."""
    torch.manual_seed(0)
    net = Net()
    for step in range(steps):
        backward(net, rank, step)
    means = {n: p.grad / world for n, p in net.named_parameters() if p.requires_grad}
    for mean in means.values():
        dist.all_reduce(mean)
    return means


def sums(rank, world, kind, options, dtype_name, mesh_shape=None):
    """How far the sum of all results is from the exact one: without and with what is held
    back. The same weights in every step."""
    import redpoll.torch

    made = {}
    if mesh_shape:
        from torch.distributed.device_mesh import init_device_mesh

        made["mesh"] = init_device_mesh("cpu", mesh_shape, mesh_dim_names=("between", "inside"))
    model = make(kind, dtype_name and getattr(torch, dtype_name), **made)
    state = redpoll.torch.compress(model, min_size=MIN_SIZE, **options)
    arrived = {}
    for step in range(STEPS):
        backward(model, rank, step)
        for name, one in gradients(model, kind).items():
            arrived[name] = arrived.get(name, 0) + one
        model.zero_grad()
    exact, found = exact_means(rank, world, STEPS), {}
    for name, one in exact.items():
        held = torch.zeros_like(one)
        for key, each in state.state_dict()["residuals"].items():
            if key == f"grads/{name}":
                held += each / world
            elif key == f"replicate/{name}":
                held += whole_of(model, name, each)
        dist.all_reduce(held)
        missing = (one - arrived[name]).norm() / one.norm()
        found[name] = (
            missing.item(),
            ((one - arrived[name] - held).norm() / one.norm()).item(),
        )
    return found


def whole_of(model, name, shard):
    """A whole parameter's tensor that has this rank's shard of it, from a padded one."""
    from torch.distributed.tensor import DTensor

    parameter = dict(model.named_parameters())[name]
    if shard.shape == parameter.shape:
        return shard
    inside = parameter.device_mesh["inside"]
    rows = -(-parameter.shape[0] // inside.size())
    first = rows * inside.get_local_rank()
    own = DTensor.to_local(parameter)
    whole = torch.zeros(parameter.shape)
    whole[first : first + own.shape[0]] = shard[: own.numel()].view(own.shape)
    return whole


MATRICES = ("first.weight", "last.weight")
SUMS = {  # kind, world, codecs, dtype, the most that may be lost, and the shape of the mesh
    "FSDP2 of 2": ("fsdp2", 2, {"grads": "q4"}, None, 2e-6, None),
    "FSDP2 of 3": ("fsdp2", 3, {"grads": "q2"}, None, 2e-6, None),
    "stochastic": ("fsdp2", 2, {"grads": "q4:rounding=stochastic"}, None, 2e-6, None),
    "FSDP1 of 3": ("fsdp1", 3, {"grads": "q4"}, None, 2e-6, None),
    "bfloat16": ("fsdp2", 2, {"grads": "q4"}, "bfloat16", 2e-2, None),
    "between replicas": ("fsdp2", 4, {"grads": None, "replicate": "q4"}, None, 2e-6, (2, 2)),
    "inside and between": ("fsdp2", 4, {"grads": "q4", "replicate": "q4"}, None, 2e-6, (2, 2)),
    "whole replicas": ("fsdp2", 2, {"replicate": "q4"}, None, 2e-6, (2, 1)),
}


@pytest.mark.parametrize("case", SUMS)
def test_nothing_is_lost_in_sum(case):
    kind, world, codecs, dtype, most, shape = SUMS[case]
    options = {"weights": None, **codecs} if shape != (2, 1) else codecs
    asked = {**options, "error_feedback": True}
    fed = values(run_group(sums, world, kind, asked, dtype, shape))
    bare = values(run_group(sums, world, kind, options, dtype, shape))
    for with_it, without in zip(fed, bare):
        for name, (missing, unaccounted) in with_it.items():
            assert unaccounted <= most, (name, unaccounted)
            if name in MATRICES and dtype is None:
                assert without[name][0] > 10 * most  # without feedback it is lost for good
                assert missing < 0.8 * without[name][0]


def made(options):
    """A model, over the mesh that options name, and the other options."""
    options = dict(options)
    shape = options.pop("mesh", None)
    if shape is None:
        return make("fsdp2"), options
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("between", "inside"))
    return make("fsdp2", mesh=mesh), options


def trained(rank, world, options, steps, saved=None, shards=None):
    """Shards and state after `steps` steps, from a saved state on."""
    import redpoll.torch

    model, options = made(options)
    state = redpoll.torch.compress(model, min_size=MIN_SIZE, **options)
    optimizer = torch.optim.SGD(
        [one for one in model.parameters() if one.requires_grad], lr=0.1
    )
    if saved is not None:
        state.load_state_dict(saved)
        model.load_state_dict(shards)
    for step in range(state.step, steps):
        backward(model, rank, step)
        optimizer.step()
        optimizer.zero_grad()
    return model, state


def resumes(rank, world, options, of):
    """Whether a run that goes on from its state has the bits of one that went through."""
    model, _ = trained(rank, world, options, 6)
    half, state = trained(rank, world, options, 3)
    saved, shards = copy.deepcopy((state.state_dict(of=of), half.state_dict()))
    if of == "all":
        dist.broadcast_object_list(box := [saved if rank == 0 else None], 0)
        saved = box[0]
    again, state = trained(rank, world, options, 6, saved, shards)
    assert state.step == 6
    bare, _ = trained(rank, world, options, 6, {**state_without(saved), "step": 3}, shards)
    own = [one.to_local() for one in model.parameters()]
    same = [torch.equal(one, two.to_local()) for one, two in zip(own, again.parameters())]
    lost = [torch.equal(one, two.to_local()) for one, two in zip(own, bare.parameters())]
    return all(same), all(lost)


def state_without(saved):
    """As of a run without error feedback."""
    own = saved["states"][dist.get_rank()] if "states" in saved else saved
    return {**own, "residuals": {}}


RESUMED = {  # how many ranks, and what is asked for
    "q4": (2, {"grads": "q4", "weights": "q8"}),
    "stochastic": (3, {"grads": "q2:rounding=stochastic", "weights": "q8"}),
    "whole": (2, {"replicate": "q4:rounding=stochastic", "mesh": (2, 1)}),
}


@pytest.mark.parametrize("of", ["own", "all"])
@pytest.mark.parametrize("case", RESUMED)
def test_a_run_that_resumes_has_the_bits_of_one_that_went_through(case, of):
    world, options = RESUMED[case]
    options = {**options, "error_feedback": True}
    for same, lost in values(run_group(resumes, world, options, of)):
        assert same and not lost


def packed(found):
    """As bytes: tensors would go through memory of the rank, which may have ended by then."""
    file = io.BytesIO()
    torch.save(found, file)
    return file.getvalue()


def unpacked(data):
    return torch.load(io.BytesIO(data), weights_only=False)


def keeps(rank, world, steps, saved):
    """What this rank holds of every matrix, in units of the mean, and its whole state."""
    import redpoll.torch

    model = make("fsdp2")
    options = {"grads": "q2", "weights": None, "error_feedback": True, "min_size": MIN_SIZE}
    state = redpoll.torch.compress(model, **options)
    if saved is not None:
        state.load_state_dict(saved)
    for step in range(steps):
        backward(model, rank, step)
        model.zero_grad()
    means = {}
    for name, parameter in model.named_parameters():
        if name in MATRICES:
            held = state.residual(name)
            means[name] = torch.zeros(parameter.shape) if held is None else held / world
            dist.all_reduce(means[name])
    return packed((means, state.state_dict(of="all")))


@pytest.mark.parametrize("before, after", [(2, 3), (3, 2), (3, 1), (1, 2)])
def test_another_world_takes_over_what_is_held_back(before, after):
    means, saved = unpacked(values(run_group(keeps, before, 3, None))[0])
    for found, _ in map(unpacked, values(run_group(keeps, after, 0, saved))):
        for name, one in means.items():
            assert before == 1 or one.norm() > 0
            assert torch.allclose(found[name], one, atol=1e-7)


def warned(rank, world, saved):
    """Loading what other hybrid shards have held back."""
    import logging.handlers

    from torch.distributed.device_mesh import init_device_mesh

    import redpoll.torch

    handler = logging.handlers.BufferingHandler(100)
    logging.getLogger("redpoll").addHandler(handler)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("between", "inside"))
    options = {"grads": "q4", "replicate": "q4", "weights": None, "error_feedback": True}
    state = redpoll.torch.compress(make("fsdp2", mesh=mesh), min_size=MIN_SIZE, **options)
    state.load_state_dict(saved)
    said = [record.getMessage() for record in handler.buffer]
    held = state.residual("first.weight") is not None
    return state.step, held, [one for one in said if "dropped" in one]


def test_what_cannot_be_handed_on_is_dropped_and_said():
    _, saved = unpacked(values(run_group(keeps, 2, 3, None))[0])
    for rank, (step, held, said) in enumerate(values(run_group(warned, 4, saved))):
        assert step == 3 and not held
        assert len(said) == (1 if rank < 2 else 0)  # by those who would have taken it over


def counts(rank, world, options):
    """Operations of each step of a model of two units, and what a plain one takes."""
    import redpoll.torch

    models = [make("fsdp2"), make("fsdp2")]
    redpoll.torch.compress(models[1], min_size=MIN_SIZE, **options)
    found = []
    for model in models:
        backward(model, rank, 0)
        before = next(iter(redpoll.torch.stats().values())).operations
        backward(model, rank, 1)
        found.append(next(iter(redpoll.torch.stats().values())).operations - before)
    return found


@pytest.mark.parametrize("options", [{}, {"grads": "q4", "error_feedback": True}], ids=str)
def test_a_unit_is_one_operation(options):
    for plain, lossy in values(run_group(counts, 2, options)):
        assert lossy == plain


def alone(rank, world):
    """A world of one: nothing travels, and nothing is held back."""
    import redpoll.torch

    model, twin = make("fsdp2"), make("fsdp2")
    options = {"grads": "q2", "weights": "q8", "error_feedback": True}
    state = redpoll.torch.compress(model, min_size=MIN_SIZE, **options)
    for step in range(2):
        backward(model, rank, step)
        backward(twin, rank, step)
    ours, exact = gradients(model, "fsdp2"), gradients(twin, "fsdp2")
    assert all(torch.equal(one, exact[name]) for name, one in ours.items())
    state.load_state_dict(state.state_dict())


def test_a_world_of_one_is_exact():
    values(run_group(alone, 1))


def turned_off(rank, world):
    """What was held back goes out in the next exact step."""
    import redpoll.torch

    model = make("fsdp2")
    options = {"grads": "q2", "weights": None, "error_feedback": True, "warmup_steps": 1}
    state = redpoll.torch.compress(model, min_size=MIN_SIZE, **options)
    total = {}
    for step in range(4):
        state.enabled = step < 3
        backward(model, rank, step)
        for name, one in gradients(model, "fsdp2").items():
            total[name] = total.get(name, 0) + one
        model.zero_grad()
        assert (state.residual("first.weight") is None) == (step < 1)
    assert not state.residual("first.weight").any()
    exact = exact_means(rank, world, 4)
    return max(((total[n] - one).norm() / one.norm()).item() for n, one in exact.items())


def test_an_exact_step_pays_out():
    assert max(values(run_group(turned_off, 3))) < 2e-6


def neighbours(rank, world):
    """Weights that stay among two ranks between the passes."""
    import redpoll.torch

    model = make("fsdp2", reshard_after_forward=2)
    redpoll.torch.compress(model, min_size=MIN_SIZE)
    for step in range(2):
        backward(model, rank, step)
        ours = gradients(model, "fsdp2")
        model.zero_grad()
    return {name: one.norm().item() for name, one in ours.items()}


def test_weights_may_stay_among_neighbours():
    first, *others = values(run_group(neighbours, 4))
    assert all(one == first for one in others) and min(first.values()) > 0


class Other:
    """A collective that somebody puts in the place of ours."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def __call__(self, *arguments, **options):
        return self.inner.inner(*arguments, **options)


def replaced(rank, world):
    import redpoll.torch
    from redpoll.torch.fsdp._fsdp2 import param_groups

    def train_with(place):
        model = make("fsdp2")
        redpoll.torch.compress(model, min_size=MIN_SIZE)
        ours = getattr(param_groups(model)[0], f"_{place}_comm")
        getattr(model, f"set_custom_{place}")(Other(ours))
        for step in range(2):
            backward(model, rank, step)

    places = ("reduce_scatter", "all_gather")
    return [refusal(RuntimeError, functools.partial(train_with, one)) for one in places]


def test_collectives_that_are_replaced_are_told():
    for scatter, gather in values(run_group(replaced, 2, destroy=False)):
        assert "reduce-scatter was replaced by Other" in scatter
        assert "all-gather was replaced by Other" in gather
