"""Models of pictures in `redpoll train` beside PyTorch: same weights and batch, same losses."""

from __future__ import annotations

import json
import os
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

COMMAND = Path(os.environ["REDPOLL_BUILD"]) / "src" / "cli" / "redpoll"
IMAGES, SIDE, CLASSES, STEPS, MOMENTUM = 16, 64, 5, 5, 0.9
VIT_LAYERS, VIT_HEADS, VIT_PATCH = 2, 4, 16
ROUNDING, AGREED = 1e-5, 2e-4  # of normalised activations; of gradients, relative L2
Parameters = dict[str, torch.Tensor]
Model = Callable[[Parameters, torch.Tensor], torch.Tensor]
Norm = Callable[[Parameters, str, torch.Tensor], torch.Tensor]


def write_idx(path: Path, values: np.ndarray) -> None:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes())


def write(folder: Path, pixels: np.ndarray, labels: np.ndarray) -> None:
    for part in ["train", "test"]:
        write_idx(folder / f"{part}-images", pixels)
        write_idx(folder / f"{part}-labels", labels)


def pictures(folder: Path, side: int = SIDE) -> tuple[torch.Tensor, torch.Tensor]:
    """As many as one batch has, so that their order does not matter; normalised as ours are."""
    rng = np.random.default_rng(7)
    pixels = rng.integers(0, 256, (IMAGES, 3, side, side), dtype=np.uint8)
    labels = (np.arange(IMAGES) % CLASSES).astype(np.uint8)
    write(folder, pixels, labels)
    scaled = torch.from_numpy(pixels).double() / 255
    normal = (scaled - scaled.mean()) / scaled.std(correction=0)
    return normal.float(), torch.from_numpy(labels).long()


def train(folder: Path, out: str, model: str, *words: str, batch: int = IMAGES) -> list[float]:
    subprocess.run(
        [COMMAND, "train", "--model", model, "--data", "idx", "--data-dir", folder, "--no-eval"]
        + ["--global-batch-size", str(batch), "--momentum", str(MOMENTUM)]
        + ["--weight-decay", "0", "--out", folder / out, *words],
        check=True,
        capture_output=True,
        timeout=300,
    )
    lines = map(json.loads, (folder / out / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "step" in line]


def read_parameters(path: Path) -> Parameters:
    """Running statistics are among them; batch norm in training does not read them."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    found = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__" or name.startswith("optimizer.") or ".running_" in name:
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = np.frombuffer(raw[begin:end], dtype="<f4").reshape(entry["shape"]).copy()
        found[name] = torch.from_numpy(values).requires_grad_()
    return found


def norm(p: Parameters, name: str, x: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, p[f"{name}.weight"], p[f"{name}.bias"], training=True)


def group_norm(p: Parameters, name: str, x: torch.Tensor, groups: int = 0) -> torch.Tensor:
    """By default up to 32 groups, of 8 channels or more."""
    channels = x.shape[1]
    usual = [g for g in range(1, 33) if channels % g == 0 and channels >= 8 * g]
    groups = groups or max(usual, default=1)
    return F.group_norm(x, groups, p[f"{name}.weight"], p[f"{name}.bias"])


def residual_block(
    p: Parameters, name: str, x: torch.Tensor, stride: int, norm: Norm
) -> torch.Tensor:
    """A basic block has conv1 and conv2, a bottleneck conv3, too; a 3x3 has the stride."""
    y, last = x, 3 if f"{name}.conv3.weight" in p else 2
    for i in range(1, last + 1):
        weight = p[f"{name}.conv{i}.weight"]
        step = stride if i == last - 1 else 1
        y = F.conv2d(y, weight, stride=step, padding=weight.shape[2] // 2)
        y = norm(p, f"{name}.bn{i}", y)
        y = F.relu(y) if i < last else y
    if f"{name}.downsample.0.weight" in p:
        x = F.conv2d(x, p[f"{name}.downsample.0.weight"], stride=stride)
        x = norm(p, f"{name}.downsample.1", x)
    return F.relu(y + x)


def resnet(p: Parameters, x: torch.Tensor, norm: Norm = norm) -> torch.Tensor:
    if p["conv1.weight"].shape[2] == 7:
        x = F.relu(norm(p, "bn1", F.conv2d(x, p["conv1.weight"], stride=2, padding=3)))
        x = F.max_pool2d(x, 3, 2, 1)
    else:
        x = F.relu(norm(p, "bn1", F.conv2d(x, p["conv1.weight"], padding=1)))
    blocks = [name[: -len(".conv1.weight")] for name in p if name.endswith(".conv1.weight")]
    for name in blocks:
        begins = name.endswith(".0") and name != "layer1.0"
        x = residual_block(p, name, x, 2 if begins else 1, norm)
    return F.linear(x.mean((2, 3)), p["fc.weight"], p["fc.bias"])


def vgg16(
    p: Parameters, x: torch.Tensor, d: Decisions | None = None, norm: Norm = norm
) -> torch.Tensor:
    layer = 0
    relu, halve = (d.relu, d.halve) if d else (F.relu, lambda y: F.max_pool2d(y, 2))
    for convolutions in [2, 2, 3, 3, 3]:
        for _ in range(convolutions):
            name = f"features.{layer}"
            x = F.conv2d(x, p[f"{name}.weight"], p[f"{name}.bias"], padding=1)
            has_norm = p.get(f"features.{layer + 1}.weight", x).dim() == 1
            x = relu(norm(p, f"features.{layer + 1}", x) if has_norm else x)
            layer += 3 if has_norm else 2
        x = halve(x)
        layer += 1
    x = x.flatten(1)
    for layer in [0, 3, 6]:
        x = F.linear(x, p[f"classifier.{layer}.weight"], p[f"classifier.{layer}.bias"])
        x = relu(x) if layer < 6 else x
    return x


def vit_block(p: Parameters, name: str, x: torch.Tensor, heads: int) -> torch.Tensor:
    width = x.shape[-1:]
    y = F.layer_norm(x, width, p[f"{name}.ln_1.weight"], p[f"{name}.ln_1.bias"], 1e-6)
    attention = f"{name}.self_attention"
    y = F.linear(y, p[f"{attention}.in_proj_weight"], p[f"{attention}.in_proj_bias"])
    q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in y.chunk(3, -1))
    y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    x = x + F.linear(y, p[f"{attention}.out_proj.weight"], p[f"{attention}.out_proj.bias"])
    y = F.layer_norm(x, width, p[f"{name}.ln_2.weight"], p[f"{name}.ln_2.bias"], 1e-6)
    y = F.gelu(F.linear(y, p[f"{name}.mlp.0.weight"], p[f"{name}.mlp.0.bias"]))
    return x + F.linear(y, p[f"{name}.mlp.3.weight"], p[f"{name}.mlp.3.bias"])


def vit(p: Parameters, x: torch.Tensor) -> torch.Tensor:
    x = F.conv2d(x, p["conv_proj.weight"], p["conv_proj.bias"], stride=VIT_PATCH)
    x = x.flatten(2).transpose(1, 2)
    x = torch.cat((p["class_token"].expand(len(x), -1, -1), x), 1)
    x = x + p["encoder.pos_embedding"]
    for layer in range(VIT_LAYERS):
        x = vit_block(p, f"encoder.layers.encoder_layer_{layer}", x, VIT_HEADS)
    x = F.layer_norm(x, x.shape[-1:], p["encoder.ln.weight"], p["encoder.ln.bias"], 1e-6)
    return F.linear(x[:, 0], p["heads.head.weight"], p["heads.head.bias"])


def architecture(model: str) -> Model:
    built = {"resnet": resnet, "vgg": vgg16, "vit": vit}[re.sub("[0-9-:].*", "", model)]
    if "norm=group" not in model:
        return built
    groups = re.search(r"groups=(\d+)", model)
    return partial(built, norm=partial(group_norm, groups=int(groups[1]) if groups else 0))


def train_torch(
    model: Model, p: Parameters, lr: float, images: torch.Tensor, labels: torch.Tensor
) -> list[float]:
    optimizer = torch.optim.SGD(p.values(), lr=lr, momentum=MOMENTUM)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(p, images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# Deep networks whose last norms start at 1 are so ill-conditioned that the second step of a
# ResNet-50 in PyTorch itself differs by 0.06 between f32 and f64.
@pytest.mark.parametrize(
    ("model", "lr"),
    [
        ("resnet18:width=4,stem=imagenet", 0.02),
        ("resnet34:width=4,stem=imagenet,zero-init-residual=on", 0.02),
        ("resnet50:width=4,stem=imagenet,zero-init-residual=on", 0.02),
        ("resnet101:width=4,stem=imagenet,zero-init-residual=on", 0.02),
        ("resnet20:norm=group", 0.005),
        ("resnet18:width=16,stem=imagenet,norm=group,groups=4", 0.02),
        ("resnet50:width=8,stem=imagenet,zero-init-residual=on,norm=group", 0.02),
        ("vgg16-bn:width=4,hidden=256,dropout=0,norm=group", 0.03),
        ("vgg16:width=4,hidden=256,dropout=0", 0.3),
        ("vgg16-bn:width=4,hidden=256,dropout=0", 0.03),
        (f"vit:layers={VIT_LAYERS},hidden=32,heads={VIT_HEADS},patch={VIT_PATCH}", 0.05),
    ],
)
def test_learns_as_in_pytorch(tmp_path: Path, model: str, lr: float) -> None:
    images, labels = pictures(tmp_path)
    train(tmp_path, "start", model, "--steps", "1", "--lr", "0")
    p = read_parameters(tmp_path / "start" / "model.safetensors")
    wanted = train_torch(architecture(model), p, lr, images, labels)
    losses = train(tmp_path, "run", model, "--steps", str(STEPS), "--lr", str(lr))
    assert losses == pytest.approx(wanted, abs=1e-4)
    assert losses[-1] < losses[0]
    if model.startswith("vgg16:"):  # whose loss hardly moves at first
        check_steps(tmp_path, p)


def check_steps(folder: Path, p: Parameters) -> None:
    """The parameters have moved as PyTorch's, each tensor by itself."""
    ours = read_parameters(folder / "run" / "model.safetensors")
    first = read_parameters(folder / "start" / "model.safetensors")
    for name, tensor in p.items():
        change, gap = (tensor - first[name]).norm(), (ours[name] - tensor).norm()
        assert gap <= 0.05 * change, name


def tensors_of(path: Path) -> set[str]:
    raw = path.read_bytes()
    names = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    return {n for n in names if n != "__metadata__" and not n.startswith("optimizer.")}


class Nearest(TorchFunctionMode):
    """How near to 0 a ReLU's input comes: what rounding may open or close."""

    def __init__(self) -> None:
        super().__init__()
        self.margin = torch.inf

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is F.relu:
            self.margin = min(self.margin, float(args[0].detach().abs().min()))
        return function(*args, **(kwargs or {}))


def moved_by_gradients(
    folder: Path, model: str, seed: int, backend: str
) -> tuple[Parameters, Parameters, float]:
    """Parameters, what a step of learning rate 1 takes from them, and its loss."""
    rest = ["--steps", "1", "--seed", str(seed), "--backend", backend, "--threads", "2"]
    train(folder, f"start{seed}", model, *rest, "--lr", "0")
    losses = train(folder, f"moved{seed}", model, *rest, "--lr", "1")
    p = read_parameters(folder / f"start{seed}" / "model.safetensors")
    moved = read_parameters(folder / f"moved{seed}" / "model.safetensors")
    assert tensors_of(folder / f"moved{seed}" / "model.safetensors") == set(p)  # no states
    return p, {n: (p[n] - moved[n]).detach() for n in p}, losses[0]


# Channels that fill blocks of 16 and such that do not; groups within a block and over its edge.
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(
    "model", ["resnet20:norm=group", "resnet20:width=12,norm=group,groups=2"]
)
def test_gradients_of_group_norm_are_those_of_pytorch(
    tmp_path: Path, model: str, backend: str
) -> None:
    if backend not in subprocess.check_output([COMMAND, "info"], text=True):
        pytest.skip(f"redpoll was built without {backend}")
    images, labels = pictures(tmp_path, side=8)
    for seed in range(1, 20):
        p, gradients, loss = moved_by_gradients(tmp_path, model, seed, backend)
        double = {n: tensor.detach().double().requires_grad_() for n, tensor in p.items()}
        with Nearest() as nearest:
            wanted = F.cross_entropy(architecture(model)(double, images.double()), labels)
        if nearest.margin > ROUNDING:
            break
    wanted.backward()
    assert nearest.margin > ROUNDING
    assert loss == pytest.approx(wanted.item(), abs=1e-5)
    for name, tensor in double.items():
        assert tensor.grad is not None
        gap = (gradients[name] - tensor.grad).norm() / tensor.grad.norm()
        assert gap <= AGREED, name


Near = tuple[float, int]  # how near a decision is to the other one, and which it is


class Decisions:
    """What ReLUs (open or closed) and poolings (which of a window) decide, each with a number.

    Those of `other` are made the other way; `near` lists those that rounding may make so.
    """

    def __init__(self, other: set[int]) -> None:
        self.other, self.near, self.count = other, list[Near](), 0

    def decide(self, margin: torch.Tensor) -> list[int]:
        """Number these decisions; which of them are to be made the other way."""
        first, self.count = self.count, self.count + margin.numel()
        close = torch.nonzero(margin < ROUNDING).flatten().tolist()
        self.near += [(float(margin[i]), first + i) for i in close]
        return [n - first for n in self.other if first <= n < self.count]

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        is_open = x.detach().flatten() > 0
        flipped = self.decide(x.detach().flatten().abs())
        is_open[flipped] = ~is_open[flipped]
        return x * is_open.reshape(x.shape)

    def halve(self, x: torch.Tensor) -> torch.Tensor:
        windows = F.unfold(x.flatten(0, 1)[:, None], 2, stride=2).transpose(1, 2).flatten(0, 1)
        largest, where = windows.detach().topk(2, dim=1)
        margin = largest[:, 0] - largest[:, 1]
        margin[largest[:, 0] == 0] = torch.inf  # behind a ReLU that is closed
        flipped = self.decide(margin)
        where[flipped, 0] = where[flipped, 1]
        y = windows.gather(1, where[:, :1])
        return y.reshape(*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2)


def gap_in_double(
    ours: Parameters, p: Parameters, images: torch.Tensor, labels: torch.Tensor, d: Decisions
) -> float:
    """The largest of convolutions' weights: biases in front of a norm get rounding alone."""
    double = {name: tensor.detach().double().requires_grad_() for name, tensor in p.items()}
    F.cross_entropy(vgg16(double, images.double(), d), labels).backward()
    wanted = {n: t.grad for n, t in double.items() if t.dim() == 4 and t.grad is not None}
    return max(float((ours[n] - g).norm() / g.norm()) for n, g in wanted.items())


# A pre-activation may be nearer to 0, and two elements of a window to each other, than rounding
# in f32 can tell: decided the other way, that moves the gradients of all layers in front of it
# by up to a few percent. Nothing else may: where double precision decides alike, all agree.
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_only_near_ties_move_gradients_of_vgg16_bn(tmp_path: Path, backend: str) -> None:
    if backend not in subprocess.check_output([COMMAND, "info"], text=True):
        pytest.skip(f"redpoll was built without {backend}")
    images, labels = pictures(tmp_path)
    model = "vgg16-bn:width=4,hidden=256,dropout=0"
    for seed in ["1", "2", "3"]:
        rest = ["--steps", "1", "--seed", seed, "--backend", backend, "--threads", "2"]
        train(tmp_path, f"start{seed}", model, *rest, "--lr", "0")
        train(tmp_path, f"moved{seed}", model, *rest, "--lr", "1")
        p = read_parameters(tmp_path / f"start{seed}" / "model.safetensors")
        moved = read_parameters(tmp_path / f"moved{seed}" / "model.safetensors")
        ours = {n: p[n].detach().double() - moved[n].detach().double() for n in p}
        as_is = Decisions(set())
        gap, other = gap_in_double(ours, p, images, labels, as_is), set[int]()
        for _, number in sorted(as_is.near):
            if gap <= AGREED:
                break
            changed = gap_in_double(ours, p, images, labels, Decisions(other | {number}))
            gap, other = (changed, other | {number}) if changed < gap else (gap, other)
        assert gap <= AGREED, f"{len(as_is.near)} near ties do not explain it"


def smallest_gap(losses: list[float]) -> float:
    return float(np.diff(sorted(losses)).min())


def test_dropout_draws_anew_in_each_step_rank_and_micro_batch(tmp_path: Path) -> None:
    """At a rate of 0 and with equal pictures only masks change the loss."""
    one = np.random.default_rng(3).integers(0, 256, (1, 3, 32, 32), dtype=np.uint8)
    write(tmp_path, np.repeat(one, IMAGES, axis=0), np.ones(IMAGES, np.uint8))
    model = "vgg16:width=4,hidden=32,dropout=0.5"
    rest = ["--steps", "3", "--lr", "0"]
    steps = train(tmp_path, "alone", model, *rest, batch=4)
    ranks = train(tmp_path, "ranks", model, *rest, "-n", "2", batch=8)
    parts = train(tmp_path, "parts", model, *rest, "--accumulate", "2", batch=8)
    both = train(tmp_path, "both", model, *rest, "--accumulate", "2", "-n", "2")
    assert smallest_gap([*steps, ranks[0], both[0]]) > 1e-7
    assert parts == pytest.approx(ranks, abs=1e-7)  # as many micro-batches
    assert train(tmp_path, "again", model, *rest, batch=4) == steps
    other = train(tmp_path, "other", model, *rest, "--seed", "2", batch=4)
    assert smallest_gap([*steps, *other]) > 1e-7
    still = train(tmp_path, "still", model.replace("0.5", "0"), *rest, batch=4)
    assert still == pytest.approx([still[0]] * 3, abs=1e-7)
