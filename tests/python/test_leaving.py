"""Leaving: scripts that end, raise, exit or destroy their groups with operations in flight.

The scripts come from seeds (`leaving_scripts.py`). Under the address sanitizer (in the asan
build, or with REDPOLL_ASAN_BUILD=build/asan) whoever reads freed memory is caught; elsewhere
freed memory is overwritten, so that it shows as a crash. REDPOLL_LONG_TESTS=1 runs many more
seeds, REDPOLL_TEST_SEED=7 that one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from leaving_scripts import Script, script
from ranks import WITHOUT_COMPILER, ScriptServer

HERE = Path(__file__).resolve().parent
LONG = os.environ.get("REDPOLL_LONG_TESTS", "") not in ("", "0")
ONE = os.environ.get("REDPOLL_TEST_SEED", "")
QUICK = (4, 7, 9, 11, 12, 13, 14, 15)  # all kinds of flights, and half of the leavings
SEEDS = [int(ONE)] if ONE else range(160) if LONG else QUICK

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
# Only who hangs needs so long. Under a sanitizer, on a machine that does much else, a script of
# seconds takes minutes.
TIMEOUT_S = 120.0
SANITIZED_TIMEOUT_S = 400.0


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


# What scripts find imported.
MODULES = (
    "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook",
    "torch.nn.parallel",
    "redpoll.torch",
)


class Server:
    """A ScriptServer of these, whose ranks have its environment, and so much time."""

    def __init__(self, environment: dict[str, str], timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._server = ScriptServer({**os.environ, **environment}, MODULES)

    def run(self, text: str, world: int) -> list[dict]:
        """Of each rank `code` (None: it hung, and was killed), `out` and `err`."""
        return self._server.run(text, world, self._timeout_s)

    def close(self) -> None:
        self._server.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    build = asan_build()
    started = (
        Server(sanitized(build), SANITIZED_TIMEOUT_S) if build else Server(plain(), TIMEOUT_S)
    )
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


def ends_well(server: Server, text: str, world: int = 1) -> None:
    for rank, each in enumerate(server.run(text, world)):
        crashed = [word for word in CRASHES if word in each["err"]]
        assert each["code"] == 0 and not crashed, f"rank {rank} of\n{text}\n{each}"


# Communicators of a world of one: what threads, locks and finalizers do needs no other rank.
ALONE = """
import ctypes, gc, threading, time, weakref
from datetime import timedelta
import torch
from redpoll.torch.comm import _communicator
from redpoll.torch.comm import _notifier
from redpoll.torch.comm import _all_reduce, _posting
from redpoll.torch.comm import _request
from redpoll.torch.comm._communicator import Communicator, communicators

def alone(name="alone"):
    return Communicator(None, 0, 1, name, timedelta(seconds=30))
"""

LOCKS_THAT_COLLECT = """
gc.collect()
gc.freeze()  # what is there stays out of the many collections
gc.disable()
garbage = []  # what is dropped next while a lock is held
collected = 0

class Node:
    def __init__(self, what):
        self.own, self.what = self, what

class Collecting:
    def __init__(self):
        self._lock = real()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self):
        self._lock.acquire()
        global collected
        if garbage:
            Node(garbage.pop())
            gc.collect()
            collected += 1

    def __exit__(self, *_):
        self._lock.release()

class Threading:
    Lock = RLock = Collecting

    def __getattr__(self, name):
        return getattr(threading, name)

real = threading.{kind}
for module in (_request, _posting, _notifier, _communicator):
    module.threading = Threading()
_notifier._lock = Collecting()
"""

FINALIZERS = """
tensors = [torch.ones(10) for _ in range(200)]
for round in range(3):
    one = alone()
    for tensor in tensors:
        work = one.all_reduce([tensor])
        garbage.append(work)
        del work
    for tensor in tensors:
        one.all_reduce([torch.ones(3)]).get_future().wait()
        one.all_reduce([torch.ones(3)]).wait()
        one.barrier(blocking=True)
    one.close()
assert collected > 500, collected
"""


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_finalizers_take_no_lock(kind: str, server: Server) -> None:
    """Garbage with Works in flight is collected inside every section that holds a lock; also
    were these locks that their own thread cannot take twice."""
    ends_well(server, ALONE + LOCKS_THAT_COLLECT.replace("{kind}", kind) + FINALIZERS)


CLOSED_INSIDE = """
class Closer:
    def __init__(self, one):
        self.own, self.one = self, one

    def __del__(self):
        self.one.close()

for depth in range(12):  # the collection happens in one locked section after another
    one = alone()
    garbage[:] = [Closer(one), *[None] * depth]
    try:
        for _ in range(8):
            work = one.all_reduce([torch.ones(3)])
            future = work.get_future()
            work.wait()
            one.all_reduce([torch.ones(3)], blocking=True)
            one.set_timeout(timedelta(seconds=9))
    except Exception as error:
        assert "destroyed" in str(error), error
    garbage.clear()
    one.close()
    assert one.poster.life._gone.wait(10) and not communicators()
"""


def test_a_finalizer_closes_the_group_that_it_interrupted(server: Server) -> None:
    """Models and trainers do, and a collection runs them anywhere."""
    ends_well(server, ALONE + LOCKS_THAT_COLLECT.replace("{kind}", "RLock") + CLOSED_INSIDE)


ENDS_WHILE_A_THREAD_DESTROYS = """
import atexit, os, threading, time

left = []  # the thread that closes, once it has come back from it

def look():
    if not left:
        print("the interpreter ends below a thread that destroys", flush=True)
        os._exit(7)

import torch
import torch.distributed as dist, redpoll.torch
from redpoll.torch.comm._communicator import _close_all
from redpoll.torch.comm._life import Life

dist.init_process_group("redpoll")
kept = dist.irecv(torch.empty(1000), src=1 - dist.get_rank())  # nobody sends
atexit.unregister(_close_all)
atexit.register(look)
atexit.register(_close_all)  # is called before
close, begun = Life.close, threading.Event()

def told(*arguments):
    begun.set()
    close(*arguments)
    if threading.current_thread() is not threading.main_thread():
        left.append(True)

Life.close = told
if dist.get_rank() == 0:
    threading.Thread(target=dist.destroy_process_group, daemon=True).start()
    begun.wait()
else:
    time.sleep(6)  # so long may destroy_process_group() wait for what is in flight
    left.append(True)
"""


def test_the_interpreter_waits_for_a_thread_that_destroys(server: Server) -> None:
    """It would be stopped at its next step, which PyTorch's C++ answers with terminate()."""
    ends_well(server, ENDS_WHILE_A_THREAD_DESTROYS, 2)


IN_PYTORCH = """
import sys, threading, time
import torch, torch.distributed as dist, redpoll.torch
from redpoll.torch.comm._exit import is_inside

dist.init_process_group("redpoll")
calls, ends, seen, missed = False, False, 0, 0

def work():
    global calls
    ones = torch.ones(3)
    while not ends:
        calls = True
        dist.all_reduce(ones)
        calls = False

thread = threading.Thread(target=work)
thread.start()
while seen < 300:
    time.sleep(1e-4)  # without the GIL; then the thread stands anywhere
    frame = sys._current_frames()[thread.ident]
    if calls and frame.f_code is not work.__code__:
        seen += 1
        missed += not is_inside(frame)
ends = True
thread.join()
assert not missed, missed
dist.destroy_process_group()
"""


def test_a_thread_that_has_left_us_is_seen_in_pytorch(server: Server) -> None:
    """It needs the GIL once more, and the interpreter must not have ended by then."""
    ends_well(server, IN_PYTORCH)


OPENED_WHILE_LAST_ONE_CLOSES = """
failed = []

def lives(name):
    try:
        for i in range(60):
            one = alone(f"{name}:{i}")
            told = [one.all_reduce([torch.ones(3)]).get_future() for _ in "ab"]
            for future in told:
                future.then(lambda done: done.value()).wait()
            one.all_reduce([torch.ones(3)])
            one.close()
    except BaseException as error:
        failed.append(error)

threads = [threading.Thread(target=lives, args=(name,)) for name in "abc"]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
left = [one.name for one in threading.enumerate() if one.name.startswith("redpoll")]
assert not left, left
"""


def test_groups_come_while_the_last_one_goes(server: Server) -> None:
    """Each gets a notifier that lives as long as it does."""
    ends_well(server, ALONE + OPENED_WHILE_LAST_ONE_CLOSES)


INTERRUPTED_WHILE_POSTING = """
one = alone()
start = _all_reduce._ALL_REDUCE

def interrupted(*arguments):
    start.start(*arguments)
    raise KeyboardInterrupt

for blocking in (False, True):
    _all_reduce._ALL_REDUCE = start._replace(start=interrupted)
    tensor = torch.ones(1000)
    alive = weakref.ref(tensor)
    try:
        one.all_reduce([tensor], blocking=blocking)
        raise SystemExit("not interrupted")
    except KeyboardInterrupt:
        pass
    del tensor
    (request,) = one.poster.life.requests()
    assert alive() is not None
    _all_reduce._ALL_REDUCE = start
    request.wait()
    del request
    assert alive() is None
    one.all_reduce([torch.ones(1)], blocking=True)
one.close()
"""


def test_ctrl_c_while_posting_leaves_its_tensors_to_the_operation(server: Server) -> None:
    ends_well(server, ALONE + INTERRUPTED_WHILE_POSTING)


LONELY_SPARSE_SUM = """
import os, time, torch, torch.distributed as dist, redpoll.torch
dist.init_process_group("redpoll")
if os.environ["RANK"] == "0":
    work = dist.all_reduce(torch.ones(10, 4).to_sparse(), async_op=True)
    time.sleep(0.2)
"""


def test_a_sparse_sum_for_which_nobody_came(server: Server) -> None:
    """Its thread waits for the ranks; the script ends all the same."""
    ends_well(server, LONELY_SPARSE_SUM, 2)


# A method of training with an exchange in flight, to which rank 1 has not come: rank 0 drops it
# and goes on; rank 1 waits for its word before it comes, and would wait for ever for a rank
# that waits for it.
METHOD = (
    WITHOUT_COMPILER
    + """
import gc, threading, time, weakref
from datetime import timedelta
import torch, torch.distributed as dist, redpoll.torch as rt

dist.init_process_group("redpoll", timeout=timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
store = dist.distributed_c10d._get_default_store()
model = torch.nn.Linear(300, 300)
inner = torch.optim.SGD(model.parameters(), lr=0.01)
held = [{made}]
own = rt.communicator_of()

def step():
    model(torch.ones(2, 300)).sum().backward()
    held[0].step()

rt.comm._communicator._DRAIN_S = 0.2  # what is in flight will not end
try:
    for _ in range(1 if rank else {steps}):
        step()
except rt.RedpollError:
    assert rank  # rank 0 may have gone meanwhile
"""
)

METHODS = {  # how it is made, and after how many steps of rank 0 its exchange is in flight
    "LocalSGD": ("rt.LocalSGD(model, inner, every=4, delay=2)", 2),
    "DiLoCo": ("rt.DiLoCo(model, inner, every=4, delay=2, codec='q4', min_size=0)", 2),
    "NoLoCo": ("rt.NoLoCo(model, inner, every=4, delay=2, partner=lambda k, r: 1 - r)", 2),
    "ParameterServer": ("rt.ParameterServer(inner, model)", 1),
    "AsyncLocalSGD": ("rt.AsyncLocalSGD(model, inner, every=1)", 1),
}

DROPS = {
    "here": """
held.clear()
gc.collect()
""",
    "on another thread": """
thread = threading.Thread(target=held.clear)
thread.start()
""",
    "in a cycle": """
class Node:
    pass

node = Node()
node.own, node.opt = node, held.pop()
thread = threading.Timer(0.0, gc.collect)
thread.start()
del node
""",
    "under a step": """
thread = threading.Thread(target=lambda: [step() for _ in range(9)])
threading.excepthook = lambda *_: None  # a step that the group's end breaks off
thread.start()
held = [held[0]]
""",
}

THEN = {
    "destroy": """
dist.destroy_process_group()
store.set("dropped", "")
""",
    "end": """
store.set("dropped", "")
""",
}


ALL = [(method, drop, "destroy") for method in METHODS for drop in DROPS]
ALL += [("LocalSGD", drop, "end") for drop in DROPS] + [("ParameterServer", "here", "end")]
# Each method and each way at least once.
FEW = list(zip(METHODS, list(DROPS) + ["here"], ["destroy"] * len(METHODS)))
FEW += [("LocalSGD", "under a step", "destroy"), ("LocalSGD", "in a cycle", "end")]
CASES = ALL if LONG else FEW


@pytest.mark.parametrize("method, drop, then", CASES)
def test_methods_in_flight_that_are_dropped(method, drop, then, server: Server) -> None:
    made, steps = METHODS[method]
    text = METHOD.replace("{made}", made).replace("{steps}", str(steps))
    first = DROPS[drop] + THEN[then]
    text += "if rank == 0:" + first.replace("\n", "\n    ")
    text += "\nelse:\n    store.wait(['dropped'])\n"
    ends_well(server, text, 2)


GOES_ON = """
kept = [weakref.ref(each) for each in getattr(held[0], "_residuals", {}).values()]
if rank == 0:
    held.clear()
    gc.collect()
    assert own.objects and all(each() is not None for each in kept)
    store.set("dropped", "")
else:
    store.wait(["dropped"])
    for _ in range(3):
        step()
    held.clear()
deadline = time.monotonic() + 60
while own.objects or any(each() is not None for each in kept):
    assert time.monotonic() < deadline
    time.sleep(0.01)
dist.barrier()
"""


@pytest.mark.parametrize("method", ["LocalSGD", "DiLoCo"])
def test_what_is_dropped_in_flight_ends_well_for_the_others(method, server: Server) -> None:
    """The finalizer waits for nobody; what the library borrows lives until it is over."""
    made, steps = METHODS[method]
    text = METHOD.replace("{made}", made).replace("{steps}", str(steps))
    ends_well(server, text + GOES_ON, 2)


WINDOWS = """
import gc, time, weakref
import torch, torch.distributed as dist, redpoll.torch as rt

dist.init_process_group("redpoll")
rank, world = dist.get_rank(), dist.get_world_size()
others = [one for one in range(world) if one != rank]
x = torch.ones(1000)
window = rt.Window(x, "x", sources=others, destinations=others)
refs = [weakref.ref(window), weakref.ref(x)]
operation = window.put(torch.ones(1000))
{before}
dist.destroy_process_group()
{after}
gc.collect()
assert [each() for each in refs] == [None, None], refs
"""

WINDOW_ENDS = {  # before the group is destroyed, and afterwards
    "nobody holds it": ("dist.barrier()\ndel window, x, operation", ""),
    "in flight": ("del window, x, operation", ""),
    "it is freed": ("window.free()\ndel window, x, operation", ""),
    "it is freed too late": ("dist.barrier()", "window.free()\ndel window, x, operation"),
    "an operation is held": ("dist.barrier()\ndel window, x", "del operation"),
    "it is used too late": (
        "dist.barrier()",
        "try:\n    window.put()\nexcept rt.RedpollError:\n    pass\ndel window, x, operation",
    ),
}


@pytest.mark.parametrize("end", WINDOW_ENDS)
def test_windows_end_with_their_group(end: str, server: Server) -> None:
    before, after = WINDOW_ENDS[end]
    ends_well(server, WINDOWS.replace("{before}", before).replace("{after}", after), 2)
