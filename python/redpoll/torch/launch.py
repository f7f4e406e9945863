"""Which world was this process started in? The rules are those of docs/launching.md.

torchrun and `redpoll run` set everything that init_process_group() reads. mpirun and srun
say who a process is, but not where rank 0 is; init() finds that out:

    import redpoll.torch
    redpoll.torch.init()            # instead of dist.init_process_group("redpoll")
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ._untraced import keep_untraced

__all__ = ["Place", "find_place", "init"]

# Ports derived from a job lie below those that the kernel hands out by itself.
_FIRST_PORT, _PORTS = 20000, 12000
# Step ids from here on are not of srun: batch script, interactive shell, external.
_FIRST_SPECIAL_STEP = 4294967290
_JOB_KEY = "redpoll/job"
_LIMIT = timedelta(minutes=1)


@dataclass(frozen=True)
class Place:
    """What the environment says. `port` 0: a world of one, which needs no store."""

    found_by: str
    rank: int = 0
    world: int = 1
    local_rank: int = 0  # among the ranks of this host, as far as is known
    local_world: int = 1
    one_host: bool = False  # it is known that all ranks are on this host
    host: str = "127.0.0.1"
    port: int = 0
    job: str = ""  # not empty: `port` follows from it, and another job may have taken it


def init(
    backend: str = "redpoll", *, timeout: timedelta | None = None, **options: Any
) -> Place:
    """init_process_group() in the world that this process was started in.

    Afterwards the default process group exists, and RANK, WORLD_SIZE, LOCAL_RANK,
    LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set as torchrun sets them, for code that
    reads them. Collective over all ranks; blocks until everybody has arrived or `timeout` has
    passed. Where torchrun serves a store it is used; no second port is opened.

    timeout: of the group; None: PyTorch's default. options: passed to init_process_group().
    ValueError names a variable that is missing or wrong, or the job that holds the port;
    RuntimeError a store that cannot be served or reached."""
    place = find_place(os.environ, _find_launcher(os.environ))
    if timeout is not None:
        options["timeout"] = timeout
    if not place.port:
        _set_variables(place, "127.0.0.1", _free_port())
        dist.init_process_group(
            backend, store=dist.HashStore(), rank=0, world_size=1, **options
        )
        return place
    _set_variables(place, place.host, place.port)
    if place.job:
        options.update(
            store=_claimed_store(place, timeout or _LIMIT),
            rank=place.rank,
            world_size=place.world,
        )
    dist.init_process_group(backend, **options)
    return place


def _set_variables(place: Place, host: str, port: int) -> None:
    os.environ.update(
        RANK=str(place.rank),
        WORLD_SIZE=str(place.world),
        LOCAL_RANK=str(place.local_rank),
        LOCAL_WORLD_SIZE=str(place.local_world),
        MASTER_ADDR=host,
        MASTER_PORT=str(port),
    )


def _free_port() -> int:
    """Nobody listens there now: a world of one has no store, but what reads the variables may
    want to open one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _claimed_store(place: Place, timeout: timedelta) -> dist.Store:
    """A store at a port that may be another job's: rank 0 writes down whose it is."""
    try:
        store = dist.TCPStore(
            place.host,
            place.port,
            world_size=place.world,
            is_master=place.rank == 0,
            timeout=timeout,
            wait_for_workers=False,
        )
    except RuntimeError as error:
        does = "serve" if place.rank == 0 else "reach"
        raise RuntimeError(
            f"rank {place.rank} cannot {does} the store at {place.host}:{place.port}, a port "
            f"that follows from {place.job}; MASTER_PORT sets another, on all ranks: {error}"
        ) from error
    if place.rank == 0:
        store.set(_JOB_KEY, place.job)
    owner = store.get(_JOB_KEY).decode()
    if owner != place.job:
        raise ValueError(
            f"the store at {place.host}:{place.port} is that of another job ({owner}); "
            "MASTER_PORT sets another port, on all ranks"
        )
    return store


def find_place(environment: Mapping[str, str], launcher: int = 0) -> Place:
    """Read the launchers' variables, in order of trust; nothing is opened. Pure.

    launcher: its process id, which the ranks of one host share; 0: not known. ValueError names
    the variable that is missing or wrong."""
    has = {name for name, value in environment.items() if value}
    if "REDPOLL_STORE" in has:
        return _find_common(environment, "redpoll run")
    if "TORCHELASTIC_RUN_ID" in has:
        return _find_common(environment, "torchrun")
    if has & {"RANK", "WORLD_SIZE"}:
        return _find_common(environment, "RANK and WORLD_SIZE")
    if has & {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}:
        return _find_open_mpi(environment, launcher)
    in_step = _is_slurm_step(environment)
    if in_step and _is_pmi_of_srun(environment):
        return _find_srun(environment, launcher)
    if has & {"PMI_RANK", "PMI_SIZE"}:
        return _find_pmi(environment, launcher)
    if in_step:
        return _find_srun(environment, launcher)
    if "PMIX_RANK" in has:
        raise ValueError(
            "PMIX_RANK is set, but this launcher does not say how many ranks there are; "
            "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
        )
    return Place("no launcher: a world of one", one_host=True)


def _number(environment: Mapping[str, str], launcher: str, name: str, least: int) -> int:
    text = environment.get(name, "")
    if not text:
        raise ValueError(
            f"the environment looks like {launcher}, but variable {name} is not set; "
            "set it, or unset the others to run alone"
        )
    if not re.fullmatch(r"[0-9]+", text):
        raise ValueError(f"environment variable {name} is '{text}', which is not a number")
    if int(text) < least:
        raise ValueError(f"environment variable {name} is {text}; at least {least} is allowed")
    return int(text)


def _port(environment: Mapping[str, str], launcher: str, name: str) -> int:
    port = _number(environment, launcher, name, 1)
    if port > 65535:
        raise ValueError(f"environment variable {name} is {port}; ports are 1 to 65535")
    return port


def _below(rank_name: str, rank: int, world_name: str, world: int) -> None:
    if rank >= world:
        raise ValueError(
            f"environment variables {rank_name}={rank} and {world_name}={world} contradict "
            f"each other: ranks are 0 to {world - 1}"
        )


def _ranks(environment: Mapping[str, str], launcher: str, names: tuple[str, ...]) -> Place:
    """Ranks are required; local ranks are where the launcher gives them."""
    rank_name, world_name, local_rank_name, local_world_name = names
    rank = _number(environment, launcher, rank_name, 0)
    world = _number(environment, launcher, world_name, 1)
    _below(rank_name, rank, world_name, world)
    if not (environment.get(local_rank_name) or environment.get(local_world_name)):
        return Place(launcher, rank, world, rank, world, one_host=world == 1)
    local_rank = _number(environment, launcher, local_rank_name, 0)
    local_world = _number(environment, launcher, local_world_name, 1)
    _below(local_rank_name, local_rank, local_world_name, local_world)
    return Place(launcher, rank, world, local_rank, local_world, one_host=local_world == world)


def _find_common(environment: Mapping[str, str], launcher: str) -> Place:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    place = _ranks(environment, launcher, names)
    host = _host(environment)
    if place.world == 1 and not host:
        return place
    if not host:
        raise ValueError(
            f"the environment looks like {launcher}, but variable MASTER_ADDR is not set; "
            "set it to the host of rank 0"
        )
    return replace(place, host=host, port=_port(environment, launcher, "MASTER_PORT"))


def _find_open_mpi(environment: Mapping[str, str], process: int) -> Place:
    prefix = "OMPI_COMM_WORLD_"
    names = tuple(prefix + name for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
    job = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid")
    return _meet(environment, _ranks(environment, "mpirun", names), job, process)


def _find_pmi(environment: Mapping[str, str], process: int) -> Place:
    names = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    place = _ranks(environment, "mpirun (PMI)", names)
    # Several may run in one allocation; on one host their processes tell them apart.
    job = None if place.one_host else environment.get("SLURM_JOB_ID")
    return _meet(environment, place, job, process)


def _is_pmi_of_srun(environment: Mapping[str, str]) -> bool:
    """With --mpi=pmi2 srun sets PMI_RANK and PMI_SIZE, too. Hydra, which may start its proxies
    with srun, always says who is on a host."""
    pairs = (("PMI_RANK", "SLURM_PROCID"), ("PMI_SIZE", "SLURM_NTASKS"))
    return not environment.get("MPI_LOCALRANKID") and all(
        environment.get(ours) and environment.get(ours) == environment.get(theirs)
        for ours, theirs in pairs
    )


def _is_slurm_step(environment: Mapping[str, str]) -> bool:
    """Only a step has ranks: in a batch script SLURM_PROCID is set too, and means nothing."""
    step = environment.get("SLURM_STEP_ID", "")
    named = environment.get("SLURM_PROCID") or environment.get("SLURM_NTASKS")
    return bool(named) and step.isdigit() and int(step) < _FIRST_SPECIAL_STEP


def _tasks_on_node(text: str, index: int) -> int:
    """Tasks on node `index` by "2(x3),1"; 0 when it does not say."""
    for word in text.split(","):
        match = re.fullmatch(r"([0-9]+)(?:\(x([0-9]+)\))?", word)
        if not match:
            return 0
        nodes = int(match[2] or 1)
        if index < nodes:
            return int(match[1])
        index -= nodes
    return 0


def _find_srun(environment: Mapping[str, str], process: int) -> Place:
    place = _ranks(environment, "srun", ("SLURM_PROCID", "SLURM_NTASKS", "", ""))
    if environment.get("SLURM_LOCALID"):
        local = _number(environment, "srun", "SLURM_LOCALID", 0)
        node = int(environment.get("SLURM_NODEID") or 0)
        tasks = _tasks_on_node(environment.get("SLURM_STEP_TASKS_PER_NODE", ""), node)
        place = replace(place, local_rank=local, local_world=max(tasks, local + 1))
        place = replace(place, one_host=tasks == place.world)
    job = f"{environment.get('SLURM_JOB_ID') or 0}.{environment['SLURM_STEP_ID']}"
    return _meet(environment, place, job, process)


def _first_host(name: str, nodes: str) -> str:
    """ "node[03-05,9],x" gives "node03"; plain names as they are."""
    match = re.match(r"([^,\[]+)(?:\[([0-9]+)[^\]]*\]([^,\[]*))?", nodes)
    if not match:
        raise ValueError(f"cannot read the first host of {name}='{nodes}'")
    return match[1] + (match[2] or "") + (match[3] or "")


def _meet(environment: Mapping[str, str], place: Place, job: str | None, process: int) -> Place:
    """Where rank 0 serves the store, when the launcher has not said."""
    if place.world == 1:
        return replace(place, one_host=True)
    launcher, host = place.found_by, _host(environment)
    if host in ("127.0.0.1", "localhost"):
        place = replace(place, one_host=True)
    if not host and place.one_host:
        host = "127.0.0.1"
    # Open MPI starts the ranks of its own host itself and the others in a Slurm step of their
    # hosts: only the list of the whole job is the same for all.
    hosts = "SLURM_STEP_NODELIST" if launcher == "srun" else "SLURM_JOB_NODELIST"
    if not host and environment.get(hosts):
        host = _first_host(hosts, environment[hosts])
    if not host:
        raise ValueError(
            f"{launcher} does not say that all ranks are on this host; set MASTER_ADDR to the "
            "host of rank 0, on all of them"
        )
    for name in ("REDPOLL_PORT", "MASTER_PORT"):
        # Kubernetes sets NAME_PORT=tcp://10.0.0.1:80 for a Service of that name.
        if environment.get(name) and "://" not in environment[name]:
            return replace(place, host=host, port=_port(environment, launcher, name))
    if not job and not (place.one_host and process):
        raise ValueError(
            f"{launcher} gives its job no name; set MASTER_PORT to a free port of the host "
            "of rank 0, on all hosts"
        )
    owner = f"{launcher} {job}" if job else f"{launcher}, process {process}"
    return replace(place, host=host, port=_port_of_job(owner), job=owner)


def _host(environment: Mapping[str, str]) -> str:
    """MASTER_ADDR; an address of IPv6 may stand in brackets, as in URLs."""
    host = environment.get("MASTER_ADDR", "")
    return host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host


def _port_of_job(job: str) -> int:
    value = 2166136261  # FNV-1a
    for byte in job.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return _FIRST_PORT + value % _PORTS


def _find_launcher(environment: Mapping[str, str]) -> int:
    """The process that started this rank; 0 when it is out of sight. Between the two there may
    be scripts, numactl and the like: they carry what Hydra tells each rank."""
    names = [name for name in ("PMI_RANK", "PMI_FD") if environment.get(name)]
    marks = {f"{name}={environment[name]}".encode() for name in names}
    process = os.getppid()
    try:
        while process > 1 and marks and marks <= _entries(process):
            status = Path(f"/proc/{process}/status").read_text()
            process = int(re.findall(r"^PPid:\s*(\d+)", status, re.MULTILINE)[0])
    except OSError:
        pass  # another user's, or gone: no further
    return process


def _entries(process: int) -> set[bytes]:
    return set(Path(f"/proc/{process}/environ").read_bytes().split(b"\0"))


keep_untraced("redpoll")
