"""Small worlds under the launchers: mpirun of Open MPI, MPICH and Intel MPI, and srun.

Looked for on PATH and beside this Python; one that is not installed is skipped by its name."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from test_launching import (
    DEADLINE,
    REPORT,
    assert_reported,
    clean_environment,
    redpoll_command,
)

LAUNCHERS = ("Open MPI", "MPICH", "Intel MPI", "srun")
FOUND_BY = {"MPICH": "mpirun (PMI)", "Intel MPI": "mpirun (PMI)", "srun": "srun"}
FOUND_BY["Open MPI"] = "mpirun"
BENCH = ["bench", "all-reduce", "--sizes", "1KiB", "--connect-timeout", "30s"]


def start(words: list[str]) -> subprocess.Popen[str]:
    """Its stderr goes where its stdout goes. The user may be root, as it is in containers."""
    environment = clean_environment(
        OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"
    )
    if "SLURM_CONF" in os.environ:
        environment["SLURM_CONF"] = os.environ["SLURM_CONF"]
    return subprocess.Popen(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen[str], deadline: float = DEADLINE) -> tuple[int, str]:
    """Its exit code and what it printed; one that is late is told to end its ranks."""
    try:
        text = process.communicate(timeout=deadline)[0]
    except subprocess.TimeoutExpired:
        process.terminate()
        raise
    return process.returncode, text


# ---- which launchers are there ----


def product(program: str) -> str:
    """Whose mpirun this is, by what it says of itself; empty when it is none that we know."""
    text = end(start([program, "--version"]))[1]
    marks = {"Open MPI": "Open MPI", "Intel(R) MPI": "Intel MPI", "HYDRA": "MPICH"}
    return next((kind for mark, kind in marks.items() if mark in text), "")


@functools.cache
def found_launchers() -> dict[str, list[str]]:
    """The first of each kind, with what lets it start more ranks than there are cores."""
    found: dict[str, list[str]] = {}
    folders = [str(Path(sys.executable).parent), *os.get_exec_path()]
    for name in ("mpirun", "mpirun.openmpi", "mpirun.mpich"):
        for folder in folders:
            program = shutil.which(name, path=folder)
            kind = product(program) if program else ""
            if program and kind:
                words = ["--oversubscribe"] if kind == "Open MPI" else []
                found.setdefault(kind, [program, *words])
    srun = shutil.which("srun")
    if srun and starts_something(srun):
        found["srun"] = [srun, "--overcommit"]
    return found


def starts_something(srun: str) -> bool:
    """Is there a cluster behind srun, and has it room for us now?"""
    try:
        return end(start([srun, "--immediate=10", "-n", "1", "true"]), 60)[0] == 0
    except subprocess.TimeoutExpired:
        return False


@pytest.fixture(params=LAUNCHERS)
def launcher(request: pytest.FixtureRequest) -> str:
    if request.param not in found_launchers():
        cluster = ", or no cluster answers" if request.param == "srun" else ""
        pytest.skip(f"{request.param} is not installed{cluster}")
    return request.param


def command(launcher: str, ranks: int, *program: str) -> list[str]:
    return [*found_launchers()[launcher], "-n", str(ranks), *program]


# ---- worlds ----


@pytest.mark.parametrize("world", [1, 2, 3])
def test_command(launcher: str, world: int) -> None:
    code, text = end(start(command(launcher, world, redpoll_command(), *BENCH)))
    assert code == 0, text
    for rank in range(world):
        line = f"rank {rank} of {world}, found by {FOUND_BY[launcher]}\n"
        assert text.count(line) == 1, text
    assert f"on {world} rank" in text
    said = [line for line in text.splitlines() if "redpoll:" in line]
    assert not said, text  # all of it is on this host's loopback, which nobody else reaches


def test_script(launcher: str, tmp_path: Path) -> None:
    script = tmp_path / "report.py"
    script.write_text(REPORT)
    code, text = end(start(command(launcher, 2, sys.executable, str(script))))
    assert code == 0, text
    assert_reported(text, FOUND_BY[launcher])


def test_ranks_below_a_shell_script(launcher: str, tmp_path: Path) -> None:
    script = tmp_path / "rank.sh"
    script.write_text('#!/bin/sh\n"$@"\nexit $?\n')
    script.chmod(0o755)
    code, text = end(start(command(launcher, 2, str(script), redpoll_command(), *BENCH)))
    assert code == 0, text
    assert "on 2 ranks" in text


def test_two_jobs_at_a_time(launcher: str) -> None:
    words = command(launcher, 2, redpoll_command(), *BENCH, "--iters", "200")
    jobs = [end(job) for job in [start(words), start(words)]]
    assert [code for code, _ in jobs] == [0, 0], jobs
    assert all("on 2 ranks" in text for _, text in jobs), jobs


DEATH = """
import os, signal, redpoll.torch, torch, torch.distributed as dist
redpoll.torch.init()
total = torch.ones(1000)
dist.all_reduce(total)
if dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    dist.all_reduce(total)
"""


def test_a_killed_rank_ends_the_job(launcher: str, tmp_path: Path) -> None:
    """Some launchers end the survivors before these can say anything."""
    script = tmp_path / "death.py"
    script.write_text(DEATH)
    code, text = end(start(command(launcher, 3, sys.executable, str(script))))
    assert code != 0
    words = ("rank 1", "task 1", f"signal {signal.SIGKILL:d}")
    assert any(word in text for word in words), text
