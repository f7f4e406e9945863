"""Trainings on this machine, predicted before they run from `redpoll bench machine` alone.

usage: python bench/foresight.py BUILD [--steps 40] [--only WORD] [--iters 7] [--list]

Small GPTs by codec, link (shaped; each rank then counts as a host of its own), strategy,
dtype and layout. The machine is measured once for each number of ranks, all runs of it are
predicted, and only then do they run. Prints predicted beside measured, the median of each run's
steps; what else runs on the machine is in both, and in no forecast. A run that fails, or takes
longer than --timeout, is said and left out, and the exit code is 1. Some minutes in all.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Run:
    """One training; batch: samples of a replica."""

    ranks: int
    model: str
    batch: int
    sequence: int
    codec: str = "fp32"
    link: str = ""
    strategy: str = "all-reduce"
    dtype: str = "fp32"
    tp: int = 1
    pp: int = 1
    zero: int = 0
    micro: int = 0
    predicted_s: float = 0
    low_s: float = 0
    high_s: float = 0
    measured_s: float = 0

    @property
    def name(self) -> str:
        words = [self.model, f"{self.batch}x{self.sequence}", self.codec, self.dtype]
        layout = [f"{key}{getattr(self, key)}" for key in ("tp", "pp", "zero") if self.has(key)]
        return " ".join([f"-n {self.ranks}", *words, self.link or "-", self.strategy, *layout])

    def has(self, key: str) -> bool:
        """Does it say this of its layout?"""
        return getattr(self, key) > (0 if key in ("zero", "micro") else 1)

    @property
    def replicas(self) -> int:
        return self.ranks // (self.tp * self.pp)

    @property
    def text(self) -> str:
        layers, hidden, heads = self.model.split("x")
        sizes = f"layers={layers},hidden={hidden},heads={heads}"
        return f"gpt2:{sizes},vocabulary=257,positions={self.sequence}"


RUNS = [
    Run(1, "2x128x4", 4, 64),
    Run(1, "4x256x4", 4, 64),
    Run(1, "4x256x4", 8, 128),
    Run(1, "2x512x8", 2, 128),
    Run(1, "6x192x6", 2, 256),
    Run(1, "2x512x8", 2, 128, dtype="bf16"),
    Run(2, "2x128x4", 4, 64),
    Run(2, "4x256x4", 4, 64),
    Run(2, "4x256x4", 8, 128),
    Run(2, "2x512x8", 2, 128),
    Run(2, "4x256x4", 4, 64, zero=1),
    Run(2, "4x256x4", 4, 64, link="1Gbit,50us"),
    Run(2, "4x256x4", 4, 64, link="200Mbit,50us"),
    Run(2, "4x256x4", 4, 64, codec="q4", link="200Mbit,50us"),
    Run(2, "2x512x8", 2, 128, codec="q4", link="200Mbit,50us"),
    Run(2, "4x256x4", 8, 64, pp=2, micro=2),
    Run(2, "4x256x4", 4, 64, link="200Mbit,50us", strategy="local-sgd:every=10"),
    Run(2, "4x256x4", 8, 128, link="1Gbit,50us", pp=2, micro=2),
    Run(2, "4x256x4", 4, 64, link="1Gbit,50us", strategy="gossip:topology=exponential"),
    Run(2, "4x256x4", 4, 64, tp=2),
]


TIMEOUT_S = 600.0  # of a command; --timeout
WARM_STEPS = 5  # that a median leaves out, or a quarter of them where there are few
ROUND = 10  # local steps between two exchanges: a mean is of whole rounds


class Failed(Exception):
    """A command that did not end with 0, or not in time."""


def call(*words: str) -> str:
    """The standard output of a command, which has to end with 0."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(words)}: not done in {TIMEOUT_S:g} s") from None
    if done.returncode:
        raise Failed(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def plan_train(redpoll: str, run: Run, machine: str) -> None:
    layout = "--recompute none --no-sequence-parallel --top 1 --json".split()
    layout += ["--tp", str(run.tp), "--pp", str(run.pp), "--zero", str(run.zero)]
    layout += ["--dp", str(run.replicas), "--micro-batch-size", str(run.micro or run.batch)]
    hosts = ["--hosts", str(run.ranks), "--ranks-per-host", "1", "--link", run.link]
    words = [redpoll, "plan", "train", "--machine", machine, "--model", run.text, *layout]
    words += ["--global-batch-size", str(run.batch * run.replicas)]
    words += ["--seq-length", str(run.sequence), "--codec", run.codec]
    words += ["--precision", "amp" if run.dtype == "bf16" else "fp32"]
    best = json.loads(call(*words, *(hosts if run.link else [])))["trainings"][0]["best"][0]
    run.predicted_s, run.low_s, run.high_s = (
        best[key] for key in ("step_s", "step_low_s", "step_high_s")
    )


def plan_scaling(redpoll: str, run: Run, machine: str) -> None:
    words = [redpoll, "plan", "scaling", "--machine", machine, "--model", run.text, "--json"]
    words += ["--ranks", str(run.ranks), "--samples", str(run.batch), "--link", run.link]
    words += ["--seq-length", str(run.sequence), "--codec", run.codec]
    plan = json.loads(call(*words, "--strategy", run.strategy))
    run.predicted_s = plan["strategies"][0]["points"][0]["step_s"]


def predict(redpoll: str, run: Run, machine: str) -> None:
    (plan_train if run.strategy == "all-reduce" else plan_scaling)(redpoll, run, machine)


def train(redpoll: str, run: Run, folder: Path, steps: int) -> None:
    """The median step; where ranks exchange now and then, the mean of whole rounds."""
    words = [redpoll, "train", "--model", run.text, "--data", f"tokens:{folder / 'text'}"]
    words += ["--seq-length", str(run.sequence), "-n", str(run.ranks)]
    words += ["--steps", str(steps)]
    words += ["--global-batch-size", str(run.batch * run.replicas), "--optimizer", "adamw"]
    for key, option in (
        ("tp", "tp"),
        ("pp", "pp"),
        ("zero", "zero"),
        ("micro", "micro-batch-size"),
    ):
        words += [f"--{option}", str(getattr(run, key))] if run.has(key) else []
    words += ["--codec", run.codec, "--strategy", run.strategy, "--dtype", run.dtype]
    words += "--no-eval --no-checkpoint --overwrite --check-replicas 0".split()
    words += ["--link", run.link] if run.link else []
    call(*words, "--out", str(folder / "run"))
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    times = [row["step_s"] for row in map(json.loads, lines) if "step_s" in row]
    times = times[min(WARM_STEPS, len(times) // 4) :]
    if not times:
        raise Failed(f"{run.name}: no step was timed")
    if run.strategy.startswith("local-sgd"):
        rounds = times[: len(times) // ROUND * ROUND]
        run.measured_s = statistics.fmean(rounds or times)
    else:
        run.measured_s = statistics.median(times)


def show(run: Run) -> None:
    error = run.predicted_s / run.measured_s - 1
    outside = run.low_s > 0 and not run.low_s <= run.measured_s <= run.high_s
    numbers = f"{1e3 * run.predicted_s:9.3f} ms  {1e3 * run.measured_s:9.3f} ms"
    print(
        f"{run.name:<72}  {numbers}  {100 * error:+6.1f} %{'  outside' * outside}", flush=True
    )


def sum_up(runs: list[Run]) -> None:
    errors = [abs(run.predicted_s / run.measured_s - 1) for run in runs]
    pairs = [
        (a.predicted_s < b.predicted_s) == (a.measured_s < b.measured_s)
        for i, a in enumerate(runs)
        for b in runs[:i]
        if abs(a.measured_s / b.measured_s - 1) > 0.1
    ]
    print(
        f"{len(runs)} runs: median error {100 * statistics.median(errors):.1f} %, worst "
        f"{100 * max(errors):.1f} %; order of {len(pairs)} pairs that differ by more than "
        f"10 %: {100 * sum(pairs) / max(1, len(pairs)):.1f} % right"
    )


def write_text(redpoll: str, folder: Path) -> None:
    words = "the cat sat on a mat and the dog ran to its house by the old tree".split()
    corpus = " ".join(words[i * i % 17 % len(words)] for i in range(200000))
    (folder / "text.txt").write_text(corpus)
    tokenize = [redpoll, "data", "tokenize", "--tokenizer", "byte"]
    call(*tokenize, "--in", str(folder / "text.txt"), "--out", str(folder / "text"))


def run_all(redpoll: str, runs: list[Run], folder: Path, given: argparse.Namespace) -> int:
    """Measures, predicts, and only then trains; how many runs failed."""
    failed = 0
    for ranks in sorted({run.ranks for run in runs}):
        machine = str(folder / f"here{ranks}.json")
        words = ["-n", str(ranks), "--iters", str(given.iters), "--folder", str(folder)]
        call(redpoll, "bench", "machine", *words, "-o", machine)
        these = [run for run in runs if run.ranks == ranks]
        for run in these:
            predict(redpoll, run, machine)
        for run in these:
            try:
                train(redpoll, run, folder, given.steps)
            except Failed as error:
                failed += 1
                print(f"{run.name:<72}  failed: {error}", flush=True)
            else:
                show(run)
    return failed


def parse() -> argparse.Namespace:
    global TIMEOUT_S
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--iters", type=int, default=7, help="rounds of bench machine")
    parser.add_argument("--only", default="", help="runs whose name has this word")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds of a command")
    parser.add_argument("--list", action="store_true", help="the names of the runs, no more")
    given = parser.parse_args()
    TIMEOUT_S = given.timeout
    if given.steps < 1 or given.iters < 1:
        parser.error("--steps and --iters are 1 or more")
    return given


def main() -> None:
    given = parse()
    redpoll = str(given.build / "src/cli/redpoll")
    runs = [run for run in RUNS if given.only in run.name]
    if not runs:
        sys.exit(f"no run has '{given.only}' in its name; --list shows them")
    if given.list:
        print("\n".join(run.name for run in runs))
        return
    began = time.monotonic()
    print(f"{len(runs)} runs, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':<72}  {'predicted':>12}  {'measured':>12}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        try:
            write_text(redpoll, Path(name))
            failed = run_all(redpoll, runs, Path(name), given)
        except Failed as error:
            sys.exit(str(error))
    done = [run for run in runs if run.measured_s > 0]
    if done:
        sum_up(done)
    print(f"{time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}")
    if failed:
        sys.exit(f"{failed} of {len(runs)} runs failed")


if __name__ == "__main__":
    main()
