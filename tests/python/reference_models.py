"""Decentralised training as its papers define it, in numpy and float64: mixing matrices of the
topologies, gossip, local steps with an outer optimizer, servers with delayed momentum.

Written from the equations alone, one list of all ranks' vectors at a time and no exchange: what
test_known_answers.py compares the library with. W[i][j] is what rank i puts on rank j's vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Optional

import numpy as np

# ---- problems: f_i(x) = (x - b_i)' A_i (x - b_i) / 2 ----


@dataclass
class Problem:
    """A of (ranks, elements, elements), b of (ranks, elements)."""

    a: np.ndarray
    b: np.ndarray

    def gradient(self, rank: int, x: np.ndarray) -> np.ndarray:
        return self.a[rank] @ (x - self.b[rank])

    def gradients(self, x: np.ndarray) -> np.ndarray:
        return np.stack([self.gradient(rank, each) for rank, each in enumerate(x)])

    def best(self) -> np.ndarray:
        """Of the sum of all ranks' functions."""
        pulled = sum(a @ b for a, b in zip(self.a, self.b))
        return np.linalg.solve(self.a.sum(0), pulled)


def published() -> Problem:
    """a = 1, 2, 3, 4; the optimum is .7."""
    a, b = (1.0, 2.0, 3.0, 4.0), (1.0, -1.0, 2.0, 0.5)
    return Problem(np.array(a).reshape(4, 1, 1), np.array(b).reshape(4, 1))


def drawn(ranks: int, elements: int, seed: int) -> Problem:
    """Coupled elements, eigenvalues of 1 to 4."""
    draw = np.random.default_rng([seed, ranks])
    a = []
    for _ in range(ranks):
        turn, _ = np.linalg.qr(draw.normal(size=(elements, elements)))
        a.append(turn @ np.diag(draw.uniform(1, 4, elements)) @ turn.T)
    return Problem(np.array(a), draw.normal(size=(ranks, elements)))


# ---- topologies ----


def uniform(sources: list[set[int]]) -> np.ndarray:
    """Receivers weigh all alike, themselves too."""
    w = np.zeros((len(sources), len(sources)))
    for i, some in enumerate(sources):
        w[i, [i, *some]] = 1 / (len(some) + 1)
    return w


def sender(sources: list[set[int]]) -> np.ndarray:
    """Senders split in equal parts, one of which they keep."""
    n = len(sources)
    w = np.zeros((n, n))
    for j in range(n):
        into = [i for i in range(n) if j in sources[i]]
        w[[j, *into], j] = 1 / (len(into) + 1)
    return w


def metropolis(sources: list[set[int]]) -> np.ndarray:
    """1 / the larger degree of both ends, each counting itself."""
    w = np.zeros((len(sources), len(sources)))
    for i, some in enumerate(sources):
        for j in some:
            w[i, j] = 1 / max(len(some) + 1, len(sources[j]) + 1)
        w[i, i] = 1 - w[i].sum()
    return w


WEIGHTS = {"uniform": uniform, "sender": sender, "metropolis-hastings": metropolis}


def shape_of(n: int) -> tuple[int, int]:
    rows = max(r for r in range(1, n + 1) if n % r == 0 and r * r <= n)
    return rows, n // rows


def ring_graph(n: int, hops: tuple[int, ...]) -> list[set[int]]:
    return [{(i + hop) % n for hop in hops} - {i} for i in range(n)]


def grid_graph(n: int, wraps: bool) -> list[set[int]]:
    rows, columns = shape_of(n)
    found: list[set[int]] = [set() for _ in range(n)]
    for i in range(n):
        r, c = divmod(i, columns)
        for down, right in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            y, x = r + down, c + right
            if wraps:
                found[i].add(y % rows * columns + x % columns)
            elif 0 <= y < rows and 0 <= x < columns:
                found[i].add(y * columns + x)
        found[i].discard(i)
    return found


def star_graph(n: int, centre: int) -> list[set[int]]:
    return [set(range(n)) - {i} if i == centre else {centre} for i in range(n)]


def powers(base: int, limit: int) -> list[int]:
    """Below limit."""
    found = [1]
    while found[-1] * base < limit:
        found.append(found[-1] * base)
    return [each for each in found if each < limit]


def exponential_graph(n: int, base: int, symmetric: bool) -> list[set[int]]:
    if symmetric:
        half = set(powers(base, n // 2 + 1))
        hops = [d for d in range(1, n) if (d if d <= n // 2 else n - d) in half]
    else:
        hops = powers(base, n)
    return ring_graph(n, tuple(-hop for hop in hops))


def one_peer(n: int) -> list[np.ndarray]:
    return [uniform(ring_graph(n, (-hop,))) for hop in powers(2, n)]


# Base-(k+1): exact for every number of ranks.


def clique(w: np.ndarray, members: list[int]) -> None:
    w[np.ix_(members, members)] = 1 / len(members)


def factors(n: int, k: int) -> Optional[list[int]]:
    """Of n, none above k + 1, rising; None where a prime of n is."""
    found = []
    for divisor in range(k + 1, 1, -1):
        while n % divisor == 0:
            found.append(divisor)
            n //= divisor
    return sorted(found) if n == 1 else None


def hhc(n: int, k: int) -> list[list[list[int]]]:
    """Rounds of cliques."""
    rounds, stride = [], 1
    for factor in factors(n, k) or []:
        blocks = range(0, n, stride * factor)
        rounds.append(
            [[b + c + i * stride for i in range(factor)] for b in blocks for c in range(stride)]
        )
        stride *= factor
    return rounds


def digits(n: int, base: int) -> list[tuple[int, int]]:
    """(a, p) of n = sum of a base^p, falling p."""
    found, p = [], 0
    while n:
        if n % base:
            found.insert(0, (n % base, p))
        n, p = n // base, p + 1
    return found


def simple_base(n: int, k: int) -> list[np.ndarray]:
    if factors(n, k) is not None:
        return [joined(n, cliques) for cliques in hhc(n, k)]
    base, parts, first = k + 1, digits(n, k + 1), 0
    sets, blocks = [], []
    for a, p in parts:
        size = base**p
        blocks.append([list(range(first + b * size, first + (b + 1) * size)) for b in range(a)])
        sets.append(list(range(first, first + a * size)))
        first += a * size
    rounds = []
    for m in range(len(hhc(len(sets[0]), k))):
        w = np.eye(n)
        for some in sets:
            own = hhc(len(some), k)
            for each in own[m % len(own)] if own else []:
                clique(w, [some[i] for i in each])
        rounds.append(w)
    last, counters, j = len(sets) - 1, [0] * len(sets), 0
    while counters[0] < parts[0][1]:
        w = np.eye(n)
        if j < last:
            join_later(w, sets, blocks, j, base)
        for at in sorted({*range(min(j, len(sets))), *([last] if j >= last else [])}):
            run_next(w, sets[at], blocks[at], counters, at, k)
        rounds.append(w)
        j += 1
    return rounds


def join_later(w, sets, blocks, j: int, base: int) -> None:
    """(a) every node of later sets to one of each block of set j, (b) cliques of the rest."""
    left = [list(block) for block in blocks[j]]
    total = sum(len(some) for some in sets[j:])
    weight = len(sets[j]) / (len(blocks[j]) * total)
    for later in range(len(sets) - 1, j, -1):
        for i in sets[later]:
            for block in left:
                taken = block.pop()
                w[i, taken] = w[taken, i] = weight
                w[taken, taken] = 1 - weight
            w[i, i] = 1 - len(sets[j]) / total
    rest = sorted(node for block in left for node in block)
    for first in range(0, len(rest), base):
        clique(w, rest[first : first + base])


def run_next(w, some, blocks, counters, at: int, k: int) -> None:
    """(c) the next round of a set by itself."""
    groups = [some] if len(some) < k + 1 else blocks
    rounds = hhc(len(groups[0]), k)
    if rounds:
        for group in groups:
            for each in rounds[counters[at] % len(rounds)]:
                clique(w, [group[i] for i in each])
    counters[at] += 1


def joined(n: int, cliques: list[list[int]]) -> np.ndarray:
    w = np.eye(n)
    for each in cliques:
        clique(w, each)
    return w


def base_graph(n: int, k: int) -> list[np.ndarray]:
    whole = simple_base(n, k)
    p = max(d for d in range(1, n + 1) if n % d == 0 and factors(d, k) is not None)
    q = n // p
    if p == 1 or q == 1:
        return whole
    apart = [np.kron(np.eye(p), w) for w in simple_base(q, k)]
    across = [
        joined(n, [[i * q + at for i in each] for each in cliques for at in range(q)])
        for cliques in hhc(p, k)
    ]
    both = apart + across
    return whole if len(whole) < len(both) else both


def inner_outer_ring(machines: int, local: int) -> list[np.ndarray]:
    rounds = []
    for o in range(local):
        w = np.eye(machines * local) / 2
        for m in range(machines):
            w[(m + 1) % machines * local + o, m * local + o] += 0.5
            for at in range(local):
                if at != o:
                    to = (at + 1) % local
                    to = (to + 1) % local if to == o else to
                    w[m * local + to, m * local + at] += 0.5
        rounds.append(w)
    return rounds


def rounds_of(topology: str, n: int) -> list[np.ndarray]:
    """Of a topology's name and options, as docs/topologies.md has them; not of files."""
    name, _, rest = topology.partition(":")
    options = dict(each.split("=", 1) for each in rest.split(",") if each)
    rule = options.get("weights")
    if name == "base":
        return base_graph(n, int(options.get("k", 1)))
    if name == "one-peer-exponential":
        return one_peer(n)
    if name == "inner-outer-ring":
        local = int(options["local"])
        return inner_outer_ring(n // local, local)
    if name == "hierarchical":
        local = int(options["local"])
        inside = np.ones((local, local)) / local
        return [np.kron(w, inside) for w in rounds_of(options["machines"], n // local)]
    usual = "metropolis-hastings" if name in ("mesh", "torus", "star") else "uniform"
    return [WEIGHTS[rule or usual](graph_of(name, options, n))]


def graph_of(name: str, options: dict[str, str], n: int) -> list[set[int]]:
    if name == "ring":
        hops = {"both": (1, -1), "left": (1,), "right": (-1,)}
        return ring_graph(n, hops[options.get("direction", "both")])
    if name in ("mesh", "torus"):
        return grid_graph(n, name == "torus")
    if name == "star":
        return star_graph(n, int(options.get("centre", 0)))
    if name == "full":
        return star_graph(n, 0) if n < 2 else ring_graph(n, tuple(range(1, n)))
    assert name == "exponential", name
    return exponential_graph(n, int(options.get("base", 2)), options.get("symmetric") == "on")


def second_eigenvalue(rounds: list[np.ndarray]) -> float:
    """Per round over a cycle."""
    product = np.eye(len(rounds[0]))
    for w in rounds:
        product = w @ product
    sizes = sorted(abs(np.linalg.eigvals(product)))
    return sizes[-2] ** (1 / len(rounds))


# ---- gossip ----


class GossipModel:
    """x of all ranks, a row each. algorithm: as of redpoll.torch.Gossip."""

    def __init__(self, problem: Problem, rounds, algorithm: str, rate: float, x, **options):
        """options: gamma of choco, momentum of the ranks' own heavy ball."""
        self.problem, self.rounds, self.algorithm = problem, rounds, algorithm
        self.rate, self.x, self.t = rate, x.copy(), 0
        self.gamma = options.get("gamma", 1.0)
        self.momentum, self.v = options.get("momentum", 0.0), np.zeros_like(x)
        self.select: Optional[Callable[[np.ndarray], np.ndarray]] = None  # choco's codec
        self.begin()

    def begin(self) -> None:
        self.gradient = self.problem.gradients(self.x)
        self.before = self.x.copy()  # psi of exact diffusion
        self.tracked = self.gradient.copy()
        self.pushed, self.mass = self.x.copy(), np.ones(len(self.x))
        self.copies: Optional[np.ndarray] = None

    def step(self) -> np.ndarray:
        w = self.rounds[self.t % len(self.rounds)]
        getattr(self, "_" + self.algorithm.replace("-", "_"))(w)
        self.t += 1
        return self.x

    def average(self) -> None:
        self.x = np.tile(self.x.mean(0), (len(self.x), 1))
        self.begin()

    def _own(self) -> np.ndarray:
        """What the ranks' own optimizers take from x."""
        self.v = self.momentum * self.v + self.problem.gradients(self.x)
        return self.rate * self.v

    def _stepped(self) -> np.ndarray:
        return self.x - self._own()

    def _atc(self, w) -> None:
        self.x = w @ self._stepped()

    def _awc(self, w) -> None:
        self.x = w @ self.x - self._own()

    def _exact_diffusion(self, w) -> None:
        psi = self._stepped()
        phi, self.before = psi + self.x - self.before, psi
        self.x = (w + np.eye(len(w))) / 2 @ phi

    def _gradient_tracking(self, w) -> None:
        self.x = w @ self.x - self.rate * self.tracked
        self._track(w)

    def _track(self, w) -> None:
        new = self.problem.gradients(self.x)
        self.tracked, self.gradient = w @ self.tracked + new - self.gradient, new

    def _choco(self, w) -> None:
        """The first exchange makes the copies: it is exact."""
        half = self._stepped()
        if self.copies is None or self.select is None:
            self.copies = half.copy()
        else:
            self.copies = self.copies + np.stack([self.select(e) for e in half - self.copies])
        self.x = half + self.gamma * (w - np.eye(len(w))) @ self.copies

    def _push_sum(self, w) -> None:
        """The gradient is at x = z; what is pushed takes its step."""
        self.pushed = w @ (self.pushed - self._own())
        self._divide(w)

    def _push_diging(self, w) -> None:
        self.pushed = w @ (self.pushed - self.rate * self.tracked)
        self._divide(w)
        self._track(w)

    def _divide(self, w) -> None:
        self.mass = w @ self.mass
        self.x = self.pushed / self.mass[:, None]


def gossip_limit(problem: Problem, rounds, algorithm: str, rate: float, gamma=1.0):
    """The fixed point after a whole cycle, from linear equations, not from steps. None: the
    algorithm has no closed form over changing rounds."""
    n, d = problem.b.shape
    if algorithm in ("exact-diffusion", "gradient-tracking", "push-diging"):
        return np.tile(problem.best(), (n, 1))
    if algorithm == "push-sum":
        return None
    blocks = np.zeros((n * d, n * d))
    for i, a in enumerate(problem.a):
        blocks[i * d : (i + 1) * d, i * d : (i + 1) * d] = rate * a
    pull, unit = blocks @ problem.b.ravel(), np.eye(n * d)
    matrix, offset = unit, np.zeros(n * d)
    for w in rounds:
        mixed = np.kron(w, np.eye(d))
        if algorithm == "choco":
            mixed = (1 - gamma) * unit + gamma * mixed
        one, add = mixed @ (unit - blocks), mixed @ pull
        if algorithm == "awc":
            one, add = mixed - blocks, pull
        matrix, offset = one @ matrix, one @ offset + add
    return np.linalg.solve(unit - matrix, offset).reshape(n, d)


# ---- local steps ----


@dataclass
class Outer:
    """What is done with the pseudo-gradient; papers' defaults are the caller's."""

    kind: str  # average, slowmo, diloco, noloco, sparseloco
    rate: float = 1.0
    momentum: float = 0.0
    nesterov: bool = True
    consensus: float = 0.0
    decay: float = 1.0
    every: int = 4
    fragments: int = 1
    delay: int = 0
    mixing: float = 0.0


@dataclass
class Flight:
    """What was sent, of each rank."""

    x: np.ndarray
    partners: list[int] = field(default_factory=list)


class LocalModel:
    """x of all ranks; parts: which elements each tensor has; tensor i is in fragment i mod P.
    partner: (round, rank) of noloco; select: of sparseloco, what of e is sent, of a tensor."""

    def __init__(
        self, problem: Problem, outer: Outer, rate, x, parts, partner=None, select=None
    ):
        self.problem, self.outer, self.rate = problem, outer, rate
        self.x, self.anchor = x.copy(), x.copy()  # G: one a rank
        self.momentum, self.residual = np.zeros_like(x), np.zeros_like(x)
        self.parts, self.partner, self.select = parts, partner, select
        self.steps = 0
        self.flight: Optional[Flight] = None

    def step(self) -> np.ndarray:
        o = self.outer
        self.x = self.x - self.rate * self.problem.gradients(self.x)
        self.steps += 1
        h = o.every // o.fragments
        window, s = divmod(self.steps - 1, h)
        if s + 1 == h - o.delay:
            partners = []
            if o.kind == "noloco":
                partners = [self.partner(window, rank) for rank in range(len(self.x))]
            self.flight = Flight(self.x.copy(), partners)
        if s + 1 == h:
            for i in range(window % o.fragments, len(self.parts), o.fragments):
                self._finish(self.parts[i])
        return self.x

    def _finish(self, part) -> None:
        o, local = self.outer, self.x[:, part].copy()
        g = self.anchor[:, part] - self.flight.x[:, part]
        getattr(self, "_" + o.kind)(part, g)
        self.x[:, part] = (1 - o.mixing) * self.anchor[:, part] + o.mixing * local

    def _average(self, part, g) -> None:
        self.anchor[:, part] -= g.mean(0)

    def _slowmo(self, part, g) -> None:
        o = self.outer
        self.momentum[:, part] = o.momentum * self.momentum[:, part] + g.mean(0) / self.rate
        self.anchor[:, part] -= o.rate * self.rate * self.momentum[:, part]

    def _diloco(self, part, g) -> None:
        o, mean = self.outer, g.mean(0)
        v = o.momentum * self.momentum[:, part] + mean
        self.momentum[:, part] = v
        self.anchor[:, part] -= o.rate * (mean + o.momentum * v if o.nesterov else v)

    def _noloco(self, part, g) -> None:
        o, other = self.outer, self.flight.partners
        phi = self.anchor[:, part]
        delta, mean = (g + g[other]) / 2, (phi + phi[other]) / 2
        moved = o.momentum * self.momentum[:, part] - o.rate * delta
        self.momentum[:, part] = moved - o.consensus * (phi - mean)
        self.anchor[:, part] = phi + self.momentum[:, part]

    def _sparseloco(self, part, g) -> None:
        o = self.outer
        e = o.decay * self.residual[:, part] + g
        sent = np.stack([self.select(each) for each in e]) if self.select else e
        self.residual[:, part] = e - sent
        self.anchor[:, part] -= o.rate * sent.mean(0)


def local_limit(problem: Problem, rate: float, steps: int) -> np.ndarray:
    """Where ranks' pseudo-gradients after so many steps add up to nothing."""
    n, d = problem.b.shape
    shrunk = [np.linalg.matrix_power(np.eye(d) - rate * a, steps) for a in problem.a]
    away = [np.eye(d) - each for each in shrunk]
    x = np.linalg.solve(sum(away), sum(m @ b for m, b in zip(away, problem.b)))
    return np.tile(x, (n, 1))


def largest(k: int, bucket: int) -> Callable[[np.ndarray], np.ndarray]:
    """The k of the largest magnitude in each bucket."""

    def select(e: np.ndarray) -> np.ndarray:
        sent = np.zeros_like(e)
        for first in range(0, len(e), bucket):
            some = np.argsort(-abs(e[first : first + bucket]), kind="stable")[:k] + first
            sent[some] = e[some]
        return sent

    return select


# ---- servers ----


class DelayedNesterov:
    """Of the server: buf += g; a step by its share, and every `every` pushes one with
    momentum."""

    def __init__(self, x: np.ndarray, rate: float, momentum: float, every: int):
        self.x, self.rate, self.momentum, self.every = x.copy(), rate, momentum, every
        self.buffer, self.m, self.pushes = np.zeros_like(x), np.zeros_like(x), 0

    def push(self, g: np.ndarray) -> np.ndarray:
        self.buffer = self.buffer + g
        self.pushes += 1
        n = self.every
        if self.pushes % n:
            self.x = self.x - self.rate * g / n
        else:
            self.m = self.momentum * self.m + self.buffer / n
            self.x = self.x - self.rate * (g / n + self.momentum * self.m)
            self.buffer = np.zeros_like(self.x)
        return self.x.copy()


class MomentumSGD:
    """PyTorch's SGD, a step each push."""

    def __init__(self, x: np.ndarray, rate: float, momentum: float, nesterov: bool):
        self.x, self.rate, self.momentum, self.nesterov = x.copy(), rate, momentum, nesterov
        self.v = np.zeros_like(x)

    def push(self, g: np.ndarray) -> np.ndarray:
        self.v = self.momentum * self.v + g
        self.x = self.x - self.rate * (g + self.momentum * self.v if self.nesterov else self.v)
        return self.x.copy()


def went(problem: Problem, rank: int, base: np.ndarray, rate: float, steps: int) -> np.ndarray:
    """base - x after so many local steps."""
    x = base.copy()
    for _ in range(steps):
        x = x - rate * problem.gradient(rank, x)
    return base - x
