"""Models of Hugging Face folders on one batch, by tests/train/hf_batch.c."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import torch

PROGRAM = Path(os.environ.get("REDPOLL_BUILD", ".")) / "tests" / "train" / "hf_batch"
BACKENDS = ("reference", "cpu")
Tensors = dict[str, torch.Tensor]


class Refused(Exception):
    """The folder is none that Redpoll reads; why."""


def call(*words: object) -> str:
    done = subprocess.run(
        [PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=120
    )
    if done.returncode == 1:
        raise Refused(done.stderr.strip())
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def run(folder: Path, batch: Tensors) -> tuple[str, str, Tensors]:
    """The model's text, what is said of missing tensors, and what each backend has found:
    `cpu.logits`, `cpu.loss`, `cpu.gradient.NAME` and so on."""
    from safetensors.torch import load_file, save_file

    given, found = folder / "batch.safetensors", folder / "found.safetensors"
    narrow = {torch.int64: torch.int32, torch.float64: torch.float32}
    save_file(
        {key: value.to(narrow.get(value.dtype, value.dtype)).contiguous()
         for key, value in batch.items()},
        given,
    )  # fmt: skip
    model, note, *_ = call("run", folder, given, found).split("\n")
    return model, note, load_file(found)


def held_out(data: str, length: int, count: int, out: Path) -> Tensors:
    """The first held-out samples of some data, as an evaluation feeds them."""
    from safetensors.torch import load_file

    call("data", data, length, count, out)
    return {
        key: value.long() if value.dtype == torch.int32 else value
        for key, value in load_file(out).items()
    }


def distance(found: torch.Tensor, wanted: torch.Tensor, whole: float) -> float:
    """Relative L2, of one tensor of a gradient whose norm is `whole`; where its own is below
    1e-3, or below a thousandth of that, relative to those: gradients that are 0 but for
    rounding, as of queries that see one key."""
    error = (found.double() - wanted.double()).norm().item()
    return error / max(wanted.double().norm().item(), 1e-3, 1e-3 * whole)


def farthest(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float(np.abs(found.double().numpy() - wanted.double().numpy()).max(initial=0.0))
