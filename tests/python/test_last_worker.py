"""Servers of redpoll.torch.ParameterServer and AsyncLocalSGD whose workers have all been
killed: they wait for those that `redpoll run --restart` starts again, and for nobody else."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import redpoll.torch.decentralised.servers._waits as waits
from ranks import WITHOUT_COMPILER
from redpoll.torch import RedpollError
from redpoll.torch.decentralised.servers._returns import ReturnRequests
from redpoll.torch.decentralised.servers._waits import WorkerWait
from test_returns import DEADLINE, SCRIPT, command, environment, told


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def run(folder: Path, world: int, restarts: int, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(world, restarts, *words),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


@pytest.mark.parametrize(
    "kind, staleness, servers, workers, way",
    [
        ("server", "0", 1, 2, "all"),
        ("server", "2", 2, 1, "all"),
        ("local", "inf", 1, 1, "all"),
        ("server", "0", 1, 1, "last"),
    ],
)
def test_servers_wait_for_the_last_worker(
    folder: Path, kind: str, staleness: str, servers: int, workers: int, way: str
) -> None:
    world = servers + workers
    ended = run(folder, world, 1, kind, staleness, str(servers), way)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("no worker is left; waiting for rank") == 1, ended.stderr
    assert "started again" in ended.stderr.split("no worker is left; waiting for ")[1]
    for rank in range(world):
        lines = told(folder, rank, int(rank >= servers))
        assert [line[2] for line in lines] == ([1, 2, 3] if rank < servers else [2, 3])
        value, updates, _, steps, first_ranks, lost = lines[-1]
        assert updates == 90 and first_ranks == list(range(world)) and not lost, lines
        assert value == (-180 if kind == "local" else -90), lines
        assert steps == (90 if rank >= servers else 0), lines


@pytest.mark.parametrize("way, servers", [("dies", 2), ("leaves", 1)])
def test_where_none_is_started_again_the_run_ends(folder: Path, way: str, servers: int) -> None:
    ended = run(folder, servers + 1, 1, "server", "0", str(servers), way)
    assert ended.returncode == 1, ended.stderr
    last = f"RedpollError: no worker is left: rank {servers}, a worker, is gone"
    assert ended.stderr.count(last) == servers, ended.stderr


# Rank 1 is killed behind the end of the run, which rank 0 sees.
BEHIND = (
    WITHOUT_COMPILER
    + """
import os, signal, time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

import redpoll.torch
from redpoll.torch.comm._launcher import fates

assert "REDPOLL_GENERATION" not in os.environ
dist.init_process_group("redpoll", timeout=timedelta(seconds=60))
rank, model = dist.get_rank(), nn.Linear(3, 2)
inner = torch.optim.SGD(model.parameters(), lr=0.1)
opt = redpoll.torch.ParameterServer(inner, model, servers=1, on_loss="continue")
for _ in opt.span(3):
    model(torch.ones(1, 3)).sum().backward()
    opt.step()


def wait_until(there):
    end = time.monotonic() + 60
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)


if rank == 1:
    wait_until(lambda: os.path.exists("over"))
    os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
open("over", "w").close()
wait_until(lambda: fates([1]))
print("rank 1:", fates([1])[1], flush=True)
"""
)


def test_one_that_is_killed_behind_the_end_is_not_started_again(folder: Path) -> None:
    (folder / "train.py").write_text(BEHIND)
    ended = run(folder, 2, 3)
    assert ended.returncode == 0, ended.stderr
    assert "rank 1: away" in ended.stdout, ended.stdout
    assert "started again" not in ended.stderr, ended.stderr


# ---- how long they wait ----


class Servers:
    """Of an optimizer what a wait needs: two servers, and two workers that are lost."""

    rank, world, who = 0, 4, "Servers"

    class options:
        servers = 2

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.lost = {3: "rank 3 is gone", 2: "rank 2 is gone"}
        self.communicator = self

    def sum_once(self, vector: torch.Tensor) -> torch.Tensor:
        return vector

    def error(self, code: int, message: str, _who: str) -> RedpollError:
        return RedpollError(code, message)


@pytest.mark.parametrize(
    "said, timeout_s, fate_s, status, text",
    [
        ({2: "away", 3: "away"}, 60, 60, "PEER", "no worker is left: rank 2 is gone"),
        ({3: "away"}, 60, 0.5, "PEER", "no worker is left: rank 2 is gone"),
        ({}, 60, 0.5, "PEER", "no worker is left: rank 2 is gone"),
        (
            {2: "away", 3: "again"},
            0.5,
            0.1,
            "TIMEOUT",
            "timed out: no worker is left (rank 2 is gone), and none that was started again "
            "has asked for its place in 0.5 s (the group's timeout)",
        ),
    ],
)
def test_a_wait_ends(
    monkeypatch: Any,
    said: dict[int, str],
    timeout_s: float,
    fate_s: float,
    status: str,
    text: str,
) -> None:
    monkeypatch.setattr(waits, "fates", lambda _ranks: said)
    monkeypatch.setattr(waits, "_FATE_S", fate_s)
    opt, requests = Servers(timeout_s), ReturnRequests(dist.HashStore(), 1)
    with pytest.raises(RedpollError) as failed:
        WorkerWait(opt).until_one_asks(opt, requests)
    assert (failed.value.status, failed.value.message) == (status, text)


def test_one_that_asks_is_heard(monkeypatch: Any) -> None:
    opt, requests = Servers(60), ReturnRequests(dist.HashStore(), 1)
    asked = []

    def fates(ranks: range) -> dict[int, str]:
        asked.append(list(ranks))
        if len(asked) == 3:
            requests.ask(3)
        return {3: "again"}

    monkeypatch.setattr(waits, "fates", fates)
    WorkerWait(opt).until_one_asks(opt, requests)
    assert asked[:3] == [[2, 3]] * 3


def test_without_a_store_nobody_is_waited_for(monkeypatch: Any) -> None:
    monkeypatch.setattr(waits, "fates", lambda _ranks: {2: "again"})
    opt, requests = Servers(60), ReturnRequests(dist.HashStore(), 1)
    requests.is_off = True
    with pytest.raises(RedpollError, match="no worker is left"):
        WorkerWait(opt).until_one_asks(opt, requests)


def test_what_is_no_launcher_says_nothing(monkeypatch: Any) -> None:
    from redpoll.torch.comm import _launcher

    for place in ("", "nonsense", "127.0.0.1:", "127.0.0.1:1"):
        monkeypatch.setenv("REDPOLL_STORE", place)
        assert _launcher.fates([0, 1]) == {}
        _launcher.say_over()
