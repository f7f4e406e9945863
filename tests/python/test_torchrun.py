"""torchrun --nnodes 1:2: a node is lost and another one comes, and what error feedback holds
back goes on. Agents that start and wait for each other take a minute: REDPOLL_LONG_TESTS=1."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ranks import WITHOUT_COMPILER, free_port
from test_launching import TORCHRUN, clean_environment

DEADLINE_S = 1800
LONG = os.environ.get("REDPOLL_LONG_TESTS", "") not in ("", "0")

# Agents that share a store with their workers say where it is in the round in which they make
# it, and not in later ones: a node that comes to such a round asks in vain, for 60 s.
STORE_EACH_ROUND = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

SCRIPT = (
    WITHOUT_COMPILER
    + """
import json, os, sys, torch, torch.distributed as dist, redpoll.torch
from datetime import timedelta
from torch.nn.parallel import DistributedDataParallel

folder = sys.argv[1]
dist.init_process_group("redpoll", timeout=timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(128, 128))
state = redpoll.torch.compress(model, codec="q4")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def held_back():
    "Of all ranks, element by element: what a change of their number may not change."
    found = state.state_dict()["residuals"].items()
    total = torch.cat([torch.zeros(1), *(each.flatten() for _, each in sorted(found))])
    dist.all_reduce(total)
    return total

first, told = 0, {"world": world, "first": 0}
if os.path.exists(f"{folder}/model.pt"):
    saved = torch.load(f"{folder}/model.pt", weights_only=True)
    model.module.load_state_dict(saved["model"])
    first = saved["step"]
    state.load(f"{folder}/feedback-{first}")
    now, then = held_back(), saved["held"]
    told = {"world": world, "first": first, "held": then.norm().item()}
    told["differs"] = (now - then).norm().item()
def tell(what):
    if rank == 0:
        with open(f"{folder}/told", "a") as file:
            print(json.dumps({"what": what, **told}), file=file)

tell("begun")
for step in range(first, 100000):
    inputs = torch.randn(8, 128, generator=torch.Generator().manual_seed(100 * step + rank))
    optimizer.zero_grad()
    (model(inputs) - inputs.flip(1)).square().mean().backward()
    optimizer.step()
    if step % 4 == 3:
        state.save(f"{folder}/feedback-{step + 1}")
        held, over = held_back(), torch.tensor([float(os.path.exists(f"{folder}/stop"))])
        dist.broadcast(over, 0)
        if rank == 0:
            kept = {"model": model.module.state_dict(), "step": step + 1, "held": held}
            torch.save(kept, f"{folder}/new")
            os.replace(f"{folder}/new", f"{folder}/model.pt")
        dist.barrier()
        if step == first + 3 - first % 4:
            tell("saved")
        if over.item():
            break
dist.destroy_process_group()
"""
)


def start_agent(port: int, script: Path, folder: Path, number: int) -> subprocess.Popen:
    """A node of the job. The first one has the store at which they meet."""
    # The others go on when one has been silent for a minute: a busy one is not lost.
    settings = "last_call_timeout=1,keep_alive_interval=5,keep_alive_max_attempt=12"
    settings += f",join_timeout={DEADLINE_S},is_host={'false' if number else 'true'}"
    command = [*TORCHRUN, "--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "20"]
    command += ["--rdzv-backend", "c10d", "--rdzv-id", "job", "--rdzv-conf", settings]
    command += ["--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]
    command += ["--monitor-interval", "0.2", str(script), str(folder)]
    with open(folder / f"agent-{number}", "w") as log:
        environment = clean_environment(**STORE_EACH_ROUND)
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def told(folder: Path) -> list[dict]:
    """What rank 0 has said of each start of the workers, and of the first save after it."""
    path = folder / "told"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(what: str, holds: Callable[[], bool], folder: Path, deadline: float) -> None:
    while not holds():
        if time.monotonic() > deadline:
            logs = [path.read_text()[-3000:] for path in sorted(folder.glob("agent-*"))]
            pytest.fail(f"{what}: not in time; {told(folder)}\n" + "\n".join(logs))
        time.sleep(0.1)


def kill(node: subprocess.Popen) -> None:
    """The agent and its worker, which is a session of its own in some releases."""
    for pid in (node.pid, *below(node.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    node.wait()


def below(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [each for child in map(int, children) for each in (child, *below(child))]


@pytest.mark.skipif(not LONG, reason="a minute of torchrun's agents: REDPOLL_LONG_TESTS=1")
def test_a_job_shrinks_and_grows(tmp_path: Path) -> None:
    script, deadline = tmp_path / "train.py", time.monotonic() + DEADLINE_S
    script.write_text(SCRIPT)
    port = free_port()

    def saved(world: int, after: int = 0) -> Callable[[], bool]:
        """Has a world of so many ranks saved, since so many lines?"""
        return lambda: (
            ("saved", world)
            in [(line["what"], line["world"]) for line in told(tmp_path)[after:]]
        )

    agents = [start_agent(port, script, tmp_path, 0)]
    try:
        agents.append(start_agent(port, script, tmp_path, 1))
        wait_for("two nodes", saved(2), tmp_path, deadline)
        before = len(told(tmp_path))
        kill(agents.pop())
        wait_for("one node", saved(1, before), tmp_path, deadline)
        alone = len(told(tmp_path))
        agents.append(start_agent(port, script, tmp_path, 2))
        wait_for("two nodes again", saved(2, alone), tmp_path, deadline)
        (tmp_path / "stop").touch()
        for one in agents:
            assert one.wait(max(deadline - time.monotonic(), 1)) == 0
    finally:
        for one in agents:
            if one.poll() is None:
                kill(one)
    begun = [line for line in told(tmp_path)[before:] if line["what"] == "begun"]
    assert begun[0]["world"] == 1 and begun[0]["held"] > 0, begun
    for line in begun:  # a world of one has nobody to hold back from, and pays it all out
        assert line["first"] > 0 and line["differs"] <= 1e-5 * line["held"], begun
