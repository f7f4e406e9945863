"""BERT: what `redpoll export` writes opens in transformers, and comes back."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

COMMAND = Path(os.environ["REDPOLL_BUILD"]) / "src" / "cli" / "redpoll"
TEXT = "In the beginning was the seed. And the finch saw that it was good! Who sows it? "
SIZES = "layers=2,hidden=32,heads=4,intermediate=72,vocabulary=261,positions=40"
KINDS = {
    "BertForPreTraining": f"bert:{SIZES}",
    "MegatronBertForPreTraining": f"bert:{SIZES},pre-ln=on",
}


def redpoll(*words: object) -> str:
    done = subprocess.run(
        [COMMAND, *map(str, words)], check=True, capture_output=True, text=True, timeout=300
    )
    return done.stdout


def evaluate(*words: object) -> dict[str, float]:
    found = json.loads(redpoll("eval", "--json", *words))
    return {key: found[key] for key in ("loss", "accuracy", "nsp_loss", "nsp_accuracy")}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    (folder / "text.txt").write_text(TEXT * 60)
    tokenize = ["data", "tokenize", "--tokenizer", "byte", "--in", folder / "text.txt"]
    redpoll(*tokenize, "--out", folder / "text")
    return folder / "text"


@pytest.fixture(params=KINDS)
def folders(
    request: pytest.FixtureRequest, text: Path, tmp_path: Path
) -> tuple[str, Path, Path]:
    """Of a run of some steps, and its export."""
    run, out = tmp_path / "run", tmp_path / "out"
    recipe = ["--seq-length", 32, "--steps", 8, "--optimizer", "adamw", "--lr", "1e-2"]
    model = ["--model", KINDS[request.param], "--data", f"masked:{text}"]
    redpoll("train", *model, *recipe, "-n", 2, "--codec", "q4", "--out", run)
    said = redpoll("export", "--from", run, "--to", f"hf:{out}")
    assert said.startswith(f"{request.param} of "), said
    return request.param, run, out


def test_an_export_evaluates_as_its_run(
    folders: tuple[str, Path, Path], text: Path, tmp_path: Path
) -> None:
    _, run, out = folders
    data = ["--data", f"masked:{text}", "--seq-length", 32]
    wanted = evaluate("--model", run)
    assert evaluate("--model", f"hf:{out}", *data) == pytest.approx(wanted, rel=1e-6)
    everything = evaluate("--model", run, *data, "--all")
    assert everything["loss"] != wanted["loss"]
    recipe = ["--seq-length", 32, "--steps", 1, "--lr", "1e-38", "--out", tmp_path / "next"]
    redpoll("train", "--model", f"hf:{out}", "--data", f"masked:{text}", *recipe)
    assert evaluate("--model", tmp_path / "next") == pytest.approx(wanted, rel=1e-6)


def test_transformers_opens_an_export(folders: tuple[str, Path, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    architecture, _, out = folders
    kind = getattr(transformers, architecture)
    model, report = kind.from_pretrained(out, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[key], (key, report[key])
    tokens = torch.arange(30).view(1, 30)
    with torch.no_grad():
        found = model.eval()(tokens)
    assert found.prediction_logits.shape == (1, 30, 261)
    assert found.seq_relationship_logits.shape == (1, 2)
    head, table = model.cls.predictions.decoder.weight, model.bert.embeddings.word_embeddings
    assert torch.equal(head, table.weight)
