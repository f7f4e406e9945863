"""What buckets of DDP hold is what compress() and cgx_hook reduce: whatever the type, layout
and order of gradients, all of it is summed, or it is an error."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ranks import refusal, run_group, values

MIN_SIZE = 100  # the models here are small


def tensor(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype) / shape[-1] ** 0.5


class Mixed(nn.Module):
    """Parameters of several types and layouts, each of which bends the output. Tall ones are
    large enough to travel lossy."""

    KINDS = {
        "real": lambda: tensor(16, 16),
        "complex": lambda: tensor(16, 16, dtype=torch.complex64),
        "doubles": lambda: tensor(16, 16, dtype=torch.complex128),
        "small": lambda: tensor(16, dtype=torch.complex64),
        "scalar": lambda: torch.tensor(0.5 + 0.25j),
        "conjugated": lambda: tensor(16, 16, dtype=torch.complex64).conj(),
        "transposed": lambda: tensor(16, 16, dtype=torch.complex64).t(),
        "last": lambda: tensor(4, 8, 2, 4, dtype=torch.complex64).to(
            memory_format=torch.channels_last
        ),
        "gaps": lambda: tensor(16, 32, dtype=torch.complex64)[:, ::2],
        "empty": lambda: torch.zeros(0, 3, dtype=torch.complex64),
    }

    def __init__(self, kinds):
        super().__init__()
        for kind in kinds:
            setattr(self, kind, nn.Parameter(self.KINDS[kind]()))

    def forward(self, x, skipped=()):
        total = torch.zeros((), dtype=torch.float64)
        for name, one in self.named_parameters():
            if name in skipped:
                continue
            rows = one.reshape(-1, max(1, min(one.numel(), 16)))
            mapped = rows.to(torch.complex128) * x[: rows.shape[1]]
            total = total + (mapped - (1 + 2j)).abs().square().sum()
        return total


ALL = tuple(kind for kind in Mixed.KINDS if kind not in ("gaps", "empty"))

CASES = {  # a stranger adds a row: of Mixed.KINDS, options of DDP, of compress() and of steps
    "one complex": {"kinds": ("complex",)},
    "complex doubles": {"kinds": ("doubles",), "codec": None},
    "by its layout": {"kinds": ("transposed", "last", "conjugated")},
    "with gaps": {"kinds": ("gaps", "real")},
    "mixed, exact": {"codec": None},
    "mixed, fp32": {"codec": "fp32"},
    "mixed, q8": {"codec": "q8"},
    "mixed, q4": {},
    "mixed, q2 stochastic": {"codec": "q2:bucket=64,rounding=stochastic"},
    "mixed, v4": {"codec": "v4"},
    "mixed, bf16": {"codec": "bf16"},
    "mixed, fp16": {"codec": "fp16"},
    "mixed, topk": {"codec": "topk:k=8,bucket=64"},
    "mixed, randk": {"codec": "randk:k=16,bucket=64"},
    "mixed, sign": {"codec": "sign:bucket=64"},
    "mixed, auto": {"codec": "auto:like=q4,every=2"},
    "small buckets": {"ddp": {"bucket_cap_mb": 0.001}},
    "views": {"ddp": {"gradient_as_bucket_view": True}},
    "static graph": {"ddp": {"static_graph": True}},
    "static graph, small buckets": {"ddp": {"static_graph": True, "bucket_cap_mb": 0.001}},
    "static graph, small views": {
        "ddp": {"static_graph": True, "bucket_cap_mb": 0.001, "gradient_as_bucket_view": True}
    },
    "unused": {
        "ddp": {"find_unused_parameters": True, "bucket_cap_mb": 0.001},
        "skipped": lambda rank, step: (("complex",), ("real", "small"), ())[(rank + step) % 3],
    },
    "accumulation": {"micro": 3, "ddp": {"gradient_as_bucket_view": True}},
    "no feedback": {"feedback": False, "codec": "fp16", "tolerance": 2e-3},
    "no elements": {"kinds": ("empty", "complex")},
}


def is_double(parameter):
    return parameter.dtype in (torch.float64, torch.complex128)


def options_of(case, net):
    codec = case.get("codec", "q4")
    exact = {name: None for name, one in net.named_parameters() if is_double(one)}
    return {
        "codec": codec,
        "rules": exact or None,
        "min_size": MIN_SIZE,
        "error_feedback": case.get("feedback", True),
    }


def inputs(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(16, generator=generator, dtype=torch.complex128)


def exact_means(net, rank, world, step, skipped, micros):
    """Of every gradient, without DDP, in doubles."""
    loss = sum(net(inputs(rank, step + 50 * micro), skipped) for micro in range(micros))
    names, each = zip(*((name, one) for name, one in net.named_parameters() if one.numel()))
    found = torch.autograd.grad(loss, each, allow_unused=True)
    means = {}
    for name, parameter, one in zip(names, each, found):
        wide = torch.complex128 if parameter.is_complex() else torch.float64
        mean = torch.zeros(parameter.shape, dtype=wide) if one is None else one.to(wide)
        means[name] = mean.contiguous().resolve_conj().div_(world)
        dist.all_reduce(torch.view_as_real(means[name]) if mean.is_complex() else means[name])
    return means


def same_everywhere(world, one):
    flat = torch.view_as_real(one.resolve_conj()) if one.is_complex() else one
    everybodys = [torch.empty(flat.numel(), dtype=flat.dtype) for _ in range(world)]
    dist.all_gather(everybodys, flat.contiguous().view(-1))
    return all(torch.equal(everybodys[0], other) for other in everybodys)


def conserve(rank, world, name):
    """Six steps: how far what arrived and what is held back are from the exact means, and
    whether all ranks have the same gradients."""
    import redpoll.torch

    case = CASES[name]
    torch.manual_seed(0)
    net = Mixed(case.get("kinds", ALL))
    model = DDP(net, **case.get("ddp", {}))
    state = redpoll.torch.compress(model, **options_of(case, net))
    skipped = case.get("skipped", lambda rank, step: ())
    micros = case.get("micro", 1)
    arrived, wanted, same = {}, {}, True
    for step in range(6):
        means = exact_means(net, rank, world, step, skipped(rank, step), micros)
        net.zero_grad(set_to_none=True)
        for micro in range(micros):
            with contextlib.nullcontext() if micro == micros - 1 else model.no_sync():
                model(inputs(rank, step + 50 * micro), skipped(rank, step)).backward()
        for one, mean in means.items():
            wanted[one] = wanted.get(one, 0) + mean
            gradient = net.get_parameter(one).grad
            if gradient is not None:
                same = same and same_everywhere(world, gradient)
                arrived[one] = arrived.get(one, 0) + gradient.to(mean.dtype)
    assert state.step == 6
    assert sorted(sum(state.buckets(), [])) == sorted(state.parameters)
    worst = 0.0
    for one in wanted:
        held = state.residual(one)
        held = torch.zeros_like(wanted[one]) if held is None else held.to(wanted[one].dtype)
        held = held.contiguous()
        dist.all_reduce(torch.view_as_real(held) if held.is_complex() else held)
        error = (arrived[one] + held - wanted[one]).abs().max() / wanted[one].abs().max()
        worst = max(worst, error.item())
    return same, worst


@pytest.mark.parametrize("name", CASES)
def test_all_of_every_gradient_is_summed(name):
    for same, worst in values(run_group(conserve, 3, name)):
        assert same, "ranks have other gradients"
        assert worst < CASES[name].get("tolerance", 1e-5)


def hooked(rank, world, bits):
    """One step of cgx_hook: how far each gradient is from the exact mean, and whether all ranks
    have the same."""
    import cgx_utils

    torch.manual_seed(0)
    net = Mixed(ALL)
    model = DDP(net, bucket_cap_mb=0.001)
    params = {"bits": bits, "bucket_size": 64}
    state = cgx_utils.CGXState(None, layer_min_size=MIN_SIZE, compression_params=params)
    model.register_comm_hook(state, cgx_utils.cgx_hook)
    means = exact_means(net, rank, world, 0, (), 1)
    model(inputs(rank, 0)).backward()
    far = {}
    for name, mean in means.items():
        gradient = net.get_parameter(name).grad
        assert same_everywhere(world, gradient), name
        far[name] = ((gradient.to(mean.dtype) - mean).norm() / mean.norm()).item()
    return far


@pytest.mark.parametrize("bits, least, most", [(32, 0, 1e-6), (8, 1e-4, 0.02), (4, 1e-2, 0.3)])
def test_cgx_hook_sums_all_of_every_gradient(bits, least, most):
    far = values(run_group(hooked, 2, bits))[0]
    for name in ("complex", "transposed", "last", "conjugated"):
        assert least <= far[name] < most, (name, far)
    for name in ("doubles", "small", "scalar"):
        assert far[name] < 1e-6, (name, far)


def resumed(rank, world, ddp):
    """Four steps at once; two, and two by another model that takes over their state."""
    import redpoll.torch

    def fresh():
        torch.manual_seed(0)
        net = Mixed(ALL)
        model = DDP(net, bucket_cap_mb=0.001, **ddp)
        case = {"codec": "q4:rounding=stochastic,bucket=64"}
        return net, model, redpoll.torch.compress(model, **options_of(case, net))

    def step(net, model, number):
        net.zero_grad(set_to_none=True)
        model(inputs(rank, number)).backward()
        with torch.no_grad():
            for one in net.parameters():
                one.sub_(one.grad, alpha=1e-3)

    whole = fresh()
    for number in range(2):
        step(*whole[:2], number)
    saved = whole[0].state_dict(), whole[2].state_dict()
    saved = [{k: v.clone() for k, v in saved[0].items()}, {**saved[1]}]
    saved[1]["residuals"] = {k: v.clone() for k, v in saved[1]["residuals"].items()}
    again = fresh()
    again[0].load_state_dict(saved[0])
    again[2].load_state_dict(saved[1])
    assert again[2].residual("complex").shape == (16, 16)
    assert again[2].residual("complex").dtype == torch.complex64
    for number in range(2, 4):
        step(*whole[:2], number)
        step(*again[:2], number)
    pairs = zip(ALL, whole[0].parameters(), again[0].parameters())
    return {name: torch.equal(one, other) for name, one, other in pairs}


@pytest.mark.parametrize("ddp", [{}, {"static_graph": True}], ids=["plain", "static graph"])
def test_a_restart_goes_on(ddp):
    """Bit for bit; where DDP rebuilds its buckets a step later, what travels lossy comes from
    other buckets meanwhile, with other bits."""
    for same in values(run_group(resumed, 2, ddp)):
        lossy = ("complex", "conjugated", "transposed", "last")
        assert all(same[name] or (ddp and name in lossy) for name in same), same


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 16, sparse=True)
        self.head = nn.Linear(16, 16)

    def forward(self, x):
        return self.head(self.table(x)).square().sum()


def resumed_with_a_sparse_gradient(rank, world):
    """A step of a model that goes on, and of one that takes over its state."""
    import redpoll.torch

    def fresh():
        torch.manual_seed(0)
        model = DDP(Words(), bucket_cap_mb=0.001)
        return model, redpoll.torch.compress(
            model, rules={"table.*": None}, min_size=MIN_SIZE, error_feedback=True
        )

    (first, state), (second, other) = fresh(), fresh()
    words = torch.tensor([rank, rank + 1, 5])
    first(words).backward()
    other.load_state_dict(state.state_dict())
    first.zero_grad()
    first(words).backward()
    second(words).backward()
    pairs = zip(first.parameters(), second.parameters())
    return [torch.equal(one.grad.to_dense(), two.grad.to_dense()) for one, two in pairs]


def test_a_restart_sums_sparse_gradients_too():
    for same in values(run_group(resumed_with_a_sparse_gradient, 2)):
        assert same == [True] * 3


# ---- what does not fit ----


def unfrozen_later(rank, world):
    import redpoll.torch

    net = Mixed(("real", "complex", "small"))
    net.small.requires_grad_(False)
    model = DDP(net)
    redpoll.torch.compress(model, "q4", min_size=MIN_SIZE)
    model(inputs(rank, 0)).backward()
    net.small.requires_grad_(True)
    return refusal(RuntimeError, lambda: model(inputs(rank, 1)).backward())


def unfrozen_too_early(rank, world):
    import redpoll.torch

    net = Mixed(("real", "small"))
    net.small.requires_grad_(False)
    model = DDP(net)
    net.small.requires_grad_(True)
    redpoll.torch.compress(model, "q4", min_size=MIN_SIZE)
    return refusal(RuntimeError, lambda: model(inputs(rank, 0)).backward())


@pytest.mark.parametrize(
    "refuse, wanted",
    [
        (unfrozen_later, "parameter 'small' required no gradient"),
        (unfrozen_too_early, "no bucket holds the gradient of 'small'"),
    ],
)
def test_a_gradient_that_no_bucket_holds_is_an_error(refuse, wanted):
    for said in values(run_group(refuse, 2)):
        assert wanted in said, said


@pytest.mark.host
@pytest.mark.parametrize(
    "buffer, parameters, fits",
    [
        (torch.zeros(6), [torch.zeros(2, 3)], True),
        (torch.zeros(10), [torch.zeros(2, 3), torch.zeros(4)], True),
        (torch.zeros(12), [torch.zeros(2, 3, dtype=torch.complex64)], True),
        (torch.zeros(6), [torch.zeros(2, 3, dtype=torch.complex64)], False),
        (torch.zeros(12), [torch.zeros(2, 3)], False),
        (torch.zeros(0), [], True),
        (torch.zeros(4, 3).to_sparse(), [torch.zeros(4, 3)], True),
        (torch.zeros(4, 3).to_sparse(), [torch.zeros(3, 4)], False),
        (torch.zeros(4, 3).to_sparse(), [torch.zeros(4, 3), torch.zeros(4, 3)], False),
    ],
)
def test_what_a_bucket_holds_is_checked(buffer, parameters, fits):
    from redpoll.torch.codecs._buckets import check_holds

    if fits:
        check_holds(buffer, parameters)
    else:
        assert "holds" in refusal(RuntimeError, lambda: check_holds(buffer, parameters))
