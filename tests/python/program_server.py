"""Runs the programs of preloaded.py: `python program_server.py SOCKET`, until stdin ends. Each
is forked from here, where PyTorch has been imported once."""

from __future__ import annotations

import array
import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
import types

import torch  # noqa: F401

_LOOK_S = 0.01
_TEXT = 1 << 16
_FILES = 64  # of a program, at most
_HIGH = 512  # above the files that it is given


def received(client: socket.socket) -> tuple[list[int], dict]:
    """The files of a program, one that ends with who asked, and what it is to be."""
    numbers = array.array("i")
    _, ancillary, _, _ = client.recvmsg(1, socket.CMSG_SPACE(_FILES * numbers.itemsize))
    numbers.frombytes(ancillary[0][2])
    text = b""
    while not text.endswith(b"\n"):
        text += client.recv(_TEXT)
    return list(numbers), json.loads(text)


def end_with(life: int) -> None:
    """SIGKILL comes when the process that asked for this one is gone, whatever ended that."""
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([life], [], [], 0)[0]:
        os._exit(1)  # it is gone already


def become(files: list[int], job: dict) -> None:
    """This forked process is the program from here on."""
    os.setsid()
    *given, life = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, _HIGH) for file in files]
    for file in files:
        os.close(file)
    end_with(life)
    for to, file in zip(job["files"], given):
        os.dup2(file, to)
        os.close(file)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.argv = job["argv"]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))


def serve(listener: socket.socket) -> str | None:
    """In a program the name of its script; None here, when stdin has ended."""
    running: dict[int, socket.socket] = {}
    while True:
        ready = select.select([listener, 0], [], [], _LOOK_S)[0]
        if 0 in ready:
            return None
        if listener in ready:
            client, _ = listener.accept()
            files, job = received(client)
            pid = os.fork()
            if pid == 0:
                listener.close()
                for other in (*running.values(), client):
                    other.close()
                become(files, job)
                return sys.argv[0]
            client.sendall(f"{pid}\n".encode())
            for file in files:
                os.close(file)
            running[pid] = client
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitpid(-1, os.WNOHANG):
                if not ended[0]:
                    break
                with running.pop(ended[0]) as client, contextlib.suppress(OSError):
                    client.sendall(f"{os.waitstatus_to_exitcode(ended[1])}\n".encode())


def main() -> str | None:
    gc.collect()
    gc.freeze()  # what was imported is shared by all programs
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{sys.argv[1]}.new")
        listener.listen(64)
        os.rename(f"{sys.argv[1]}.new", sys.argv[1])  # who finds it can call
        return serve(listener)


script = main()
if script is not None:
    server, program = sys.modules["__main__"], types.ModuleType("__main__")
    sys.modules["__main__"] = program
    with open(script) as file:
        text = file.read()
    exec(compile(text, os.path.abspath(script), "exec"), program.__dict__)
