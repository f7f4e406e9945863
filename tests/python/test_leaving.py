"""Leaving: scripts that end, raise, exit or destroy their groups with operations in flight.

The scripts come from seeds (`leaving_scripts.py`). Under the address sanitizer (in the asan
build, or with REDPOLL_ASAN_BUILD=build/asan) whoever reads freed memory is caught; elsewhere
freed memory is overwritten, so that it shows as a crash. REDPOLL_LONG_TESTS=1 runs many more
seeds, REDPOLL_TEST_SEED=7 that one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leaving_scripts import Script, script

HERE = Path(__file__).resolve().parent
LONG = os.environ.get("REDPOLL_LONG_TESTS", "") not in ("", "0")
ONE = os.environ.get("REDPOLL_TEST_SEED", "")
QUICK = (4, 7, 9, 11, 12, 13, 14, 15)  # all kinds of flights, and half of the leavings
SEEDS = [int(ONE)] if ONE else range(300) if LONG else QUICK

# Its end, its exception, its sys.exit(3), Ctrl-C, SIGTERM of Python's own.
FINE = {0, 1, 3, 130, -2}
CRASHES = (
    "AddressSanitizer",
    "runtime error:",
    "corrupted",
    "malloc()",
    "free()",
    "Fatal Python error",
    "Exception ignored in",
    "terminate called",
)
TIMEOUT_S = 60.0


def asan_build() -> Path | None:
    """The build folder of a library with the address sanitizer; None: there is none."""
    chosen = os.environ.get("REDPOLL_ASAN_BUILD")
    build = Path(chosen or os.environ.get("REDPOLL_BUILD", ""))
    cache = build / "CMakeCache.txt"
    if chosen or (cache.exists() and "REDPOLL_SANITIZE:STRING=address" in cache.read_text()):
        return build
    return None


def sanitized(build: Path) -> dict[str, str]:
    """The environment in which a plain Python can load such a library. The C++ runtime comes
    with the sanitizer's, which else finds no exceptions to watch when it starts."""
    return {
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libstdc++.so.6')}",
        "ASAN_OPTIONS": "detect_leaks=0,detect_stack_use_after_return=0",
        "PYTHONPATH": os.pathsep.join([str(build / "python"), str(HERE)]),
    }


def runtime(name: str) -> str:
    """Where the compiler has this library."""
    find = ["cc", f"-print-file-name={name}"]
    return subprocess.run(find, check=True, capture_output=True, text=True).stdout.strip()


def plain() -> dict[str, str]:
    """Freed memory is overwritten, and not kept from malloc()'s own checks."""
    return {
        "MALLOC_PERTURB_": "165",
        "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
        "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(HERE)]),
    }


class Server:
    """A process that runs scripts on ranks of its own."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "leaving_server.py")],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, text: str, world: int) -> list[dict]:
        """Of each rank `code` (None: it hung, and was killed), `out` and `err`."""
        job = {"text": text, "world": world, "timeout_s": TIMEOUT_S}
        print(json.dumps(job), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(60)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    build = asan_build()
    started = Server(sanitized(build) if build else plain())
    yield started
    started.close()


def verdict(one: Script, ended: list[dict]) -> str:
    """Empty when every rank ended as a script may."""
    wrong = []
    for rank, each in enumerate(ended):
        crashed = [word for word in CRASHES if word in each["err"]]
        if each["code"] in FINE and not crashed:
            continue
        how = "it hung" if each["code"] is None else f"exit code {each['code']}"
        wrong.append(f"---- rank {rank}: {how}\n{each['err'][-6000:]}")
    return "\n".join([one.title, *wrong, one.text]) if wrong else ""


@pytest.mark.parametrize("seed", SEEDS)
def test_scripts_that_leave(seed: int, server: Server) -> None:
    one = script(seed)
    wrong = verdict(one, server.run(one.text, one.world))
    assert not wrong, wrong
