"""Training steps of the large models: PyTorch beside Redpoll, in turns, as a table.

    compare_models.py build/release/bench/engine_bench [--only gpt2,resnet50] [--dtype bf16]
    compare_models.py build/release/bench/engine_bench --threads 2 --clock wall

Each row is a model with a batch, each column the processor time of one step (forward, backward,
SGD with momentum), the median of those of all rounds: with one thread that is what a step takes
on a machine which does nothing else. --clock wall goes by the clock: for several threads, on a
machine that does nothing else. PyTorch is the faster of eager and, with --compile,
torch.compile. Memory is the peak of each process, for PyTorch without what its libraries take.
Exit code 1: a process failed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
MODELS_TORCH = str(HERE / "models_torch.py")


class Work(NamedTuple):
    """A row of the table: what both are told, and how many times faster Redpoll is to be."""

    model: str
    words: str
    fp32: float
    bf16: float | None = None
    options: str = ""  # of the model, for Redpoll


LLAMA = ":layers=12,hidden=768,heads=12,intermediate=2048,vocabulary=32000,positions=1024"
LARGE_IMAGES = "--size 224 --channels 3"
WORKS = {
    "gpt2-t64": Work("gpt2", "--batch-size 4 --seq-length 64", 1.8, 1.35),
    "gpt2-t1024": Work("gpt2", "--batch-size 1 --seq-length 1024", 1.8),
    "llama": Work("llama", "--batch-size 4 --seq-length 128", 1.7, 1.5, LLAMA),
    "bert": Work("bert", "--batch-size 8 --seq-length 128", 1.4, 1.3),
    "vit-b16": Work("vit-b16", f"--batch-size 8 {LARGE_IMAGES}", 1.4),
    "resnet50": Work("resnet50", f"--batch-size 16 {LARGE_IMAGES}", 1.5, 1.2),
    "resnet101": Work("resnet101", f"--batch-size 8 {LARGE_IMAGES}", 1.5),
    "vgg16": Work("vgg16", f"--batch-size 4 {LARGE_IMAGES}", 1.5),
    "resnet18": Work("resnet18", "--batch-size 64 --size 28 --channels 1", 1.6),
}


CLOCKS = {"cpu": "cpu_s", "wall": "step_s"}  # what both sides call them


class Measured(NamedTuple):
    """What one side took."""

    seconds: list[float]
    peak_bytes: int


def redpoll(options: argparse.Namespace, work: Work, words: list[str]) -> Measured:
    """Some steps in a new process, behind one that is not counted."""
    classes = ["--classes", "1000"] if "--size" in work.words else []
    command = [str(options.bench), "--model", work.model + work.options, *words, *classes]
    done = subprocess.run(
        [*command, "--warmup", "1", "--iters", str(options.steps)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return Measured([found[CLOCKS[options.clock]]], found["peak_bytes"])


class Torch:
    """A process of models_torch.py that waits for its turns."""

    def __init__(self, work: Work, words: list[str], compiled: bool, clock: str) -> None:
        self.clock = CLOCKS[clock]
        command = [sys.executable, MODELS_TORCH, "--model", work.model, *words]
        self.process = subprocess.Popen(
            command + ["--compile"] * compiled,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.times: list[float] = []
        self.peak = 0
        self.turn(1)
        self.times.clear()

    def turn(self, steps: int) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"models_torch.py ended with {self.process.wait()}")
        found = json.loads(line)
        self.times += found[self.clock]
        self.peak = found["peak_bytes"] - found["libraries_bytes"]

    def close(self) -> Measured:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()
        return Measured(self.times, self.peak)


def compare(options: argparse.Namespace, work: Work, dtype: str) -> tuple[Measured, Measured]:
    """Rounds of both, PyTorch's faster way."""
    words = [*work.words.split(), "--dtype", dtype, "--threads", str(options.threads)]
    if options.batch_size:
        words += ["--batch-size", str(options.batch_size)]
    ways = (False, True)[: 1 + options.compile]
    peers = [Torch(work, words, compiled, options.clock) for compiled in ways]
    ours: list[Measured] = []
    for _ in range(options.rounds):
        ours.append(redpoll(options, work, words))
        for peer in peers:
            peer.turn(options.steps)
    theirs = min((peer.close() for peer in peers), key=lambda m: statistics.median(m.seconds))
    times = [time for turn in ours for time in turn.seconds]
    return Measured(times, max(turn.peak_bytes for turn in ours)), theirs


def print_row(name: str, work: Work, dtype: str, ours: Measured, theirs: Measured) -> None:
    goal = work.fp32 if dtype == "fp32" else work.bf16
    mine, other = (statistics.median(side.seconds) for side in (ours, theirs))
    memory = " | ".join(f"{side.peak_bytes / 1e9:.2f}" for side in (ours, theirs))
    print(
        f"| {name} | {work.words} | {dtype} | {mine:.3f} | {other:.3f} | {other / mine:.2f}"
        f" | {goal or ''} | {memory} |",
        flush=True,
    )


def main() -> None:
    """Print a row as soon as it is measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bench", type=Path, help="build/release/bench/engine_bench")
    parser.add_argument("--only", default=",".join(WORKS), help="rows, by commas")
    parser.add_argument("--dtype", choices=("fp32", "bf16", "both"), default="both")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--steps", type=int, default=2, help="a turn's")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="cpu", help="see above")
    parser.add_argument("--batch-size", type=int, default=0, help="another than a row's own")
    parser.add_argument("--compile", action="store_true", help="torch.compile, too")
    options = parser.parse_args()
    names = options.only.split(",")
    unknown = [name for name in names if name not in WORKS]
    if unknown:
        parser.error(f"--only {','.join(unknown)}: rows are {', '.join(WORKS)}")
    print("| model | batch | dtype | Redpoll, s | PyTorch, s | ratio | goal | GB | PyTorch's |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in names:
        for dtype in ("fp32", "bf16") if options.dtype == "both" else (options.dtype,):
            print_row(name, WORKS[name], dtype, *compare(options, WORKS[name], dtype))


if __name__ == "__main__":
    main()
