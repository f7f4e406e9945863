"""Collectives inside jit, compressed gradients, DiLoCo and gossip of pytrees, in the Python of
.venvs/jax (tools/jax_venv.sh makes it), or this one where it has jax."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ranks import free_port, run_script

TREE = Path(__file__).resolve().parents[2]


def python_with_jax() -> str:
    if find_spec("jax") is not None:
        return sys.executable
    venv = Path(os.environ.get("REDPOLL_JAX_VENV") or TREE / ".venvs" / "jax")
    return str(venv / "bin" / "python")


PYTHON = python_with_jax()
if not Path(PYTHON).exists():
    pytest.skip("jax is not installed: sh tools/jax_venv.sh", allow_module_level=True)

PREAMBLE = """
import sys
import jax
import jax.numpy as jnp
import numpy as np
import redpoll.jax as rj
from redpoll.errors import Error
assert "torch" not in sys.modules
world = rj.join(timeout_s=60)
rank, n = world.rank, world.world

def refusal(kind, action):
    try:
        action()
    except kind as error:
        return str(error)
    raise AssertionError("no " + kind.__name__)
"""


def run(text: str, ranks: int = 2, timeout: float = 240.0) -> None:
    for done in run_script(PREAMBLE + text, ranks, python=PYTHON, timeout=timeout):
        assert done.returncode == 0, done.stderr[-3000:]


def test_collectives_inside_jit() -> None:
    run(
        """
x = jnp.arange(6.0).reshape(3, 2) + rank
tree = {"a": x, "b": [x[0], jnp.int32(rank)], "c": jnp.zeros((0, 3))}
found = jax.jit(world.psum)(tree)
assert (found["a"] == 3 * jnp.arange(6.0).reshape(3, 2) + 3).all()
assert found["b"][1] == 3 and found["b"][1].dtype == jnp.int32 and found["c"].shape == (0, 3)
assert (jax.jit(world.pmean)(x) == jnp.arange(6.0).reshape(3, 2) + 1).all()
for name in ("float16", "bfloat16", "int8", "uint32", "bool"):
    one = jnp.ones(4, name)
    assert world.reduced(one, "max").dtype == one.dtype
    assert (world.reduced(one, "max") == one).all()
assert jax.jit(lambda x: world.reduced(x, "min"))(x)[0, 0] == 0
rows = jax.jit(world.gathered)(x)
assert rows.shape == (9, 2) and rows[::3, 0].tolist() == [0, 1, 2]
assert world.gathered(jnp.float32(rank)).tolist() == [0, 1, 2]
share = jax.jit(world.scattered)(jnp.arange(6.0))
assert share.tolist() == [6 * rank, 6 * rank + 3]
sent = jax.jit(lambda t: world.broadcasted(t, 2))({"a": x, "b": x[0]})
assert sent["a"][0, 0] == 2 and sent["b"].tolist() == [2, 3]

def loops(x):                                         # in a loop, and a branch of it
    def body(i, x):
        return jax.lax.cond(i % 2 == 0, world.pmean, lambda x: x + 1, x)
    return jax.lax.fori_loop(0, 4, body, x)
assert (jax.jit(loops)(x) == jnp.arange(6.0).reshape(3, 2) + 3).all()

def two(x):                                           # one after the other
    first = world.psum(x)
    return first, world.reduced(x, "max", after=first)
first, second = jax.jit(two)(x)
assert first[0, 0] == 3 and second[0, 0] == 2
assert x[0, 0] == rank                                # what was given is as it was
assert (world.all_reduce(np.ones(3)) == 3).all()      # numpy's, too
""",
        ranks=3,
    )


def test_gradients_flow() -> None:
    run("""
x = jnp.arange(4.0) + rank
total = jax.jit(jax.grad(lambda x: (world.psum(x) ** 2).sum()))(x)
assert jnp.allclose(total, 2 * 2 * (2 * jnp.arange(4.0) + 1))
mean = jax.jit(jax.grad(lambda x: (world.pmean(x) * (rank + 1)).sum()))(x)
assert jnp.allclose(mean, 1.5)
rows = jax.grad(lambda x: (world.gathered(x) * jnp.arange(8.0)).sum())(x)
assert jnp.allclose(rows, 2 * (jnp.arange(4.0) + 4 * rank))
parts = jax.grad(lambda x: (world.scattered(x) * (rank + 1)).sum())(x)
assert parts.tolist() == [1, 1, 2, 2]
assert "no gradient" in refusal(
    TypeError, lambda: jax.grad(lambda x: world.reduced(x, "max").sum())(x))
""")


def test_codecs_and_feedback_are_state() -> None:
    run("""
x = {"w": jax.random.normal(jax.random.key(rank), (64, 64)), "b": jnp.ones(64) * rank}
exact = world.pmean(x)
state = world.feedback(x, "q2")
assert state.residuals["w"].shape == (64, 64) and state.residuals["b"].shape == (0,)
reduce = jax.jit(lambda tree, state: world.reduced_with(tree, state, codec="q2"))
before = world.stats()["wire_bytes_sent"]
total = jnp.zeros((64, 64))
for step in range(40):
    found, state = reduce(x, state)
    total += found["w"]
sent = world.stats()["wire_bytes_sent"] - before
assert sent < 40 * 64 * 64 * 4 / 4, sent
assert (found["b"] == 0.5).all() and state.step == 40
assert abs(found["w"] - exact["w"]).max() > 0.1 > abs(total / 40 - exact["w"]).max()
everyone = world.gathered(found["w"][None])
assert (everyone[0] == everyone[1]).all()             # the same bits
once = jax.jit(lambda x: world.reduced(x, codec="q8"))(x)
assert 0 < abs(once["w"] - exact["w"]).max() < 0.05 and (once["b"] == 0.5).all()

class Optimizer:                                      # a step of plain descent, as optax has it
    init, update = rj.averaged(world, "q4", min_size=16)
w = jnp.zeros((8, 4))
target = jnp.arange(32.0).reshape(8, 4) / 8
state = Optimizer.init(w)
@jax.jit
def train(w, state):
    gradient = jax.grad(lambda w: ((w - target * (1 + rank)) ** 2).sum() / 2)(w)
    update, state = Optimizer.update(gradient, state)
    return w - 0.2 * update, state
for _ in range(80):
    w, state = train(w, state)
assert abs(w - 1.5 * target).max() < 0.05
""")


def test_what_is_refused() -> None:
    run("""
x = jnp.ones((4, 3))
said = refusal(Exception, lambda: jax.jit(world.psum)(jnp.ones(2 + rank)).block_until_ready())
assert "all-reduce of 3 f32" in said and "all-reduce of 2 f32" in said, said
other = refusal(ValueError, lambda: world.reduced(x, "median"))
assert "known are sum" in other
assert "divide" in refusal(ValueError, lambda: world.scattered(jnp.ones(3)))
assert "rank 7" in refusal(ValueError, lambda: world.broadcasted(x, 7))
assert "q99" in refusal(Error, lambda: world.reduced(x, codec="q99"))
state = world.feedback(x, None)
assert "feedback() anew" in refusal(ValueError, lambda: world.reduced_with(
    x, state, codec="q4", min_size=0))
assert "error feedback" in refusal(ValueError, lambda: world.reduced_with(
    x, state, "max", codec=None))
jitted = jax.jit(lambda x: x + 1)
world.close()
assert "was closed" in refusal(ValueError, lambda: world.psum(x))
""")


def test_a_closed_world_fails_what_was_jitted() -> None:
    run(
        """
total = jax.jit(world.psum)
x = jnp.ones(3)
assert total(x)[0] == 1
world.close()
assert "was closed" in refusal(Exception, lambda: total(x).block_until_ready())
""",
        ranks=1,
    )


def test_diloco() -> None:
    """Beside the equations: G moves by Nesterov's momentum along the mean of what ranks did."""
    run("""
params = {"w": jnp.ones((2, 3)) * (1 + rank), "b": jnp.zeros(3)}
outer = rj.DiLoCo(params, world, every=5, outer_rate=0.7, outer_momentum=0.6, nesterov=1)
params = outer.params
assert params["w"][0, 0] == 1
anchor, momentum = np.ones((2, 3)), np.zeros((2, 3))
for step in range(15):
    params = jax.tree.map(lambda p: p - 0.1 * (rank + 1), params)
    after = outer.step(params)
    if (step + 1) % 5:
        assert after is params
    else:
        gradient = anchor - (anchor - 0.5 * 1.5)
        momentum = 0.6 * momentum + gradient
        anchor = anchor - 0.7 * (gradient + 0.6 * momentum)
        assert np.allclose(after["w"], anchor, atol=1e-5), (after["w"], anchor)
    params = after
state = outer.state_dict()
again = rj.DiLoCo(params, world, every=5, outer_rate=0.7, outer_momentum=0.6, nesterov=1)
again.load_state_dict(state)
for _ in range(5):
    one = jax.tree.map(lambda p: p - rank, params)
    first, second = outer.step(one), again.step(one)
assert (first["w"] == second["w"]).all() and again.steps == 20
coded = rj.DiLoCo({"w": jnp.zeros((64, 64))}, world, every=2, codec="q4", fragments=1)
moved = coded.params
for _ in range(8):
    moved = coded.step(jax.tree.map(lambda p: p + 0.5 * (rank + 1), moved))
everyone = world.all_gather(np.asarray(moved["w"])[None])
assert (everyone[0] == everyone[1]).all() and everyone[0].mean() > 1
late = rj.DiLoCo({"a": jnp.zeros(4), "b": jnp.zeros(4)}, world, every=4, fragments=2, delay=1)
moved = late.params
for _ in range(12):
    moved = late.step(jax.tree.map(lambda p: p + 1.0, moved))
assert moved["a"].min() > 4
assert "no option 'speed'" in refusal(TypeError, lambda: rj.DiLoCo(params, world, speed=1))
assert "float32 or all float64" in refusal(
    ValueError, lambda: rj.DiLoCo({"i": jnp.ones(3, jnp.int32)}, world))
assert "outer" in refusal(Error, lambda: rj.DiLoCo(params, world, outer="nonsense"))
world.close()
assert "was closed" in refusal(ValueError, lambda: outer.step(params))
""")


def test_gossip() -> None:
    run(
        """
goal = jnp.arange(4.0) * (rank + 1)
for algorithm, near in (("atc", 0.2), ("exact-diffusion", 1e-3), ("gradient-tracking", 1e-3)):
    gossip = rj.Gossip({"x": jnp.zeros(4)}, world, "ring", algorithm)
    params = gossip.params
    gradient = jax.jit(lambda p: {"x": -0.1 * (p["x"] - goal)})
    for _ in range(200):
        params = gossip.step(params, gradient(params))
    assert abs(params["x"] - 2 * jnp.arange(4.0)).max() < near, (algorithm, params)
    mean = gossip.consensus(params)
    assert abs(mean["x"] - 2 * jnp.arange(4.0)).max() < max(near, 1e-3)
coded = rj.Gossip({"w": jnp.zeros((64, 64))}, world, "ring", "atc", codec="q8")
params = coded.step(coded.params, {"w": jnp.full((64, 64), float(rank))})
assert abs(params["w"] - 1).max() < 0.05
assert "topolog" in refusal(Error, lambda: rj.Gossip({"x": jnp.ones(2)}, world, "moebius"))
assert "leaf 0" in refusal(ValueError, lambda: gossip.step({"x": jnp.ones(3)}, {"x": goal}))
""",
        ranks=3,
    )


def test_no_jax_and_no_compiler(tmp_path: Path) -> None:
    hides = "import sys; sys.modules['jax'] = None; import redpoll.jax"
    done = subprocess.run([PYTHON, "-c", hides], capture_output=True, text=True, timeout=100)
    assert "pip install jax" in done.stderr
    late = "import jax.numpy as jnp; jnp.ones(1); import redpoll.jax; redpoll.jax.join()"
    done = subprocess.run([PYTHON, "-c", late], capture_output=True, text=True, timeout=100)
    assert "import redpoll.jax before" in done.stderr
    variables = {"XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path), "CC": ""}
    joins = "import redpoll.jax; redpoll.jax.join()"
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [PYTHON, "-c", joins], env=environment, capture_output=True, text=True, timeout=100
    )
    assert "apt-get install gcc" in done.stderr


def test_flax_example() -> None:
    if subprocess.run([PYTHON, "-c", "import flax, optax"], capture_output=True).returncode:
        pytest.skip("flax and optax are not installed: sh tools/jax_venv.sh")
    program = TREE / "examples" / "jax" / "flax_digits.py"
    text = f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')"
    words = ["--images", "512", "--epochs", "2", "--codec", "q4"]
    port = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    done = run_script(text, 2, python=PYTHON, arguments=words, environment=port, timeout=240)
    assert [each.returncode for each in done] == [0, 0], done[0].stderr[-3000:]
    accuracy = [float(line.split()[-1]) for line in done[0].stdout.splitlines()]
    assert len(accuracy) == 2 and accuracy[-1] > 0.5 and not done[1].stdout
