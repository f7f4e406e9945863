"""Start the ranks of a test as processes, with a deadline, and collect what they did.

    def work(rank, world):                  # at the top of a test module: found by name
        tensor = torch.ones(4)
        dist.all_reduce(tensor)
        return tensor[0].item()

    def test_sum():
        assert values(run_group(work, 3)) == [3, 3, 3]

Ranks are forked from a server that has imported PyTorch once, so that a world costs
milliseconds and not seconds; run_script() runs whole programs instead, for tests of imports, of
exits and of launchers. A rank that is late prints where all its threads stand.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import inspect
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import wait as wait_for_any
from pathlib import Path
from typing import Any, Callable

_PRELOAD = [
    "pytest",  # every test module imports it
    "torch",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.nn.parallel",
    "redpoll.torch",
]
_GRACE_S = 5.0

# First lines of a script that makes an optimizer and compiles nothing: without them PyTorch
# imports its compiler then, which takes as long as all the rest of it.
WITHOUT_COMPILER = """
import sys, types, torch
class NoCompiler(types.ModuleType):
    def __call__(self, function=None, *_, **__):
        return function
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self
torch._dynamo = sys.modules["torch._dynamo"] = NoCompiler("torch._dynamo")
"""
_context = None
_READ_AT_IMPORT = ("TORCH_", "PYTHON", "LD_", "OMP_")
_MOST_SERVERS = 2  # each is an idle process with PyTorch in it
_servers: dict[tuple, ScriptServer] = {}
_preloaded: list[str] = []


@dataclass
class Outcome:
    """How one rank ended: exactly one of `value` and `error` counts."""

    rank: int
    value: Any = None
    error: str | None = None  # the traceback; None when the function returned
    exitcode: int | None = None  # -9: killed by signal 9

    @property
    def ok(self) -> bool:
        return self.error is None


def run_ranks(
    function: Callable[..., Any],
    world: int,
    *args: Any,
    timeout: float = 120.0,
    environment: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """function(rank, world, *args) in `world` processes at once; returns when all have ended.

    function, args and what it returns must be picklable (a function at a module's top; no
    tensors: PyTorch would pass a descriptor of a process that has ended). Blocks up to
    `timeout` seconds and a few more: then the late ranks' outcome is where their threads stood.
    Ranks start with one OpenMP thread and the environment given; they end without running
    atexit functions (use run_script() to test those). REDPOLL_TEST_PLACE=stand-in: their
    tensors count as a GPU's (cuda_stand_in.py has the rest)."""
    context = _fork_server()
    with tempfile.TemporaryDirectory(prefix="redpoll-ranks-") as folder:
        started = []
        for rank in range(world):
            ours, theirs = context.Pipe(duplex=False)
            late = str(Path(folder) / f"late-{rank}.txt")
            process = context.Process(
                target=_rank_main,
                args=(
                    theirs,
                    late,
                    timeout,
                    dict(environment or {}),
                    function,
                    rank,
                    world,
                    args,
                ),
                daemon=True,
            )
            process.start()
            theirs.close()
            started.append((process, ours, late))
        return _collect(started, time.monotonic() + timeout + _GRACE_S)


def run_group(
    function: Callable[..., Any],
    world: int,
    *args: Any,
    backend: str = "redpoll",
    timeout: float = 120.0,
    group_timeout: float = 30.0,
    destroy: bool = True,
    environment: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """run_ranks() inside init_process_group(backend) and destroy_process_group().

    The store is a TCPStore of this process, so that it outlives every rank. group_timeout: of
    the process group, in seconds. destroy False: the function leaves the group as it likes."""
    import torch.distributed as dist

    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    place = (backend, server.port, group_timeout, destroy)
    return run_ranks(
        _group_main, world, place, function, args, timeout=timeout, environment=environment
    )


def values(outcomes: Sequence[Outcome]) -> list[Any]:
    """What the ranks returned, by rank. AssertionError with every traceback when one failed."""
    failed = [outcome for outcome in outcomes if not outcome.ok]
    if failed:
        raise AssertionError(
            "\n".join(f"---- rank {one.rank} ({one.exitcode}):\n{one.error}" for one in failed)
        )
    return [outcome.value for outcome in outcomes]


class ScriptServer:
    """An interpreter in this environment that has imported torch and `modules`, from which the
    ranks of scripts are forked: a world costs milliseconds and not the seconds of an import.

    One OpenMP thread. It ends with close(), and with this process."""

    def __init__(self, environment: Mapping[str, str], modules: Sequence[str] = ()) -> None:
        program = Path(__file__).with_name("script_server.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), *modules],
            env={**environment, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, text: str, world: int, timeout_s: float, **job: Any) -> list[dict[str, Any]]:
        """Of each rank `code` (None: it hung, and was killed), `out` and `err`."""
        job.update(text=text, world=world, timeout_s=timeout_s)
        print(json.dumps(job), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"the server of scripts ended: {self._process.wait()}"
        return json.loads(answer)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(60)


def run_script(
    text: str,
    world: int = 1,
    *,
    timeout: float = 120.0,
    environment: Mapping[str, str] | None = None,
    at_import: Mapping[str, str] | None = None,
    modules: Sequence[str] = ("torch._dynamo",),
    arguments: Sequence[str] = (),
    python: str = "",
) -> list[subprocess.CompletedProcess[str]]:
    """Run Python source as the program of `world` processes, with torchrun's variables set
    (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT: a free port). Returns each rank's
    return code, stdout and stderr; one that is late is killed and returns -9.

    They are forked from an interpreter that has imported torch and `modules` (the compiler:
    PyTorch imports that with an optimizer or DistributedDataParallel), with `at_import` in its
    environment, and nothing of ours; they end as programs do. `environment`: what they have
    besides when the script begins. python: fresh interpreters of this one instead, for tests of
    what an import brings in and of scripts without PyTorch."""
    if python:
        variables = {"OMP_NUM_THREADS": "1", **(at_import or {}), **(environment or {})}
        return _run_fresh(python, text, world, timeout, variables, arguments)
    late = [name for name in environment or {} if name.startswith(_READ_AT_IMPORT)]
    assert not late, f"{late} are read when PyTorch is imported: give them by at_import"
    ended = _script_server(dict(at_import or {}), tuple(modules)).run(
        text,
        world,
        timeout,
        inherited={**os.environ, "OMP_NUM_THREADS": "1", **(at_import or {})},
        environment=dict(environment or {}),
        arguments=list(arguments),
    )
    return [
        subprocess.CompletedProcess(
            ["script.py", *arguments],
            -signal.SIGKILL if one["code"] is None else one["code"],
            one["out"],
            one["err"],
        )
        for one in ended
    ]


def preloaded_python() -> list[str]:
    """The words before a script's name with which a launcher starts it as `python` would, in a
    fork of an interpreter that has imported torch, and nothing of ours: the seconds of that are
    spent once. The program dies with the process that is started, and that ends as it does."""
    global _preloaded
    here = Path(__file__).parent
    if not _preloaded:
        folder = tempfile.mkdtemp(prefix="redpoll-programs-")
        _preloaded = [sys.executable, "-S", str(here / "preloaded.py"), f"{folder}/socket"]
        server = subprocess.Popen(
            [sys.executable, str(here / "program_server.py"), _preloaded[-1]],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
        )
        atexit.register(_end_server, server, folder)
        _wait_for_file(_preloaded[-1], server)
    return _preloaded


def free_port() -> int:
    """A port that nobody listens on now, below those that the system hands out: no other test's
    connection takes it meanwhile."""
    import random
    import socket

    for port in random.SystemRandom().sample(range(10000, 20000), 100):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("", port))
            except OSError:
                continue
            return port
    raise AssertionError("all ports are taken")


def refusal(kind: type[BaseException], action: Callable[[], Any]) -> str:
    """What the exception of `kind` that action() must raise says."""
    try:
        action()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def die(sign: int = signal.SIGKILL) -> None:
    """End this rank as a crash would."""
    os.kill(os.getpid(), sign)
    time.sleep(60)


def open_descriptors() -> int:
    """How many file descriptors this process holds."""
    return len(os.listdir("/proc/self/fd"))


def thread_count() -> int:
    """How many threads this process has, those of C included."""
    return len(os.listdir("/proc/self/task"))


def resident_bytes() -> int:
    """How much memory this process has resident."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- behind the scenes ----


def _wait_for_file(name: str, server: subprocess.Popen, timeout: float = 120.0) -> None:
    deadline = time.monotonic() + timeout
    while not os.path.exists(name):
        assert server.poll() is None and time.monotonic() < deadline, "no server of programs"
        time.sleep(0.02)


def _end_server(server: subprocess.Popen, folder: str) -> None:
    server.stdin.close()
    server.wait(60)
    shutil.rmtree(folder)


def _script_server(at_import: dict[str, str], modules: tuple[str, ...]) -> ScriptServer:
    """There are at most two, those that were used last."""
    key = (modules, *sorted(at_import.items()))
    if key not in _servers:
        while len(_servers) >= _MOST_SERVERS:
            _servers.pop(next(iter(_servers))).close()
        server = ScriptServer({**os.environ, **at_import}, modules)
        atexit.register(server.close)
    else:
        server = _servers.pop(key)
    _servers[key] = server  # the last one
    return server


def _run_fresh(python, text, world, timeout, variables, arguments):
    shared = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    shared.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    deadline = time.monotonic() + timeout
    running, done = [], []
    for rank in range(world):
        own = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank), **variables}
        command = [python, "-c", text, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running.append(subprocess.Popen(command, env=own, text=True, **pipes))
    for process in running:
        try:
            out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return done


def _fork_server():
    global _context
    if _context is None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        _context = multiprocessing.get_context("forkserver")
        _context.set_forkserver_preload([*_PRELOAD, "ranks"])
    return _context


def _rank_main(pipe, late, timeout, environment, function, rank, world, args):
    # Or each collection would look through all objects of PyTorch's modules, and copy the pages
    # that ranks share.
    gc.freeze()
    os.environ.update(environment)
    if os.environ.get("REDPOLL_TEST_PLACE") == "stand-in":
        import cuda_stand_in

        cuda_stand_in.install()
    with open(late, "w") as file:
        faulthandler.dump_traceback_later(timeout, exit=True, file=file)
        try:
            answer = (True, function(rank, world, *args))
        except BaseException:
            answer = (False, traceback.format_exc())
        faulthandler.cancel_dump_traceback_later()
    pipe.send(answer)
    pipe.close()


def _group_main(rank, world, place, function, args):
    import torch.distributed as dist

    import redpoll.torch  # noqa: F401  registers the backend

    backend, port, group_timeout, destroy = place
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=30))
    limit = timedelta(seconds=group_timeout)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=limit)
    try:
        return function(rank, world, *args)
    finally:
        if destroy and dist.is_initialized():
            dist.destroy_process_group()


def _collect(started, deadline: float) -> list[Outcome]:
    outcomes = [
        Outcome(rank, error="it ended without an answer") for rank in range(len(started))
    ]
    pending = {pipe: rank for rank, (_, pipe, _) in enumerate(started)}
    while pending and time.monotonic() < deadline:
        for pipe in wait_for_any(list(pending), timeout=max(0.0, deadline - time.monotonic())):
            rank = pending.pop(pipe)
            try:
                ok, answer = pipe.recv()
            except EOFError:
                continue
            outcomes[rank] = Outcome(rank, answer, None) if ok else Outcome(rank, None, answer)
    for rank, (process, pipe, late) in enumerate(started):
        process.join(max(0.1, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
        pipe.close()
        outcomes[rank].exitcode = process.exitcode
        stands = Path(late).read_text() if Path(late).exists() else ""
        if stands and not outcomes[rank].ok:
            outcomes[rank].error = f"late; its threads stood here:\n{stands}"
    return outcomes


def splits_without_a_device() -> bool:
    """Does split_group() take a group made without device_id? PyTorch 2.9 refuses it."""
    import torch.distributed as dist

    return "No device associated" not in inspect.getsource(dist.split_group)
