"""A program of Python that launchers start: `python -S preloaded.py SOCKET SCRIPT [word ...]`.

It is run by program_server.py, in a fork of an interpreter that has imported PyTorch: with
this process's files, folder and variables, and a life that ends with this one's. This process
ends as it ends. Nothing is imported here that takes time."""

import array
import json
import os
import signal
import socket
import sys


def inherited() -> list[int]:
    """Files that this process was given: a launcher may pass pipes on."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if os.get_inheritable(number):
                found.append(number)
        except OSError:
            pass  # that of the folder itself
    return found


def ask(server: socket.socket, life: int) -> None:
    job = {"argv": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
    job["files"] = inherited()
    files = array.array("i", [*job["files"], life]).tobytes()
    server.sendmsg([b"0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    server.sendall(json.dumps(job).encode() + b"\n")


def end_as(code: int) -> None:
    """code: of an exit; below 0: the signal."""
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


program = socket.socket(socket.AF_UNIX)
program.connect(sys.argv[1])
life, _mine = os.pipe()  # its other end sees when this process is gone
ask(program, life)
lines = program.makefile()
pid = int(lines.readline())
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda which, _frame: os.kill(pid, which))
end_as(int(lines.readline() or -signal.SIGKILL))
