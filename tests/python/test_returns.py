"""Workers that are killed, started again by `redpoll run --restart`, and taken back by
redpoll.torch.ParameterServer and AsyncLocalSGD: each step is merged once, and everybody has the
same parameters."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn

import redpoll
from ranks import WITHOUT_COMPILER, preloaded_python, refusal, run_group, run_ranks, values
from redpoll.torch import AsyncLocalSGD, ParameterServer, RedpollError, communicator_of
from redpoll.torch.decentralised.servers._growth import Growth, World
from redpoll.torch.decentralised.servers._returns import ReturnRequests
from redpoll.torch.decentralised.servers._worker_state import packed, unpacked
from test_launching import clean_environment, redpoll_command

DEADLINE = 240
PLACE = '{"epoch": 1, "first_ranks": [0, 1], "back": [1]}'  # of rank 1 in a world of two
# Of the process that a launcher has started in the place of rank 1.
RESTARTED = {
    "REDPOLL_GENERATION": "1",
    "REDPOLL_RESTART": "2",
    "REDPOLL_STORE": "127.0.0.1:9",
    "RANK": "1",
    "WORLD_SIZE": "3",
}

# Every gradient is 1 and the rate 1 over the workers, or 1: parameters count what was merged.
SCRIPT = (
    WITHOUT_COMPILER
    + """
import json, logging, os, signal, sys, time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

import redpoll.torch

kind, staleness, servers, way = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
staleness = int(staleness) if staleness.isdigit() else staleness
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
generation = os.environ.get("REDPOLL_GENERATION", "0")


class Wait(logging.Handler):
    "Makes a file when servers begin to wait for workers, who would often be back before."

    def emit(self, record):
        if "no worker is left; waiting" in record.getMessage():
            open("waiting", "w").close()


logging.getLogger("redpoll").addHandler(Wait())
end = time.monotonic() + 60
while way in ("all", "last") and generation != "0" and not os.path.exists("waiting"):
    assert time.monotonic() < end, "the servers do not wait"
    time.sleep(0.02)
dist.init_process_group("redpoll", timeout=timedelta(seconds=60))
rank = dist.get_rank()
model = nn.Sequential(nn.Linear(40, 3), nn.BatchNorm1d(3))
model[1].requires_grad_(False)
nn.init.constant_(model[1].weight, 1 + rank + 10 * int(generation))  # until ranks begin alike
for each in model[0].parameters():
    nn.init.zeros_(each)
model[1].running_var.fill_(3 if generation == "0" else 4)  # likewise
inner = torch.optim.SGD(model[0].parameters(), lr=1.0, momentum=0.0)
options = dict(servers=servers, on_loss="continue", staleness=staleness)
if way == "other" and generation != "0":
    options["seed"] = 5
if way == "leaves" and generation != "0":
    sys.exit(7)
if kind == "local":
    opt = redpoll.torch.AsyncLocalSGD(
        model, inner, every=2, outer_rate=1.0, outer_momentum=0.0, **options
    )
else:
    opt = redpoll.torch.ParameterServer(inner, model, codec="q8", min_size=0, **options)
print(f"rank {rank} of generation {generation} is here", flush=True)

if way in ("span", "all"):  # as a script does that begins with its latest checkpoint
    if generation == "0":
        torch.save(opt.state_dict(), f"begun-{rank}")
    opt.load_state_dict(torch.load(f"begun-{rank}"))


def step():
    opt.zero_grad()
    (model[0].weight.sum() + model[0].bias.sum()).backward()
    opt.step()


def dies(epoch, number):
    if epoch != 1 or number != 3 or (generation != "0" and way != "dies"):
        return False
    return rank == servers + 1 if way in ("span", "other") else way != "last"


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def waits():
    "Has somebody asked for its place? Rank 0 looks at requests where there are merges."
    return opt._growth.requests.store.add("requests", 0) > 0


def all_have_asked():
    "Has every worker asked for its place? One alone would end the run before another is back."
    store = opt._growth.requests.store
    asked = {store.get(f"request/{n + 1}").split()[0] for n in range(store.add("requests", 0))}
    return len(asked) == dist.get_world_size() - servers


def check():
    values = torch.cat([each.detach().flatten() for each in model[0].parameters()])
    assert (values == values[0]).all(), values
    assert (model[1].weight == 1).all(), model[1].weight
    assert (model[1].running_var == 3).all(), model[1].running_var
    with open(f"told-{rank}-{generation}", "a") as file:
        told = [values[0].item(), opt._updates, opt.spans, opt.steps, opt._ranks.first_ranks]
        print(json.dumps([*told, sorted(opt.lost)]), file=file)


if way != "any":
    if way == "last" and opt.is_worker and generation == "0":
        opt._settle = die  # behind the last step of a span
    for epoch in range(opt.spans, 3):
        for number in opt.span(30):
            if dies(epoch, number):
                die()
            while way in ("span", "other") and epoch == 1 and number == 3 and not waits():
                time.sleep(0.01)
            if way == "all" and opt.is_worker and epoch == 1 and number >= 3:
                while not all_have_asked():
                    time.sleep(0.01)
            step()
            time.sleep(0.05 if epoch == 1 and number < 20 else 0)
        check()
else:
    while opt.is_worker and not os.path.exists("stop"):
        step()
        time.sleep(0.01)
    opt.finish()
    check()
    for _ in opt.span(10):
        step()
    check()
opt.state_dict()
dist.destroy_process_group()
"""
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def command(world: int, restarts: int, *words: str, python: Sequence[str] = ()) -> list[str]:
    """python: the words that start it, instead of those of preloaded_python()."""
    launcher = [redpoll_command(), "run", "-n", str(world), "--on-loss", "continue"]
    program = [*(python or preloaded_python()), "train.py", *words]
    return [*launcher, "--restart", str(restarts), *program]


def environment() -> dict[str, str]:
    package = str(Path(redpoll.__file__).parent.parent)
    return clean_environment(PYTHONPATH=package)


def told(place: Path, rank: int, generation: int = 0) -> list[list]:
    lines = (place / f"told-{rank}-{generation}").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    "kind, staleness, servers",
    [("server", "0", 1), ("server", "2", 2), ("local", "inf", 1)],
)
def test_a_span_has_its_steps_with_a_worker_that_comes_back(
    place: Path, kind: str, staleness: str, servers: int
) -> None:
    world = servers + 3
    ended = subprocess.run(
        command(world, 1, kind, staleness, str(servers), "span"),
        cwd=place,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert ended.returncode == 0, ended.stderr
    back = servers + 1
    assert f"rank {back} is back; ranks 0, 1, 2" in ended.stderr, ended.stderr
    assert f"rank {back} of generation 1 is here" in ended.stdout
    assert ended.stderr.count("load_state_dict() changes nothing") == 1
    # A merge is a step of all, or one of three workers' pushes.
    merges = 90 if staleness == "0" else 270
    for rank in range(world):
        lines = told(place, rank, int(rank == back))
        assert [line[2] for line in lines] == ([2, 3] if rank == back else [1, 2, 3])
        value, updates, _, steps, first_ranks, lost = lines[-1]
        assert updates == merges and first_ranks == list(range(world)) and not lost
        # A synchronous step is the mean of those that are there; a worker's two local steps
        # are descended by a third each.
        assert value == pytest.approx(-180 if kind == "local" else -90, rel=1e-4)
        assert steps > 0 or rank < servers


def test_one_that_was_given_other_things_stays_away(place: Path) -> None:
    ended = subprocess.run(
        command(4, 1, "server", "0", "1", "other"),
        cwd=place,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert ended.returncode == 0, ended.stderr
    assert "rank 0 has seed=0 and rank 2 seed=5" in ended.stderr
    assert "nobody has come back: " in ended.stderr
    for rank in (0, 1, 3):
        value, updates, spans, _, _, lost = told(place, rank)[-1]
        assert (value, updates, spans, lost) == (-90, 90, 3, [2])


# Rank 1 is started again, and comes to its group's store when the others have ended.
LATE = """
import os, signal, time
from datetime import timedelta

import torch.distributed as dist

import redpoll.torch

def wait_for(file):
    while not os.path.exists(file):
        time.sleep(0.05)

rank, again = int(os.environ["RANK"]), "REDPOLL_GENERATION" in os.environ
if again:
    open("again", "w").close()
    wait_for("over")
    time.sleep(1)
dist.init_process_group("redpoll", timeout=timedelta(minutes=10))
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
wait_for("again")
open("over", "w").close()
os._exit(0)
"""


def test_one_that_comes_when_the_others_have_ended_is_told_so(place: Path) -> None:
    (place / "train.py").write_text(LATE)
    run = subprocess.run(
        command(3, 1),
        cwd=place,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert run.returncode == 0, run.stderr
    assert "rank 1 was started again, and the others have ended: the run is over" in run.stderr


class Told(dist.Store):
    """A store in which some keys have been counted: those whose names end so."""

    def __init__(self, *counted: str) -> None:
        super().__init__()
        self.counted, self.values = counted, {}

    def add(self, key: str, number: int) -> int:
        if key.endswith(self.counted):
            self.values.setdefault(key, 1)
        self.values[key] = int(self.values.get(key, 0)) + number
        return self.values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def get(self, key: str) -> bytes:
        return self.values[key]

    def set(self, key: str, value: Any) -> None:
        self.values[key] = value.encode() if isinstance(value, str) else value

    def delete_key(self, key: str) -> bool:
        return self.values.pop(key, None) is not None


def replacing(rank: int, world: int) -> list[str]:
    """A rank that was started again before the ranks had met: it comes in the place of the one
    before, and waits for others as any does; or that one had come, and all fail at once."""
    told = []
    for counted in ((), ("/arrived/1",)):
        place = {"store": Told(*counted), "rank": 1, "world_size": 3}
        limit = timedelta(seconds=1 if not counted else 600)

        def join(place: dict[str, Any] = place, limit: timedelta = limit) -> None:
            dist.init_process_group("redpoll", timeout=limit, **place)

        told.append(refusal(RedpollError, join))
    return told


def test_a_rank_that_dies_before_the_others_are_there_is_replaced() -> None:
    [(waited, failed)] = values(run_ranks(replacing, 1, environment=RESTARTED))
    assert "ranks 0, 2 did not arrive within 1 s: 1 of 3 ranks are here" in waited
    assert "the process before this one died while the ranks were meeting" in failed


def absent(rank: int, world: int) -> dict[str, str]:
    """What a rank that was started again cannot do."""
    store = Told("/generation")
    dist.init_process_group("redpoll", store=store, rank=1, world_size=3)
    assert (dist.get_rank(), dist.get_world_size()) == (1, 3)
    model = nn.Linear(2, 2)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)

    def make(**options: Any) -> str:
        return refusal(
            (RedpollError, ValueError), lambda: ParameterServer(inner, model, 1, **options)
        )

    told = {
        "was started again, and the group that it was in": refusal(
            RedpollError, lambda: dist.all_reduce(torch.ones(2))
        ),
        "take it back when they are made": refusal(
            RedpollError, lambda: dist.new_group([0, 1])
        ),
        "on_loss='continue' does": make(),
        "staleness is -1": make(staleness=-1, on_loss="continue"),
        "rank 1 was started again, and served": refusal(
            RedpollError, lambda: ParameterServer(inner, model, 2, on_loss="continue")
        ),
    }
    communicator_of().store.set("redpoll/returns/1/over", "over")
    told["the run is over"] = make(on_loss="continue")
    dist.destroy_process_group()
    return told


def test_a_rank_that_was_started_again_has_no_group() -> None:
    [told] = values(run_ranks(absent, 1, environment=RESTARTED))
    for part, said in told.items():
        assert part in said, said


def other_place(_rank: int, _world: int) -> list[float]:
    told = []
    for _ in range(2):
        dist.init_process_group("redpoll", store=dist.HashStore(), rank=0, world_size=1)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        told.append(tensor.item())
        dist.destroy_process_group()
        os.environ.update(RANK="0", WORLD_SIZE="1")
    return told


def test_children_of_such_a_rank_have_groups_of_their_own() -> None:
    assert values(run_ranks(other_place, 1, environment=RESTARTED)) == [[1.0, 1.0]]


def early(rank: int, world: int) -> tuple[int, int]:
    """The steps that finish() brings are the last of the span."""
    model = nn.Linear(3, 2)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    opt = AsyncLocalSGD(model, inner, every=2, servers=1, on_loss="continue")
    for number in opt.span(5):
        model(torch.ones(1, 3)).sum().backward()
        opt.step()
        if number == 8:
            opt.finish()
            break
    return opt.spans, opt._updates


def test_a_span_that_ends_in_finish_ends_once() -> None:
    told = values(run_group(early, 2, environment={"REDPOLL_RESTART": "1"}))
    assert told == [(1, 5), (1, 5)]


def drops(rank: int, world: int) -> bool:
    model = nn.Linear(3, 2)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    opt = ParameterServer(inner, model, servers=1, on_loss="continue")
    opt.finish()
    store = communicator_of().store
    del opt
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()
    return rank > 0 or store.check(["redpoll/returns/1/over"])


def test_the_end_is_told_without_the_optimizer() -> None:
    told = run_group(drops, 2, destroy=False, environment={"REDPOLL_RESTART": "1"})
    assert all(values(told))


# ---- what fails meanwhile ----


class Closable:
    """A communicator, or a handle."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def abort(self, why: str) -> None:
        self.done.append(why)

    def close(self) -> None:
        self.done.append("closed")

    def release(self, _drain_s: float) -> None:
        self.done.append("released")


class Alone:
    """Of an optimizer what an attempt needs."""

    rank, who, timeout_s = 0, "Alone", 5.0

    @property
    def ranks(self) -> Alone:
        return self

    def sum_once(self, vector: torch.Tensor) -> torch.Tensor:
        return vector


def growth_that(build: Callable[..., None]) -> Growth:
    growth = Growth(dist.HashStore(), 1)
    growth._build = build  # type: ignore[method-assign]
    return growth


def test_an_error_without_words_fails_the_attempt() -> None:
    made = Closable()

    def build(_opt: Any, world: World) -> None:
        world.communicator = made
        raise MemoryError

    growth = growth_that(build)
    growth._planned = lambda _opt: World(1, [0, 1], [1])  # type: ignore[method-assign]
    assert growth._attempt(Alone()) is None
    assert made.done[0] == "MemoryError"


@pytest.mark.parametrize("where", ["build", "verdict"])
def test_a_rank_that_is_interrupted_leaves_no_world(where: str) -> None:
    communicator, handle = Closable(), Closable()

    def build(_opt: Any, world: World) -> None:
        world.communicator, world.handle = communicator, handle
        if where == "build":
            raise KeyboardInterrupt

    def hear(_number: int, what: str, _timeout_s: float) -> str:
        if what == "verdict":
            raise KeyboardInterrupt
        return "called" if what == "invite" else PLACE

    growth = growth_that(build)
    growth.requests.hear = hear  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        growth._ask(Alone())
    assert communicator.done == ["rank 0: KeyboardInterrupt", "closed"]
    assert handle.done == ["released"]


def test_what_fails_in_a_build_is_not_taken_for_the_store() -> None:
    def build(_opt: Any, _world: World) -> None:
        raise RuntimeError("of torch")

    growth = growth_that(build)
    growth.requests.hear = lambda _number, what, _timeout_s: (  # type: ignore[method-assign]
        "called" if what == "invite" else PLACE
    )
    with pytest.raises(RuntimeError, match="^of torch$"):
        growth.come_back(Alone())


class FailingStore:
    def check(self, _keys: list[str]) -> bool:
        raise RuntimeError("the store is gone")

    def set(self, _key: str, _text: str) -> None:
        raise RuntimeError("the store is gone")


def test_with_a_store_that_fails_nobody_comes_back() -> None:
    for ask in (lambda requests: requests.take() == [], lambda requests: not requests.call(1)):
        requests = ReturnRequests(dist.HashStore(), 1)
        requests.ask(1)
        assert requests.is_waited_at()
        requests.store = FailingStore()
        assert ask(requests)
        assert requests.is_off and not requests.is_waited_at()


class Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.getcwd, ()


def test_state_goes_over_without_code() -> None:
    with pytest.raises(Exception, match="[Ww]eights"):
        unpacked(packed({"inner": Runs()}))
    kinds: list[Any] = [
        lambda x: torch.optim.SGD(x, lr=0.1, momentum=0.9),
        lambda x: torch.optim.Adam(x, lr=0.1, amsgrad=True),
        lambda x: torch.optim.AdamW(x, lr=0.1),
        lambda x: torch.optim.RMSprop(x, lr=0.1, momentum=0.9, centered=True),
        lambda x: torch.optim.Adagrad(x, lr=0.1),
        lambda x: torch.optim.LBFGS(x, lr=0.1),
    ]
    for kind in kinds:
        model = nn.Linear(3, 2)
        optimizer = kind(model.parameters())

        def loss(model: nn.Linear = model) -> torch.Tensor:
            value = model(torch.ones(1, 3)).square().sum()
            value.backward()
            return value

        for _ in range(3):
            optimizer.step(loss)
        state = optimizer.state_dict()["state"]
        torch.testing.assert_close(unpacked(packed(state)), state)


def processes(job: str) -> dict[int, list[int]]:
    """Of the ranks' processes that have a mark in their environment, by rank."""
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            variables = (folder / "environ").read_bytes().split(b"\0")
            if f"REDPOLL_TEST_MARK={job}".encode() in variables:
                rank = [each for each in variables if each.startswith(b"RANK=")]
                if rank:
                    found.setdefault(int(rank[0][5:]), []).append(int(folder.name))
    return found


def kill(job: str, rank: int) -> None:
    for process in processes(job).get(rank, []):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def test_workers_that_are_killed_at_any_time(place: Path) -> None:
    """Some while others come back. At the end those that are there have what was merged."""
    is_long = bool(os.environ.get("REDPOLL_LONG_TESTS"))
    seed = int(os.environ.get("REDPOLL_TEST_SEED") or time.time_ns() % 1000000)
    print(f"REDPOLL_TEST_SEED={seed}")
    draw = random.Random(seed)
    job = f"returns-{os.getpid()}-{seed}"
    words = ("server", draw.choice(["0", "2", "inf"]), "1", "any")
    with open(place / "out", "w") as out:
        run = subprocess.Popen(
            command(4, 20, *words, python=[sys.executable]),  # deaths in its imports, too
            cwd=place,
            env={**environment(), "REDPOLL_TEST_MARK": job},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        until_said(run, place, "of generation 0 is here", 4)
        for _ in range(12 if is_long else 3):
            back = (place / "out").read_text().count("back; ranks")
            time.sleep(draw.random())
            kill(job, draw.choice([2, 3]))  # worker 1 is always there
            if draw.random() < 0.5:
                time.sleep(6 * draw.random())
                kill(job, draw.choice([2, 3]))
            until_said(run, place, "back; ranks", back + 1)
        (place / "stop").write_text("")
        code = run.wait(timeout=DEADLINE)
    finally:
        run.kill()
        run.wait()
    said = (place / "out").read_text()
    assert code == 0, said
    ends = [json.loads(file.read_text().splitlines()[-1]) for file in place.glob("told-*")]
    assert len(ends) >= 2, said
    assert len({json.dumps(each[:3]) for each in ends}) == 1, ends


def until_said(run: subprocess.Popen, place: Path, text: str, times: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while (place / "out").read_text().count(text) < times:
        said = (place / "out").read_text()
        assert run.poll() is None and time.monotonic() < deadline, said
        time.sleep(0.05)
