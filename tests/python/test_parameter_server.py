"""redpoll.torch.ParameterServer: synchronous steps against serial ones, each push merged once,
workers that die, state for other servers, what is refused."""

from __future__ import annotations

import copy
import io
import math

import pytest
import torch
import torch.distributed as dist
from torch import nn

import redpoll.torch
from ranks import die, refusal, run_group, values
from redpoll import _abi
from redpoll.torch import ParameterServer, RedpollError

# ---- a net, and its serial training ----


class Net(nn.Sequential):
    """With a parameter without dimensions, and a buffer that is infinite."""

    def __init__(self):
        super().__init__(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 4)
        )
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("masked", torch.full((2,), -math.inf))

    def forward(self, x):
        return super().forward(x) * self.scale


def net(seed=3):
    torch.manual_seed(seed)
    return Net()


def loss_of(model, worker, step):
    generator = torch.Generator().manual_seed(100 * step + worker)
    x = torch.randn(8, 8, generator=generator)
    y = torch.randint(0, 4, (8,), generator=generator)
    return nn.functional.cross_entropy(model(x), y)


def flat(model):
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).tolist()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)


def adamw(model):
    """Two groups, as transformers have them."""
    return torch.optim.AdamW(
        [
            {"params": [each for each in model.parameters() if each.dim() > 1]},
            {"params": [each for each in model.parameters() if each.dim() < 2], "lr": 0.02},
        ],
        lr=0.01,
        weight_decay=0.1,
    )


def adagrad(model):
    """It makes its state when it is made."""
    return torch.optim.Adagrad(model.parameters(), lr=0.05, initial_accumulator_value=0.1)


INNER = {"sgd": sgd, "adamw": adamw, "adagrad": adagrad}


def serially(inner, workers, steps):
    """Mean gradients of all workers, summed in their order; a schedule halves rates."""
    model = net()
    opt = INNER[inner](model)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)
    for step in range(steps):
        total = None
        for worker in range(workers):
            opt.zero_grad()
            loss_of(model, worker, step).backward()
            own = [each.grad for each in model.parameters()]
            total = own if total is None else [a + b for a, b in zip(total, own)]
        for each, gradient in zip(model.parameters(), total):
            each.grad = gradient / workers
        opt.step()
        schedule.step()
    return flat(model)


def train(model, opt, steps, first=0):
    """As many steps of each worker."""
    if not opt.is_worker:
        return opt.finish()
    worker = opt._worker()
    model.train()
    schedule = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)
    for step in range(first, first + steps):
        opt.zero_grad()
        loss_of(model, worker, step).backward()
        opt.step()
        schedule.step()
    opt.finish()


# ---- synchronous ----


def synchronous(rank, world, inner, servers):
    model = net()
    opt = ParameterServer(INNER[inner](model), model, servers)
    train(model, opt, 5)
    return flat(model), opt.last and opt.last.staleness, dict(opt.lost)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("servers", ["shared", 2])
def test_synchronous_steps_are_those_of_the_mean_gradient(inner, servers):
    world = 3 if servers == "shared" else 5
    wanted = serially(inner, 3, 5)
    for found, staleness, lost in values(run_group(synchronous, world, inner, servers)):
        assert torch.allclose(torch.tensor(found), torch.tensor(wanted), rtol=1e-5, atol=1e-7)
        assert not staleness and not lost


def as_all_reduce(rank, world):
    """The same bits as gradients averaged by all_reduce, where nothing is cut in between."""
    one, other = net(), net()
    opt = ParameterServer(sgd(one), one)
    inner = sgd(other)
    for step in range(5):
        opt.zero_grad()
        loss_of(one, rank, step).backward()
        opt.step()
        inner.zero_grad()
        loss_of(other, rank, step).backward()
        for each in other.parameters():
            dist.all_reduce(each.grad, dist.ReduceOp.AVG)
        inner.step()
    return flat(one) == flat(other)


def test_synchronous_is_all_reduce():
    assert values(run_group(as_all_reduce, 4)) == [True] * 4


def unequal(rank, world):
    """A worker of more samples, and one that has fewer batches."""
    x = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(x.weight)
    opt = ParameterServer(torch.optim.SGD(x.parameters(), lr=1.0), x)
    for _ in range(2 + rank):
        x.weight.grad = torch.full_like(x.weight, float(rank + 1))
        opt.step(weight=1.5 if rank else 0.5)
    opt.finish()
    return x.weight.item()


def test_gradients_are_weighed_and_who_has_no_more_is_left_out():
    together = (0.5 * 1 + 1.5 * 2) / 2
    assert values(run_group(unequal, 2)) == [pytest.approx(-2 * together - 2)] * 2


# ---- each push by itself ----


def counted(rank, world, servers, staleness, options):
    model = nn.Linear(100, 3)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    opt = ParameterServer(
        torch.optim.SGD(model.parameters(), lr=1.0), model, servers, staleness, **options
    )
    pushes, stalest = 0, 0
    for _ in opt.span(6):
        opt.zero_grad()
        (model.weight.sum() + model.bias.sum()).backward()
        opt.step()
        pushes += 1
        stalest = max(stalest, opt.last.staleness)
    return pushes, stalest, flat(model), opt.workers


@pytest.mark.parametrize(
    "servers, staleness, options",
    [
        ("shared", "inf", {}),
        (1, 2, {}),
        (2, 1, {}),
        (1, "inf", {"quorum": 2, "grace_s": 0.001}),
        (2, 2, {"quorum": 2}),
        ("shared", "inf", {"quorum": 3}),
        (1, "inf", {"codec": "q8", "min_size": 0}),
    ],
)
def test_each_push_is_merged_once_within_the_staleness(servers, staleness, options):
    told = values(run_group(counted, 4, servers, staleness, options))
    workers = told[0][3]
    assert sum(each[0] for each in told) == 6 * workers
    for _, stalest, found, _ in told:
        assert staleness == "inf" or stalest <= staleness
        assert torch.allclose(torch.tensor(found), torch.tensor(-6.0), rtol=1e-5)


# ---- those that die, and those that raise ----


def one_dies(rank, world, on_loss):
    model = net()
    opt = ParameterServer(sgd(model), model, servers=1, staleness=2, on_loss=on_loss)

    def work():
        for step in opt.span(8):
            if rank == 2 and step == 3:
                die()
            opt.zero_grad()
            loss_of(model, rank, step).backward()
            opt.step()

    if on_loss == "fail":
        return refusal(redpoll.torch.RedpollError, work)
    work()
    state = opt.state_dict()
    momentum = state["state"][0]["momentum_buffer"].norm().item()
    merges, lost = opt._updates, dict(opt.lost)
    if rank == 3:
        die()  # while the others gather state
    assert opt.state_dict()["state"][0]["momentum_buffer"].norm().item() == momentum
    assert list(opt.lost) == [2, 3]
    told = RedpollError(_abi.RP_INVALID, "what came does not fit")
    with pytest.raises(RedpollError) as found:
        opt._ranks.together(lambda: raise_(told))
    assert found.value.status == "INVALID" and found.value.__cause__ is told
    return flat(model), lost, momentum, merges


def raise_(error):
    raise error


def test_killed_workers_are_left_behind():
    outcomes = run_group(one_dies, 4, "continue", destroy=False)
    left = [each for each in outcomes if each.rank < 2]
    assert all(each.ok for each in left), left
    for each in left:
        parameters, lost, momentum, _ = each.value
        assert parameters == left[0].value[0] and momentum == left[0].value[2] > 0
        assert list(lost) == [2]
    assert "rank 2, a worker, is gone" in left[0].value[1][2]
    assert left[0].value[3] >= 8 * 3 - 4  # others make its steps


def test_a_killed_worker_is_named():
    for outcome in run_group(one_dies, 4, "fail", destroy=False):
        if outcome.rank != 2:
            assert outcome.ok and "rank 2" in outcome.value, outcome


class Failing(torch.optim.SGD):
    """An optimizer whose third step does not work, when its rate has been halved."""

    def step(self, closure=None):
        if any(group["lr"] == 0.0625 for group in self.param_groups):
            raise ArithmeticError("there is no third step")
        return super().step(closure)


def fails(rank, world, servers):
    model = net()
    opt = ParameterServer(Failing(model.parameters(), lr=0.125), model, servers)
    return refusal((ArithmeticError, redpoll.torch.RedpollError), lambda: train(model, opt, 5))


@pytest.mark.parametrize("servers", ["shared", 1])
def test_what_a_server_raises_all_hear(servers):
    for said in values(run_group(fails, 3, servers, destroy=False)):
        assert "there is no third step" in said


# ---- state ----


def saved(rank, world, servers, codec):
    """Five steps at once, or three and two with what was saved between."""
    options = {"servers": servers, "codec": codec, "min_size": 0}
    whole = net()
    train(whole, ParameterServer(adamw(whole), whole, **options), 5)
    parts = net()
    opt = ParameterServer(adamw(parts), parts, **options)
    train(parts, opt, 3)
    file = io.BytesIO()
    torch.save((parts.state_dict(), opt.state_dict()), file)
    file.seek(0)
    model_state, state = torch.load(file, weights_only=False)
    again = net(seed=5)
    opt = ParameterServer(adamw(again), again, **options, broadcast=False)
    again.load_state_dict(model_state)
    opt.load_state_dict(state)
    assert opt.spans == 1
    assert torch.equal(  # nothing is pushed yet: it goes on as it came
        opt.state_dict()["state"][1]["exp_avg"], state["state"][1]["exp_avg"]
    )
    resume(again, opt, 2, 3)
    return flat(whole), flat(again)


def resume(model, opt, steps, first):
    """With rates as a StepLR of two would have them."""
    for group, rate in zip(opt.param_groups, (0.01, 0.02)):
        group["lr"] = rate
    if not opt.is_worker:
        return opt.finish()
    model.train()
    for step in range(first, first + steps):
        for group, rate in zip(opt.param_groups, (0.01, 0.02)):
            group["lr"] = rate * 0.5 ** (step // 2)
        opt.zero_grad()
        loss_of(model, opt._worker(), step).backward()
        opt.step()
    opt.finish()


@pytest.mark.parametrize("servers, codec", [("shared", None), (2, "q4")])
def test_state_is_all_there_is(servers, codec):
    for whole, again in values(run_group(saved, 4, servers, codec)):
        assert whole == again


def moves(rank, world):
    """From two servers to the inner optimizer alone, and to servers that are shared."""
    model = net()
    opt = ParameterServer(adamw(model), model, servers=2)
    train(model, opt, 3)
    state = opt.state_dict()
    assert torch.isinf(model.masked).all()
    rates = [group["lr"] for group in state["param_groups"]]
    plain, shared = net(5), net(5)
    inner = adamw(plain)
    plain.load_state_dict(model.state_dict())
    alone = {name: state[name] for name in ("state", "param_groups")}
    inner.load_state_dict(copy.deepcopy(alone))
    other = ParameterServer(adamw(shared), shared, broadcast=False)
    shared.load_state_dict(model.state_dict())
    other.load_state_dict(state)
    for each, same in zip(plain.parameters(), shared.parameters()):
        each.grad = torch.ones_like(each)
        same.grad = torch.ones_like(same)
    inner.step()
    other.step()
    other.finish()
    steps = {float(each["step"]) for each in other.state_dict()["state"].values()}
    difference = torch.tensor(flat(plain)) - torch.tensor(flat(shared))
    return rates, difference.abs().max().item(), steps, float(model[1].running_mean.sum())


def test_state_goes_to_other_servers_and_to_none():
    told = values(run_group(moves, 4))
    for rates, difference, steps, mean in told:
        assert rates == [0.005, 0.01] and difference < 1e-6 and steps == {4.0}
        assert mean == told[0][3] != 0  # running statistics are the workers' mean


# ---- what is refused ----


class Normed(torch.optim.Optimizer):
    """A step of an element goes by the norm of its tensor."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    each.sub_(group["lr"] * each.grad / each.grad.norm())


def refused(rank, world):
    def attempt(model=None, inner=sgd, **options):
        model = model or net()
        made = inner(model)
        return refusal((ValueError, TypeError), lambda: ParameterServer(made, model, **options))

    model = net()
    opt = ParameterServer(sgd(model), model, servers=1)
    told = {
        "take at most 1": attempt(servers=2),
        "servers is 0; a whole number from 1 on, or 'shared'": attempt(servers=0),
        "servers is 'all'": attempt(servers="all"),
        "staleness is -1": attempt(staleness=-1),
        "staleness is 1.5": attempt(staleness=1.5),
        "say staleness=inf": attempt(servers=1, quorum=1),
        "say quorum=K": attempt(grace_s=1.0),
        "servers of their own": attempt(on_loss="continue"),
        "'fail' and 'continue'": attempt(on_loss="stop"),
        "auto": attempt(codec="auto"),
        "model.float()": attempt(model=net().double()),
        "rank 0 has staleness=": attempt(staleness=rank),
        "Normed cannot step a part": attempt(inner=lambda m: Normed(m.parameters())),
        "LBFGS cannot step a part": attempt(inner=lambda m: torch.optim.LBFGS(m.parameters())),
        "Adafactor cannot step a part": attempt(inner=adafactor),
        "Counting cannot step a part": attempt(inner=lambda m: Counting(m.parameters(), 0.1)),
        "rank 0 has seed=": attempt(seed=rank),
        "rank 0 has parameters=": attempt(codec="q4", min_size=1 + 1000 * rank),
        "has 9 groups": attempt(
            nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(9))), nine_groups
        ),
        "opt.inner.load_state_dict": refusal(
            ValueError, lambda: opt.load_state_dict({**sgd(net()).state_dict(), **wrong()})
        ),
    }
    if rank == 0:
        told["rank 0 only serves"] = refusal(RuntimeError, opt.step)
    else:
        told["a weight of -1"] = refusal(ValueError, lambda: opt.step(weight=-1.0))
        told["a weight of inf"] = refusal(ValueError, lambda: opt.step(weight=math.inf))
    return told


def one_too_many(rank, world):
    """A second step in the last iteration of a span, which goes on nevertheless."""
    model = net()
    opt = ParameterServer(sgd(model), model, servers=1)
    said = ""
    for number in opt.span(2):
        opt.zero_grad()
        loss_of(model, rank, number).backward()
        opt.step()
        if number == 1:
            said = refusal(RuntimeError, opt.step)
    opt.finish()
    return said, flat(model)


def test_a_step_too_many_is_refused_and_harms_nobody():
    told = values(run_group(one_too_many, 3))
    for rank, (said, parameters) in enumerate(told):
        assert rank == 0 or "all steps of the span have been taken" in said
        assert parameters == told[0][1]


class Counting(torch.optim.SGD):
    """It counts its steps in its group, as Prodigy and others do."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1
        return super().step(closure)


def wrong():
    return {"parameter_server": {"format": "something else"}}


def adafactor(model):
    kind = getattr(torch.optim, "Adafactor", None)  # since PyTorch 2.5
    if kind is None:
        kind = type("Adafactor", (Normed,), {})
    return kind(model.parameters())


def nine_layers():
    return nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(9)))


def nine_groups(model):
    return torch.optim.SGD([{"params": [each]} for each in model.parameters()], 0.1)


def test_what_cannot_be_is_refused_on_every_rank_in_words():
    for told in values(run_group(refused, 2)):
        for part, said in told.items():
            assert part in said, said


def left(rank, world):
    """A rank leaves the group in the middle."""
    model = net()
    opt = ParameterServer(sgd(model), model)

    def work():
        for step in range(4):
            if (rank, step) == (1, 2):
                dist.destroy_process_group()
            opt.zero_grad()
            loss_of(model, rank, step).backward()
            opt.step()

    return refusal(redpoll.torch.RedpollError, work)


def test_leaving_in_the_middle_is_told():
    told = values(run_group(left, 3, destroy=False))
    assert "destroyed" in told[1]
    assert "rank 1" in told[0] and "rank 1" in told[2]
