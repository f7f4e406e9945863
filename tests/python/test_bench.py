"""bench/torch.py and local_steps.py run: they must not rot while nobody measures. No time is
asserted."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from ranks import free_port, run_ranks, values

BENCH = Path(__file__).resolve().parents[2] / "bench"
PROGRAM = BENCH / "torch.py"


@pytest.mark.parametrize(
    ("section", "figures"),
    [
        ("overhead", {"c_us", "redpoll_us", "gloo_us", "redpoll_async_us"}),
        ("all-reduce", {"redpoll_s", "registered_s", "gloo_s"}),
        ("groups", {"redpoll_s", "gloo_s"}),
    ],
)
def test_a_section_measures_both_backends(section: str, figures: set[str]) -> None:
    command = [sys.executable, str(PROGRAM), section, "--ranks", "2", "--rounds", "1"]
    command += ["--sizes", "65536", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)[section]
    assert rows and all(row[figure] > 0 for row in rows for figure in figures)


def test_frameworks_are_measured_beside_a_plain_script() -> None:
    command = [sys.executable, str(PROGRAM), "integrations", "--ranks", "2", "--rounds", "1"]
    command += ["--layers", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])["integrations"]
    assert rows and all(row["step_s"] > 0 for row in rows)
    assert {"plain", "plain again"} <= {row["name"] for row in rows}


def run_rank(
    rank: int, world: int, port: int, job: str, program: str = "local_steps.py"
) -> str:
    """A program of bench/pytorch/ as the driver starts it; its output."""
    place = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = [program, job]
    sys.path.insert(0, str(BENCH / "pytorch"))
    with contextlib.redirect_stdout(io.StringIO()) as text:
        runpy.run_path(str(BENCH / "pytorch" / program), run_name="__main__")
    return text.getvalue()


def test_windows_of_local_steps() -> None:
    cells = [
        {"codec": "q4", "every": 2, "windows": 3},
        {"codec": "fp32", "every": 1, "windows": 1},
    ]
    job = json.dumps(
        {"parameters": 20000, "step_s": 0.001, "min_size": 1000, "repeats": 2, "cells": cells}
    )
    text, silence = values(run_ranks(run_rank, 2, free_port(), job))
    found = [json.loads(line) for line in text.splitlines()]
    assert silence == "" and len(found) == 2
    for cell, measured in zip(cells, found):
        assert cell.items() <= measured.items() and 0 < measured["utilisation"] <= 1
        computing = cell["windows"] * cell["every"] * 0.001
        assert abs(measured["seconds"] * measured["utilisation"] - computing) < 1e-9


def test_local_steps_beside_the_published_grid() -> None:
    """Of cells that are known: a window of 7 s computes for 3, and bytes take 4.1 of it."""
    driver = runpy.run_path(str(BENCH / "local_steps.py"))
    options = argparse.Namespace(
        links=["1gbit"], codecs=["fp32", "q4"], every=[1], ranks=2, parameters=10**9, step_s=3.0
    )
    assert driver["wire_seconds"](options, "q4", "1gbit") == (0.5 + 8 / 512) * 8

    def cell(seconds: float, utilisation: float) -> dict[str, float]:
        return {"seconds": seconds, "windows": 2, "utilisation": utilisation}

    found = {("q4", 1, "1gbit"): cell(14.0, 0.42), ("fp32", 8, "1gbit"): cell(1.0, 0.4)}
    rows = driver["table"](options, found)
    assert rows[2:] == [
        "| 1 | published, fp32 | 1.74 |",
        "| 1 | q4 | 42.0 |",
        "| 8 | published, fp32 | 12.4 |",
        "| 8 | fp32 | 40.0 |",
    ]
    assert driver["compared"](options, found)[2] == "| 1 | 1.050 |"
    found["q4", 1, "1gbit"] = cell(20.0, 0.3)  # 7 s of an exchange, 4.1 of them for bytes
    assert driver["compared"](options, found)[2] == "| 1 | (0.750) |"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--links", "50"], "50mbit or 1gbit are understood"),
        (["--codecs", "q8"], "fp32 and q4 are compared"),
        (["--scale", "2"], "goes with --emulate"),
    ],
)
def test_local_steps_refuse_what_they_cannot_do(words: list[str], text: str) -> None:
    command = [sys.executable, str(BENCH / "local_steps.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and text in done.stderr, done.stderr


def test_fsdp2_sends_fewer_bytes() -> None:
    """What the section that needs network namespaces starts in each of them."""
    job = {"what": "fsdp", "model": "gpt", "layers": 1, "width": 64, "context": 8, "batch": 1}
    contestants = {"gloo": ["gloo", None], "exact": ["redpoll", None], "q8": ["redpoll", {}]}
    job.update(vocabulary=64, rounds=1, contestants=contestants)
    text, _ = values(run_ranks(run_rank, 2, free_port(), json.dumps(job), "measure.py"))
    found = json.loads(text.splitlines()[-1])
    assert all(found["seconds"][name] for name in ("alone", *contestants))
    assert found["sent"]["gloo"] < 2 * found["sent"]["q8"] < found["sent"]["exact"]
