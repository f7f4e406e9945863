"""The timeline of BlueFog's interface: which activities it has, of which tensor and thread."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from pathlib import Path

import pytest

pytest.importorskip("networkx", reason="networkx is not installed")
import torch  # noqa: E402

import bluefog.torch as bf  # noqa: E402
from ranks import run_group, values  # noqa: E402


def records_of(prefix, rank):
    """A file that nobody has closed: an array without its end."""
    text = Path(f"{prefix}{rank}.json").read_text()
    assert text.startswith("[\n") and text.endswith(",\n")
    return json.loads(text.rstrip().rstrip(",") + "]")


def activities(records):
    """By tensor: the activities in the order of their beginning. Each that began has ended, in
    the order of blocks, on its own thread."""
    names, open_ones, found = {}, defaultdict(list), defaultdict(list)
    for each in records:
        if each["name"] == "process_name":
            names[each["pid"]] = each["args"]["name"]
        elif each["ph"] == "B":
            open_ones[each["pid"], each["tid"]].append(each["name"])
            found[names[each["pid"]]].append(each["name"])
        elif each["ph"] == "E":
            assert open_ones[each["pid"], each["tid"]].pop() == each["name"]
    assert not any(open_ones.values())
    return found


def operations(rank, world, prefix):
    bf.init()
    x = torch.ones(10)
    bf.neighbor_allreduce(x, name="mixed")
    bf.neighbor_allgather(x, name="gathered")
    bf.allreduce(x, name="summed")
    bf.broadcast(x, 0, name="sent")
    bf.win_create(x, "window", zero_init=True)
    bf.win_accumulate(x, "window", require_mutex=True)
    bf.win_wait(bf.win_put_nonblocking(x, "window"))
    bf.barrier()
    bf.win_update_then_collect("window")
    bf.win_free()
    return activities(records_of(prefix, rank))


def test_operations_have_the_names_of_bluefog(tmp_path):
    prefix = str(tmp_path / "t")
    found = run_group(operations, 2, prefix, environment={"BLUEFOG_TIMELINE": prefix})
    for own in values(found):
        for tensor, operation in (
            ("neighbor.allreduce.mixed", "NEIGHBOR_ALLREDUCE"),
            ("neighbor.allgather.gathered", "NEIGHBOR_ALLGATHER"),
            ("allreduce.summed", "ALLREDUCE"),
            ("broadcast.sent", "BROADCAST"),
            ("window", "WIN_CREATE"),
            ("window", "WIN_ACCUMULATE"),
            ("window", "WIN_PUT"),
        ):
            wanted = {f"ENQUEUE_{operation}", f"PROC_{operation}", f"MPI_{operation}"}
            assert wanted <= set(own[tensor])
        assert "COMMUNICATE" in own["neighbor.allreduce.mixed"]
        assert "WIN_SYNC_COMPUTE_AVERAGE" in own["window"]


def threads(rank, world, prefix):
    bf.init()
    both = threading.Barrier(2)

    def acts():
        bf.timeline_start_activity("shared", "MINE")
        both.wait()
        bf.timeline_end_activity("shared")

    running = [threading.Thread(target=acts) for _ in range(2)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    records = records_of(prefix, rank)
    activities(records)
    return sorted({each["tid"] for each in records if each["name"] == "MINE"})


def test_threads_are_told_apart(tmp_path):
    prefix = str(tmp_path / "t")
    found = run_group(threads, 1, prefix, environment={"BLUEFOG_TIMELINE": prefix})
    assert values(found) == [[1, 2]]


def trains(rank, world, prefix, kind):
    bf.init()
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    if kind == "win_put":
        optimizer = bf.DistributedWinPutOptimizer(plain, model, window_prefix="w")
    elif kind == "gradients":
        optimizer = bf.DistributedGradientAllreduceOptimizer(plain, model)
    else:
        optimizer = bf.DistributedAdaptWithCombineOptimizer(
            plain, model, bf.CommunicationType[kind]
        )
    for step in range(4):
        if step == 2:
            optimizer.turn_off_timeline()
        optimizer.zero_grad()
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
    if kind == "win_put":
        bf.barrier()
        optimizer.unregister_window()
    return activities(records_of(prefix, rank))


@pytest.mark.parametrize(
    "kind, label",
    [
        ("neighbor_allreduce", "neighbor.allreduce.1.weight"),
        ("allreduce", "allreduce.1.weight"),
        ("empty", "empty.1.weight"),
        ("win_put", "w.1.weight"),
        ("gradients", "allreduce.1.weight"),
    ],
)
def test_passes_of_a_model(tmp_path, kind, label):
    prefix = str(tmp_path / "t")
    found = run_group(trains, 2, prefix, kind, environment={"BLUEFOG_TIMELINE": prefix})
    for own in values(found):
        assert own[label].count("FORWARD") == 2
        assert own[label].count("GRADIENT COMPT.") == 2
        if kind in ("neighbor_allreduce", "allreduce"):
            assert own[label].count("COMMUNICATE") == 4
