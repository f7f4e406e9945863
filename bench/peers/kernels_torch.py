"""Time of PyTorch's operators that do what the kernels of bench/kernels.c do.

    kernels_torch.py [--threads 2] [--rounds 15] [--only gelu]

Same shapes and names, one call of each a round, medians and best of each.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial
from typing import Callable

import torch
import torch.nn.functional as F

Call = Callable[[], object]


def elementwise() -> dict[str, Call]:
    """The activations of kernels_elementwise.c."""
    x, dy, gate, up = (torch.randn(1024, 3072) for _ in range(4))
    bias = torch.randn(3072)
    leaf = x.clone().requires_grad_()
    graphs = {
        "bias_gelu_tanh": F.gelu(leaf + bias, approximate="tanh"),
        "bias_gelu_erf": F.gelu(leaf + bias),
        "swiglu": F.silu(leaf) * up.clone().requires_grad_(),
    }
    forward: dict[str, Call] = {
        "bias_gelu_tanh": lambda: F.gelu(x + bias, approximate="tanh"),
        "bias_gelu_erf": lambda: F.gelu(x + bias),
        "swiglu": lambda: F.silu(gate) * up,
    }
    calls: dict[str, Call] = {}
    for name, call in forward.items():
        calls[f"{name} forward"] = call
        calls[f"{name} backward"] = backward_of(graphs[name], leaf, dy)
    calls["add_bias"] = lambda: x + (up + bias)
    calls["column_sums"] = lambda: x.sum(0)
    return calls


def rows() -> dict[str, Call]:
    """The norms and the cross-entropy of kernels_rows.c; both kinds of gradients at once."""
    x = torch.randn(2048, 768, requires_grad=True)
    dy = torch.randn(2048, 768)
    gamma = torch.ones(768, requires_grad=True)
    beta = torch.zeros(768, requires_grad=True)
    layer = F.layer_norm(x, (768,), gamma, beta)
    rms = F.rms_norm(x, (768,), gamma)
    logits = torch.randn(256, 50257, requires_grad=True)
    labels = torch.arange(256) * 37

    def cross_entropy() -> object:
        return torch.autograd.grad(F.cross_entropy(logits, labels), logits)

    return {
        "layer_norm forward": lambda: F.layer_norm(x, (768,), gamma, beta),
        "layer_norm backward (both)": lambda: torch.autograd.grad(
            layer, (x, gamma, beta), dy, retain_graph=True
        ),
        "rms_norm forward": lambda: F.rms_norm(x, (768,), gamma),
        "rms_norm backward (both)": lambda: torch.autograd.grad(
            rms, (x, gamma), dy, retain_graph=True
        ),
        "cross_entropy forward + backward": cross_entropy,
    }


def attention() -> dict[str, Call]:
    """The shapes of kernels_attention.c."""
    calls: dict[str, Call] = {}
    for name, batch, length, causal in (
        ("T1024", 1, 1024, False),
        ("T1024 causal", 1, 1024, True),
        ("T128", 8, 128, False),
    ):
        q, k, v = (torch.randn(batch, 12, length, 64, requires_grad=True) for _ in range(3))
        dy = torch.randn(batch, 12, length, 64)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        calls[f"attention forward {name}"] = partial(
            F.scaled_dot_product_attention, q, k, v, is_causal=causal
        )
        calls[f"attention backward {name}"] = partial(
            torch.autograd.grad, y, (q, k, v), dy, retain_graph=True
        )
    return calls


def arena() -> dict[str, Call]:
    """The optimizers and token kernels of kernels_arena.c."""
    adam, sgd = (torch.nn.Parameter(torch.randn(1 << 24)) for _ in range(2))
    adam.grad = sgd.grad = torch.randn(1 << 24)
    table = torch.nn.Parameter(torch.randn(50257, 768))
    ids = torch.arange(2048) ** 2 % 1999 * 25
    x = torch.randn(2048, 768)
    found = F.embedding(ids, table)
    return {
        "sgd with momentum": torch.optim.SGD([sgd], 1e-6, 0.9, weight_decay=1e-4).step,
        "adamw": torch.optim.AdamW([adam], 1e-6, weight_decay=0.1, fused=True).step,
        "square_sum": adam.grad.norm,
        "dropout": lambda: F.dropout(x, 0.1),
        "embedding forward": lambda: F.embedding(ids, table),
        "embedding backward (dense)": backward_of(found, table, x),
    }


def backward_of(y: torch.Tensor, leaf: torch.Tensor, dy: torch.Tensor) -> Call:
    """One backward pass through a graph that is kept."""
    return lambda: torch.autograd.grad(y, leaf, dy, retain_graph=True)


def measure(calls: dict[str, Call], rounds: int) -> None:
    """Print the median and the best of each call, taking turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(-2, rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn >= 0:
                times[name].append(1e3 * (time.perf_counter() - start))
    for name, each in times.items():
        print(f"{name:<34} {statistics.median(each):9.3f} ms, best {min(each):9.3f}")


def main() -> None:
    """Parse the options and time what they name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    calls = {**elementwise(), **attention(), **rows(), **arena()}
    measure({n: c for n, c in calls.items() if options.only in n}, options.rounds)


if __name__ == "__main__":
    main()
