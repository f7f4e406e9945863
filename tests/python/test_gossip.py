"""redpoll.torch.Gossip: iterates and limits of the equations, what is kept, what is refused."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
import torch.distributed as dist
from torch import nn

import redpoll.torch
from ranks import die, refusal, run_group, values
from redpoll.torch import Gossip

# ---- decentralised least squares: f_i(x) = a_i (x - b_i)^2 / 2; the optimum of all is 0.7 ----

A, B = (1.0, 2.0, 3.0, 4.0), (1.0, -1.0, 2.0, 0.5)
BEST = [0.7] * 4
FIRST = {
    "awc": [
        [0.1, -0.2, 0.6, 0.2],
        [0.1233333333333, 0.0066666666667, 0.62, 0.42],
        [0.271, 0.0486666666667, 0.7628888888889, 0.4197777777778],
    ],
    "atc": [
        [0.0333333333333, 0.1666666666667, 0.2, 0.3],
        [0.1477777777778, 0.2677777777778, 0.3511111111111, 0.4166666666667],
        [0.2324074074074, 0.3643333333333, 0.4366666666667, 0.5095925925926],
    ],
    "exact-diffusion": [
        [0.0666666666667, -0.0166666666667, 0.4, 0.25],
        [0.1461111111111, 0.1144444444444, 0.515, 0.4011111111111],
        [0.2635925925926, 0.2817407407407, 0.5155185185185, 0.4633703703704],
    ],
    "gradient-tracking": [
        [0.05, -0.1, 0.3, 0.1],
        [0.0308333333333, 0.1766666666667, 0.155, 0.28],
        [0.242625, 0.1473333333333, 0.3184166666667, 0.1856666666667],
    ],
}
FIRST["choco"] = FIRST["atc"]  # without a codec
AWC = [0.5879120879121, 0.3736263736264, 0.9835164835165, 0.6785714285714]
ATC = [0.5194116641, 0.6598255516, 0.6916367368, 0.7715067556]
LIMITS = [  # topology, algorithm, rate, limit, steps to it in float64 and float32
    ("ring", "awc", 0.1, AWC, (120, 60)),
    ("ring", "atc", 0.1, ATC, (120, 60)),
    ("ring", "choco", 0.1, ATC, (120, 60)),
    ("ring", "exact-diffusion", 0.1, BEST, (120, 60)),
    ("star", "exact-diffusion", 0.1, BEST, (160, 90)),
    ("ring", "gradient-tracking", 0.05, BEST, (220, 100)),
    ("ring:direction=right,weights=sender", "push-diging", 0.1, BEST, (280, 160)),
]


class Point(nn.Module):
    def __init__(self, dtype=torch.float64, start=0.0):
        super().__init__()
        self.x = nn.Parameter(torch.full((3,), start, dtype=dtype))

    def forward(self, rank):
        return (0.5 * A[rank] * (self.x - B[rank]) ** 2).sum()


def made(topology, algorithm, rate, dtype=torch.float64, **options):
    model = Point(dtype)
    inner = torch.optim.SGD(model.parameters(), lr=rate)
    return model, Gossip(inner, model, topology, algorithm, **options)


def descend(model, opt, rank, steps):
    for _ in range(steps):
        opt.zero_grad()
        model(rank).backward()
        opt.step()


def least_squares(rank, world):
    told = {}
    for which, (dtype, tolerance) in enumerate(((torch.float64, 1e-10), (torch.float32, 1e-5))):
        for topology, algorithm, rate, limit, steps in LIMITS:
            model, opt = made(topology, algorithm, rate, dtype)
            name = f"{algorithm} over {topology}, {dtype}"
            for k in range(3):
                descend(model, opt, rank, 1)
                if topology == "ring":
                    error = abs(model.x[0].item() - FIRST[algorithm][k][rank])
                    told[f"{name}, iterate {k}"] = error / tolerance
            descend(model, opt, rank, steps[which])
            told[f"{name}, limit"] = (model.x - limit[rank]).abs().max().item() / tolerance
    return told


def test_iterates_and_limits_are_those_of_the_equations():
    for rank, told in enumerate(values(run_group(least_squares, 4))):
        assert {name: error for name, error in told.items() if error > 1} == {}, rank


def sums_of_pushes(rank, world):
    """Push-sum over a star: a gradient of nothing, the mean all the same."""
    model = Point()
    model.x.data.fill_(float(rank))
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    opt = Gossip(inner, model, "star:weights=sender", "push-sum", broadcast=False)
    for _ in range(120):
        opt.step()
    return model.x[0].item()


@pytest.mark.parametrize("world", [2, 5])
def test_push_sum_finds_the_mean(world):
    for found in values(run_group(sums_of_pushes, world)):
        assert found == pytest.approx((world - 1) / 2, abs=1e-12)


def agreement(rank, world, algorithm):
    """Averaging alone, in 4 bits: what is left of what ranks differ by, and how far their mean
    has moved."""
    torch.manual_seed(rank)
    model = nn.Linear(40, 50)
    inner = torch.optim.SGD(model.parameters(), lr=0.0)
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    opt = Gossip(inner, model, None, algorithm, "q4", broadcast=False, min_size=0)
    with opt.consensus():
        before = flat(model)
    first = opt.consensus_distance()
    for _ in range(60):
        opt.step()
    with opt.consensus():
        moved = max(abs(x - y) for x, y in zip(flat(model), before))
    return opt.consensus_distance() / first, moved, opt.topology, opt.info.gamma


def test_copies_agree_in_few_bits():
    for left, moved, topology, gamma in values(run_group(agreement, 4, "choco")):
        assert left < 1e-4 and moved < 1e-5
        assert topology == "torus" and 0.9 < gamma < 1
    for left, _, topology, _ in values(run_group(agreement, 4, "atc")):
        assert left > 1e-2 and topology == "base"


# ---- beside all-reduce, with optimizers that have state ----


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(8, 16), nn.BatchNorm1d(16)
        self.last = nn.Linear(16, 4)
        self.last.bias.requires_grad_(False)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


def net(seed=3):
    torch.manual_seed(seed)
    return Net()


def train(model, opt, rank, steps, first=0):
    model.train()
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(100 * step + rank)
        x = torch.randn(8, 8, generator=generator)
        y = torch.randint(0, 4, (8,), generator=generator)
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        opt.step()


INNER = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}


def flat(model):
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).tolist()


def full_and_all_reduce(rank, world):
    """With everybody a neighbour, atc and plain SGD are gradient averaging."""
    model, twin = net(), net()
    opt = Gossip(torch.optim.SGD(model.parameters(), lr=0.1), model, "full", "atc")
    plain = torch.optim.SGD(twin.parameters(), lr=0.1)
    for step in range(4):
        train(model, opt, rank, 1, step)
        generator = torch.Generator().manual_seed(100 * step + rank)
        x = torch.randn(8, 8, generator=generator)
        y = torch.randint(0, 4, (8,), generator=generator)
        plain.zero_grad()
        nn.functional.cross_entropy(twin(x), y).backward()
        for each in twin.parameters():
            if each.grad is not None:
                dist.all_reduce(each.grad, dist.ReduceOp.AVG)
        plain.step()
    error = max(abs(x - y) for x, y in zip(flat(model), flat(twin)))
    return error, opt.consensus_distance(), flat(model)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_full_is_gradient_averaging(world):
    told = values(run_group(full_and_all_reduce, world))
    for error, distance, parameters in told:
        assert error < 1e-5 and distance < 1e-6
        assert len(parameters) == len(told[0][2])


def resumed(rank, world, algorithm, inner, codec):
    """Stopped after 5 of 9 steps and gone on with in new objects: the same bits."""
    options = {"codec": codec, "min_size": 0}
    whole = net()
    opt = Gossip(INNER[inner](whole.parameters()), whole, "ring", algorithm, **options)
    train(whole, opt, rank, 9)
    parts = net()
    opt = Gossip(INNER[inner](parts.parameters()), parts, "ring", algorithm, **options)
    train(parts, opt, rank, 5)
    saved = copy.deepcopy((parts.state_dict(), opt.state_dict()))
    train(parts, opt, rank, 1, 77)  # what is saved is not what goes on
    again = net(seed=rank)
    opt = Gossip(INNER[inner](again.parameters()), again, "ring", algorithm, **options)
    again.load_state_dict(saved[0])
    opt.load_state_dict(saved[1])
    train(again, opt, rank, 4, 5)
    return flat(again) == flat(whole)


@pytest.mark.parametrize(
    "algorithm, inner, codec",
    [
        ("atc", "adamw", "q8"),
        ("awc", "sgd", "q4"),
        ("exact-diffusion", "sgd", None),
        ("choco", "sgd", "q4"),
    ],
)
def test_states_are_all_there_is(algorithm, inner, codec):
    assert all(values(run_group(resumed, 3, algorithm, inner, codec)))


def mean_of_all(rank, world):
    model = net()
    opt = Gossip(INNER["sgd"](model.parameters()), model, "ring", "awc", "q8", min_size=0)
    train(model, opt, rank, 3)
    own, statistics = flat(model), model.norm.running_mean.tolist()
    apart = opt.consensus_distance()
    with opt.consensus():
        mean, inside = flat(model), model.norm.running_mean.tolist()
        assert opt.consensus_distance.__doc__
    assert flat(model) == own and model.norm.running_mean.tolist() == statistics
    train(model, opt, rank, 1, 3)
    model(torch.randn(4, 8))  # an exchange is on its way
    said = refusal(RuntimeError, opt.state_dict)
    with opt.consensus():
        pass
    opt.step()
    opt.average_parameters()
    return own, mean, inside, statistics, apart, said, flat(model), opt.consensus_distance()


def test_consensus_is_the_mean_and_leaves_everything_as_it_was():
    told = values(run_group(mean_of_all, 3))
    own = torch.tensor([each[0] for each in told])
    for _, mean, inside, _, apart, said, averaged, after in told:
        assert mean == told[0][1] and inside == told[0][2]
        assert torch.allclose(torch.tensor(mean), own.mean(0), atol=1e-6)
        spread = (own - own.mean(0)).norm(dim=1).square().mean().sqrt() / own.mean(0).norm()
        assert apart == pytest.approx(spread.item(), rel=0.1) and apart > 1e-4
        assert "call it after step()" in said
        assert averaged == told[0][6] and after < 1e-7
    assert torch.allclose(
        torch.tensor(told[0][2]), torch.tensor([each[3] for each in told]).mean(0), atol=1e-6
    )


def held(rank, world):
    """Vectors of the parameters' size in C and Python, beside model, gradient, inner state."""
    told = {}
    for algorithm, topology in [
        ("atc", "ring"),
        ("awc", "ring"),
        ("exact-diffusion", "ring"),
        ("choco", "ring"),
        ("gradient-tracking", "ring"),
        ("push-sum", "ring:weights=sender"),
        ("push-diging", "ring:weights=sender"),
    ]:
        _, opt = made(topology, algorithm, 0.1)
        own = [each for each in vars(opt).values() if isinstance(each, torch.Tensor)]
        assert sum(each.numel() for each in own) == 3  # the step
        told[algorithm] = len(own) + opt.info.held
    return told


def test_memory_is_one_vector_beside_what_the_algorithm_defines():
    """Defined: its states, and a vector received for each that is sent."""
    defined = {"atc": 1, "awc": 1, "exact-diffusion": 2, "choco": 3}
    defined["gradient-tracking"] = 4
    defined.update({"push-sum": 2, "push-diging": 5})
    for told in values(run_group(held, 2)):
        for algorithm, vectors in told.items():
            assert vectors <= defined[algorithm] + 1, algorithm


def parameters_stay_in_place(rank, world):
    model = net()
    before = copy.deepcopy(model.state_dict())
    opt = Gossip(INNER["sgd"](model.parameters()), model, "ring")
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())
    schedule = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
    train(model, opt, rank, 2)
    schedule.step()
    assert opt.inner.param_groups[0]["lr"] == 0.05 and opt.state is opt.inner.state
    said = refusal(ValueError, lambda: opt.add_param_group({"params": [torch.zeros(1)]}))
    model.first.weight.data = model.first.weight.data.clone()
    return said, refusal(RuntimeError, opt.step)


def test_it_is_an_optimizer_to_others():
    for added, moved in values(run_group(parameters_stay_in_place, 2)):
        assert "before it is wrapped" in added
        assert "'first.weight' has been moved" in moved


# ---- the exchange itself ----


def exchanged(rank, world):
    own = redpoll.torch.communicator_of()
    before, after = (rank - 1) % world, (rank + 1) % world
    x, y = torch.full((3, 4), float(rank)), torch.full((), 2.0 * rank, dtype=torch.float64)
    out = [torch.empty_like(x), torch.empty_like(y)]
    own.neighbor_all_reduce(
        [x.T, y], 0.25, {before: 0.5}, {after: 3.0}, outputs=[out[0].T, out[1]], blocking=True
    )
    work = own.neighbor_all_reduce([x], 0.0, {before: 1.0}, {after: 1.0})
    work.wait()
    said = refusal(
        ValueError, lambda: own.neighbor_all_reduce([x], 1.0, {}, {}, outputs=[y.float()])
    )
    return out[0][0, 0].item(), out[1].item(), x[0, 0].item(), said


def test_neighbor_all_reduce_takes_any_tensors():
    for rank, (x, y, moved, said) in enumerate(values(run_group(exchanged, 3))):
        before = (rank - 1) % 3
        assert (x, y) == (0.25 * rank + 1.5 * before, 0.5 * rank + 3.0 * before)
        assert moved == before and "an output of ()" in said


# ---- what is refused ----


def refused(rank, world):
    def attempt(*names, model=None, inner=None, **options):
        model = model or net()
        inner = inner or torch.optim.SGD(model.parameters(), lr=0.1)
        return refusal(ValueError, lambda: Gossip(inner, model, *names, **options))

    def ddp():
        model = nn.parallel.DistributedDataParallel(net())
        return attempt(model=model)

    adaptive = net()
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    model, opt = made("ring", "atc", 0.1)
    state = opt.state_dict()
    state["gossip"]["rank"] += 1
    return {
        "did you mean 'ring'": attempt("rng"),
        "did you mean 'atc'": attempt("ring", "act"),
        "shape 2x2 has 4 ranks": attempt("torus:shape=2x2"),
        "biased": attempt("star:weights=uniform"),
        "weights=sender": attempt("star:weights=uniform", "push-sum"),
        "take torus, ring": attempt("base", "choco"),
        "exact-diffusion over topology ring:direction=left with 3 ranks diverges": attempt(
            "ring:direction=left", "exact-diffusion"
        ),
        "gamma is of choco": attempt("ring", "atc", gamma=0.5),
        "gamma is 2": attempt("ring", "choco", gamma=2),
        "'fail' and 'continue'": attempt(on_loss="stop"),
        "part of the sum along": attempt("ring:weights=sender", "push-sum", on_loss="continue"),
        "for fewer ranks, too": attempt("torus:shape=1x3", on_loss="continue"),
        "codec 'q44'": attempt("ring", "atc", "q44"),
        "auto": attempt("ring", "atc", "auto"),
        "one type": attempt(model=mixed),
        "model.float()": attempt(model=net().bfloat16()),
        "pass the model that it wraps": ddp(),
        "does not take torch.float64": attempt(model=net().double(), codec="q4", min_size=0),
        "takes torch.optim.SGD without": attempt(
            "ring",
            "gradient-tracking",
            model=adaptive,
            inner=torch.optim.Adam(adaptive.parameters()),
        ),
        "of one model": attempt(inner=torch.optim.SGD(net().parameters(), lr=0.1)),
        "rank 0 has topology='ring'": attempt("ring" if rank == 0 else "full"),
        "rank 0 has parameters": attempt(model=nn.Linear(2 + rank, 2)),
        "here it is": refusal(ValueError, lambda: opt.load_state_dict(state)),
        "opt.inner.load_state_dict": refusal(
            ValueError, lambda: opt.load_state_dict(opt.inner.state_dict())
        ),
    }


def test_what_cannot_be_is_refused_on_every_rank_in_words():
    for told in values(run_group(refused, 3)):
        for part, said in told.items():
            assert part in said


def one_dies(rank, world):
    model, opt = made("ring", "atc", 0.1)
    descend(model, opt, rank, 2)
    if rank == 2:
        die()
    return refusal(redpoll.torch.RedpollError, lambda: descend(model, opt, rank, 50))


def test_a_killed_neighbour_is_named():
    outcomes = run_group(one_dies, 4, destroy=False)
    for outcome in outcomes:
        if outcome.rank != 2:
            assert outcome.ok and "rank 2" in outcome.value, outcome


# ---- going on without those that are lost ----


def goes_on(rank, world, doomed, algorithm):
    told = []
    logger = logging.getLogger("redpoll")
    logger.addFilter(lambda record: told.append(record.getMessage()) or True)
    model, opt = made("ring", algorithm, 0.05, on_loss="continue")
    descend(model, opt, rank, 3 + rank)  # not all are at the same step
    if rank in doomed:
        die()
    descend(model, opt, rank, 297 - rank)
    with opt.consensus():
        mean = model.x[0].item()
    return model.x[0].item(), mean, opt.steps, opt.members, told


def limit_of_the_left(algorithm, left):
    """Over a ring of three all average with all; awc steps from there by its own gradient."""
    a, b = (torch.tensor([each[i] for i in left], dtype=torch.float64) for each in (A, B))
    if algorithm != "awc":
        return [(a * b).sum().item() / a.sum().item()] * len(left)
    apart = torch.eye(len(left), dtype=torch.float64) - 1 / len(left)
    return torch.linalg.solve(apart + 0.05 * a.diag(), 0.05 * a * b).tolist()


@pytest.mark.parametrize(
    "doomed, algorithm",
    [
        ([2], "atc"),
        ([2], "awc"),
        ([1], "exact-diffusion"),
        ([0], "choco"),
        ([1, 3], "atc"),
    ],
)
def test_survivors_go_on_to_their_own_limit(doomed, algorithm):
    left = [rank for rank in range(4) if rank not in doomed]
    outcomes = run_group(goes_on, 4, doomed, algorithm, destroy=False)
    limits = dict(zip(left, limit_of_the_left(algorithm, left)))
    for outcome in outcomes:
        if outcome.rank in doomed:
            continue
        assert outcome.ok, outcome
        x, mean, steps, members, told = outcome.value
        assert members == left and steps == 300
        assert x == pytest.approx(limits[outcome.rank], abs=1e-9)
        assert mean == pytest.approx(sum(limits.values()) / len(left), abs=1e-9)
        lost = " ".join(told)
        assert all(f"rank {rank}" in lost for rank in doomed) and "is lost, and ranks" in lost
