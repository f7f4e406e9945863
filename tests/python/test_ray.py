"""Ray Train over Redpoll, where Ray is installed: the backend by its name alone, with nothing
imported for it in the worker. REDPOLL_LONG_TESTS=1 starts a cluster of one host, a minute or
more, in which a worker is killed: the run goes on with what error feedback held back, to the
bits of the undisturbed one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ranks import run_script

STEPS, SAVED, DIES = 8, 4, 6
LONG = os.environ.get("REDPOLL_LONG_TESTS", "") not in ("", "0")

# Of both scripts. What train() hands to save() is a folder of this rank's own.
TRAINING = """
import os, pathlib, signal, tempfile
import torch, torch.distributed as dist
from torch import nn
STEPS, SAVED, DIES = {steps}, {saved}, {dies}

def begun(wrapped, backend):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    model = wrapped(net, backend)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

def step(model, optimizer, generator):
    x = torch.randn(8, 16, generator=generator)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), x[:, :4].argmax(1)).backward()
    optimizer.step()

def data():
    return torch.Generator().manual_seed(100 + dist.get_rank())

def flat(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()])

def exact_is_gloo(wrapped):
    both = []
    for backend in ("gloo", "redpoll"):
        model, optimizer = begun(wrapped, backend)
        generator = data()
        for _ in range(3):
            step(model, optimizer, generator)
        both.append(flat(model))
    return torch.equal(*both)

def train(wrapped, load=None, save=lambda folder: None, dies=False):
    import redpoll.torch
    model, optimizer = begun(wrapped, "redpoll")
    state = redpoll.torch.compress(model, codec="q4", min_size=100)
    first, generator = 0, data()
    if load is not None:
        kept = torch.load(load / "model.pt")
        model.module.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first = kept["step"]
        state.load(load / "redpoll")
        generator.set_state(torch.load(load / f"data-{{dist.get_rank()}}.pt"))
    for number in range(first, STEPS):
        step(model, optimizer, generator)
        if number + 1 == SAVED:
            folder = pathlib.Path(tempfile.mkdtemp())
            state.save(folder / "redpoll")
            torch.save(generator.get_state(), folder / f"data-{{dist.get_rank()}}.pt")
            if dist.get_rank() == 0:
                kept = dict(model=model.module.state_dict(), step=SAVED)
                torch.save(dict(kept, optimizer=optimizer.state_dict()), folder / "model.pt")
            save(folder)
        if number + 1 == DIES and dies and first == 0 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    ends.append(flat(model))
    return ends[-1].double().sum().item().hex()

ends = []

def plain(net, backend):
    group = dist.new_group(backend=backend)
    return nn.parallel.DistributedDataParallel(net, process_group=group)
"""

BY_HAND = """
import shutil
from ray.train.torch.config import _setup_torch_process_group
place = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
_setup_torch_process_group("redpoll", *place, "env://")
print("group", dist.get_backend(), type(dist.group.WORLD).__name__)
assert exact_is_gloo(plain), "exact is not gloo"

def save(folder): # as Ray does: what each worker reports, in one folder
    shutil.copytree(folder, os.environ["STORED"], dirs_exist_ok=True)
    dist.barrier()

weights = train(plain, save=save)
lossy = ends[-1]
resumed = train(plain, load=pathlib.Path(os.environ["STORED"]))
print("resumed", resumed == weights)
model, optimizer = begun(plain, "gloo")
generator = data()
for _ in range(STEPS):
    step(model, optimizer, generator)
print("off by", ((lossy - flat(model)).norm() / flat(model).norm()).item())
print("weights", weights)
"""

BY_RAY = """
import ray, ray.train
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model

def worker(settings):
    torch.set_num_threads(1)
    def wrapped(net, backend):
        if backend == "redpoll":
            return prepare_model(net)
        return plain(net, backend)
    told = dict(backend=dist.get_backend(), group=type(dist.group.WORLD).__name__)
    found = ray.train.get_checkpoint()
    told["resumed"] = found is not None
    if not told["resumed"]:
        assert exact_is_gloo(wrapped), "exact is not gloo"
    def save(folder):
        ray.train.report(told, checkpoint=Checkpoint.from_directory(folder))
    load = None if found is None else pathlib.Path(found.to_directory())
    told["weights"] = train(wrapped, load, save, dies=True)
    if dist.get_rank() == 0: # metrics of a report without a checkpoint are not handed on
        pathlib.Path(os.environ["STORED"], "weights").write_text(told["weights"])

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=True)
trainer = TorchTrainer(
    worker, train_loop_config={{}}, torch_config=TorchConfig(backend="redpoll"),
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path=os.environ["STORED"], name="run",
                         failure_config=FailureConfig(max_failures=1)))
told = trainer.fit().metrics
print("told", told["backend"], told["group"])
print("weights", pathlib.Path(os.environ["STORED"], "weights").read_text())
"""

# Its own deadlines are seconds, for machines that nobody else uses.
PATIENCE = {
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "600",
    "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "600",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_raylet_start_wait_time_s": "600",
    "RAY_health_check_failure_threshold": "100",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}


def weights_in(text: str) -> str:
    (found,) = {line for line in text.splitlines() if line.startswith("weights ")}
    return found


def value_of(name: str, text: str) -> float:
    (line,) = [line for line in text.splitlines() if line.startswith(name)]
    return float(line[len(name) :])


@pytest.fixture(scope="module")
def by_hand(installed: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """What rank 0 says of the training in a group that Ray's own function has made, without a
    cluster of Ray's."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed (pip install 'ray[train]'; tried with 2.60.0)")
    stored = {"STORED": str(tmp_path_factory.mktemp("by-hand"))}
    text = TRAINING.format(steps=STEPS, saved=SAVED, dies=DIES) + BY_HAND
    done = run_script(text, 2, at_import=installed, environment=stored, timeout=600)
    assert all(one.returncode == 0 for one in done), [one.stderr for one in done]
    return done[0].stdout


def test_rays_group_trains_and_goes_on(by_hand: str):
    assert "group redpoll RedpollGroup" in by_hand
    assert "resumed True" in by_hand
    assert 0 < value_of("off by", by_hand) < 0.05


@pytest.mark.skipif(not LONG, reason="starts a cluster of Ray's: REDPOLL_LONG_TESTS=1")
def test_a_worker_is_killed_and_the_run_goes_on(
    by_hand: str, installed: dict[str, str], tmp_path: Path
):
    script = tmp_path / "by_ray.py"
    training = TRAINING.format(steps=STEPS, saved=SAVED, dies=DIES)
    script.write_text(training + BY_RAY.format())
    (tmp_path / "stored").mkdir()
    environment = {**os.environ, **PATIENCE, **installed, "STORED": str(tmp_path / "stored")}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=1800
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    assert "told redpoll RedpollGroup" in done.stdout
    assert weights_in(done.stdout) == weights_in(by_hand)
    assert "rank 1" in said and "connection closed by peer" in said, said[-6000:]
