"""Ranks that are killed at any moment, under each optimizer that is not an all-reduce.

Each doomed rank has a clock of its own that kills it wherever it is then: in a forward pass, in
an exchange, while it serves, while others have just heard of the one before. Survivors go on
where that was asked for, and agree; else each is told who has died. No moment may leave one
waiting. REDPOLL_TEST_SEED replays the draw, REDPOLL_LONG_TESTS=1 makes twenty.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

from ranks import Outcome, run_group
from redpoll.torch import (
    AsyncLocalSGD,
    DiLoCo,
    Gossip,
    LocalSGD,
    NoLoCo,
    ParameterServer,
    RedpollError,
    SlowMo,
    SparseLoCo,
)

LONG = bool(os.environ.get("REDPOLL_LONG_TESTS"))
STEPS, EVERY = 120, 4
LIMIT_S = 60.0
# Longer than LIMIT_S: who ends before was told of the death, and did not time out.
NEVER_S = 600.0
KILLED = -signal.SIGKILL

LOCAL = (DiLoCo, LocalSGD, NoLoCo, SlowMo, SparseLoCo)
ALGORITHMS = ("atc", "awc", "exact-diffusion", "choco", "gradient-tracking")


@dataclass
class Plan:
    """What a world does, and who dies when: {rank: seconds after all are ready}."""

    kind: str
    world: int
    deaths: dict[int, float]
    options: dict[str, Any] = field(default_factory=dict)
    pause_s: float = 0.004  # of a step, at most: ranks come to be apart

    @property
    def goes_on(self) -> bool:
        return self.options.get("on_loss") == "continue"

    @property
    def servers(self) -> int:
        found = self.options.get("servers", 0)
        return 0 if found == "shared" else found


# ---- a rank ----


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))


def made(plan: Plan, model: nn.Module) -> Any:
    inner = torch.optim.SGD(model.parameters(), lr=0.05)
    if plan.kind == "Gossip":
        return Gossip(inner, model, **plan.options)
    if plan.kind == "ParameterServer":
        return ParameterServer(inner, model, **plan.options)
    [kind] = [each for each in (AsyncLocalSGD, *LOCAL) if each.__name__ == plan.kind]
    return kind(model, inner, every=EVERY, **plan.options)


def train(rank: int, plan: Plan, model: nn.Module, opt: Any) -> None:
    draw = random.Random(rank)
    served = plan.kind in ("ParameterServer", "AsyncLocalSGD")
    pushes = STEPS // EVERY if plan.kind == "AsyncLocalSGD" else STEPS
    for _ in opt.span(pushes) if served else range(STEPS):
        opt.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        time.sleep(draw.random() * plan.pause_s)
        opt.step()


def parameters(model: nn.Module) -> list[float]:
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).tolist()


def work(rank: int, world: int, plan: Plan) -> dict[str, Any]:
    """How this rank ended: what it was told, or what it has."""
    model = net()
    opt = made(plan, model)
    if rank in plan.deaths:
        threading.Timer(plan.deaths[rank], os.kill, (os.getpid(), signal.SIGKILL)).start()
    try:
        train(rank, plan, model, opt)
        with opt.consensus():
            mean = parameters(model)
        left = getattr(opt, "members", None)
        steps = getattr(opt, "steps", None)
        ended = {"mean": mean, "left": left, "steps": steps}
    except RedpollError as error:
        ended = {"told": str(error), "status": error.status}
    if rank in plan.deaths:
        time.sleep(LIMIT_S)  # its clock goes on
    return ended


# ---- what must be true afterwards ----


def check(plan: Plan, outcomes: list[Outcome]) -> None:
    survivors = [each for each in outcomes if each.rank not in plan.deaths]
    for each in outcomes:
        assert each.rank not in plan.deaths or each.exitcode == KILLED, each
    for each in survivors:
        assert each.ok, f"rank {each.rank}:\n{each.error}"
    told = [each.value["told"] for each in survivors if "told" in each.value]
    fatal = [rank for rank in plan.deaths if not plan.goes_on or rank < plan.servers]
    if plan.goes_on and plan.servers and plan.world - plan.servers <= len(plan.deaths):
        fatal = list(plan.deaths)  # no worker may be left
    for text in told:
        assert any(f"rank {rank}" in text for rank in fatal), f"{text!r} names none of {fatal}"
    ended = [each.value for each in survivors if "told" not in each.value]
    # Gossip: who has the mean already when one dies has that of those who were left then.
    means = {(str(each["left"]), tuple(each["mean"])) for each in ended}
    assert len(means) == len({left for left, _ in means}), "survivors disagree"
    if plan.kind == "Gossip" and plan.goes_on:
        assert {each["steps"] for each in ended} == {STEPS}


# ---- who dies when ----


def drawn(kind: str, seed: int) -> Plan:
    """kind "local": one of those that take local steps between two exchanges."""
    draw = random.Random(f"{kind} {seed}")
    kind = draw.choice(LOCAL).__name__ if kind == "local" else kind
    plan = Plan(kind, draw.randint(3, 5), {})
    options = plan.options
    if kind == "Gossip":
        options.update(topology="ring", algorithm=draw.choice(ALGORITHMS))
        options["on_loss"] = draw.choice(["fail", "continue", "continue"])
    elif kind in ("ParameterServer", "AsyncLocalSGD"):
        options["on_loss"] = draw.choice(["fail", "continue", "continue"])
        options["servers"] = draw.randint(1, min(2, plan.world - 2))
        if options["on_loss"] == "fail":
            options["servers"] = draw.choice([1, "shared"])
        options["staleness"] = draw.choice([0, 2, "inf"])
        if options["staleness"] and plan.world - plan.servers > 2:
            options["quorum"] = draw.choice([0, 2])
    elif kind in ("DiLoCo", "LocalSGD"):
        options.update(draw.choice([{}, {"fragments": 2, "delay": 1}]))
    elif kind == "NoLoCo":
        plan.world = 4
    elif kind == "SparseLoCo":
        options["codec"] = "topk:k=64,bucket=4096"
    count = draw.choice([1, 1, 2])
    least = plan.servers if draw.random() < 0.8 else 0  # as a rule not those that serve
    most = range(least, plan.world)
    for rank in draw.sample(most, min(count, len(most) - 1)):
        plan.deaths[rank] = draw.random() * STEPS * plan.pause_s
    return plan


@pytest.mark.parametrize("kind", ["Gossip", "ParameterServer", "AsyncLocalSGD", "local"])
def test_ranks_that_are_killed_at_any_moment(kind: str) -> None:
    given = os.environ.get("REDPOLL_TEST_SEED")
    first = int(given) if given else time.time_ns() % 1000000
    for seed in range(first, first + (20 if LONG and not given else 1)):
        plan = drawn(kind, seed)
        print(f"REDPOLL_TEST_SEED={seed}: {plan}")
        outcomes = run_group(
            work, plan.world, plan, timeout=LIMIT_S, group_timeout=NEVER_S, destroy=False
        )
        check(plan, outcomes)
