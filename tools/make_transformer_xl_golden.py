"""A small Transformer-XL in PyTorch, in double precision, by the paper's equations.

    python tools/make_transformer_xl_golden.py

writes tests/engine/golden/transformer_xl.safetensors: `initial/NAME`; one text of `tokens` that
three rows read from a third of it each, in segments; `logits` of the third segment with a plain
softmax; its loss by clusters and `gradient/NAME`; `losses` of 50 steps of AdamW with clipping.
Distances are looked up pair by pair, memories are as long as what was seen: nothing is
shifted or masked as the engine does it.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

VOCABULARY, CUTOFFS, HIDDEN, HEADS, HEAD, INNER, LAYERS = 257, (100, 180), 16, 2, 6, 20, 2
ROWS, LENGTH, MEMORY, CLAMP, STEPS = 3, 7, 10, 12, 50
LEARNING_RATE, DECAY, CLIP = 2e-3, 0.01, 0.25
PARTS = ((0, 100), (100, 180), (180, VOCABULARY))

Weights = dict[str, torch.Tensor]


def shapes() -> dict[str, tuple[int, ...]]:
    width, clusters = HEADS * HEAD, len(CUTOFFS)
    sizes: dict[str, tuple[int, ...]] = {
        "word_emb.emb_layers.0.weight": (VOCABULARY, HIDDEN),
        "r_w_bias": (HEADS, HEAD),
        "r_r_bias": (HEADS, HEAD),
        "crit.out_layers.0.bias": (VOCABULARY,),
        "crit.cluster_weight": (clusters, HIDDEN),
        "crit.cluster_bias": (clusters,),
    }
    for layer in range(LAYERS):
        attention, forward = f"layers.{layer}.dec_attn", f"layers.{layer}.pos_ff"
        sizes |= {
            f"{attention}.qkv_net.weight": (3 * width, HIDDEN),
            f"{attention}.r_net.weight": (width, HIDDEN),
            f"{attention}.o_net.weight": (HIDDEN, width),
            f"{attention}.layer_norm.weight": (HIDDEN,),
            f"{attention}.layer_norm.bias": (HIDDEN,),
            f"{forward}.CoreNet.0.weight": (INNER, HIDDEN),
            f"{forward}.CoreNet.0.bias": (INNER,),
            f"{forward}.CoreNet.3.weight": (HIDDEN, INNER),
            f"{forward}.CoreNet.3.bias": (HIDDEN,),
            f"{forward}.layer_norm.weight": (HIDDEN,),
            f"{forward}.layer_norm.bias": (HIDDEN,),
        }
    return sizes


def draw(generator: torch.Generator) -> Weights:
    weights = {}
    for name, shape in shapes().items():
        is_scale = name.endswith("layer_norm.weight")
        values = torch.randn(shape, generator=generator) * 0.2 + is_scale
        weights[name] = values.float().double().requires_grad_()
    return weights


def sinusoid(distance: torch.Tensor) -> torch.Tensor:
    rates = 10000 ** (-torch.arange(0, HIDDEN, 2, dtype=torch.float64) / HIDDEN)
    angles = distance.clamp(max=CLAMP).double()[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], -1)


def attend(w: Weights, part: str, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    context = torch.cat([memory, x], 1)
    queries, keys = x.shape[1], context.shape[1]
    q, k, v = (
        t.unflatten(-1, (HEADS, HEAD))
        for t in F.linear(context, w[f"{part}.qkv_net.weight"]).chunk(3, -1)
    )
    q = q[:, -queries:]
    at = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)[None]
    r = F.linear(sinusoid(at.clamp(min=0)), w[f"{part}.r_net.weight"])
    r = r.unflatten(-1, (HEADS, HEAD))  # queries x keys x heads x size
    scores = torch.einsum("bihd,bjhd->bhij", q + w["r_w_bias"], k)
    scores = scores + torch.einsum("bihd,ijhd->bhij", q + w["r_r_bias"], r)
    p = (scores / math.sqrt(HEAD)).masked_fill(at < 0, -math.inf).softmax(-1)
    y = torch.einsum("bhij,bjhd->bihd", p, v).flatten(2)
    return F.linear(y, w[f"{part}.o_net.weight"])


def norm(w: Weights, part: str, x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(
        x, (HIDDEN,), w[f"{part}.layer_norm.weight"], w[f"{part}.layer_norm.bias"], 1e-5
    )


def hidden(
    w: Weights, tokens: torch.Tensor, memories: list[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    x = w["word_emb.emb_layers.0.weight"][tokens] * math.sqrt(HIDDEN)
    after = []
    for layer, memory in enumerate(memories):
        after.append(torch.cat([memory, x], 1)[:, -MEMORY:].detach())
        part = f"layers.{layer}"
        x = norm(w, f"{part}.dec_attn", x + attend(w, f"{part}.dec_attn", x, memory))
        y = F.linear(
            x, w[f"{part}.pos_ff.CoreNet.0.weight"], w[f"{part}.pos_ff.CoreNet.0.bias"]
        )
        y = F.linear(
            y.relu(), w[f"{part}.pos_ff.CoreNet.3.weight"], w[f"{part}.pos_ff.CoreNet.3.bias"]
        )
        x = norm(w, f"{part}.pos_ff", x + y)
    return x, after


def logits_of(
    w: Weights, x: torch.Tensor, first: int = 0, end: int = VOCABULARY
) -> torch.Tensor:
    table, bias = w["word_emb.emb_layers.0.weight"], w["crit.out_layers.0.bias"]
    return F.linear(x, table[first:end], bias[first:end])


def loss_of(w: Weights, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """By clusters: that of cluster i is the i-th class from the end."""
    clusters = F.linear(x, w["crit.cluster_weight"], w["crit.cluster_bias"])
    head = torch.cat([logits_of(w, x, *PARTS[0]), clusters], -1).log_softmax(-1)
    total = torch.zeros((), dtype=torch.float64)
    for i, (first, end) in enumerate(PARTS):
        here = (labels >= first) & (labels < end)
        label = (labels[here] - first)[:, None]
        if i == 0:
            total = total - head[here].gather(-1, label).sum()
            continue
        tail = logits_of(w, x[here], first, end).log_softmax(-1)
        total = total - head[here][:, -i].sum() - tail.gather(-1, label).sum()
    return total / labels.numel()


def segment(tokens: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.stack(
        [tokens[r * STEPS * LENGTH :][step * LENGTH :][: LENGTH + 1] for r in range(ROWS)]
    )
    return rows[:, :-1], rows[:, 1:]


def nothing() -> list[torch.Tensor]:
    return [torch.zeros(ROWS, 0, HIDDEN, dtype=torch.float64) for _ in range(LAYERS)]


def look(w: Weights, tokens: torch.Tensor, out: dict[str, torch.Tensor]) -> None:
    memories = nothing()
    for step in range(3):
        inputs, labels = segment(tokens, step)
        x, memories = hidden(w, inputs, memories)
    out["logits"] = logits_of(w, x).detach().float()
    loss = loss_of(w, x, labels)
    loss.backward()
    out["loss"] = loss.detach().float()
    for name, tensor in w.items():
        assert tensor.grad is not None
        out[f"gradient/{name}"] = tensor.grad.float()
        tensor.grad = None


def train(w: Weights, tokens: torch.Tensor, out: dict[str, torch.Tensor]) -> None:
    optimizer = torch.optim.AdamW(w.values(), lr=LEARNING_RATE, weight_decay=DECAY)
    memories, losses = nothing(), []
    for step in range(STEPS):
        inputs, labels = segment(tokens, step)
        x, memories = hidden(w, inputs, memories)
        loss = loss_of(w, x, labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), CLIP)
        optimizer.step()
        losses.append(loss.detach())
    out["losses"] = torch.stack(losses).float()


def main() -> None:
    generator = torch.Generator().manual_seed(11)
    weights = draw(generator)
    places = torch.arange(ROWS * STEPS * LENGTH + 1)
    noise = torch.randint(0, 40, places.shape, generator=generator)
    tokens = (places * 37 % 211 + noise) % 250  # partly predictable; all clusters
    out = {f"initial/{name}": w.detach().float().clone() for name, w in weights.items()}
    out["tokens"] = tokens.to(torch.int32)
    look(weights, tokens, out)
    train(weights, tokens, out)
    path = Path(__file__).parent.parent / "tests/engine/golden/transformer_xl.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in out.items()}, path)
    print(out["loss"].item(), out["losses"][0].item(), out["losses"][-1].item())


if __name__ == "__main__":
    main()
