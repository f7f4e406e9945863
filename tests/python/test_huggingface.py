"""Hugging Face folders: what `redpoll export` writes opens elsewhere with the same loss."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

COMMAND = Path(os.environ["REDPOLL_BUILD"]) / "src" / "cli" / "redpoll"
TEXT = "In the beginning was the seed, and the finch. "
SEQUENCE, HEADS, LAYERS, WIDTH = 24, 4, 2, 32
MODEL = f"gpt2:layers={LAYERS},hidden={WIDTH},heads={HEADS},vocabulary=300,positions=40"
Tensors = dict[str, torch.Tensor]


def redpoll(*words: object) -> str:
    done = subprocess.run(
        [COMMAND, *map(str, words)], check=True, capture_output=True, text=True, timeout=300
    )
    return done.stdout


def windows(path: Path) -> torch.Tensor:
    """All windows of a file of tokens, as redpoll cuts them."""
    ids = np.fromfile(f"{path}.ds", dtype="<u2").astype(np.int64)
    count = len(ids) // (SEQUENCE + 1)
    return torch.from_numpy(ids[: count * (SEQUENCE + 1)]).view(count, SEQUENCE + 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose held-out samples are those that it learns from."""
    folder = tmp_path_factory.mktemp("hf")
    (folder / "text.txt").write_text(TEXT * 200)
    text = folder / "text"
    tokenize = ["data", "tokenize", "--tokenizer", "train:bpe=300", "--in", folder / "text.txt"]
    redpoll(*tokenize, "--out", text)
    recipe = ["--seq-length", SEQUENCE, "--steps", 30, "--optimizer", "adamw", "--lr", "1e-2"]
    data = f"tokens:{text},validation={text}"
    redpoll("train", "--model", MODEL, "--data", data, *recipe, "--out", folder / "run")
    return folder


def evaluation(folder: Path) -> dict[str, Any]:
    lines = map(json.loads, (folder / "run" / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "test_loss" in line][-1]


def export(folder: Path, to: Path) -> Path:
    said = redpoll("export", "--from", folder / "run", "--to", f"hf:{to}")
    assert said.startswith("GPT2LMHeadModel of "), said
    return to


def read_tensors(path: Path) -> Tensors:
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = np.frombuffer(raw[begin:end], dtype="<f4").reshape(entry["shape"]).copy()
        found[name] = torch.from_numpy(values)
    return found


def gpt2(p: Tensors, ids: torch.Tensor, heads: int) -> torch.Tensor:
    """GPT2LMHeadModel by the names and layouts of its files: weights are inputs x outputs."""

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        weight, bias = p[f"transformer.{name}.weight"], p[f"transformer.{name}.bias"]
        return F.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)

    def conv1d(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ p[f"transformer.{name}.weight"] + p[f"transformer.{name}.bias"]

    wte = p["transformer.wte.weight"]
    x = wte[ids] + p["transformer.wpe.weight"][: ids.shape[1]]
    for layer in range(LAYERS):
        h = f"h.{layer}"
        parts = conv1d(f"{h}.attn.c_attn", norm(f"{h}.ln_1", x)).split(x.shape[-1], dim=2)
        q, k, v = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + conv1d(f"{h}.attn.c_proj", y)
        y = conv1d(f"{h}.mlp.c_fc", norm(f"{h}.ln_2", x))
        x = x + conv1d(f"{h}.mlp.c_proj", F.gelu(y, approximate="tanh"))
    return norm("ln_f", x) @ wte.T


def loss_of(logits: torch.Tensor, rows: torch.Tensor) -> float:
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item()


def test_an_export_has_the_loss_of_its_run(run: Path, tmp_path: Path) -> None:
    to = export(run, tmp_path / "out")
    config = json.loads((to / "config.json").read_text())
    assert config["architectures"] == ["GPT2LMHeadModel"]
    assert (config["n_layer"], config["n_head"], config["n_embd"]) == (LAYERS, HEADS, WIDTH)
    assert config["eos_token_id"] is None  # 50256 is beyond this vocabulary
    rows = windows(run / "text")
    logits = gpt2(read_tensors(to / "model.safetensors"), rows[:, :-1], config["n_head"])
    assert loss_of(logits, rows) == pytest.approx(evaluation(run)["test_loss"], abs=1e-4)


def test_transformers_opens_an_export(run: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    to = export(run, tmp_path / "out")
    model, report = transformers.GPT2LMHeadModel.from_pretrained(to, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[key], (key, report[key])
    rows = windows(run / "text")
    with torch.no_grad():
        logits = model.eval()(rows[:, :-1]).logits
    assert loss_of(logits, rows) == pytest.approx(evaluation(run)["test_loss"], abs=1e-4)


def test_transformers_opens_its_tokenizer(run: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(export(run, tmp_path / "out"))
    ids = tokenizer(TEXT * 3)["input_ids"]
    ids = ids[: 2 * len(ids) // 3]  # how it ends depends on what follows
    assert ids == windows(run / "text").flatten().tolist()[: len(ids)]


def train_from(folder: Path, data: Path, out: Path, *words: object) -> tuple[float, str]:
    """The loss of the first step, over all windows of the data, and what was printed."""
    count = len(windows(data))
    recipe = ["--seq-length", SEQUENCE, "--global-batch-size", 2 * (count // 2), "--steps", 1]
    model = ["--model", f"hf:{folder}", "--data", f"tokens:{data},validation={data}"]
    said = redpoll("train", *model, *recipe, "--lr", "1e-38", "--out", out, *words)
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "test_loss" in line][-1]["test_loss"], said


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_export_is_trained_further(run: Path, tmp_path: Path, ranks: int) -> None:
    to = export(run, tmp_path / "out")
    loss, _ = train_from(to, run / "text", tmp_path / "next", "-n", ranks)
    assert loss == pytest.approx(evaluation(run)["test_loss"], abs=1e-5)
    # The run goes on without the folder.
    (to / "config.json").unlink()
    redpoll("train", "--resume", tmp_path / "next", "--steps", 2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_folder_of_transformers_is_trained(run: Path, tmp_path: Path, dtype: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(5)
    config = transformers.GPT2Config(
        n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, vocab_size=300, n_positions=40
    )
    config.bos_token_id = config.eos_token_id = 0
    model = transformers.GPT2LMHeadModel(config).to(getattr(torch, dtype)).eval()
    model.save_pretrained(tmp_path / "hf", max_shard_size="20KB")
    assert (tmp_path / "hf" / "model.safetensors.index.json").exists()
    rows = windows(run / "text")
    with torch.no_grad():
        wanted = loss_of(model.float()(rows[:, :-1]).logits, rows)
    loss, said = train_from(tmp_path / "hf", run / "text", tmp_path / "next")
    assert loss == pytest.approx(wanted, abs=1e-4)
    assert "missing" not in said and "no use" not in said, said


def test_an_evaluation_is_that_of_the_run(run: Path, tmp_path: Path) -> None:
    wanted = evaluation(run)
    for model in (run / "run", f"hf:{export(run, tmp_path / 'out')}"):
        data = ["--data", f"tokens:{run / 'text'}", "--all", "--seq-length", SEQUENCE]
        ways = [[], data] if isinstance(model, Path) else [data]
        for words in ways:
            seen = json.loads(redpoll("eval", "--model", model, "--json", *words))
            assert seen["loss"] == pytest.approx(wanted["test_loss"], rel=1e-6)
            assert seen["perplexity"] == pytest.approx(wanted["test_perplexity"], rel=1e-6)
            assert seen["accuracy"] == pytest.approx(wanted["test_accuracy"], rel=1e-6)
            assert seen["tokens"] == wanted["test_tokens"]
            assert seen["model"] == MODEL


def test_an_evaluation_of_images_is_that_of_the_run(tmp_path: Path) -> None:
    data = ["--data", "synthetic", "--train-images", 200, "--test-images", 50, "--seed", 3]
    redpoll(
        "train", "--model", "resnet20:width=4", *data, "--steps", 3, "--out", tmp_path / "run"
    )
    wanted = evaluation(tmp_path)
    seen = json.loads(redpoll("eval", "--model", tmp_path / "run", "--json"))
    assert seen["loss"] == pytest.approx(wanted["test_loss"], rel=1e-6)
    assert seen["images"] == wanted["test_images"] == 50
    assert "perplexity" not in seen


def test_what_cannot_be_evaluated_is_told(run: Path, tmp_path: Path) -> None:
    to = export(run, tmp_path / "out")
    tokens = f"tokens:{run / 'text'}"
    for words, part in [
        ([], "which model? --model RUN or --model hf:FOLDER"),
        (["--model", tmp_path / "nowhere"], "there is no run"),
        (["--model", f"hf:{to}"], "which data?"),
        (["--model", f"hf:{tmp_path}", "--data", tokens], "config.json is missing"),
        (["--model", f"hf:{to}", "--data", tokens], "use --seq-length 40 or less"),
        (["--model", f"hf:{to}", "--data", "synthetic"], "learns from tokens"),
        (["--model", f"hf:{to}", "--data", "synthetic", "--all"], "--all is for tokens:PATH"),
    ]:
        command = [COMMAND, "eval", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode in (1, 2), words
        assert part in done.stderr, (words, done.stderr)
