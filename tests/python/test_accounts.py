"""Accounts as other programs read them, and what is said of them at exit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import redpoll.torch as rt
from ranks import run_group, run_script, values
from redpoll.torch.c10d import _exports, _summary
from redpoll.torch.statistics import GroupStats, Stats


def some(group: str = "mesh_dp", rank: int = 1, **numbers: float) -> GroupStats:
    counters = {name: 0 for name in _exports._HELP}
    counters.update(numbers)
    return GroupStats(group, rank, 4, **counters)


# ---- Prometheus ----

LABELS = [("plain", "plain"), ('a "b"', 'a \\"b\\"'), ("a\\b", "a\\\\b"), ("a\nb", "a\\nb")]


@pytest.mark.parametrize("name, written", LABELS)
def test_names_in_prometheus_text(name, written) -> None:
    text = Stats({name: some(name, operations=7)}).prometheus()
    assert f'redpoll_operations_total{{group="{written}",rank="1"}} 7\n' in text


def test_every_counter_is_in_prometheus_text() -> None:
    one = some(wire_bytes_sent=10, encode_s=0.25)
    text = Stats({"one": one, "two": some("two")}).prometheus()
    lines = text.splitlines()
    assert text.endswith("\n") and len(lines) == 4 * len(_exports._HELP)
    sample = re.compile(r'redpoll_[a-z_]+_total\{group="\w+",rank="1"\} [0-9.e+-]+')
    for i in range(0, len(lines), 4):
        metric = lines[i].split()[2]
        assert lines[i].startswith(f"# HELP {metric} ")
        assert lines[i + 1] == f"# TYPE {metric} counter"
        assert all(sample.fullmatch(line) for line in lines[i + 2 : i + 4])
    assert 'redpoll_encode_seconds_total{group="mesh_dp",rank="1"} 0.25' in lines


def test_all_counters_have_a_text() -> None:
    counters = [name for name in GroupStats.__dataclass_fields__][3:]
    assert list(_exports._HELP) == counters


# ---- TensorBoard and others ----


class Writer:
    def __init__(self) -> None:
        self.scalars: dict[str, tuple[float, int]] = {}

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars[name] = (value, step)


def test_scalars() -> None:
    stats = Stats({"dp": some(wire_bytes_sent=10, value_bytes_sent=70)})
    writer = Writer()
    stats.to_tensorboard(writer, 12)
    assert writer.scalars["redpoll/dp/ratio"] == (7.0, 12)
    assert writer.scalars["redpoll/dp/wire_bytes_sent"] == (10.0, 12)
    assert set(writer.scalars) == set(stats.scalars())
    assert stats.scalars("net")["net/dp/ratio"] == 7.0


# ---- the profiler ----


def trace_some(rank: int, world: int, folder: str) -> list:
    path = Path(folder) / f"trace{rank}.json"
    ready = rt.stats.trace(path)
    with torch.profiler.profile(on_trace_ready=ready):
        dist.all_reduce(torch.ones(1000))
        dist.all_reduce(torch.ones(1000), async_op=True).wait()
    ready.close()
    return json.loads(path.read_text())["traceEvents"]


def test_a_trace_has_a_counter_of_bytes(tmp_path: Path) -> None:
    for events in values(run_group(trace_some, 2, str(tmp_path))):
        counters = [one for one in events if one["ph"] == "C" and "bytes sent" in one["name"]]
        spans = [one for one in events if one.get("name") == "redpoll:all_reduce"]
        assert len(spans) == 2 and len(counters) >= 4  # begin, two operations, end
        sent = [one["args"]["wire_bytes_sent"] for one in counters]
        assert sent == sorted(sent) and sent[-1] - sent[0] >= 2 * 4000 / 2
        # The spans lie between the counters on one line of time.
        assert counters[0]["ts"] <= min(one["ts"] for one in spans)
        assert counters[-1]["ts"] >= max(one["ts"] for one in spans)


# ---- at exit ----

TRAINS = """
import os, sys, torch, torch.distributed as dist, redpoll.torch
dist.init_process_group("redpoll")
rank = dist.get_rank()
side = dist.new_group(group_desc="a side")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
redpoll.torch.compress(model, codec="q4")
for _ in range(3):
    model(torch.randn(4, 300)).sum().backward()
dist.all_reduce(torch.ones(9), group=side)
del model
{end}
"""
ENDS = {
    "destroyed": "dist.destroy_process_group()",
    "left open": "",
    "raised": "if rank == 0: raise SystemExit(0)",
}


def summary(end: str, value: str, world: int = 2) -> list[str]:
    text = TRAINS.replace("{end}", end)
    done = run_script(text, world, environment={"REDPOLL_SUMMARY": value})
    assert all(one.returncode == 0 for one in done), [one.stderr for one in done]
    return [
        "\n".join(line for line in one.stderr.splitlines() if line.startswith("redpoll: group"))
        for one in done
    ]


@pytest.mark.parametrize("end", ENDS)
def test_a_summary_at_exit(end) -> None:
    first, other = summary(ENDS[end], "1", world=2)
    assert other == ""
    assert re.search(
        r"^redpoll: group 0, 2 ranks: [0-9.]+ [KM]iB sent for [0-9.]+ [KM]iB of values "
        r"\(ratio [2-9]\.\d\d\); \d+\.\d{3} s exposed in 3 steps; "
        r"\d+\.\d{3} s waited by rank 0$",
        first,
        re.MULTILINE,
    ), first
    assert re.search(r"^redpoll: group 0, slowest rank: rank [01]\b", first, re.MULTILINE)
    assert re.search(r"^redpoll: group a side, 2 ranks: .* not measured", first, re.MULTILINE)
    assert "told nothing" not in first
    assert first.index("group 0,") < first.index("group a side,")  # as they were made


def test_no_summary_where_nobody_asked() -> None:
    assert summary("", "0", world=1) == [""]


def told(rank: int, busy_s: float, **numbers: float) -> dict:
    return some("dp", rank, busy_s=busy_s, **numbers).as_dict()


SLOWEST = [  # seconds with an operation in flight, by rank; who is named, and whether plainly
    ([3.0, 1.0, 3.0, 3.0], 1, True),
    ([0.5, 2.0, 2.0, 2.0], 0, True),
    ([3.0, 2.9, 3.0, 3.0], 1, False),
    ([0.02, 0.0, 0.04, 0.04], 1, False),
    ([0.0, 0.0, 0.0, 0.0], 0, False),
]


@pytest.mark.parametrize("busy, rank, plainly", SLOWEST)
def test_the_slowest_rank_is_for_whom_the_others_wait(busy, rank, plainly) -> None:
    text = _summary.text([told(one, seconds) for one, seconds in enumerate(busy)])
    assert f"slowest rank: rank {rank}" in text
    assert ("for which the others waited" in text) == plainly
    assert ("by little" in text) != plainly


def test_ranks_that_tell_nothing_are_counted() -> None:
    text = _summary.text([told(0, 1.0, steps=4, exposed_s=0.5), told(3, 1.0)])
    assert "2 ranks have told nothing" in text and "0.500 s exposed in 4 steps" in text
    assert "slowest rank: unknown" in _summary.text([told(0, 1.0)])


def test_a_sum_is_of_all_ranks() -> None:
    sent = {"wire_bytes_sent": 1024, "value_bytes_sent": 4096}
    text = _summary.text([told(rank, 1.0, **sent) for rank in range(4)])
    assert "4.0 KiB sent for 16.0 KiB of values (ratio 4.00)" in text
