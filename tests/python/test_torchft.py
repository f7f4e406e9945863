"""torchft over Redpoll: its own conformance tests, and replicas of which one is killed."""

from __future__ import annotations

import os
import re
import signal
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

torchft = pytest.importorskip(
    "torchft", reason="torchft is not installed", exc_type=ImportError
)
theirs = pytest.importorskip(
    "torchft.process_group_test", reason="what torchft tests with is not installed"
)

from ranks import run_ranks, values  # noqa: E402
from redpoll.torch import Options  # noqa: E402
from redpoll.torch.integrations.torchft import ProcessGroupRedpoll  # noqa: E402


class Conformance(theirs.MultiPgBaseTest):
    """Three groups on three threads."""

    __test__ = False  # made and run below, a case for each collective
    WORLD_SIZE = 3

    @classmethod
    def _create_pg(cls, backend):
        return ProcessGroupRedpoll(timeout=timedelta(seconds=20))

    def assertRaisesRegex(self, expected, pattern, *rest):
        """Gloo's own words begin with a capital."""
        return super().assertRaisesRegex(expected, re.compile(pattern, re.IGNORECASE), *rest)


@pytest.fixture(scope="module")
def conformance():
    Conformance.setUpClass()
    yield Conformance()
    Conformance.tearDownClass()


@pytest.mark.parametrize("collective", theirs._ALL_COLLECTIVES)
def test_collective(conformance, collective):
    conformance._run_parallel(collective)


@pytest.mark.parametrize("collective", theirs._ALL_COLLECTIVES)
def test_collective_with_resiliency(conformance, collective):
    conformance._run_with_resiliency(collective)


def replica(number, _world, lighthouse, folder, dies_at):
    """A training script: its weights in the end, with how many replicas it has stepped."""
    from torchft import DistributedDataParallel, Manager, Optimizer

    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ.update(MASTER_PORT=str(store.port), TORCHFT_LIGHTHOUSE=lighthouse)
    torch.manual_seed(number)
    net = torch.nn.Linear(32, 32)
    inner = torch.optim.SGD(net.parameters(), lr=0.1)

    def load(state):
        net.load_state_dict(state["net"])
        inner.load_state_dict(state["inner"])

    manager = Manager(
        pg=ProcessGroupRedpoll(timeout=timedelta(seconds=20), options=Options(codec="q8")),
        min_replica_size=1,
        load_state_dict=load,
        state_dict=lambda: {"net": net.state_dict(), "inner": inner.state_dict()},
        replica_id=f"replica-{number}",
        timeout=timedelta(seconds=20),
        quorum_timeout=timedelta(seconds=60),
        connect_timeout=timedelta(seconds=60),
    )
    model, optimizer = DistributedDataParallel(manager, net), Optimizer(manager, inner)
    _meet(number, f"{folder}/there")  # the lighthouse waits for whoever it has heard of
    seen = []
    while manager.current_step() < STEPS:
        if number == 1 and manager.current_step() == dies_at and 2 in seen:
            os.kill(os.getpid(), signal.SIGKILL)
        generator = torch.Generator().manual_seed(100 * manager.current_step() + number)
        inputs = torch.randn(8, 32, generator=generator)
        optimizer.zero_grad()
        (model(inputs) - inputs.flip(1)).square().mean().backward()
        optimizer.step()
        seen.append(manager.num_participants())
    manager.shutdown(wait=False)
    return net.weight.tolist(), seen


def _meet(number, path):
    there = dist.FileStore(path, 2)
    there.set(str(number), "")
    there.wait(["0", "1"], timedelta(seconds=60))


STEPS = 12


@pytest.mark.parametrize("dies_at", [None, 6])
def test_replicas(tmp_path, dies_at):
    """Two are equal, bit for bit; where one is killed the other goes on alone."""
    from torchft.coordination import LighthouseServer

    together = {"join_timeout_ms": 20000, "quorum_tick_ms": 50, "heartbeat_timeout_ms": 5000}
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, **together)
    try:
        outcomes = run_ranks(replica, 2, lighthouse.address(), str(tmp_path), dies_at)
    finally:
        lighthouse.shutdown()
    told = values(outcomes if dies_at is None else outcomes[:1])
    seen = told[0][1]
    assert 2 in seen
    if dies_at is None:
        assert told[0][0] == told[1][0]
    else:
        assert outcomes[1].exitcode == -signal.SIGKILL and seen[-1] == 1
