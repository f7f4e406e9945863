"""Every program of examples/pytorch, on two ranks with small settings."""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import math
import os
import runpy
import sys
from pathlib import Path

import pytest

from ranks import free_port, run_ranks, values

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pytorch"
BLUEFOG = EXAMPLES.parent / "bluefog"
HOROVOD = EXAMPLES.parent / "horovod"
DATA = Path("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
SMALL_IMAGES = ["--width", "4", "--batch", "8", "--images", "2000", "--lr", "0.02"]
SMALL_TEXT = [
    "--layers",
    "2",
    "--width",
    "32",
    "--context",
    "32",
    "--batch",
    "2",
    "--heads",
    "2",
]

needs_data = pytest.mark.skipif(
    not DATA.exists(), reason=f"{DATA} is missing (Debian's package dataset-fashion-mnist)"
)


def run_file(rank: int, world: int, port: int, path: str, arguments: list[str]) -> str:
    """The file as torchrun starts it, in a process that has imported PyTorch; its output."""
    place = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = [path, *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as text:
        runpy.run_path(path, run_name="__main__")
    return text.getvalue()


def run_example(name: str, *arguments: str) -> str:
    """What rank 0 of two printed, once both have ended well."""
    path = str(EXAMPLES / name)
    outcomes = run_ranks(run_file, 2, free_port(), path, list(arguments), timeout=150)
    return values(outcomes)[0]


@needs_data
@pytest.mark.parametrize(
    "choice",
    [["--backend", "gloo"], ["--codec", "q4", "--no-error-feedback"]],
    ids=["gloo", "q4-without-feedback"],
)
def test_image_classification(choice: list[str], tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    words = [*SMALL_IMAGES, "--steps", "3", "--json", str(result), *choice]
    text = run_example("ddp_image_classification.py", *words)
    assert "step     2  loss" in text
    losses = json.loads(result.read_text())["losses"]
    assert len(losses) == 3 and all(map(math.isfinite, losses))


@needs_data
def test_image_classification_resumes(tmp_path: Path) -> None:
    """Error feedback included: two runs of two steps give the losses of one of four."""
    whole, resumed = tmp_path / "whole.json", tmp_path / "resumed.json"
    common = [*SMALL_IMAGES, "--codec", "q4", "--width", "16"]
    run_example("ddp_image_classification.py", *common, "--steps", "4", "--json", str(whole))
    common += ["--checkpoint", str(tmp_path / "model.pt"), "--checkpoint-every", "2"]
    run_example("ddp_image_classification.py", *common, "--steps", "2")
    run_example("ddp_image_classification.py", *common, "--steps", "4", "--json", str(resumed))
    second = json.loads(resumed.read_text())
    assert second["first_step"] == 2
    assert second["losses"] == json.loads(whole.read_text())["losses"][2:]


@pytest.mark.parametrize(
    "choice",
    [[], ["--grads", "q8"], ["--grads", "q8", "--weights", "q8"]],
    ids=["redpoll", "grads", "grads-and-weights"],
)
def test_language_model(choice: list[str], tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    words = [*SMALL_TEXT, "--steps", "3", "--json", str(result), *choice]
    text = run_example("fsdp2_language_model.py", *words)
    assert "step     2  loss" in text
    losses = json.loads(result.read_text())["losses"]
    assert len(losses) == 3 and all(map(math.isfinite, losses))


def test_three_lines_make_the_difference() -> None:
    names = ["train_gloo.py", "train_redpoll.py"]
    before, after = ((EXAMPLES / name).read_text().splitlines(keepends=True) for name in names)
    diff = list(difflib.unified_diff(before, after, *names))
    assert "".join(diff) == (EXAMPLES / "gloo_to_redpoll.diff").read_text()
    assert len([line for line in diff[2:] if line.startswith("+") and line.strip() != "+"]) == 3


@pytest.mark.parametrize("name", ["train_gloo.py", "train_redpoll.py"])
def test_three_line_scripts(name: str) -> None:
    loss = float(run_example(name).split()[-1])
    assert loss < 0.5


def test_decentralised_least_squares() -> None:
    text = run_example("decentralised_least_squares.py", "--steps", "300")
    errors = {words[0]: float(words[6]) for words in map(str.split, text.splitlines())}
    assert errors["exact-diffusion"] < 1e-4 > errors["gradient-tracking"]
    assert errors["awc"] > 1e-3  # two ranks of a ring have the mean after each step of atc


def test_average_consensus_of_bluefog() -> None:
    pytest.importorskip("networkx", reason="networkx is not installed")
    text = run_example(str(BLUEFOG / "average_consensus.py"), "--enable-dynamic-topology")
    assert float(text.split("MSE at last iteration: ")[1]) < 1e-25
    text = run_example(str(BLUEFOG / "average_consensus.py"), "--asynchronous-mode")
    assert float(text.split("MSE at last iteration: ")[1]) < 1e-25
    assert "associated p at 0 is " in text


@pytest.mark.parametrize("compression", ["none", "q4"])
def test_digits_of_horovod(compression: str) -> None:
    words = ["--images", "1024", "--epochs", "2", "--batch-size", "8", "--lr", "0.02"]
    words += ["--compression", compression]
    text = run_example(str(HOROVOD / "pytorch_digits.py"), *words)
    assert [line.split()[:2] for line in text.splitlines()] == [["epoch", "0"], ["epoch", "1"]]
    accuracy = [float(line.split()[-1]) for line in text.splitlines()]
    assert accuracy[1] > 0.5
