"""Runs scripts on ranks that are forked from here, where PyTorch has been imported once.

The words of the command are further modules that ranks find imported. A line of stdin is a job
(JSON: text, world, timeout_s; arguments; inherited, environment: variables below and above the
places that ranks have), a line of stdout what became of it: for each rank its exit code (below
0: the signal) and what it wrote. Ranks run the text as a program of their own and end as one:
by their exception or sys.exit(), atexit functions and all. In a process of its own, since only
that may be started under a sanitizer's runtime, or with variables that PyTorch reads when it is
imported."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import types

import torch  # noqa: F401

from ranks import free_port

_DUMP_S = 1.0
_PR_SET_CHILD_SUBREAPER = 36


def become(rank: int, job: dict, folder: str, ports: list[int]) -> None:
    """This forked process is the rank from here on."""
    os.setsid()  # so that what it forks can be found
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job["world"]}
    place.update(LOCAL_WORLD_SIZE=job["world"], MASTER_ADDR="127.0.0.1")
    place.update(MASTER_PORT=ports[0], SECOND_PORT=ports[1])
    variables = {name: str(value) for name, value in place.items()}
    if "inherited" in job:
        os.environ.clear()
    os.environ.update({**job.get("inherited", {}), **variables, **job.get("environment", {})})
    sys.argv = ["-c", *job.get("arguments", [])]
    for number, name in (
        (0, os.devnull),
        (1, f"{folder}/out-{rank}"),
        (2, f"{folder}/err-{rank}"),
    ):
        file = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # a child of its own inherits that


def adopt_orphans() -> None:
    """What a rank forked and left is a child of this process from then on."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def group_exists(pid: int) -> bool:
    """Of a rank that has ended: has something that it forked not?"""
    try:
        while os.waitpid(-pid, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


def collect(pids: list[int], deadline: float) -> list[int | None]:
    """Exit codes; None of a rank that was late and is killed, with what it forked."""
    codes: dict[int, int | None] = {}
    while len(codes) < len(pids) and time.monotonic() < deadline:
        for pid in pids:
            ended, status = (0, 0) if pid in codes else os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    for pid in pids:
        while pid in codes and group_exists(pid) and time.monotonic() < deadline:
            time.sleep(0.005)
        if pid not in codes or group_exists(pid):
            os.killpg(pid, signal.SIGUSR1)  # where do they stand?
            time.sleep(_DUMP_S)
            os.killpg(pid, signal.SIGKILL)
            if pid not in codes:
                os.waitpid(pid, 0)
            codes[pid] = None
    return [codes[pid] for pid in pids]


def written(folder: str, name: str) -> str:
    with open(f"{folder}/{name}", errors="replace") as file:
        return file.read()


def run(job: dict, folder: str) -> str | None:
    """Forks the ranks. In a rank its text; None here, when all have ended."""
    ports = [free_port(), free_port()]
    pids = []
    for rank in range(job["world"]):
        pid = os.fork()
        if pid == 0:
            become(rank, job, folder, ports)
            return job["text"]
        pids.append(pid)
    codes = collect(pids, time.monotonic() + job["timeout_s"])
    outputs = ("out", "err")
    answer = [
        {"code": code, **{name: written(folder, f"{name}-{rank}") for name in outputs}}
        for rank, code in enumerate(codes)
    ]
    print(json.dumps(answer), flush=True)
    return None


def serve() -> str | None:
    """Until there are no more jobs; the text in a rank."""
    while line := sys.stdin.readline():
        folder = tempfile.mkdtemp(prefix="redpoll-leaving-")
        text = run(json.loads(line), folder)
        if text is not None:
            return text
        shutil.rmtree(folder)
    return None


adopt_orphans()
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.collect()
gc.freeze()  # what was imported is shared by all ranks: none copies it to look for garbage
text = serve()
if text is not None:
    server, program = sys.modules["__main__"], types.ModuleType("__main__")
    sys.modules["__main__"] = program
    exec(compile(text, "script.py", "exec"), program.__dict__)
