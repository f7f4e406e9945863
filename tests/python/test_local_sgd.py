"""redpoll.torch.LocalSGD and its kin: iterates of the papers, what is kept, what is
refused."""

from __future__ import annotations

import copy
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

import redpoll.torch
from ranks import die, refusal, run_group, values
from redpoll.torch import DiLoCo, LocalSGD, NoLoCo, SlowMo, SparseLoCo

# ---- least squares: f_i(x) = a_i (x - b_i)^2 / 2, inner rate .1, four local steps ----

A, B = (1.0, 2.0, 3.0, 4.0), (1.0, -1.0, 2.0, 0.5)
LIMIT = 17085 / 25646


def pairs(round_number, rank):
    """(01)(23), (02)(13), (03)(12) and again."""
    return rank ^ (1 + round_number % 3)


NOLOCO = (
    (-0.086275, -0.086275, 0.68425, 0.68425),
    (0.6209641891, -0.104670804, 1.237384189, 0.511749196),
    (0.9784019064, 0.3736688307, 1.062050325, 0.5057674119),
)
FIRST = [
    (LocalSGD, {}, (0.427125, 0.5803988062, 0.6354011116), 40),
    (DiLoCo, {"outer_momentum": 0.9}, (0.56807625, 0.8939169984, 0.9533516921), 300),
    (DiLoCo, {"outer_momentum": 0.9, "nesterov": 0}, (0.2989875, 0.7328766651, 1.093445702), 0),
    (SlowMo, {"outer_momentum": 0.5}, (0.427125, 0.7939613062, 0.8954561679), 60),
    (NoLoCo, {"partner": pairs, "outer_momentum": 0.5}, NOLOCO, 0),
    (SparseLoCo, {"codec": None}, (0.427125, 0.5803988062, 0.6354011116), 40),
]


class Point(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.x = nn.Parameter(torch.zeros(3, dtype=dtype))

    def forward(self, rank):
        return (0.5 * A[rank] * (self.x - B[rank]) ** 2).sum()


def descend(model, opt, rank, steps):
    for _ in range(steps):
        opt.zero_grad()
        model(rank).backward()
        opt.step()


def least_squares(rank, world):
    told = {}
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        for kind, options, first, rounds in FIRST:
            model = Point(dtype)
            inner = torch.optim.SGD(model.parameters(), lr=0.1)
            opt = kind(model, inner, every=4, **options)
            for k in range(3):
                descend(model, opt, rank, 4)
                wanted = first[k][rank] if kind is NoLoCo else first[k]
                error = (model.x.detach() - wanted).abs().max().item() / tolerance
                told[f"{kind.__name__} {options} {dtype}, round {k}"] = error
            assert opt.last.finished == 0 and opt.steps == 12
            assert kind is LocalSGD or opt.last.gradient_norm > 0
            if rounds and dtype is torch.float32:
                descend(model, opt, rank, 4 * rounds)
                error = (model.x.detach() - LIMIT).abs().max().item() / tolerance
                told[f"{kind.__name__} {options}, limit"] = error
    return told


def test_iterates_and_limits_are_those_of_the_papers():
    for told in values(run_group(least_squares, 4)):
        assert {name: error for name, error in told.items() if error > 1} == {}


# ---- a few entries of what each rank has learnt ----

SPARSE, KEPT = 16, 3


def steep(element):
    return 0.02 * (element + 1)


class Valley(nn.Module):
    def __init__(self):
        super().__init__()
        self.x = nn.Parameter(torch.zeros(4, SPARSE // 4))  # a vector would travel whole

    def forward(self, rank):
        scale = torch.tensor([steep(i) for i in range(SPARSE)])
        return (0.5 * scale * (self.x.flatten() - (rank + 1)) ** 2).sum()


def largest(e):
    sent = torch.zeros_like(e)
    places = e.abs().topk(KEPT).indices
    sent[places] = e[places]
    return sent


def gathers(rank, world, rounds):
    model = Valley()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    opt = SparseLoCo(
        model, inner, every=2, codec=f"topk:k={KEPT},bucket={SPARSE},values=fp32", min_size=0
    )
    descend(model, opt, rank, 2 * rounds)
    return flat(model)


def test_what_is_not_sent_stays_for_later():
    """e = .95 e + G - x; the largest of e are sent, and leave it; G -= the mean of what was."""
    world, rounds = 3, 7
    agreed = torch.zeros(SPARSE)
    kept = [torch.zeros(SPARSE) for _ in range(world)]
    scale = torch.tensor([steep(i) for i in range(SPARSE)])
    for _ in range(rounds):
        total = torch.zeros(SPARSE)
        for rank in range(world):
            x = agreed.clone()
            for _ in range(2):
                x -= 0.1 * scale * (x - (rank + 1))
            kept[rank] = 0.95 * kept[rank] + agreed - x
            sent = largest(kept[rank])
            kept[rank] -= sent
            total += sent
        agreed -= total / world
    assert (agreed != 0).sum() > KEPT
    for found in values(run_group(gathers, world, rounds)):
        assert torch.allclose(torch.tensor(found), agreed, atol=1e-6)


# ---- Streaming DiLoCo: the gradient is always 2, inner rate 1, the outer one plain SGD ----


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.ones(1, dtype=torch.float64))
        self.second = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self):
        return 2 * self.first.sum() + 2 * self.second.sum()


HISTORIES = {
    (1, 0.5): (
        [1, -1, -3, -6, -8, -10, -12, -14, -16, -21.5],
        [-5, -7, -9, -15, -17, -19, -21],
    ),
    (0, 0.0): ([1, -1, -3, -11], [-5, -7, -9, -23]),
}


def streams(rank, world):
    told = {}
    for delay, mixing in HISTORIES:
        model = Two()
        inner = torch.optim.SGD(model.parameters(), lr=1.0)
        opt = DiLoCo(
            model,
            inner,
            every=6,
            fragments=2,
            delay=delay,
            mixing=mixing,
            outer_rate=2.0,
            outer_momentum=0.0,
        )
        history = [(1.0, 1.0)]
        for _ in range(9):
            opt.zero_grad()
            model().backward()
            opt.step()
            history.append((model.first.item(), model.second.item()))
        told[delay, mixing] = history
    return told


def test_fragments_are_those_of_the_recorded_histories():
    for told in values(run_group(streams, 2)):
        for settings, (first, second) in HISTORIES.items():
            history = told[settings]
            assert [each[0] for each in history[: len(first)]] == first
            assert [each[1] for each in history[3 : 3 + len(second)]] == second


# ---- a net ----


def net(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 4)
    )


def train(model, opt, rank, steps, first=0):
    model.train()
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(100 * step + rank)
        x = torch.randn(8, 8, generator=generator)
        y = torch.randint(0, 4, (8,), generator=generator)
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        opt.step()


def flat(model):
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).tolist()


def made(model, kind=DiLoCo, **options):
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    options = {
        "every": 6,
        "fragments": 3,
        "delay": 1,
        "codec": "q4",
        "min_size": 0,
        **options,
    }
    return kind(model, inner, **options)


def resumed(rank, world, kind, codec):
    """Stopped in between, and with a fragment in flight: the same bits."""
    given = {"kind": kind, "codec": codec}
    same = []
    for stop in (5, 6):
        whole = net()
        train(whole, made(whole, **given), rank, 14)
        parts = net()
        opt = made(parts, **given)
        train(parts, opt, rank, stop)
        saved = copy.deepcopy((parts.state_dict(), opt.state_dict()))
        train(parts, opt, rank, 1, 77)
        again = net(seed=rank)
        opt = made(again, **given)
        again.load_state_dict(saved[0])
        opt.load_state_dict(saved[1])
        train(again, opt, rank, 14 - stop, stop)
        same.append(flat(again) == flat(whole))
    return same


@pytest.mark.parametrize(
    "world, kind, codec",
    [
        (1, DiLoCo, "q4"),
        (3, DiLoCo, "q4"),
        (3, NoLoCo, "q4"),
        (3, SparseLoCo, "topk:k=8,bucket=64,values=q2"),
    ],
)
def test_states_are_all_there_is(world, kind, codec):
    for same in values(run_group(resumed, world, kind, codec)):
        assert same == [True, True]


def mean_of_all(rank, world):
    model = net()
    opt = made(model)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
    train(model, opt, rank, 4)
    schedule.step()
    assert opt.inner.param_groups[0]["lr"] == 0.005
    own = flat(model)
    with opt.consensus():
        mean = flat(model)
    assert flat(model) == own
    train(model, opt, rank, 1, 4)  # a fragment is in flight
    opt.average_parameters()
    steps, averaged = opt.steps, flat(model)
    train(model, opt, rank, 2, 5)  # and here is another
    dist.destroy_process_group()
    said = refusal(redpoll.torch.RedpollError, opt.step)
    return own, mean, averaged, steps, said


def test_consensus_is_the_mean_and_leaving_needs_no_goodbye_to_the_optimizer():
    started = time.monotonic()
    told = values(run_group(mean_of_all, 3, destroy=False))
    own = torch.tensor([each[0] for each in told])
    for _, mean, averaged, steps, said in told:
        assert mean == told[0][1] and averaged == told[0][2] and steps == 5
        assert torch.allclose(torch.tensor(mean), own.mean(0), atol=1e-6)
        assert "destroyed" in said
    assert time.monotonic() - started < 100  # nobody waits for the group's timeout


# ---- what is refused ----


def refused(rank, world):
    def attempt(kind=DiLoCo, model=None, **options):
        model = model or net()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        return refusal((ValueError, TypeError), lambda: kind(model, inner, **options))

    model = net()
    groups = [{"params": [each], "lr": 0.1 + i} for i, each in enumerate(model.parameters())]
    slow = torch.optim.SGD(groups, lr=0.1)
    parts = net()
    opt = made(parts)
    state = opt.state_dict()
    state["local_sgd"]["every"] = 12
    return {
        "every": attempt(every=0),
        "fragments": attempt(every=7, fragments=2),
        "tensors": attempt(every=100, fragments=100),
        "delay": attempt(every=4, delay=4),
        "mixing": attempt(mixing=1.5),
        "is not negative": attempt(delay=-1),
        "outer momentum": attempt(outer_momentum=1.0),
        "there is no option 'momentum'": attempt(momentum=0.9),
        "rank 0 has every=": attempt(every=10 + rank),
        "model.float()": attempt(model=net().bfloat16()),
        "auto": attempt(codec="auto"),
        "drift apart": attempt(NoLoCo, consensus_rate=1.5),
        "no outer momentum": attempt(SparseLoCo, outer_momentum=0.5),
        "divides by the learning rate": refusal(ValueError, lambda: SlowMo(model, slow)),
        "here it is": refusal(ValueError, lambda: opt.load_state_dict(state)),
        "opt.inner.load_state_dict": refusal(
            ValueError, lambda: opt.load_state_dict(opt.inner.state_dict())
        ),
    }


def test_what_cannot_be_is_refused_on_every_rank_in_words():
    for told in values(run_group(refused, 2)):
        for part, said in told.items():
            assert part in said


def one_dies(rank, world):
    model = net()
    opt = made(model)
    train(model, opt, rank, 7)
    if rank == 1:
        die()
    return refusal(redpoll.torch.RedpollError, lambda: train(model, opt, rank, 50))


def test_a_killed_rank_is_named():
    for outcome in run_group(one_dies, 3, destroy=False):
        if outcome.rank != 1:
            assert outcome.ok and "rank 1" in outcome.value, outcome
