"""Models of `redpoll train` beside PyTorch: the same weights and batches, the same losses."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

COMMAND = Path(os.environ["REDPOLL_BUILD"]) / "src" / "cli" / "redpoll"
WINDOWS, SEQUENCE, HEADS, LAYERS, STEPS = 12, 24, 4, 2, 50
SIZE = f"layers={LAYERS},hidden=32,heads={HEADS},vocabulary=257,positions=40"
Parameters = dict[str, torch.Tensor]
Loss = Callable[[Parameters, torch.Tensor], torch.Tensor]
KV_HEADS, ROPE_BASE = 2, 500
GPT2 = f"gpt2:{SIZE}"
LLAMA = f"llama:{SIZE},kv-heads={KV_HEADS},intermediate=80,rope-base={ROPE_BASE}"
LR, DECAY, CLIP = 1e-3, 0.1, 0.5


def tokens(folder: Path) -> torch.Tensor:
    """As many bytes as fill the windows of one batch, so that their order does not matter."""
    rng = random.Random(5)
    words = ["seed ", "finch ", "flock ", "winter ", "birch "]
    text = "".join(rng.choice(words) for _ in range(200))[: WINDOWS * (SEQUENCE + 1)]
    (folder / "text.txt").write_text(text)
    subprocess.run(
        [COMMAND, "data", "tokenize", "--tokenizer", "byte", "--in", folder / "text.txt"]
        + ["--out", folder / "text"],
        check=True,
        capture_output=True,
    )
    ids = np.fromfile(folder / "text.ds", dtype="<u2").astype(np.int64)
    return torch.from_numpy(ids[: WINDOWS * (SEQUENCE + 1)]).view(WINDOWS, SEQUENCE + 1)


def train(folder: Path, out: str, model: str, *words: str) -> list[dict[str, float]]:
    path = folder / "text"
    subprocess.run(
        [COMMAND, "train", "--model", model, "--data", f"tokens:{path},validation={path}"]
        + ["--seq-length", str(SEQUENCE), "--global-batch-size", str(WINDOWS), "--no-eval"]
        + ["--optimizer", "adamw", "--decay", "weights", "--out", folder / out, *words],
        check=True,
        capture_output=True,
        timeout=300,
    )
    lines = (folder / out / "metrics.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if "step" in line]


def read_parameters(path: Path) -> Parameters:
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    found = {}
    for name, entry in header.items():
        if name == "__metadata__" or name.startswith("optimizer."):
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = np.frombuffer(raw[begin:end], dtype="<f4").reshape(entry["shape"]).copy()
        found[name] = torch.from_numpy(values).requires_grad_()
    return found


def norm(p: Parameters, name: str, x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"], 1e-5)


def linear(p: Parameters, name: str, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])


def attend(p: Parameters, name: str, x: torch.Tensor) -> torch.Tensor:
    batch, length, width = x.shape
    parts = linear(p, f"{name}.c_attn", x).split(width, dim=2)
    q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in parts)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return linear(p, f"{name}.c_proj", y.transpose(1, 2).reshape(x.shape))


def gpt2_loss(p: Parameters, windows: torch.Tensor) -> torch.Tensor:
    inputs, labels = windows[:, :-1], windows[:, 1:]
    x = p["wte.weight"][inputs] + p["wpe.weight"][: inputs.shape[1]]
    for layer in range(LAYERS):
        name = f"h.{layer}"
        x = x + attend(p, f"{name}.attn", norm(p, f"{name}.ln_1", x))
        y = linear(p, f"{name}.mlp.c_fc", norm(p, f"{name}.ln_2", x))
        x = x + linear(p, f"{name}.mlp.c_proj", F.gelu(y, approximate="tanh"))
    logits = F.linear(norm(p, "ln_f", x), p["wte.weight"])
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def rms_norm(p: Parameters, name: str, x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], p[f"{name}.weight"], 1e-5)


def project(p: Parameters, name: str, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, p[f"{name}.weight"])


def heads_of(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def turn(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions of halves. x: batch x heads x length x size."""
    half = x.shape[-1] // 2
    rates = ROPE_BASE ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), rates)
    cos, sin = angles.cos().float(), angles.sin().float()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def attend_grouped(p: Parameters, name: str, x: torch.Tensor) -> torch.Tensor:
    q = heads_of(project(p, f"{name}.q_proj", x), HEADS)
    k = heads_of(project(p, f"{name}.k_proj", x), KV_HEADS)
    if f"{name}.q_norm.weight" in p:
        q, k = rms_norm(p, f"{name}.q_norm", q), rms_norm(p, f"{name}.k_norm", k)
    q, k = turn(q), turn(k)
    v = heads_of(project(p, f"{name}.v_proj", x), KV_HEADS)
    k, v = (part.repeat_interleave(HEADS // KV_HEADS, dim=1) for part in (k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return project(p, f"{name}.o_proj", y.transpose(1, 2).reshape(x.shape))


def llama_loss(p: Parameters, windows: torch.Tensor) -> torch.Tensor:
    inputs, labels = windows[:, :-1], windows[:, 1:]
    table = p["model.embed_tokens.weight"]
    x = table[inputs]
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        x = x + attend_grouped(
            p, f"{name}.self_attn", rms_norm(p, f"{name}.input_layernorm", x)
        )
        y = rms_norm(p, f"{name}.post_attention_layernorm", x)
        gated = F.silu(project(p, f"{name}.mlp.gate_proj", y)) * project(
            p, f"{name}.mlp.up_proj", y
        )
        x = x + project(p, f"{name}.mlp.down_proj", gated)
    logits = F.linear(rms_norm(p, "model.norm", x), p.get("lm_head.weight", table))
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def train_torch(
    loss_of: Loss, p: Parameters, windows: torch.Tensor
) -> list[tuple[float, float]]:
    groups = [
        {"params": [t for t in p.values() if t.dim() > 1], "weight_decay": DECAY},
        {"params": [t for t in p.values() if t.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)
    seen = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(p, windows)
        loss.backward()
        size = torch.nn.utils.clip_grad_norm_(list(p.values()), CLIP)
        optimizer.step()
        seen.append((loss.item(), float(size)))
    return seen


@pytest.mark.parametrize(
    ("model", "loss_of", "ways"),
    [
        (GPT2, gpt2_loss, ["--accumulate", "1"]),
        (GPT2, gpt2_loss, ["--accumulate", "3", "-n", "2"]),
        (LLAMA, llama_loss, ["--accumulate", "3", "-n", "2"]),
        (f"{LLAMA},tied=on", llama_loss, ["--accumulate", "1"]),
        (f"{LLAMA},qk-norm=on", llama_loss, ["--accumulate", "1"]),
    ],
)
def test_learns_as_in_pytorch(
    tmp_path: Path, model: str, loss_of: Loss, ways: list[str]
) -> None:
    windows = tokens(tmp_path)
    train(tmp_path, "start", model, "--steps", "1", "--lr", "0")
    p = read_parameters(tmp_path / "start" / "model.safetensors")
    assert ("lm_head.weight" in p) == (model.startswith(LLAMA) and "tied" not in model)
    wanted = train_torch(loss_of, p, windows)
    recipe = ["--lr", str(LR), "--beta2", "0.95", "--weight-decay", str(DECAY)]
    recipe += ["--clip", str(CLIP)]
    steps = train(tmp_path, "run", model, "--steps", str(STEPS), *recipe, *ways)
    assert len(steps) == STEPS
    for step, (loss, size) in zip(steps, wanted):
        assert step["loss"] == pytest.approx(loss, abs=1e-3), step["step"]
        assert step["grad_norm"] == pytest.approx(size, rel=1e-2), step["step"]
    assert steps[0]["loss"] == pytest.approx(wanted[0][0], abs=1e-5)
    assert steps[0]["grad_norm"] == pytest.approx(wanted[0][1], rel=1e-5)
    assert steps[-1]["loss"] < steps[0]["loss"] - 1
