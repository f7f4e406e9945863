"""Small training scripts that end in all the ways in which scripts end, made from a seed.

    print(script(7).text)      # what seed 7 runs on each of its ranks

Each opens groups, has operations in flight, and leaves: it comes to its end, raises, exits,
destroys its groups, is terminated, forks around all that. Ranks do not leave in step, so an
error on another rank is as good an end as success; crashes and hangs are not."""

from __future__ import annotations

import random
from dataclasses import dataclass

START = """
import gc, os, signal, sys, threading, time
from datetime import timedelta
import torch, torch.distributed as dist, redpoll.torch
from torch.nn.parallel import DistributedDataParallel
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
limit = timedelta(seconds=20)
dist.init_process_group("redpoll", timeout=limit)
side, other = dist.new_group(timeout=limit), dist.new_group(timeout=limit)
for group in (dist.group.WORLD, side, other):
    group.set_timeout(timedelta(seconds=2))  # so long does nobody wait for a rank that has left
kept = []

def send_soon(number):
    # To this process, unless it has ended by then: its peer may have left before.
    timer = threading.Timer(0.1, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
"""

# What is in flight. Operations of one group are posted in one order on all ranks: what threads
# and callbacks post has a group of its own. {count} elements, {times} operations.
FLIGHTS = {
    "held": """
kept += [dist.all_reduce(torch.ones({count}), async_op=True) for _ in range({times})]
""",
    "dropped": """
for _ in range({times}):
    dist.all_reduce(torch.ones({count}), async_op=True)
""",
    "futures": """
for _ in range({times}):
    future = dist.all_reduce(torch.ones({count}), async_op=True).get_future()
    kept.append(future.then(lambda done: done.value()[0].sum()))
""",
    "callbacks that wait for further operations": """
def further(done):
    total = done.value()[0]
    for _ in range({times}):
        future = dist.all_reduce(total, group=side, async_op=True).get_future()
        total = future.wait()[0] / world
    return total

kept.append(
    dist.all_reduce(torch.ones({count}), group=other, async_op=True).get_future().then(further)
)
""",
    "works in cycles": """
class Node:
    pass

gc.set_threshold(11, 2, 2)
for _ in range(4 * {times}):
    node = Node()
    node.own, node.work = node, dist.all_reduce(torch.ones({count}), async_op=True)
    node.future = node.work.get_future() if _ % 3 == 0 else None
del node
""",
    "receives without a send": """
for tag in range({times}):
    kept.append(dist.irecv(torch.empty({count}), src=(rank + 1) % world, tag=tag))
    kept[-1].get_future()
""",
    "a rank that does not come": """
if rank:
    kept += [dist.all_reduce(torch.ones({count}), async_op=True) for _ in range({times})]
""",
    "a thread that blocks": """
def block():
    try:
        dist.recv(torch.empty({count}), src=(rank + 1) % world, group=side)
    except Exception:
        pass

threading.Thread(target=block, daemon=True).start()
time.sleep(0.05)
""",
    # Of PyTorch it calls nothing that gives up the GIL: that would end in std::terminate() when
    # the interpreter is gone, with any backend.
    "a thread that posts for ever": """
ones = torch.ones({count})

def post():
    try:
        while True:
            dist.all_reduce(ones, group=other)
    except Exception:
        pass

threading.Thread(target=post, daemon=True).start()
""",
    "threads that wait": """
def wait_for(work):
    try:
        work.wait()
    except Exception:
        pass

waited = [dist.irecv(torch.empty({count}), src=(rank + 1) % world, tag=90 + i) for i in (0, 1)]
for work in waited * 2:
    threading.Thread(target=wait_for, args=(work,), daemon=True).start()
""",
    "sparse sums": """
sparse = torch.ones(10, 4).to_sparse()
kept += [dist.all_reduce(sparse, async_op=True) for _ in range({times})]
""",
    "DDP": """
model = DistributedDataParallel(torch.nn.Linear(64, 64))
model.register_comm_hook(None, default_hooks.{hook})
model(torch.randn(8, 64)).sum().backward()
""",
    "PowerSGD": """
model = DistributedDataParallel(torch.nn.Linear(64, 64))
state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
for _ in range(4):
    model(torch.randn(8, 64)).sum().backward()
""",
    "a child that was forked": """
child = os.fork()
if child == 0:
    {child_leaves}
""",
}

LEAVINGS = {
    "end": "",
    "raise": 'raise ValueError("the image is broken")',
    "one raises": 'if rank == {odd}:\n    raise ValueError("the image is broken")',
    "one raises, others wait": """
if rank == {odd}:
    raise ValueError("the image is broken")
for one in kept:
    one.wait()
""",
    "exit": "sys.exit(3)",
    "destroy": "dist.destroy_process_group()",
    "destroy without waiting for the collector": "kept.clear()\ndist.destroy_process_group()",
    "one destroys": "if rank == {odd}:\n    dist.destroy_process_group()",
    "destroy one group": "dist.destroy_process_group(side)",
    "abort": "dist.group.WORLD.abort()",
    "a thread destroys": """
leaver = threading.Thread(target=dist.destroy_process_group)
leaver.start()
for one in kept:
    try:
        one.wait()
    except Exception:
        pass
leaver.join()
""",
    # No daemon: one that comes back from C++ while the interpreter ends may end the process.
    "a thread destroys, the script ends": """
threading.Thread(target=dist.destroy_process_group).start()
""",
    "destroy and begin again": """
dist.destroy_process_group()
store = dist.TCPStore("127.0.0.1", int(os.environ["SECOND_PORT"]), world, rank == 0)
dist.init_process_group("redpoll", store=store, rank=rank, world_size=world, timeout=limit)
kept.append(dist.all_reduce(torch.ones({count}), async_op=True).get_future())
dist.all_reduce(torch.ones({count}), async_op=True)
""",
    "a signal handler destroys": """
def stop(*_):
    dist.destroy_process_group()
    sys.exit(3)

signal.signal(signal.SIGTERM, stop)
send_soon(signal.SIGTERM)
{wait}
time.sleep(5)
""",
    "a signal handler exits": """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
send_soon(signal.SIGTERM)
{wait}
time.sleep(5)
""",
    "interrupt": """
send_soon(signal.SIGINT)
{wait}
time.sleep(5)
""",
}

WAITS = (
    "dist.recv(torch.empty(10), src=(rank + 1) % world, tag=77)",
    "dist.irecv(torch.empty(10), src=(rank + 1) % world, tag=77).wait()",
    "dist.irecv(torch.empty(10), src=(rank + 1) % world, tag=77).get_future().wait()",
)


@dataclass
class Script:
    """The same source for each of `world` ranks."""

    seed: int
    world: int
    flights: list[str]
    leaving: str
    text: str

    @property
    def title(self) -> str:
        return (
            f"seed {self.seed}, {self.world} ranks: {', '.join(self.flights)}; {self.leaving}"
        )


def script(seed: int) -> Script:
    """Seeds in a row walk through the leavings, so that a few of them show most."""
    chance = random.Random(seed)
    world = chance.choice([2, 3, 3])
    flights = chance.sample(sorted(FLIGHTS), chance.choice([1, 2, 2, 3]))
    leaving = list(LEAVINGS)[seed % len(LEAVINGS)]
    values = {
        "count": chance.choice([1, 1000, 300_000, 2_000_000]),
        "times": chance.choice([1, 3, 20]),
        "hook": chance.choice(["allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"]),
        "child_leaves": chance.choice(
            ["sys.exit(0)", "os._exit(0)", "gc.collect(); sys.exit(0)"]
        ),
        "odd": chance.randrange(world),
        "wait": chance.choice(WAITS),
    }
    pieces = [FLIGHTS[name] for name in flights] + [LEAVINGS[leaving]]
    text = START
    for piece in pieces:
        for name, value in values.items():
            piece = piece.replace("{" + name + "}", str(value))
        text += piece
    return Script(seed, world, flights, leaving, text)
