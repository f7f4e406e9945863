"""Known answers: each algorithm of decentralised training beside a float64 model of its
equations (reference_models.py), after each of the first steps and at the limit; 1e-10 in
float64, 1e-5 in float32. The models themselves give the numbers that were published.

A run takes some of the cases, by a seed that it prints; REDPOLL_TEST_SEED=7 takes those of that
one, REDPOLL_LONG_TESTS=1 all.

Not to be had through PyTorch, and held elsewhere:
- float64 through codecs, which refuse it (below), so choco and sparseloco with topk are float32
  here, and servers (ParameterServer, AsyncLocalSGD), whose parameters are float32:
  tests/methods/gossip_choco_test.c, local_sgd_test.c, delayed_nesterov_test.c,
  parameter_server_test.c have float32, too.
- gossip over ceca, of two vectors a rank: tests/plan/topologies/topologies_test.c; over equi,
  whose shifts are drawn by the library: topology_properties_test.c; over weights whose average
  is biased: refused by Gossip(), and here by neighbor_all_reduce().
- choco where edges change, which is refused: tests/methods/gossip_test.c.
- quantised values (of q4, or of topk with values=q2), which are of the codec's rounding and not
  of the equations: tests/methods/gossip_choco_test.c, tests/codec.
- windows with pushes in any order: tests/comm/window_test.c, test_bluefog_windows.py.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import reference_models as models
from ranks import refusal, run_group, values
from redpoll.torch import (
    AsyncLocalSGD,
    DiLoCo,
    Gossip,
    LocalSGD,
    NoLoCo,
    ParameterServer,
    SlowMo,
    SparseLoCo,
    communicator_of,
)

LONG = os.environ.get("REDPOLL_LONG_TESTS", "") not in ("", "0")
WORLDS = (2, 3, 4, 5)
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
SHAPES = ((1, 1), (2, 2), (1, 3), (2, 1))  # of parameters; those of one dimension travel exact
ELEMENTS = sum(rows * columns for rows, columns in SHAPES)
FIRST = 8  # iterates that are compared, and the limit


def parts() -> list[slice]:
    found, first = [], 0
    for rows, columns in SHAPES:
        found.append(slice(first, first + rows * columns))
        first = found[-1].stop
    return found


# ---- the models give the published numbers ----


def zeros(problem):
    return np.zeros_like(problem.b)


ITERATES = {
    "awc": (
        0.1,
        [
            [0.1, -0.2, 0.6, 0.2],
            [0.1233333333, 0.0066666667, 0.62, 0.42],
            [0.271, 0.0486666667, 0.7628888889, 0.4197777778],
        ],
        [0.5879120879, 0.3736263736, 0.9835164835, 0.6785714286],
    ),
    "atc": (
        0.1,
        [
            [0.0333333333, 0.1666666667, 0.2, 0.3],
            [0.1477777778, 0.2677777778, 0.3511111111, 0.4166666667],
            [0.2324074074, 0.3643333333, 0.4366666667, 0.5095925926],
        ],
        [0.5194116641, 0.6598255516, 0.6916367368, 0.7715067556],
    ),
    "exact-diffusion": (
        0.1,
        [
            [0.0666666667, -0.0166666667, 0.4, 0.25],
            [0.1461111111, 0.1144444444, 0.515, 0.4011111111],
            [0.2635925926, 0.2817407407, 0.5155185185, 0.4633703704],
        ],
        [0.7] * 4,
    ),
    "gradient-tracking": (
        0.05,
        [
            [0.05, -0.1, 0.3, 0.1],
            [0.0308333333, 0.1766666667, 0.155, 0.28],
            [0.242625, 0.1473333333, 0.3184166667, 0.1856666667],
        ],
        [0.7] * 4,
    ),
}


@pytest.mark.parametrize("algorithm", ITERATES)
def test_gossip_models_give_the_published_iterates(algorithm):
    rate, first, limit = ITERATES[algorithm]
    problem, rounds = models.published(), models.rounds_of("ring", 4)
    model = models.GossipModel(problem, rounds, algorithm, rate, zeros(problem))
    for wanted in first:
        assert model.step().ravel() == pytest.approx(wanted, abs=6e-11)
    assert models.gossip_limit(problem, rounds, algorithm, rate).ravel() == pytest.approx(
        limit, abs=6e-11
    )
    for _ in range(900):
        model.step()
    assert model.x.ravel() == pytest.approx(limit, abs=6e-11)


def grows(algorithm, rate, w):
    """The distance from where it should end after many steps; infinity: it diverges."""
    problem = models.published()
    model = models.GossipModel(problem, [w], algorithm, rate, zeros(problem))
    for _ in range(3000):
        model.step()
        if abs(model.x).max() > 1e3:
            return float("inf")
    return abs(model.x - 0.7).max()


def test_gossip_models_are_stable_as_far_as_published():
    ring = models.rounds_of("ring", 4)[0]
    assert grows("gradient-tracking", 0.083, ring) < 1e-9
    assert grows("gradient-tracking", 0.086, ring) == float("inf")
    assert grows("exact-diffusion", 0.555, ring) < 1e-9
    assert grows("exact-diffusion", 0.575, ring) == float("inf")
    around = np.array([[0.1, 0.45, 0, 0.45]])
    circulant = np.concatenate([np.roll(around, i) for i in range(4)])
    assert grows("exact-diffusion", 0.1, circulant) < 1e-9


def test_pushes_of_the_model_are_the_published_fractions():
    problem = models.drawn(5, 1, 0)
    x = np.arange(5.0).reshape(5, 1)
    star = models.rounds_of("star:weights=sender", 5)
    model = models.GossipModel(problem, star, "push-sum", 0.0, x)
    model.step()
    assert model.pushed.ravel() == pytest.approx([5, 0.5, 1, 1.5, 2])
    assert model.mass == pytest.approx([2.2, 0.7, 0.7, 0.7, 0.7])
    for _ in range(200):
        model.step()
    assert model.mass == pytest.approx([25 / 13] + [10 / 13] * 4)
    assert model.x.ravel() == pytest.approx([2] * 5)
    digraph = [models.sender([{2}, {0}, {0, 1}])]  # 0>1 0>2 1>2 2>0
    model = models.GossipModel(
        models.drawn(3, 1, 0), digraph, "push-sum", 0.0, np.eye(3)[:, :1]
    )
    masses = [
        [5 / 6, 5 / 6, 4 / 3],
        [17 / 18, 25 / 36, 49 / 36],
        [215 / 216, 143 / 216, 145 / 108],
    ]
    for wanted in masses:
        model.step()
        assert model.mass == pytest.approx(wanted)
    assert models.second_eigenvalue(digraph) == pytest.approx(0.2887, abs=5e-5)


def test_receivers_weights_alone_are_biased_as_published():
    for topology, x, wanted in (
        ("star:weights=uniform", [0, 1, 2, 3], 1.2),
        ("star", [0, 1, 2, 3], 1.5),
        ("mesh:weights=uniform", [10, 1, 2, 3, 4, 5], 4.0),
        ("mesh", [10, 1, 2, 3, 4, 5], 25 / 6),
    ):
        (w,) = models.rounds_of(topology, len(x))
        assert np.linalg.matrix_power(w, 400) @ x == pytest.approx([wanted] * len(x)), topology


# What a round leaves of what ranks differ by: {topology: {ranks: factor}}.
FACTORS = {
    "exponential": {
        4: 1 / 3,
        5: 0.25,
        6: 0.5,
        7: 0.3536,
        8: 0.5,
        9: 0.4418,
        16: 0.6,
        32: 2 / 3,
    },
    "exponential:base=3": {4: 0.3333, 8: 0.5774, 16: 0.6807, 32: 0.6596},
    "exponential:base=4,symmetric=on": {4: 0.3333, 8: 0.5, 16: 0.6, 32: 0.6667},
    "mesh": {4: 0.3333, 5: 0.8727, 6: 0.75, 7: 0.934, 8: 0.8536, 16: 0.8686, 32: 0.9658},
    "star": {4: 0.75, 8: 0.875, 16: 0.9375, 32: 0.96875},
    "ring": {4: 0.3333, 5: 0.5393, 6: 0.6667, 7: 0.749, 8: 0.8047, 16: 0.9493, 32: 0.9872},
    "ring:direction=right": {4: 0.7071, 8: 0.9239, 16: 0.9808, 32: 0.9952},
    "torus": {4: 0.3333, 5: 0.5393, 6: 0.5, 7: 0.749, 8: 0.5, 9: 0.4, 16: 0.6, 32: 0.8828},
    "one-peer-exponential": {5: 0.587, 6: 0.6005, 7: 0.5, 9: 0.5854, 12: 0.6762},
    "full": {4: 0, 8: 0},
    "star:weights=uniform": {8: 0.5},
    "mesh:weights=uniform": {8: 0.8143},
}
BASE_DIGITS = {  # rounds of n = 2, 3 ... 64, by k: a digit each
    1: (
        "13254537",
        "6757674989",
        "7989698979",
        "895bab9bab",
        "8bab9bab7b",
        "ab9bab8bab",
        "9bab6",
    ),
    2: (
        "11232432",
        "4535544536",
        "5566466367",
        "5756674776",
        "6767757757",
        "7677487788",
        "68866",
    ),
    3: (
        "11132322",
        "4424442535",
        "4455355345",
        "5535663665",
        "5656556636",
        "6656465666",
        "56653",
    ),
    4: (
        "11112322",
        "2424422434",
        "2444325345",
        "3535543555",
        "3555535535",
        "3556455566",
        "36653",
    ),
}


def test_factors_of_the_graphs_are_the_published_ones():
    for topology, factors in FACTORS.items():
        for ranks, wanted in factors.items():
            found = models.second_eigenvalue(models.rounds_of(topology, ranks))
            assert found == pytest.approx(wanted, abs=6e-5), (topology, ranks)


@pytest.mark.parametrize("k", BASE_DIGITS)
def test_base_graphs_average_exactly_in_the_published_rounds(k):
    for ranks, wanted in enumerate("".join(BASE_DIGITS[k]), 2):
        rounds = models.base_graph(ranks, k)
        assert len(rounds) == int(wanted, 12), ranks
        product = np.eye(ranks)
        for w in rounds:
            assert np.allclose(w, w.T, atol=1e-15) and ((w > 0).sum(1) <= k + 1).all()
            product = w @ product
        assert abs(product - 1 / ranks).max() < 1e-14, ranks


LIMIT = 17085 / 25646
LOCAL = {
    "average": (models.Outer("average"), [0.427125, 0.5803988062, 0.6354011116], 60),
    "diloco": (
        models.Outer("diloco", 0.7, 0.9),
        [0.56807625, 0.8939169984, 0.9533516921],
        90,
    ),
    "heavy ball": (
        models.Outer("diloco", 0.7, 0.9, nesterov=False),
        [0.2989875, 0.7328766651, 1.093445702],
        600,
    ),
    "slowmo": (
        models.Outer("slowmo", 1.0, 0.5),
        [0.427125, 0.7939613062, 0.8954561679],
        90,
    ),
    "sparseloco": (models.Outer("sparseloco"), [0.427125, 0.5803988062, 0.6354011116], 60),
}


@pytest.mark.parametrize("name", LOCAL)
def test_local_models_give_the_published_rounds(name):
    outer, wanted, rounds = LOCAL[name]
    problem = models.published()
    model = models.LocalModel(problem, outer, 0.1, zeros(problem), [slice(0, 1)])
    found = [model.step()[0, 0] for _ in range(4 * rounds)][3::4]
    assert found[:3] == pytest.approx(wanted, abs=6e-10)
    assert found[-1] == pytest.approx(LIMIT, abs=1e-10)


def in_threes(round_number, rank):
    """(01)(23), (02)(13), (03)(12) and again."""
    return rank ^ (1 + round_number % 3)


NOLOCO = [
    [-0.086275, -0.086275, 0.68425, 0.68425],
    [0.6209641891, -0.104670804, 1.237384189, 0.511749196],
    [0.9784019064, 0.3736688307, 1.062050325, 0.5057674119],
]
NOLOCO_CYCLE = [0.8650547422, 0.3795398376, 0.8879457377, 0.4512518735]


def test_the_model_of_pairs_gives_the_published_rounds():
    problem, outer = models.published(), models.Outer("noloco", 0.7, 0.5, consensus=0.7)
    model = models.LocalModel(problem, outer, 0.1, zeros(problem), [slice(0, 1)], in_threes)
    found = [model.step().ravel() for _ in range(4 * 300)][3::4]
    for k in range(3):
        assert found[k] == pytest.approx(NOLOCO[k], abs=6e-10)
    assert found[-1] == pytest.approx(NOLOCO_CYCLE, abs=6e-11)


def two_fragments():
    """a (y - b)^2 / 2 + (5 - a) (z - 2 b)^2 / 2 + (y - z)^2 / 2."""
    a, b = (1.0, 2.0, 3.0, 4.0), (1.0, -1.0, 2.0, 0.5)
    hessians = np.array([[[one + 1, -1], [-1, 6 - one]] for one in a])
    pulled = np.array([[one * at, (5 - one) * 2 * at] for one, at in zip(a, b)])
    return models.Problem(hessians, np.linalg.solve(hessians, pulled[:, :, None])[:, :, 0])


STREAMS = {  # G after inner steps 2, 4, 6, and its limit
    0.0: [(0.23275, 0), (0.23275, 0.78606325), (0.7427008785, 0.78606325)],
    0.5: [(0.23275, 0), (0.23275, 0.790701625), (0.7339737593, 0.790701625)],
}
STREAM_LIMITS = {0.0: (0.7765079991, 1.02589178), 0.5: (0.7719800018, 1.047433174)}
STREAM_OF_0 = [(0.246375, 1.21), (0.57744375, 1.173665188), (0.7609443356, 1.590220636)]


@pytest.mark.parametrize("mixing", STREAMS)
def test_the_model_of_fragments_gives_the_published_steps(mixing):
    outer = models.Outer("diloco", 0.7, 0.9, every=4, fragments=2, delay=1, mixing=mixing)
    problem = two_fragments()
    model = models.LocalModel(problem, outer, 0.1, zeros(problem), [slice(0, 1), slice(1, 2)])
    for k in range(3):
        model.step()
        x = model.step()
        assert model.anchor[0] == pytest.approx(STREAMS[mixing][k], abs=6e-10)
        if mixing == 0.5:
            assert x[0] == pytest.approx(STREAM_OF_0[k], abs=6e-10)
    for _ in range(3000):
        model.step()
    assert model.anchor[0] == pytest.approx(STREAM_LIMITS[mixing], abs=6e-10)


IN_TURN = {
    1: 0.0601825,
    2: -0.0431375,
    3: 0.2228275,
    4: 0.56807625,
    8: 1.159212026,
    12: 1.391332547,
}


def pushed_in_turn(server, pushes):
    problem, bases = models.published(), [np.zeros(1)] * 4
    for t in range(pushes):
        bases[t % 4] = server.push(models.went(problem, t % 4, bases[t % 4], 0.1, 4))
        yield t + 1, bases[t % 4][0]


def test_the_model_of_delayed_momentum_gives_the_published_pushes():
    server = models.DelayedNesterov(np.zeros(1), 0.7, 0.9, 4)
    for t, x in pushed_in_turn(server, 2000):
        assert x == pytest.approx(IN_TURN.get(t, x), abs=6e-10)
    assert x == pytest.approx(0.688020252, abs=6e-11)


# ---- cases ----


def drawn_graph(ranks, seed, directed):
    """A cycle and chords: the text of a file, and its matrix."""
    draw = random.Random(f"{ranks} {seed} {directed}")
    edges = {(i, (i + 1) % ranks) for i in range(ranks)}
    for i in range(ranks):
        for j in range(ranks):
            if i != j and draw.random() < 0.3:
                edges.add((i, j))
    if not directed:
        edges = {(min(each), max(each)) for each in edges}
    sources = [set() for _ in range(ranks)]
    for i, j in edges:
        sources[j].add(i)
        if not directed:
            sources[i].add(j)
    head = "weights sender\n" if directed else "undirected\n"
    text = f"ranks {ranks}\n{head}edges\n" + "".join(f"{i} {j}\n" for i, j in sorted(edges))
    return text, [(models.sender if directed else models.metropolis)(sources)]


STATIC = (
    "ring",
    "mesh",
    "torus",
    "star",
    "star:centre=1",
    "full",
    "exponential:base=2,symmetric=on",
    "ring:weights=metropolis-hastings",
    "file",
)
ONE_WAY = ("ring:direction=left", "ring:direction=right", "exponential", "exponential:base=3")
CHANGING = ("one-peer-exponential", "base", "base:k=2", "base:k=3")
PUSHING = (
    "ring:direction=right,weights=sender",
    "star:weights=sender",
    "mesh:weights=sender",
    "exponential:weights=sender",
    "digraph",
)
HIERARCHICAL = "hierarchical:local=2,machines=ring"
TOPOLOGIES = {
    "atc": STATIC + ONE_WAY + CHANGING,
    "awc": STATIC + ONE_WAY + CHANGING,
    "exact-diffusion": STATIC,
    "gradient-tracking": STATIC + ONE_WAY + CHANGING,
    "choco": STATIC + ONE_WAY,
    "push-sum": PUSHING + STATIC + ONE_WAY + CHANGING,
    "push-diging": PUSHING + STATIC + ONE_WAY + CHANGING,
}
RATES = {"atc": 0.1, "awc": 0.08, "exact-diffusion": 0.1, "choco": 0.1}
RATES.update({"gradient-tracking": 0.03, "push-sum": 0.1, "push-diging": 0.03})


@dataclass(frozen=True)
class Case:
    """family: gossip, mixing (its matrices alone), local, pushes (servers with delayed
    momentum) or server (with SGD)."""

    family: str
    kind: str  # algorithm or outer optimizer
    world: int
    dtype: str
    topology: str = ""
    settings: tuple = ()  # pairs
    seed: int = 1
    steps: int = 0  # to the limit, where there is one

    def __getattr__(self, name):
        for key, value in object.__getattribute__(self, "settings"):
            if key == name:
                return value
        raise AttributeError(name)

    def get(self, name, otherwise=None):
        return dict(self.settings).get(name, otherwise)

    def __str__(self):
        told = ",".join(f"{key}={value}" for key, value in self.settings)
        return f"{self.kind} {self.topology} of {self.world}, {self.dtype}, {told}"


def gossip_cases(world):
    found = []
    for dtype in TOLERANCE:
        for algorithm, topologies in TOPOLOGIES.items():
            more = (HIERARCHICAL,) if world == 4 and algorithm != "choco" else ()
            for topology in topologies + more:
                for settings in gossip_settings(algorithm, dtype):
                    found.append(Case("gossip", algorithm, world, dtype, topology, settings))
    return found


def mixing_cases(world):
    """By neighbor_all_reduce(), which takes weights that Gossip() refuses."""
    biased = ("star:weights=uniform", "mesh:weights=uniform")
    return [
        Case("mixing", "neighbours", world, dtype, topology)
        for dtype in TOLERANCE
        for topology in TOPOLOGIES["push-sum"] + biased
    ]


def gossip_settings(algorithm, dtype):
    """Plain to the limit; the mean of all now and then; momentum; a rate that changes."""
    rate = RATES[algorithm]
    yield (("rate", rate), ("limit", True))
    yield (("rate", rate), ("average", 3))
    yield (("rate", rate), ("halved", 4))
    if algorithm not in ("gradient-tracking", "push-diging"):
        yield (("rate", rate), ("momentum", 0.6))
    if algorithm == "choco":
        yield (("rate", rate), ("gamma", 0.4), ("limit", True))
        if dtype == "float32":
            yield (("rate", rate), ("gamma", 0.3), ("kept", 2), ("bucket", 4))


OUTERS = {
    "average": [{}],
    "slowmo": [{}, {"outer_rate": 0.8, "outer_momentum": 0.7}, {"halved": 5}],
    "diloco": [{}, {"nesterov": 0}, {"outer_rate": 1.0, "outer_momentum": 0.5}],
    "noloco": [{}, {"outer_rate": 0.5, "outer_momentum": 0.3, "consensus_rate": 0.9}],
    "sparseloco": [{}, {"outer_rate": 0.6}],
}
WINDOWS = (  # every, fragments, delay, mixing
    (1, 1, 0, 0.0),
    (4, 1, 0, 0.0),
    (3, 1, 2, 0.0),
    (4, 1, 1, 0.3),
    (4, 2, 0, 0.0),
    (4, 2, 1, 0.5),
    (6, 3, 1, 0.0),
    (8, 4, 1, 1.0),
    (4, 4, 0, 0.25),
)
KINDS = {
    "average": LocalSGD,
    "slowmo": SlowMo,
    "diloco": DiLoCo,
    "noloco": NoLoCo,
    "sparseloco": SparseLoCo,
}
PAPERS = {  # the defaults with many steps: outer_rate, outer_momentum, consensus_rate
    "average": (1.0, 0.0, 0.0),
    "slowmo": (1.0, 0.5, 0.0),
    "diloco": (0.7, 0.9, 0.0),
    "noloco": (0.7, 0.5, 0.7),
    "sparseloco": (1.0, 0.0, 0.0),
}


def local_cases(world):
    found = []
    for dtype in TOLERANCE:
        for kind, sets in OUTERS.items():
            for settings in sets:
                for every, fragments, delay, mixing in WINDOWS:
                    given = {"every": every, "fragments": fragments, "delay": delay}
                    given = {**given, "mixing": mixing, **settings}
                    found.append(Case("local", kind, world, dtype, "", tuple(given.items())))
        if dtype == "float32":  # topk takes no float64
            for every, fragments, delay, mixing in WINDOWS:
                given = {"every": every, "fragments": fragments, "delay": delay}
                given = {**given, "mixing": mixing, "kept": 2, "bucket": 4}
                found.append(
                    Case("local", "sparseloco", world, dtype, "", tuple(given.items()))
                )
    return found


def served_cases(world):
    """Of one server, and workers that exchange in a drawn order; with a server each, all
    together."""
    found = []
    for seed in (1, 2):
        for rate, momentum, every in ((0.7, 0.9, None), (0.5, 0.6, 1), (1.0, 0.8, 2)):
            for speeds in ((4,), (1, 3, 5)):
                settings = (("rate", rate), ("momentum", momentum), ("after", every))
                settings += (("speeds", speeds),)
                for kind in ("in turn", "together"):
                    if kind == "in turn" or (every is None and len(speeds) == 1):
                        case = Case("pushes", kind, world, "float32", "", settings, seed)
                        found.append(case)
        for momentum, nesterov in ((0.0, False), (0.9, False), (0.8, True)):
            for kind in ("in turn", "together"):
                settings = (("rate", 0.05), ("momentum", momentum), ("nesterov", nesterov))
                found.append(Case("server", kind, world, "float32", "", settings, seed))
    return found


# ---- the ranks' side ----


class Quadratic(nn.Module):
    """f of this rank, over parameters of several shapes."""

    def __init__(self, problem, rank, dtype, start):
        super().__init__()
        self.points = nn.ParameterList(
            nn.Parameter(torch.tensor(start[part].reshape(shape), dtype=dtype))
            for part, shape in zip(parts(), SHAPES)
        )
        self.a = torch.tensor(problem.a[rank], dtype=dtype)
        self.b = torch.tensor(problem.b[rank], dtype=dtype)

    def forward(self):
        away = self.x() - self.b
        return 0.5 * away @ (self.a @ away)

    def x(self):
        return torch.cat([each.reshape(-1) for each in self.points])

    def now(self):
        return self.x().detach().double().numpy().copy()


def start_of(case):
    """Equal on all ranks where the algorithm says so."""
    draw = np.random.default_rng([7, case.seed, case.world])
    x = draw.normal(size=(case.world, ELEMENTS))
    return x if case.family in ("gossip", "mixing") else np.tile(x[0], (case.world, 1))


def problem_of(case):
    return models.drawn(case.world, ELEMENTS, case.seed)


def partner_of(seed, world):
    """Pairs drawn anew for each round; one is left over where ranks are odd."""

    def partner(round_number, rank):
        order = list(range(world))
        random.Random(f"{seed} {round_number}").shuffle(order)
        at = order.index(rank) ^ 1
        return order[at] if at < world else rank

    return partner


def run_cases(rank, world, cases, folder):
    """{case: iterates, the last of which is the limit; or what was refused}"""
    own = {"gossip": gossip, "mixing": mixing, "local": local}
    own.update(pushes=served, server=served)
    groups = {"workers": dist.new_group(list(range(1, world)))}
    return [own[case.family](rank, world, case, folder, groups) for case in cases]


def descend(model, opt, rate=None):
    if rate is not None:
        for group in opt.inner.param_groups:
            group["lr"] = rate
    opt.zero_grad()
    model().backward()
    opt.step()


def halved(case, step):
    """The rate of a step."""
    at = case.get("halved")
    return case.get("rate", 0.1) * (0.5 if at and step >= at else 1.0)


def gossip(rank, world, case, folder, groups):
    model = Quadratic(problem_of(case), rank, getattr(torch, case.dtype), start_of(case)[rank])
    inner = torch.optim.SGD(model.parameters(), case.rate, momentum=case.get("momentum", 0.0))
    topology = case.topology
    if topology in ("file", "digraph"):
        topology = f"file:{folder}/{topology}-{world}-{case.seed}.txt"
    options = {"gamma": case.gamma} if case.get("gamma") else {}
    if case.get("kept"):
        codec = f"topk:k={case.kept},bucket={case.bucket},values=fp32"
        options.update(codec=codec, min_size=0)
    opt = Gossip(inner, model, topology, case.kind, broadcast=False, **options)
    found = []
    for step in range(FIRST + case.steps):
        descend(model, opt, halved(case, step))
        if case.get("average") and (step + 1) % case.average == 0:
            opt.average_parameters()
        if step < FIRST:
            found.append(model.now())
    return [*found, model.now()]


def mixing(rank, world, case, folder, groups):
    x = torch.tensor(start_of(case)[rank], dtype=getattr(torch, case.dtype))
    rounds, found = rounds_of(case), []
    for step in range(FIRST):
        w = rounds[step % len(rounds)]
        from_whom = {j: w[rank, j] for j in range(world) if j != rank and w[rank, j]}
        to_whom = {i: 1.0 for i in range(world) if i != rank and w[i, rank]}
        communicator_of().neighbor_all_reduce(
            [x], w[rank, rank], from_whom, to_whom, blocking=True
        )
        found.append(x.double().numpy().copy())
    return found


def local(rank, world, case, folder, groups):
    model = Quadratic(problem_of(case), rank, getattr(torch, case.dtype), start_of(case)[rank])
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    options = dict(case.settings)
    options.pop("halved", None)
    if case.kind == "noloco":
        options["partner"] = partner_of(case.seed, world)
    if case.kind == "sparseloco":
        kept, bucket = options.pop("kept", 0), options.pop("bucket", 0)
        options["codec"] = f"topk:k={kept},bucket={bucket},values=fp32" if kept else None
        options["min_size"] = 0
    opt = KINDS[case.kind](model, inner, **options)
    found = []
    for step in range(3 * case.every + case.steps):
        descend(model, opt, halved(case, step))
        if step < 3 * case.every:
            found.append(model.now())
    return [*found, model.now()]


def order_of(case):
    """Which worker exchanges when."""
    draw = random.Random(f"{case.seed} {case.world} order")
    return [draw.randrange(case.world - 1) for _ in range(4 * (case.world - 1))]


def served(rank, world, case, folder, groups):
    """In turn: {exchange: x after it}, of this rank's own. Together: x after each step."""
    is_turns = case.kind == "in turn"
    worker = max(rank - 1, 0) if is_turns else rank
    model = Quadratic(problem_of(case), worker, torch.float32, start_of(case)[0])
    opt, steps = served_optimizer(case, model, worker, is_turns)
    found = {}
    if not is_turns:
        for turn in range(4):
            for _ in range(steps):
                descend(model, opt)
            found[turn] = model.now()
    elif opt.is_worker:
        model()  # all have begun before the first exchange
        dist.barrier(groups["workers"])
        for turn, who in enumerate(order_of(case)):
            if who == opt._worker():
                for _ in range(steps):
                    descend(model, opt)
                found[turn] = model.now()
            dist.barrier(groups["workers"])
    opt.finish()
    return found


def served_optimizer(case, model, worker, is_turns):
    """And steps between two exchanges."""
    place = {"servers": 1, "staleness": "inf"} if is_turns else {"staleness": 0}
    if case.family == "pushes":
        every = case.speeds[worker % len(case.speeds)]
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        outer = {"outer_rate": case.rate, "outer_momentum": case.momentum}
        opt = AsyncLocalSGD(model, inner, every, momentum_every=case.after, **outer, **place)
        return opt, every
    inner = torch.optim.SGD(
        model.parameters(), case.rate, momentum=case.momentum, nesterov=case.nesterov
    )
    return ParameterServer(inner, model, **place), 1


# ---- what it should be ----


def rounds_of(case):
    if case.topology in ("file", "digraph"):
        return drawn_graph(case.world, case.seed, case.topology == "digraph")[1]
    return models.rounds_of(case.topology, case.world)


def gossip_model(case):
    options = {"gamma": case.get("gamma", 1.0), "momentum": case.get("momentum", 0.0)}
    model = models.GossipModel(
        problem_of(case), rounds_of(case), case.kind, case.rate, start_of(case), **options
    )
    if case.get("kept"):
        model.select = by_parameter(models.largest(case.kept, case.bucket))
    return model


def by_parameter(select):
    def of_all(e):
        return np.concatenate([select(e[part]) for part in parts()])

    return of_all


def local_model(case):
    rate, momentum, consensus = PAPERS[case.kind]
    momentum = min(momentum, 0.3)  # of few steps: no window here has more than 20
    outer = models.Outer(
        case.kind,
        case.get("outer_rate", rate),
        case.get("outer_momentum", momentum),
        bool(case.get("nesterov", 1)),
        case.get("consensus_rate", consensus),
        0.95,
        case.every,
        case.fragments,
        case.delay,
        case.mixing,
    )
    select = models.largest(case.kept, case.bucket) if case.get("kept") else None
    partner = partner_of(case.seed, case.world)
    return models.LocalModel(
        problem_of(case), outer, 0.1, start_of(case), parts(), partner, select
    )


def wanted_of(case):
    """As run_cases() has it, of all ranks."""
    if case.family in ("pushes", "server"):
        return wanted_of_servers(case)
    if case.family == "mixing":
        return wanted_of_mixing(case)
    model = gossip_model(case) if case.family == "gossip" else local_model(case)
    first = FIRST if case.family == "gossip" else 3 * case.every
    found = []
    for step in range(first):
        model.rate = halved(case, step)
        model.step()
        if case.get("average") and (step + 1) % case.average == 0:
            model.average()
        found.append(model.x.copy())
    limit = limit_of(case) if case.steps else found[-1]
    return np.stack([*found, limit], 1)


def wanted_of_mixing(case):
    x, rounds, found = start_of(case), rounds_of(case), []
    for step in range(FIRST):
        x = rounds[step % len(rounds)] @ x
        found.append(x)
    return np.stack(found, 1)


def wanted_of_servers(case):
    is_turns, problem, x = case.kind == "in turn", problem_of(case), start_of(case)[0]
    workers = case.world - is_turns
    if case.family == "pushes":
        every = (case.after or workers) if is_turns else workers
        server = models.DelayedNesterov(x, case.rate, case.momentum, every)
    else:
        server = models.MomentumSGD(x, case.rate, case.momentum, case.nesterov)

    def learnt(worker, base):
        if case.family == "server":  # its share of the mean gradient
            return problem.gradient(worker, base) / workers
        steps = case.speeds[worker % len(case.speeds)]
        return models.went(problem, worker, base, 0.1, steps)

    told = [{} for _ in range(case.world)]
    if is_turns:
        bases = [x] * workers
        for turn, who in enumerate(order_of(case)):
            bases[who] = told[1 + who][turn] = server.push(learnt(who, bases[who]))
        return told
    for turn in range(4):
        all_of_them = [learnt(worker, x) for worker in range(workers)]
        if case.family == "server":
            x = server.push(sum(all_of_them))
        else:
            for g in all_of_them:
                x = server.push(g)
        for each in told:
            each[turn] = x
    return told


def limit_of(case):
    """From linear equations."""
    if case.family == "gossip":
        return models.gossip_limit(
            problem_of(case), rounds_of(case), case.kind, case.rate, case.get("gamma", 1.0)
        )
    return models.local_limit(problem_of(case), 0.1, case.every - case.delay)


def has_limit(case):
    if case.family == "gossip":
        return bool(case.get("limit")) and case.kind != "push-sum"
    synchronous = case.kind in ("average", "diloco", "slowmo") and not case.get("halved")
    return case.family == "local" and synchronous and case.fragments == 1 and case.mixing == 0


def with_steps(case, most):
    """How many steps the model needs to its limit, whole cycles; none where it is far."""
    if not has_limit(case):
        return case
    if case.family == "gossip":
        model, first, cycle = gossip_model(case), FIRST, len(rounds_of(case))
    else:
        model, first, cycle = local_model(case), 3 * case.every, case.every
    limit, near = limit_of(case), TOLERANCE[case.dtype] / 10
    for step in range(1, first + most + 1):
        model.step()
        if step > first and step % cycle == 0 and abs(model.x - limit).max() < near:
            return replace(case, steps=step - first)
    return case


# ---- the comparison ----


def chosen(cases, draw, count):
    """All, or `count` of each kind and type."""
    if LONG:
        return cases
    kinds: dict = {}
    for case in cases:
        kinds.setdefault((case.family, case.kind, case.dtype), []).append(case)
    return [
        case for some in kinds.values() for case in draw.sample(some, min(count, len(some)))
    ]


def errors_of(case, found):
    """In tolerances, by rank and iterate."""
    wanted, tolerance = wanted_of(case), TOLERANCE[case.dtype]
    told = {}
    for rank in range(case.world):
        keys = wanted[rank] if isinstance(wanted[rank], dict) else range(len(wanted[rank]))
        assert len(found[rank]) == len(wanted[rank]), case
        for key in keys:
            here = wanted[rank][key]
            error = (abs(found[rank][key] - here) / np.maximum(1, abs(here))).max()
            told[rank, key] = error / tolerance
    return told


@pytest.mark.parametrize("world", WORLDS)
def test_pytorch_gives_the_answers_of_the_models(world, tmp_path):
    seed = int(os.environ.get("REDPOLL_TEST_SEED") or time.time_ns() % 1000000)
    print(f"REDPOLL_TEST_SEED={seed}")
    draw = random.Random(seed * 10 + world)
    for name in ("file", "digraph"):
        text, _ = drawn_graph(world, 1, name == "digraph")
        (tmp_path / f"{name}-{world}-1.txt").write_text(text)
    cases = gossip_cases(world) + mixing_cases(world) + local_cases(world)
    cases += served_cases(world)
    cases = [with_steps(case, 600 if LONG else 150) for case in chosen(cases, draw, 1)]
    limit = 3000 if LONG else 300
    told = values(run_group(run_cases, world, cases, str(tmp_path), timeout=limit))
    wrong = {}
    for case, found in zip(cases, zip(*told)):
        errors = errors_of(case, found)
        far = {key: error for key, error in errors.items() if not error <= 1}
        if far:
            key = min(far, key=lambda each: each[1])
            wrong[str(case)] = f"rank {key[0]}, iterate {key[1]}: {far[key]:.3g} tolerances"
    assert wrong == {}


# ---- float64 where a codec takes none ----


def refused(rank, world):
    def attempt(make):
        model = Quadratic(
            models.drawn(world, ELEMENTS, 1), rank, torch.float64, np.zeros(ELEMENTS)
        )
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        return refusal(ValueError, lambda: make(model, inner))

    codec = {"codec": "topk:k=2,bucket=4,values=fp32", "min_size": 0}
    return {
        "choco": attempt(lambda model, inner: Gossip(inner, model, "ring", "choco", **codec)),
        "sparseloco": attempt(lambda model, inner: SparseLoCo(model, inner, **codec)),
        "server": attempt(lambda model, inner: ParameterServer(inner, model)),
        "pushes": attempt(lambda model, inner: AsyncLocalSGD(model, inner)),
    }


def test_what_takes_no_float64_says_so():
    for told in values(run_group(refused, 2)):
        for what, said in told.items():
            assert "float64" in said, (what, said)
