"""Rank 0 serves the store in which ranks met; when it is stopped, the others are told at the
timeout of the group, and end soon after, however many groups they have to leave.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from ranks import free_port

WORLD = 3
# What leaving may take after the error: far above what it does, far below the 30 s and more for
# which an answer of rank 0 might be waited for.
LEAVING_S = 15.0

SCRIPT = """
import os, signal, sys
from datetime import timedelta
import torch, torch.distributed as dist, redpoll.torch

dist.init_process_group("redpoll", timeout=timedelta(seconds=4))
groups = [dist.new_group() for _ in range(6)]
for group in groups:
    dist.all_reduce(torch.ones(4), group=group)
if dist.get_rank() == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    while True:
        dist.all_reduce(torch.ones(4))
except Exception as error:
    print("told:", error, flush=True)
{end}
"""


def start(text: str) -> list[subprocess.Popen[str]]:
    shared = {
        "WORLD_SIZE": str(WORLD),
        "LOCAL_WORLD_SIZE": str(WORLD),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    return [
        subprocess.Popen(
            [sys.executable, "-c", text],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in range(WORLD)
    ]


def hear(process: subprocess.Popen[str]) -> str:
    """What a rank says up to its error, and after that until its end, within LEAVING_S."""
    assert process.stdout is not None
    limit = threading.Timer(120, process.kill)
    limit.start()
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("told:"):
            limit.cancel()
            limit = threading.Timer(LEAVING_S, process.kill)
            limit.start()
    process.wait()
    limit.cancel()
    return said


@pytest.mark.parametrize(
    "end",
    ["dist.destroy_process_group()", "sys.exit(1)"],
    ids=["destroy", "exit"],
)
def test_survivors_of_a_stopped_rank_0_leave(end: str) -> None:
    ranks = start(SCRIPT.format(end=end))
    try:
        for process in ranks[1:]:
            said = hear(process)
            assert "told:" in said and "rank 0" in said, said
            assert process.returncode != -signal.SIGKILL, f"it did not end:\n{said}"
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
