"""Answers as spans: what `redpoll export` writes opens in transformers with the same loss, a
folder of transformers is a start, and offsets are those of its tokenizer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from squad_questions import questions_of

ROOT = Path(__file__).parents[2]
COMMAND = Path(os.environ["REDPOLL_BUILD"]) / "src" / "cli" / "redpoll"
LENGTH = 32
SIZES = "layers=2,hidden=32,heads=4,intermediate=72,vocabulary=51,positions=40"


def redpoll(*words: object) -> str:
    done = subprocess.run(
        [COMMAND, *map(str, words)], check=True, capture_output=True, text=True, timeout=300
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spans") / "birds"
    script = ROOT / "examples" / "make_questions.py"
    few = ["--texts", "40", "--validation", "20"]
    subprocess.run([sys.executable, script, folder, *few], check=True, timeout=60)
    return folder


@pytest.fixture(scope="module")
def folders(birds: Path) -> tuple[Path, Path]:
    """Of a run of some steps, and its export."""
    run, out = birds.parent / "run", birds.parent / "out"
    recipe = ["--seq-length", LENGTH, "--steps", 8, "--optimizer", "adamw", "--lr", "1e-2"]
    model = ["--model", f"bert:{SIZES}", "--data", data_of(birds)]  # the head is the data's
    redpoll("train", *model, *recipe, "-n", 2, "--codec", "q4", "--out", run)
    said = redpoll("export", "--from", run, "--to", f"hf:{out}")
    assert said.startswith("BertForQuestionAnswering of "), said
    return run, out


def data_of(birds: Path) -> str:
    files = f"{birds}/train.json,validation={birds}/validation.json"
    return f"spans:{files},tokenizer=bert:{birds},max-answer=4"


def test_transformers_has_the_same_loss(birds: Path, folders: tuple[Path, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    run, out = folders
    model, report = transformers.BertForQuestionAnswering.from_pretrained(
        out, output_loading_info=True
    )
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[key], (key, report[key])
    tokenizer = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    losses = []
    for context, question, start, end in questions_of(birds / "validation.json"):
        encoding = tokenizer.encode(question, context)
        ends = torch.zeros(2, 1, dtype=torch.long)  # [CLS]
        if end:
            inside = [
                index
                for index, (begin, stop) in enumerate(encoding.offsets)
                if encoding.type_ids[index] and begin < end and stop > start
            ]
            ends = torch.tensor([[inside[0]], [inside[-1]]])
        with torch.no_grad():
            found = model.eval()(
                input_ids=torch.tensor([encoding.ids]),
                token_type_ids=torch.tensor([encoding.type_ids]),
                start_positions=ends[0],
                end_positions=ends[1],
            )
        losses.append(found.loss.item())
    ours = json.loads(redpoll("eval", "--json", "--model", run))
    assert ours["questions"] == len(losses) == 60
    assert ours["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    data = ["--data", data_of(birds), "--seq-length", LENGTH]
    again = redpoll("eval", "--json", "--model", f"hf:{out}", *data)
    theirs = json.loads(again)
    for key in ("loss", "accuracy", "exact_match", "f1"):
        assert theirs[key] == pytest.approx(ours[key], rel=1e-6), key


def test_pre_training_is_a_start(birds: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=72,
        vocab_size=51,
        max_position_embeddings=40,
    )
    start, run, out = tmp_path / "start", tmp_path / "run", tmp_path / "out"
    model = transformers.BertForPreTraining(config)
    model.save_pretrained(start)
    recipe = ["--seq-length", LENGTH, "--steps", 1, "--lr", "1e-38", "--out", run]
    said = redpoll("train", "--model", f"hf:{start}", "--data", data_of(birds), *recipe)
    assert "start anew: qa_outputs.weight, qa_outputs.bias" in said
    redpoll("export", "--from", run, "--to", f"hf:{out}")
    back = transformers.BertForQuestionAnswering.from_pretrained(out)
    wanted = dict(model.bert.named_parameters())
    for name, tensor in back.bert.named_parameters():
        assert torch.allclose(tensor, wanted[name], rtol=0, atol=1e-30), name
