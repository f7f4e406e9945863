"""redpoll.torch.AsyncLocalSGD: iterates of the paper, what is kept, what is refused."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
import torch.distributed as dist
from torch import nn

import redpoll.torch
from ranks import die, refusal, run_group, values
from redpoll.torch import AsyncLocalSGD, DiLoCo, NoLoCo, SlowMo

# ---- least squares: f_i(x) = a_i (x - b_i)^2 / 2, inner rate .1, four local steps ----

A, B = (1.0, 2.0, 3.0, 4.0), (1.0, -1.0, 2.0, 0.5)
IN_TURN = {
    1: 0.0601825,
    2: -0.0431375,
    3: 0.2228275,
    4: 0.56807625,
    8: 1.159212026,
    12: 1.391332547,
}
TOGETHER = (0.56807625, 0.8939169984, 0.9533516921)  # DiLoCo's


class Point(nn.Module):
    def __init__(self):
        super().__init__()
        self.x = nn.Parameter(torch.zeros(3))

    def forward(self, worker):
        return (0.5 * A[worker] * (self.x - B[worker]) ** 2).sum()


def made(model, **options):
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    return AsyncLocalSGD(model, inner, every=4, **{"outer_momentum": 0.9, **options})


def descend(model, opt, steps):
    for _ in range(steps):
        opt.zero_grad()
        model(opt._worker()).backward()
        opt.step()


def in_turn(rank, world, servers):
    """Exchanges of workers 0, 1, 2, 3, 0, ...: told is what each had after its own."""
    model = Point()
    workers = dist.new_group(list(range(servers, world)))
    opt = made(model, servers=servers)
    told = {}
    if not opt.is_worker:
        opt.finish()
        return told
    model(opt._worker())  # all have begun before the first exchange
    dist.barrier(workers)
    for turn in range(12):
        if turn % 4 == opt._worker():
            descend(model, opt, 4)
            told[turn + 1] = model.x.tolist()
        dist.barrier(workers)
    opt.finish()
    return {**told, "end": model.x.tolist()}


def test_exchanges_in_turn_are_those_of_the_paper():
    found = {}
    for told in values(run_group(in_turn, 5, 1))[1:]:
        found.update(told)
    for exchange, wanted in IN_TURN.items():
        assert found[exchange] == pytest.approx([wanted] * 3, abs=1e-5), exchange
    assert found["end"] == found[12]


def together(rank, world):
    """Synchronous, and saved and restored in between."""
    model = Point()
    opt = made(model, staleness=0)
    told = []
    for _ in range(2):
        descend(model, opt, 4)
        told.append(model.x[0].item())
    state, parameters = copy.deepcopy((opt.state_dict(), model.state_dict()))
    again = Point()
    opt = made(again, staleness=0, broadcast=False)
    again.load_state_dict(parameters)
    opt.load_state_dict(state)
    descend(again, opt, 4)
    told.append(again.x[0].item())
    descend(again, opt, 2)  # no whole round: finish() brings it, too
    opt.finish()
    return told, again.x[0].item(), opt.state_dict()["async_local_sgd"]["pushes"]


def test_all_together_are_diloco_across_a_restart():
    told = values(run_group(together, 4))
    for iterates, end, pushes in told:
        assert iterates == pytest.approx(TOGETHER, abs=1e-5)
        assert end == told[0][1] != iterates[-1] and pushes == 16


def races(rank, world, codec):
    """Workers of three speeds: the exchanges of a span are shared as they come."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    settings = {"servers": 1, "codec": codec, "min_size": 0, "outer_momentum": 0.3}
    opt = AsyncLocalSGD(model, inner, 4 + rank, **settings)
    generator = torch.Generator().manual_seed(rank)
    batch = torch.randn(256, 16, generator=torch.Generator().manual_seed(9))

    def loss_now():
        with torch.no_grad():
            return (model(batch).flatten() - batch.sum(1)).square().mean().item()

    first = loss_now()
    for _ in opt.span(12):
        x = torch.randn(32, 16, generator=generator)
        loss = (model(x).flatten() - x.sum(1)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    last = loss_now()
    parameters = torch.cat([each.detach().flatten() for each in model.parameters()])
    return opt.steps, first, last, parameters.tolist()


@pytest.mark.parametrize("codec", [None, "q4"])
def test_workers_go_on_in_their_own_time(codec):
    told = values(run_group(races, 4, codec))
    assert sum(each[0] for each in told) == 12 * 3 and told[0][0] == 0
    for _, first, last, parameters in told:
        assert parameters == told[0][3]
        assert last < first == told[0][1]


class Slope(nn.Module):
    """Its gradient is always the same."""

    def __init__(self):
        super().__init__()
        self.x = nn.Parameter(torch.zeros(5))

    def forward(self, _worker):
        return self.x.sum()


def slides(rank, world):
    logged = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())
    logging.getLogger("redpoll").addHandler(handler)
    told = {}
    for kind in (AsyncLocalSGD, DiLoCo):
        model = Slope()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        opt = kind(model, inner, every=1, outer_momentum=0.9)
        for _ in range(12):
            opt.zero_grad()
            model(rank).backward()
            opt.step()
        last = opt.autocorrelation if kind is AsyncLocalSGD else opt.last.autocorrelation
        told[kind.__name__] = (last, [each for each in logged if kind.__name__ in each])
        if kind is AsyncLocalSGD:
            opt.finish()
    return told


def by_every(rank, world):
    """Where none is given it goes with the steps; of several the rank that has most."""
    logged = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())
    logging.getLogger("redpoll").addHandler(handler)
    found = {}
    for every in (1, 20, 21, 50, 51):
        for kind in (AsyncLocalSGD, DiLoCo, SlowMo, NoLoCo):
            model = Slope()
            inner = torch.optim.SGD(model.parameters(), lr=0.1)
            opt = kind(
                model, inner, every=every - (kind is AsyncLocalSGD and rank and every > 1)
            )
            options = opt._outer if kind is AsyncLocalSGD else opt._options
            found[kind.__name__, every] = options.outer_momentum
            if kind is AsyncLocalSGD:
                opt.finish()
    return found, logged


def test_momentum_goes_by_the_number_of_steps():
    wanted = {
        "AsyncLocalSGD": (0.3, 0.3, 0.3, 0.3, 0.9),
        "DiLoCo": (0.3, 0.3, 0.6, 0.6, 0.9),
        "SlowMo": (0.3, 0.3, 0.5, 0.5, 0.5),
        "NoLoCo": (0.3, 0.3, 0.5, 0.5, 0.5),
    }
    for found, logged in values(run_group(by_every, 2)):
        for kind, momenta in wanted.items():
            for every, momentum in zip((1, 20, 21, 50, 51), momenta):
                assert found[kind, every] == momentum, (kind, every)
        assert not [line for line in logged if "momentum" in line]


def test_a_momentum_that_does_not_fit_is_told_once():
    for told in values(run_group(slides, 2)):
        for last, lines in told.values():
            assert last == pytest.approx(1.0, abs=1e-5) and len(lines) == 1
            assert "outer momentum 0.9 is high for 1 local steps" in lines[0]
            assert "take 0.5 or less" in lines[0]


def one_dies(rank, world):
    model = Point()
    opt = made(model, servers=1, staleness=2, on_loss="continue")
    for number in opt.span(6):
        if rank == 2 and number == 5:
            die()
        opt.zero_grad()
        model(opt._worker()).backward()
        opt.step()
    return model.x.tolist(), list(opt.lost)


def test_a_killed_worker_is_left_behind():
    left = [each for each in run_group(one_dies, 4, destroy=False) if each.rank != 2]
    assert all(each.ok for each in left), left
    assert all(each.value == left[0].value for each in left) and left[0].value[1] == [2]


def refused(rank, world):
    def attempt(**options):
        model = Point()
        return refusal((ValueError, TypeError), lambda: made(model, **options))

    model = Point()
    opt = made(model)
    told = {
        "every is 0": refusal(
            ValueError, lambda: AsyncLocalSGD(model, opt.inner, 0, broadcast=False)
        ),
        "an outer rate of 0": attempt(outer_rate=0.0),
        "below 1": attempt(outer_momentum=1.0),
        "momentum_every is 0": attempt(momentum_every=0),
        "rank 0 has delay=": attempt(momentum_every=2 + rank),
        "servers of their own": attempt(on_loss="continue"),
        "this is no state": refusal(
            ValueError, lambda: opt.load_state_dict(opt.inner.state_dict())
        ),
        "span()": refusal(RuntimeError, lambda: in_a_span(model, opt)),
    }
    dist.barrier()  # the other may still be at the begin of its span, which this rank serves
    return told


def in_a_span(model, opt):
    for _ in opt.span(1):
        opt.state_dict()


def test_what_cannot_be_is_refused_on_every_rank_in_words():
    for told in values(run_group(refused, 2, destroy=False)):
        for part, said in told.items():
            assert part in said, said


def leaves(rank, world):
    opt = made(Point(), servers=1)
    if rank == 1:
        descend(opt.model, opt, 5)
        dist.destroy_process_group()
        return ""
    return refusal(redpoll.torch.RedpollError, opt.finish)


def test_leaving_before_finish_is_told():
    told = values(run_group(leaves, 3, destroy=False)[:1])
    assert "rank 1" in told[0]
