"""Collectives of numpy arrays: results, types and shapes, codecs, refusals, and no PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ranks import free_port, run_script
from redpoll.numpy import _codec

DTYPES = [name for name in _codec.NUMBER if name != "bfloat16"]

PREAMBLE = """
import sys
import numpy as np
import redpoll.numpy as rn
from redpoll.errors import Error
assert "torch" not in sys.modules
world = rn.join()
rank, n = world.rank, world.world

def refusal(kind, action):
    try:
        action()
    except kind as error:
        return str(error)
    raise AssertionError("no " + kind.__name__)
"""


def run(text: str, ranks: int = 3) -> None:
    """The script on so many ranks, each of which ends well."""
    port = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for done in run_script(PREAMBLE + text, ranks, python=sys.executable, environment=port):
        assert done.returncode == 0, done.stderr


def test_operations_in_all_types() -> None:
    run(f"""
for name in {DTYPES!r}:
    own = np.full((2, 3), rank + 1).astype(name)
    assert own.dtype == np.dtype(name)
    summed = world.all_reduce(own)
    assert summed.dtype == own.dtype and (own == np.full((2, 3), rank + 1).astype(name)).all()
    wanted = sum(np.full((2, 3), r + 1).astype(name) for r in range(n)).astype(name)
    if name == "bool":
        wanted[:] = True
    assert (summed == wanted).all(), (name, summed)
    rows = world.all_gather(np.full((rank, 2), rank).astype(name))
    wanted = np.array([1, 2, 2]).astype(name).tolist()
    assert rows.dtype == own.dtype and rows[:, 1].tolist() == wanted
    assert (world.broadcast(own, 1) == np.full((2, 3), 2).astype(name)).all()
    sent = world.all_to_all([np.full((rank + to,), rank).astype(name) for to in range(n)])
    assert [len(each) for each in sent] == [rank + r for r in range(n)]
    if name.startswith("float"):
        assert (world.all_reduce(own, "mean") == 2).all()
    if not name.startswith("complex"):
        assert (world.all_reduce(own, "max") == np.full(1, n).astype(name)).all()
""")


def test_shapes_and_lists() -> None:
    run("""
grid = np.arange(12.0).reshape(3, 4)
assert (world.all_reduce(grid.T) == 3 * grid.T).all()              # any strides
assert (world.all_reduce(grid[:, ::2], "mean") == grid[:, ::2]).all()
assert world.all_reduce(np.float64(rank)).shape == () and world.all_reduce(rank) == 3
assert world.all_reduce(np.empty((0, 4))).shape == (0, 4)
assert world.all_gather(rank).tolist() == [0, 1, 2]
first, second = world.all_reduce([np.ones(3), np.ones((2, 2), np.int32)])
assert first.tolist() == [3] * 3 and second.dtype == np.int32
mine = np.full(4, float(rank))
assert world.all_reduce(mine, out=mine) is mine and mine[0] == 3
other = np.empty(4)
assert world.all_reduce(np.ones(4), out=other) is other and other[0] == 3
share = world.reduce_scatter(np.arange(5.0))
assert share.tolist() == [[0, 3], [6, 9], [12]][rank]
total = world.reduce(np.full(2, rank), root=2)
assert total is None if rank != 2 else total.tolist() == [3, 3]
requests = [world.all_reduce(np.full(100, i), wait=False) for i in range(20)]
assert [each.wait()[0] for each in reversed(requests)] == [3 * i for i in reversed(range(20))]
assert requests[0].test() and requests[0].wait()[0] == 0
if rank == 0:
    world.send(np.arange(3.0), 1, tag=4)
if rank == 1:
    room = np.empty(3)
    assert world.receive(room, 0, tag=4) is room and room.tolist() == [0, 1, 2]
if rank:
    with world.group([2, 1], "pair") as pair:
        assert (pair.rank, pair.world) == (2 - rank, 2)
        assert pair.all_reduce(np.array([rank]))[0] == 3
world.barrier()
assert world.stats()["operations"] > 20
""")


def test_codecs_with_error_feedback() -> None:
    run(
        """
rng = np.random.default_rng(rank)
x = rng.standard_normal(4096).astype(np.float32)
exact = world.all_reduce(x, "mean")
before = world.stats()["wire_bytes_sent"]
coarse = world.all_reduce(x, "mean", codec="q4")
assert world.stats()["wire_bytes_sent"] - before < 4096 * 4 / 4
error = abs(coarse - exact).max()
assert 0 < error < 0.5
same = world.all_gather(coarse).reshape(n, -1)
assert (same == same[0]).all()
held, total = np.zeros_like(x), np.zeros_like(x)
for step in range(50):
    total += world.all_reduce(x, "mean", codec="q2", residuals=held, step=step)
assert abs(total / 50 - exact).max() < 0.1 and abs(held).max() > 0
assert rn.Codec("q4").encoded_bytes(np.float32, 4096) < 2200
assert rn.Codec("fp32").is_exact("float32") and not rn.Codec("q4").supports("int32")
assert str(rn.Codec("q4")) == "q4:bucket=512" and rn.Codec("q4") == rn.Codec("q4:bucket=512")
part = world.reduce_scatter(x, codec="q8")
assert abs(part / n - np.array_split(exact, n)[rank]).max() < 0.1
whole = world.all_gather(x, codec="q8").reshape(n, -1)
assert whole.shape == (n, 4096) and abs(whole[rank] - x).max() < 0.1
""",
        ranks=2,
    )


def test_what_is_refused() -> None:
    run(
        """
wrong = [
    ("dtype('O')", TypeError, lambda: world.all_reduce(np.array([object()]))),
    ("byte order", TypeError, lambda: world.all_reduce(np.ones(2, ">f4"))),
    ("<U1", TypeError, lambda: world.broadcast(np.array(["a"]))),
    ("known are sum", ValueError, lambda: world.all_reduce(np.ones(2), "median")),
    ("out is (3,)", ValueError, lambda: world.all_reduce(np.ones(2), out=np.ones(3))),
    ("contiguous", ValueError, lambda: world.all_reduce(np.ones(2), out=np.ones(4)[::2])),
    ("float32 and 2", ValueError,
     lambda: world.all_reduce(np.ones(2), codec="q4", residuals=np.zeros(2))),
    ("has 1 arrays for 2", ValueError, lambda: world.all_reduce([1, 2], out=[np.ones(1)])),
    ("rank 5", ValueError, lambda: world.broadcast(np.ones(1), 5)),
    ("1 arrays for 2 ranks", ValueError, lambda: world.all_to_all([np.ones(1)])),
    ("one dimension", ValueError, lambda: world.reduce_scatter(np.float32(1))),
    ("q99", Error, lambda: world.all_reduce(np.ones(2), codec="q99")),
    ("q4", Error, lambda: world.all_reduce(np.ones(2, np.int32), codec="q4")),
]
for part, kind, action in wrong:
    said = refusal(kind, action)
    assert part in said or part == "dtype('O')" and "object" in said, (part, said)
assert world.all_reduce(np.ones(2))[0] == 2  # it goes on
said = refusal(Error, lambda: world.all_reduce(np.ones(2 + rank)))
assert "rank" in said
world.close()
world.close()
assert "was closed" in refusal(ValueError, lambda: world.all_reduce(np.ones(2)))
""",
        ranks=2,
    )


def test_a_world_of_one_and_no_numpy() -> None:
    program = "import redpoll.numpy as rn; print(rn.join().all_reduce([1.0, 2.0])[1])"
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=clean, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "2.0", done.stderr
    hides = "import sys; sys.modules['numpy'] = None; import redpoll.numpy"
    done = subprocess.run(
        [sys.executable, "-c", hides], env=clean, capture_output=True, text=True, timeout=60
    )
    assert "pip install numpy" in done.stderr
    assert Path(_codec.__file__).is_file()


@pytest.mark.parametrize("name", ["bfloat16"])
def test_bfloat16_of_ml_dtypes(name: str) -> None:
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    run(f"import ml_dtypes; assert world.all_reduce(np.ones(3, '{name}'))[0] == 3")
