"""The interface of BlueFog: what operations compute, what optimizers do, what is refused."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import warnings

import pytest

nx = pytest.importorskip("networkx", reason="networkx is not installed")
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import bluefog.torch as bf  # noqa: E402
from bluefog import bfrun  # noqa: E402
from bluefog.common import topology_util as tu  # noqa: E402
from bluefog.common.util import env  # noqa: E402
from bluefog.torch import mpi_ops  # noqa: E402
from ranks import refusal, run_group, values  # noqa: E402

# ---- graphs ----


def weights(graph):
    return nx.to_numpy_array(graph, nodelist=range(graph.number_of_nodes()))


def rate(graph):
    """The second largest of the absolute eigenvalues."""
    return sorted(abs(np.linalg.eigvals(weights(graph).T)))[-2]


@pytest.mark.parametrize(
    "graph, rates",
    [
        (tu.ExponentialGraph, (1 / 3, 0.5, 0.6)),
        (lambda n: tu.ExponentialGraph(n, 3), (0.3333, 0.5774, 0.6807)),
        (tu.SymmetricExponentialGraph, (0.3333, 0.5, 0.6)),
        (tu.MeshGrid2DGraph, (0.3333, 0.8536, 0.8686)),
        (tu.StarGraph, (0.75, 0.875, 0.9375)),
        (tu.RingGraph, (0.3333, 0.8047, 0.9493)),
        (lambda n: tu.RingGraph(n, 1), (0.7071, 0.9239, 0.9808)),
        (tu.FullyConnectedGraph, (0, 0, 0)),
    ],
)
def test_graphs_mix_as_fast_as_they_should(graph, rates):
    for size, known in zip((4, 8, 16), rates):
        matrix = weights(graph(size))
        assert np.allclose(matrix.sum(0), 1) and np.allclose(matrix.sum(1), 1)
        assert rate(graph(size)) == pytest.approx(known, abs=1e-4)


def test_neighbours_are_those_of_the_reference():
    graph = tu.ExponentialTwoGraph(8)
    assert sorted(tu.GetRecvWeights(graph, 0)[1]) == [4, 6, 7]
    assert sorted(tu.GetSendWeights(graph, 0)[1]) == [1, 2, 4]
    assert list(tu.GetSendWeights(tu.RingGraph(5, 1), 0)[1]) == [4]
    assert list(tu.GetSendWeights(tu.RingGraph(5, 2), 0)[1]) == [1]
    assert weights(tu.RingGraph(2)).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert rate(tu.ExponentialGraph(3)) == pytest.approx(0, abs=1e-9)
    assert tu.IsTopologyEquivalent(graph, tu.ExponentialGraph(8))
    assert not tu.IsTopologyEquivalent(graph, tu.RingGraph(8))
    assert not tu.IsTopologyEquivalent(graph, None)
    assert tu.IsRegularGraph(graph) and not tu.IsRegularGraph(tu.StarGraph(4))


def rounds_match(make, size, rounds=12):
    """Who sends is who is expected, and each rank once where the round is a permutation."""
    iterators = [make(rank) for rank in range(size)]
    for _ in range(rounds):
        lists = [next(each) for each in iterators]
        sends = {(rank, to) for rank, (targets, _) in enumerate(lists) for to in targets}
        expects = {(of, rank) for rank, (_, sources) in enumerate(lists) for of in sources}
        assert sends == expects
        yield lists


def test_dynamic_rounds_match():
    graph = tu.ExponentialGraph(8)
    value = np.arange(8.0)
    for lists in itertools.islice(
        rounds_match(lambda rank: tu.GetDynamicOnePeerSendRecvRanks(graph, rank), 8), 3
    ):
        value = np.array([(value[r] + value[lists[r][1][0]]) / 2 for r in range(8)])
    assert value.tolist() == [3.5] * 8  # exact after log2 n rounds
    for lists in rounds_match(
        lambda rank: tu.GetExp2DynamicSendRecvMachineRanks(12, 3, 3 * rank, 0), 4
    ):
        assert all(len(targets) == 1 for targets, _ in lists)
    inner_outer = (
        tu.GetInnerOuterRingDynamicSendRecvRanks,
        tu.GetInnerOuterExpo2DynamicSendRecvRanks,
    )
    for make, machines, local in itertools.product(inner_outer, (2, 3, 4), (3, 4, 5)):
        size = machines * local
        for lists in rounds_match(lambda rank: make(size, local, rank), size):  # noqa: B023
            assert sorted(targets[0] for targets, _ in lists) == list(range(size))
    with pytest.raises(AssertionError):
        next(tu.GetInnerOuterExpo2DynamicSendRecvRanks(4, 4, 0))


# ---- operations ----


def full(value, dtype=torch.float64, shape=(5,)):
    return torch.full(shape, value, dtype=dtype)


def operations(rank, world):
    bf.init()
    assert (bf.rank(), bf.size()) == (rank, world)
    told = {}
    for dtype in (torch.float16, torch.float32, torch.float64):
        own = full(float(rank), dtype)
        mean = bf.neighbor_allreduce(own)
        assert mean.dtype == dtype and own[0] == rank
        told[str(dtype)] = mean[0].item()
    tiny = full(2.0**-256)  # the same everywhere: added, divided once
    assert torch.equal(bf.neighbor_allreduce(tiny), tiny)
    assert bf.neighbor_allreduce(torch.tensor(float(rank))).dim() == 0

    before, after = (rank - 1) % world, (rank + 1) % world
    own = full(float(rank))
    told["moved"] = bf.neighbor_allreduce(
        own, self_weight=0.0, src_weights={before: 1.0}, dst_weights=[after]
    )[0].item()
    told["both weights"] = bf.neighbor_allreduce(
        own, self_weight=0.0, src_weights={before: 0.5}, dst_weights={after: 2.0}
    )[0].item()
    alone = bf.neighbor_allreduce(own, self_weight=3.0, src_weights={}, dst_weights=[])
    told["alone"] = alone[0].item()

    bf.set_topology(tu.StarGraph(world), is_weighted=True)
    value = own
    for _ in range(60):
        value = bf.neighbor_allreduce(value)
    told["weighted star"] = value[0].item()
    bf.set_topology(tu.StarGraph(world))
    value = own
    for _ in range(60):
        value = bf.neighbor_allreduce(value)
    told["star"] = value[0].item()
    bf.set_topology(tu.RingGraph(world, 2))
    picked = bf.neighbor_allreduce(own, self_weight=0.25, src_weights={before: 0.75})
    told["picked"] = picked[0].item()

    handles = [bf.neighbor_allreduce_nonblocking(own + i, name=f"n{i}") for i in range(20)]
    found = [bf.synchronize(each)[0].item() for each in reversed(handles)]
    told["in flight"] = found == [(rank + before) / 2 + i for i in reversed(range(20))]

    rows = torch.full((rank + 1, 2), rank, dtype=torch.int16)
    told["gathered"] = bf.allgather(rows)[:, 0].tolist()
    told["of neighbours"] = bf.neighbor_allgather(rows)[:, 1].tolist()
    others = [each for each in range(world) if each != rank][::-1]
    told["as asked"] = bf.neighbor_allgather(rows[:1], src_ranks=others, dst_ranks=others)
    told["as asked"] = told["as asked"][:, 0].tolist()
    told["sum"] = bf.allreduce(torch.tensor(rank + 1), average=False).item()
    inplace = full(float(rank))
    assert bf.allreduce_(inplace) is inplace
    told["mean"] = inplace[0].item()
    told["root"] = bf.broadcast(torch.tensor([rank], dtype=torch.uint8), 1).item()
    bf.set_skip_negotiate_stage(True)
    if rank < 2:
        told["pair"] = mpi_ops.pair_gossip(own, 1 - rank)[0].item()
        weighted = mpi_ops.pair_gossip(own, 1 - rank, 0.25, 0.75)
        told["weighted pair"] = weighted[0].item()
    bf.barrier()
    inferred, matrix = bf.InferSourceFromDestinationRanks([after], True)
    told["inferred"] = inferred == [before] and matrix.shape == (world, world)
    assert bf.InferDestinationFromSourceRanks([before]) == [after]
    return told


def test_operations():
    everyone = values(run_group(operations, 4))
    ring = tu.ExponentialGraph(4)
    for rank, told in enumerate(everyone):
        mean = sum([rank, *tu.GetRecvWeights(ring, rank)[1]]) / 3
        for dtype, near in (("float16", 1e-3), ("float32", 1e-6), ("float64", 1e-12)):
            assert told[f"torch.{dtype}"] == pytest.approx(mean, rel=near)
        before = (rank - 1) % 4
        assert told["moved"] == before and told["both weights"] == before
        assert told["alone"] == 3 * rank
        assert told["weighted star"] == pytest.approx(1.5, abs=1e-6)
        assert told["star"] == pytest.approx(1.2, abs=1e-10)  # rows only: biased
        assert told["picked"] == 0.25 * rank + 0.75 * before
        assert told["in flight"] and told["inferred"]
        assert told["gathered"] == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]
        assert told["of neighbours"] == [before] * (before + 1)
        assert told["as asked"] == [each for each in (3, 2, 1, 0) if each != rank]
        assert (told["sum"], told["mean"], told["root"]) == (10, 1.5, 1)
        if rank < 2:
            assert told["pair"] == 0.5
            assert told["weighted pair"] == 0.25 * rank + 0.75 * (1 - rank)


def machines(rank, world):
    with env(BLUEFOG_NODES_PER_MACHINE=2):
        bf.init()
    assert (bf.local_size(), bf.machine_size(), bf.machine_rank()) == (2, world // 2, rank // 2)
    value = full((rank // 2) + (bf.local_rank() - 0.5))  # a machine's mean is its number
    bf.set_machine_topology(tu.RingGraph(bf.machine_size()))
    assert bf.in_neighbor_machine_ranks() == [1 - bf.machine_rank()]
    mean = bf.hierarchical_neighbor_allreduce(value)[0].item()
    other = 1 - bf.machine_rank()
    moved = bf.hierarchical_neighbor_allreduce(
        value, self_weight=0.0, src_machine_weights={other: 1.0}, dst_machine_weights=[other]
    )
    local = bf.allreduce(value, is_hierarchical_local=True)[0].item()
    return mean, moved[0].item(), local


def test_hierarchical_forms():
    for rank, (mean, moved, local) in enumerate(values(run_group(machines, 4))):
        assert (mean, moved, local) == (0.5, 1 - rank // 2, rank // 2)


# ---- optimizers ----

A, B = (1.0, 2.0, 3.0, 4.0), (1.0, -1.0, 2.0, 0.5)
AWC = [0.5879120879, 0.3736263736, 0.9835164835, 0.6785714286]
ATC = [0.5194116641, 0.6598255516, 0.6916367368, 0.7715067556]


class Point(nn.Module):
    def __init__(self):
        super().__init__()
        self.x = nn.Parameter(torch.zeros(3, dtype=torch.float64))

    def forward(self, rank):
        return (0.5 * A[rank] * (self.x - B[rank]) ** 2).sum()


def optimizers(rank, world):
    bf.init(tu.RingGraph)
    told = {}
    ring = bf.CommunicationType.neighbor_allreduce
    cases = {
        "awc": lambda o, m: bf.DistributedAdaptWithCombineOptimizer(o, m, ring),
        "atc": lambda o, m: bf.DistributedAdaptThenCombineOptimizer(o, m, ring),
        "ga": bf.DistributedGradientAllreduceOptimizer,
    }
    for name, wrap in cases.items():
        model = Point()
        opt = wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        assert isinstance(opt, torch.optim.SGD) and type(opt).__name__ == "SGD"
        for _ in range(130):
            opt.zero_grad()
            model(rank).backward()
            opt.step()
        told[name] = model.x[0].item()
    return told


def test_optimizers_reach_the_limits_of_the_equations():
    for rank, told in enumerate(values(run_group(optimizers, 4))):
        assert told["awc"] == pytest.approx(AWC[rank], abs=1e-8)
        assert told["atc"] == pytest.approx(ATC[rank], abs=1e-8)
        assert told["ga"] == pytest.approx(0.7, abs=1e-8)


def knobs(rank, world):
    """Every second step communicates; dynamic neighbours; what is told of wrong orders."""
    bf.init()
    model = nn.Linear(2, 2)
    opt = bf.DistributedAdaptWithCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0), model, num_steps_per_communication=2
    )
    bf.broadcast_parameters(model.state_dict(), 0)
    bf.broadcast_optimizer_state(opt, 0)
    model.weight.data += rank
    start = model.weight.detach().clone()
    opt.self_weight, opt.src_weights = 0.5, {1 - rank: 0.5}
    opt.dst_weights = [1 - rank]
    moved = []
    for _ in range(4):
        model(torch.ones(1, 2)).sum().backward()
        opt.step()
        moved.append(bool((model.weight != start).any()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
    opt.step()
    grads = bf.DistributedGradientAllreduceOptimizer(
        torch.optim.Adam(model.parameters()), model
    )
    model(torch.ones(1, 2)).sum().backward()
    said = refusal(AssertionError, grads.zero_grad)
    grads.synchronize()
    with grads.skip_synchronize():
        grads.step()
    bf.allreduce_parameters(model.state_dict())
    return moved, [str(each.message) for each in caught], said, model.weight.tolist()


def test_knobs_of_optimizers():
    told = values(run_group(knobs, 2))
    for moved, messages, said, weight in told:
        assert moved == [False, True, True, True]
        assert any(text.startswith("Unexpected behavior:") for text in messages)
        assert "between backward and step()" in said
        assert weight == told[0][3]


# ---- what is refused ----


def refused(rank, world):
    before = refusal(ValueError, bf.size)
    bf.init(tu.RingGraph)
    own, other = torch.ones(4), (rank + 1) % world

    def with_weights(**options):
        return refusal(ValueError, lambda: bf.neighbor_allreduce(own, **options))

    told = {
        "bf.init()": before,
        "come together": with_weights(self_weight=1.0),
        "a float is wanted": with_weights(self_weight=1, src_weights={}),
        "a dict": with_weights(self_weight=1.0, src_weights=[other]),
        "need self_weight": with_weights(dst_weights=[other]),
        "name one twice": with_weights(
            self_weight=1.0, src_weights={}, dst_weights=[other, other]
        ),
        "none of the in-neighbours": with_weights(self_weight=1.0, src_weights={rank: 1.0}),
        "which does not expect it": with_weights(
            self_weight=1.0, src_weights={}, dst_weights=[other]
        ),
        "not contiguous": refusal(ValueError, lambda: bf.allreduce(torch.ones(4, 4).T)),
        "float16, float32, float64": refusal(
            ValueError, lambda: bf.neighbor_allreduce(torch.ones(4, dtype=torch.int64))
        ),
        "average=False": refusal(
            AssertionError, lambda: bf.allreduce(torch.ones(4, dtype=torch.int64))
        ),
        "networkx.DiGraph": refusal(TypeError, lambda: bf.set_topology(nx.Graph())),
        "3 nodes": refusal(TypeError, lambda: bf.set_topology(tu.RingGraph(3))),
        "set_skip_negotiate_stage": refusal(
            ValueError, lambda: mpi_ops.pair_gossip(own, other)
        ),
        "unknown": refusal(ValueError, lambda: bf.synchronize(12345)),
        "is None": refusal(ValueError, lambda: bf.set_machine_topology(None)),
        "a dict or a list": refusal(
            ValueError, lambda: bf.broadcast_parameters(nn.Linear(1, 1).parameters(), 0)
        ),
    }
    handle = bf.allreduce_nonblocking(own, name="a")
    told["is in flight"] = refusal(ValueError, lambda: bf.allreduce(own, name="a"))
    bf.synchronize(handle)
    told["waited for already"] = refusal(ValueError, lambda: bf.synchronize(handle))
    told["ranks differ"] = refusal(ValueError, lambda: bf.allreduce(own, name=f"of {rank}"))
    named = refusal(ValueError, lambda: bf.neighbor_allreduce(own, name=f"of {rank}"))
    told["in the order of their calls"] = named
    assert bf.allreduce(own)[0] == 1  # it goes on
    shape = torch.ones(2 + rank)  # the library's own
    told["differ in operation"] = refusal(ValueError, lambda: bf.allreduce(shape))
    return told


def test_what_cannot_be_is_refused_in_words():
    for told in values(run_group(refused, 2)):
        for part, said in told.items():
            assert part in said


def test_every_name_is_there():
    for name in bf.__all__:
        assert callable(getattr(bf, name))
    for name in tu.__all__:  # graphs and rounds of them are in both
        assert getattr(bf, name) is getattr(tu, name)
    for name in ("pair_gossip", "win_lock", "is_topo_weighted", "is_machine_topo_weighted"):
        assert callable(getattr(mpi_ops, name))
    with pytest.raises(AttributeError):
        bf.win_lock  # noqa: B018  of mpi_ops alone


def graphs_and_windows(rank, world):
    """What set_topology() says while there are windows."""
    bf.init()
    x = torch.full((3,), float(rank))
    told = [bf.set_topology(tu.RingGraph(world))]
    bf.win_create(x, "x")
    told += [bf.set_topology(tu.RingGraph(world)), bf.set_topology(tu.StarGraph(world))]
    kept = tu.IsTopologyEquivalent(bf.load_topology(), tu.RingGraph(world))
    bf.barrier()
    bf.win_free()
    return told, kept


def test_the_graph_of_windows_may_be_set_again():
    assert values(run_group(graphs_and_windows, 4)) == [([True, True, False], True)] * 4


def in_part(rank, world):
    """Frozen parameters, and those of modules in evaluation, are left as they are."""
    bf.init()
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 1))
    with torch.no_grad():
        for each in model.parameters():
            each.fill_(rank)
    plain = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer = bf.DistributedAdaptWithCombineOptimizer(plain, model)
    model[1].eval()
    model[2].weight.requires_grad_(False)
    model(torch.ones(2, 1)).sum().backward()
    optimizer.step()
    return [each.item() for each in model.parameters()]


def test_only_what_is_trained_communicates():
    first, second = values(run_group(in_part, 2))
    assert first == [0.5, 0.5, 0, 0, 0, 0.5] and second == [0.5, 0.5, 1, 1, 1, 0.5]


def older_names(rank, world):
    bf.init()
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(rank)
    plain = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer = bf.DistributedAdaptWithCombineOptimizer(plain, model)
    optimizer.send_neighbors = [(rank + 1) % world]
    optimizer.neighbor_weights = {(rank - 1) % world: 1.0}
    optimizer.self_weight = 0.0
    model(torch.ones(2, 1)).sum().backward()
    optimizer.step()
    optimizer.neighbor_machine_weights, optimizer.send_neighbor_machines = {1: 0.5}, [1]
    return model.weight.item(), optimizer.src_machine_weights, optimizer.dst_machine_weights


def test_older_names_of_knobs_are_those_of_now():
    found = values(run_group(older_names, 3))
    assert found == [((rank - 1) % 3, {1: 0.5}, [1]) for rank in range(3)]


# ---- the launcher ----

PROGRAM = """
import os
import torch, bluefog.torch as bf
assert os.environ["OMPI_COMM_WORLD_SIZE"] == "2"
bf.init()
with bf.timeline_context("x", "MINE"):
    x = bf.neighbor_allreduce(torch.tensor([float(os.environ["OMPI_COMM_WORLD_RANK"])]))
print(f"found {x.item()}")
"""


def test_bfrun_starts_ranks_with_their_variables(tmp_path):
    start = [sys.executable, "-m", "bluefog.bfrun"]
    words = [
        "-np",
        "2",
        "-H",
        "localhost:2",
        "--timeline-filename",
        str(tmp_path / "t"),
        sys.executable,
        "-c",
    ]
    done = subprocess.run(
        [*start, *words, PROGRAM], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.count("found 0.5") == 2, done.stderr
    text = (tmp_path / "t1.json").read_text()
    records = json.loads(text.rstrip().rstrip(",") + "]")
    assert {"MINE", "COMMUNICATE"} <= {each["name"] for each in records}
    for wrong, said in (
        (["python"], "how many ranks"),
        (["-np", "2"], "what is to run"),
        (["-np", "2", "--use-infiniband", "python"], "TCP and shared memory"),
    ):
        done = subprocess.run([*start, *wrong], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and said in done.stderr


def test_bfrun_is_our_own_beside_other_folders_of_its_name(tmp_path):
    """As of BlueFog's own sources, where people try it."""
    for name in ("bluefog", "redpoll"):
        (tmp_path / "here" / name).mkdir(parents=True)
        text = f"raise SystemExit('the {name} of this folder was started')"
        (tmp_path / "here" / name / "__init__.py").write_text(text)
        (tmp_path / "here" / name / "bfrun.py").write_text(text)
    (tmp_path / "bfrun").write_text("from bluefog.bfrun import main\nmain()\n")
    program = "import os; print('rank', os.environ['OMPI_COMM_WORLD_RANK'])"
    done = subprocess.run(
        [sys.executable, str(tmp_path / "bfrun"), "-np", "2", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path / "here",
    )
    assert sorted(done.stdout.split()) == ["0", "1", "rank", "rank"], done.stderr


@pytest.mark.parametrize(
    "call, older, newer",
    [
        ("neighbor_allreduce", "neighbor_weights", "src_weights"),
        ("neighbor_allreduce_nonblocking", "send_neighbors", "dst_weights"),
        ("hierarchical_neighbor_allreduce", "neighbor_machine_weights", "src_machine_weights"),
        ("hierarchical_neighbor_allreduce", "send_neighbor_machines", "dst_machine_weights"),
    ],
)
def test_older_names_say_what_they_are_called_now(call, older, newer):
    said = refusal(TypeError, lambda: getattr(bf, call)(torch.ones(1), **{older: {}}))
    assert f"no argument '{older}': it is called '{newer}' now" in said


def test_pair_gossip_is_there():
    assert callable(bf.pair_gossip) and "pair_gossip" in bf.__all__


def test_what_is_behind_a_notebook_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        bfrun.refuse_notebooks()
    assert ended.value.code == 2 and "bfrun -np N" in capsys.readouterr().err
