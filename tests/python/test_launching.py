"""One script under every launcher: torchrun, `redpoll run`, mpirun, srun, and by hand."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import redpoll.torch
from ranks import WITHOUT_COMPILER, free_port, run_ranks, run_script, values
from redpoll.torch.launch import Place, find_place

DEADLINE = 120
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
LAUNCHER_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "MASTER_",
    "OMPI_",
    "PMI",
    "MPI_",
    "SLURM_",
)

REPORT = """
import torch, torch.distributed as dist, redpoll.torch
place = redpoll.torch.init()
total = torch.ones(2) * (dist.get_rank() + 1)
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} by {place.found_by}: {total[0]:.0f}")
dist.destroy_process_group()
"""


def clean_environment(**variables: str) -> dict[str, str]:
    """This process's environment without what any launcher left in it."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith((*LAUNCHER_VARIABLES, "TORCHELASTIC", "REDPOLL_STORE"))
    }
    return {**own, "OMP_NUM_THREADS": "1", **variables}


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        command,
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


def report(rank: int, world: int, environments: list[dict[str, str]]) -> str:
    """REPORT in this environment; what it printed."""
    os.environ.clear()
    os.environ.update(clean_environment(**environments[rank]))
    with contextlib.redirect_stdout(io.StringIO()) as text:
        exec(compile(REPORT, "report.py", "exec"), {"__name__": "__main__"})
    return text.getvalue()


def run_each(environments: list[dict[str, str]]) -> str:
    """REPORT in one process for each environment; what all of them printed."""
    return "".join(values(run_ranks(report, len(environments), environments)))


def redpoll_command() -> str:
    beside = Path(os.environ.get("REDPOLL_BUILD", "/nowhere")) / "src" / "cli" / "redpoll"
    found = str(beside) if beside.exists() else shutil.which("redpoll")
    if not found:
        pytest.skip("the command redpoll was not built")
    return found


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "report.py"
    path.write_text(REPORT)
    return path


def assert_reported(text: str, launcher: str, world: int = 2) -> None:
    total = world * (world + 1) // 2
    for rank in range(world):
        assert f"rank {rank} of {world} by {launcher}: {total}" in text, text


# ---- torchrun ----


def test_torchrun(script: Path) -> None:
    ended = run([*TORCHRUN, "--standalone", "--nproc-per-node", "2", str(script)])
    assert ended.returncode == 0, ended.stderr
    assert_reported(ended.stdout, "torchrun")


ELASTIC = (
    WITHOUT_COMPILER
    + """
import json, os, signal, sys, torch, torch.distributed as dist, redpoll.torch
from torch.nn.parallel import DistributedDataParallel

folder, steps = sys.argv[1], 8
restart = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("redpoll")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(128, 128))
state = redpoll.torch.compress(model, codec="q4")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first = 0
if restart:
    saved = torch.load(f"{folder}/model.pt", weights_only=True)
    model.load_state_dict(saved["model"])
    state.load(f"{folder}/feedback-{saved['step']}")
    first = saved["step"]
for step in range(first, steps):
    if len(sys.argv) > 2 and step == 5 and not restart and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    generator = torch.Generator().manual_seed(100 * step + rank)
    inputs = torch.randn(8, 128, generator=generator)
    loss = (model(inputs) - inputs.flip(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2:
        state.save(f"{folder}/feedback-{step + 1}")
        dist.barrier()
        if rank == 0:
            torch.save({"model": model.state_dict(), "step": step + 1}, f"{folder}/new.pt")
            os.replace(f"{folder}/new.pt", f"{folder}/model.pt")
        dist.barrier()
if rank == 0:
    digest = [p.double().sum().item() for p in model.parameters()]
    print(json.dumps({"first": first, "restart": restart, "digest": digest}))
dist.destroy_process_group()
"""
)


def test_torchrun_restarts_and_resumes(tmp_path: Path) -> None:
    """A rank dies once; the second world resumes, error feedback included, to the same bits."""
    script = tmp_path / "elastic.py"
    script.write_text(ELASTIC)
    for name in ("whole", "resumed"):
        (tmp_path / name).mkdir()
    one_life = {"TORCHELASTIC_RESTART_COUNT": "0"}
    ended = run_script(ELASTIC, 2, environment=one_life, arguments=[str(tmp_path / "whole")])
    assert ended[0].returncode == 0, ended[0].stderr
    whole = json.loads(ended[0].stdout)
    command = [*TORCHRUN, "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    command += ["--monitor-interval", "0.2", str(script), str(tmp_path / "resumed"), "die"]
    restarted = run(command)
    assert restarted.returncode == 0, restarted.stderr
    resumed = json.loads(restarted.stdout.splitlines()[-1])
    assert (whole["restart"], whole["first"]) == (0, 0)
    assert (resumed["restart"], resumed["first"]) == (1, 4)
    assert resumed["digest"] == whole["digest"]


# ---- redpoll run ----


def test_redpoll_run(script: Path) -> None:
    ended = run([redpoll_command(), "run", "-n", "3", sys.executable, str(script)])
    assert ended.returncode == 0, ended.stderr
    assert_reported(ended.stdout, "redpoll run", world=3)


def test_redpoll_run_names_the_rank_that_died(tmp_path: Path) -> None:
    path = tmp_path / "die.py"
    path.write_text(
        REPORT.replace(
            "dist.all_reduce(total)",
            "dist.all_reduce(total)\nimport os\n"
            "if dist.get_rank() == 1: os.kill(os.getpid(), 9)\ndist.all_reduce(total)",
        )
    )
    ended = run([redpoll_command(), "run", "-n", "2", sys.executable, str(path)])
    assert ended.returncode == 128 + signal.SIGKILL
    assert "rank 1 was killed by signal 9" in ended.stderr
    assert "RedpollError" in ended.stderr


ENDLESS = REPORT.replace(
    "dist.all_reduce(total)",
    'print("ready", flush=True)\nwhile True: dist.all_reduce(total)',
)


@pytest.mark.parametrize("launcher", ["torchrun", "redpoll run"])
def test_interrupt_ends_all_ranks(launcher: str, tmp_path: Path) -> None:
    path = tmp_path / "endless.py"
    path.write_text(ENDLESS)
    command = [*TORCHRUN, "--standalone", "--nproc-per-node", "2", str(path)]
    if launcher == "redpoll run":
        command = [redpoll_command(), "run", "-n", "2", sys.executable, str(path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    process = subprocess.Popen(
        command, env=clean_environment(), start_new_session=True, **pipes
    )
    try:
        while "ready" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)  # its pipe closes when the last rank has ended
        assert process.returncode != 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


# ---- the variables of mpirun and srun (test_mpirun.py: the programs themselves) ----


def open_mpi(rank: int) -> dict[str, str]:
    place = {"RANK": rank, "SIZE": 2, "LOCAL_RANK": rank, "LOCAL_SIZE": 2}
    return {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in place.items()}


def pmi(rank: int) -> dict[str, str]:
    place = {"PMI_RANK": rank, "PMI_SIZE": 2, "MPI_LOCALRANKID": rank, "MPI_LOCALNRANKS": 2}
    return {name: str(value) for name, value in place.items()}


def pmi_of_srun(rank: int) -> dict[str, str]:
    return {**slurm(rank), "PMI_RANK": str(rank), "PMI_SIZE": "2"}


def slurm(rank: int) -> dict[str, str]:
    place = {"PROCID": rank, "NTASKS": 2, "LOCALID": rank, "NODEID": 0, "STEP_ID": 3}
    place.update(JOB_ID=os.getpid(), STEP_TASKS_PER_NODE="2", STEP_NODELIST="here")
    return {f"SLURM_{name}": str(value) for name, value in place.items()}


def by_hand(rank: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}


@pytest.mark.parametrize(
    "launcher, variables, needs_port",
    [
        ("mpirun", open_mpi, False),
        ("mpirun (PMI)", pmi, False),
        ("srun", slurm, False),
        ("srun", pmi_of_srun, False),
        ("RANK and WORLD_SIZE", by_hand, True),
    ],
)
def test_variables_of_a_launcher(launcher, variables, needs_port) -> None:
    extra = {"MASTER_PORT": str(free_port())} if needs_port else {}
    printed = run_each([{**variables(rank), **extra} for rank in range(2)])
    assert_reported(printed, launcher)


def test_a_port_that_another_program_has_is_named() -> None:
    job = {**slurm(0), "SLURM_JOB_ID": str(os.getpid() + 1)}  # no other test's
    with socket.create_server(("127.0.0.1", find_place(job).port)):
        told = run_ranks(report, 1, [job])[0].error
    assert told and "rank 0 cannot serve the store" in told
    assert "MASTER_PORT sets another" in told


@pytest.mark.parametrize("program", ["command", "script"])
def test_ranks_below_a_script_of_their_own(program: str, script: Path) -> None:
    """Hydra gives its job no name, and here the ranks of one job have different parents."""
    words = [sys.executable, str(script)]
    if program == "command":
        words = [redpoll_command(), "bench", "all-reduce", "--sizes", "1KiB", "--iters", "1"]
    ranks = []
    for rank in range(2):
        environment = clean_environment(**pmi(rank), PMI_FD=str(5 + rank))
        shell = ["sh", "-c", '"$@"; exit $?', "sh", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        ranks.append(subprocess.Popen(shell, env=environment, **pipes))
    printed = [rank.communicate(timeout=DEADLINE)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], printed
    wanted = "rank {} of 2" + (" by" if program == "script" else ", found by")
    for rank, text in enumerate(printed):
        assert f"{wanted.format(rank)} mpirun (PMI)" in text


def test_no_launcher_is_a_world_of_one() -> None:
    assert_reported(run_each([{}]), "no launcher: a world of one", world=1)


def tell_variables(rank: int, world: int) -> dict[str, str | None]:
    for name in [*ALL_VARIABLES, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"]:
        os.environ.pop(name, None)
    if rank == 1:
        os.environ.update(OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="1")
    redpoll.torch.init()
    dist.destroy_process_group()
    told = {name: os.environ.get(name) for name in ALL_VARIABLES}
    redpoll.torch.init()  # by what the first one has set
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == 1
    dist.destroy_process_group()
    return told


ALL_VARIABLES = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT".split()


def test_a_world_of_one_has_torchruns_variables() -> None:
    """Without a launcher (rank 0 here), and under `mpirun -n 1`."""
    for told in values(run_ranks(tell_variables, 2)):
        port = told.pop("MASTER_PORT")
        assert port is not None and 1024 <= int(port) <= 65535
        assert list(told.values()) == ["0", "1", "0", "1", "127.0.0.1"]


# ---- the rules, without processes ----

TWO_HOSTS = {**slurm(1), "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_LOCALID": "0"}
TWO_HOSTS.update(SLURM_NODEID="1", SLURM_STEP_NODELIST="node[03-05,9],x")
MPIRUN_TWO_HOSTS = {**open_mpi(1), "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_NAMESPACE": "j"}
MPIRUN_TWO_HOSTS.update(OMPI_COMM_WORLD_LOCAL_RANK="0", SLURM_JOB_NODELIST="n[1-2]")
MPIRUN_TWO_HOSTS.update(SLURM_STEP_NODELIST="n2")  # mpirun's step of the other hosts
TORCHRUN_VARIABLES = {**by_hand(1), "MASTER_PORT": "5", "TORCHELASTIC_RUN_ID": "a"}


@pytest.mark.parametrize(
    "variables, wanted",
    [
        ({}, {"found_by": "no launcher: a world of one", "world": 1, "port": 0}),
        (TORCHRUN_VARIABLES, {"found_by": "torchrun", "rank": 1, "world": 2, "port": 5}),
        ({**open_mpi(1), **TORCHRUN_VARIABLES}, {"found_by": "torchrun"}),
        (open_mpi(1), {"found_by": "mpirun", "rank": 1, "host": "127.0.0.1", "one_host": True}),
        ({**open_mpi(1), "MASTER_PORT": "77"}, {"port": 77, "job": ""}),
        (
            {**open_mpi(1), "REDPOLL_PORT": "tcp://10.0.0.1:80", "MASTER_PORT": "77"},
            {"port": 77, "job": ""},
        ),
        ({**open_mpi(1), "MASTER_ADDR": "[fd00::1]", "MASTER_PORT": "7"}, {"host": "fd00::1"}),
        ({**open_mpi(0), "PMIX_NAMESPACE": "j"}, {"job": "mpirun j"}),
        (
            TWO_HOSTS,
            {"found_by": "srun", "host": "node03", "local_world": 1, "one_host": False},
        ),
        (MPIRUN_TWO_HOSTS, {"found_by": "mpirun", "host": "n1", "job": "mpirun j"}),
        ({**slurm(0), "SLURM_STEP_ID": "4294967294"}, {"world": 1}),  # a batch script
        (pmi_of_srun(1), {"found_by": "srun", "one_host": True, "host": "127.0.0.1"}),
        (
            {**slurm(1), **pmi(1)},
            {"found_by": "mpirun (PMI)", "job": "mpirun (PMI), process 1"},
        ),
        ({"RANK": "0", "WORLD_SIZE": "1"}, {"world": 1, "port": 0}),
    ],
)
def test_find_place(variables: dict[str, str], wanted: dict) -> None:
    place = find_place(variables, launcher=1)
    assert isinstance(place, Place)
    assert {name: getattr(place, name) for name in wanted} == wanted


def test_ranks_out_of_sight_of_their_launcher_need_a_port() -> None:
    with pytest.raises(ValueError, match="set MASTER_PORT"):
        find_place(pmi(0), launcher=0)


def test_ports_of_jobs_differ() -> None:
    ports = {find_place(open_mpi(0), launcher=one).port for one in range(1, 101)}
    assert len(ports) > 90 and all(20000 <= port < 32000 for port in ports)
    assert find_place(open_mpi(0), 7) == find_place({**open_mpi(0), "HOME": "/"}, 7)


@pytest.mark.parametrize(
    "variables, named",
    [
        ({"RANK": "0"}, "WORLD_SIZE"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "ranks are 0 to 1"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK is 'x'"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "at least 1"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR"),
        (by_hand(0), "MASTER_PORT"),
        ({**by_hand(0), "MASTER_PORT": "70000"}, "1 to 65535"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE"),
        ({**open_mpi(0), "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "set MASTER_ADDR"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "set MASTER_ADDR"),
        ({"PMIX_RANK": "0"}, "PMIX_RANK"),
    ],
)
def test_half_set_variables_are_named(variables: dict[str, str], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        find_place(variables, launcher=1)
