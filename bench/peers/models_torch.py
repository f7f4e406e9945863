"""Training steps of the large models in PyTorch, a few for each line that is read.

    echo 3 | models_torch.py --model gpt2 --batch-size 4 --seq-length 64 --dtype bf16

Models are those of `redpoll train`, in plain PyTorch as its users write them: fused attention,
channels-last for images, autocast for bf16. A step is forward, backward and SGD with momentum
(fused); data are random. A line of input is a number of steps, and is answered by one line of
JSON: the wall and processor seconds of each, the peak of memory, and what of it is libraries.
`compare_models.py` sets it beside Redpoll.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

Batch = tuple[torch.Tensor, ...]
VOCABULARIES = {"gpt2": 50257, "llama": 32000, "bert": 30522}
CLASSES = 1000


# ---- transformers ----


class Attention(nn.Module):
    """Heads of self-attention; one product for queries, keys and values."""

    def __init__(self, width: int, heads: int, bias: bool, causal: bool, rotary: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias)
        self.out = nn.Linear(width, width, bias)
        self.heads, self.causal, self.rotary = heads, causal, rotary

    def forward(self, x: torch.Tensor, turns: Batch) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, -1).transpose(1, 3)
        q, k, v = parts.unbind(2)
        if self.rotary:
            q, k = turn(q, turns), turn(k, turns)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


def turn(x: torch.Tensor, turns: Batch) -> torch.Tensor:
    """Rotary positions, halves of a head beside each other."""
    cos, sin = turns
    a, b = x.chunk(2, -1)
    return x * cos.to(x.dtype) + torch.cat((-b, a), -1) * sin.to(x.dtype)


class GeluMlp(nn.Module):
    def __init__(self, width: int, approximate: str) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.approximate = approximate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x), approximate=self.approximate))


class GatedMlp(nn.Module):
    def __init__(self, width: int, inside: int) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, inside, bias=False) for _ in range(2))
        self.down = nn.Linear(inside, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """One layer of a transformer; `first`: norms stand before what they normalise."""

    def __init__(
        self,
        norms: tuple[nn.Module, nn.Module],
        attention: Attention,
        mlp: nn.Module,
        first: bool,
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = norms
        self.attention, self.mlp, self.first = attention, mlp, first

    def forward(self, x: torch.Tensor, turns: Batch) -> torch.Tensor:
        if self.first:
            x = x + self.attention(self.norm1(x), turns)
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attention(x, turns))
        return self.norm2(x + self.mlp(x))


class Language(nn.Module):
    """GPT-2, LLaMA and BERT of 12 layers, width 768, 12 heads; the loss is what it returns."""

    def __init__(
        self, family: str, width: int = 768, layers: int = 12, heads: int = 12
    ) -> None:
        super().__init__()
        self.family, self.size = family, width // heads
        llama, bert = family == "llama", family == "bert"
        self.words = nn.Embedding(VOCABULARIES[family], width)
        self.positions = None if llama else nn.Embedding(512 if bert else 1024, width)
        self.types = nn.Embedding(2, width) if bert else None
        self.blocks = nn.ModuleList(
            Block(
                (norm_of(family, width), norm_of(family, width)),
                Attention(width, heads, not llama, not bert, llama),
                GatedMlp(width, 2048) if llama else GeluMlp(width, "none" if bert else "tanh"),
                not bert,
            )
            for _ in range(layers)
        )
        self.norm = norm_of(family, width)
        self.head = nn.Linear(width, VOCABULARIES[family], bias=False) if llama else None
        if bert:
            self.transform, self.pooler = nn.Linear(width, width), nn.Linear(width, width)
            self.follows = nn.Linear(width, 2)
            self.bias = nn.Parameter(torch.zeros(VOCABULARIES[family]))

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = self.words(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1]))
        if self.types is not None:
            x = self.norm(x + self.types(torch.zeros_like(tokens)))
        return x

    def turns(self, length: int) -> Batch:
        rates = 10000.0 ** (-torch.arange(0, self.size, 2) / self.size)
        angles = torch.outer(torch.arange(length), rates).repeat(1, 2)
        return angles.cos(), angles.sin()

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        turns = self.turns(tokens.shape[1]) if self.family == "llama" else ()
        for block in self.blocks:
            x = block(x, turns)
        if self.family == "bert":
            return self.pretraining_loss(x, labels)
        head = self.words.weight if self.head is None else self.head.weight
        return cross_entropy(F.linear(self.norm(x), head), labels)

    def pretraining_loss(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        follows = self.follows(torch.tanh(self.pooler(x[:, 0])))
        hidden = F.layer_norm(F.gelu(self.transform(x)), x.shape[-1:])
        logits = F.linear(hidden, self.words.weight, self.bias)
        return cross_entropy(logits, labels) + cross_entropy(follows, labels[:, 0] % 2)


def norm_of(family: str, width: int) -> nn.Module:
    return nn.RMSNorm(width, 1e-5) if family == "llama" else nn.LayerNorm(width)


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


class Vit(nn.Module):
    """ViT-B/16."""

    def __init__(self, size: int, width: int = 768, layers: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // 16) ** 2 + 1, width) * 0.02)
        self.blocks = nn.ModuleList(
            Block(
                (nn.LayerNorm(width), nn.LayerNorm(width)),
                Attention(width, 12, True, False, False),
                GeluMlp(width, "none"),
                True,
            )
            for _ in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.places
        for block in self.blocks:
            x = block(x, ())
        return cross_entropy(self.head(self.norm(x[:, 0])), labels)


# ---- convolutional networks ----


class Residual(nn.Module):
    """A basic block of two convolutions, or a bottleneck of three."""

    def __init__(self, channels: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        out = 4 * width if bottleneck else width
        shapes = [(channels, width, 3, stride), (width, width, 3, 1)]
        if bottleneck:
            shapes = [(channels, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)]
        self.convs = nn.ModuleList(convolution(*shape) for shape in shapes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(shape[1]) for shape in shapes)
        self.shortcut = None
        if stride > 1 or channels != out:
            self.shortcut = nn.Sequential(
                convolution(channels, out, 1, stride), nn.BatchNorm2d(out)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for index, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            y = norm(conv(y))
            if index + 1 < len(self.convs):
                y = F.relu(y, inplace=True)
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)), inplace=True)


def convolution(channels: int, filters: int, window: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(channels, filters, window, stride, window // 2, bias=False)


class ResNet(nn.Module):
    def __init__(
        self, depths: tuple[int, ...], bottleneck: bool, channels: int, size: int
    ) -> None:
        super().__init__()
        large = size >= 128
        window, stride = (7, 2) if large else (3, 1)
        self.stem = nn.Sequential(
            convolution(channels, 64, window, stride), nn.BatchNorm2d(64), nn.ReLU(inplace=True)
        )
        self.pool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        blocks, channels = [], 64
        for stage, depth in enumerate(depths):
            width = 64 << stage
            for index in range(depth):
                stride = 2 if stage and not index else 1
                blocks.append(Residual(channels, width, stride, bottleneck))
                channels = 4 * width if bottleneck else width
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(channels, CLASSES)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.pool(self.stem(images)))
        return cross_entropy(self.head(x.mean((2, 3))), labels)


class Vgg16(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for filters, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(depth):
                layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU(inplace=True)]
                channels = filters
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Dropout(),
            nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, CLASSES),
        )  # fmt: skip

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(self.head(self.features(images).flatten(1)), labels)


# ---- steps ----

RESNETS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
}


def make(options: argparse.Namespace) -> tuple[nn.Module, Batch]:
    """The model, and a batch for it."""
    family, batch = options.model.split(":")[0], options.batch_size
    if family in VOCABULARIES:
        shape = (batch, options.seq_length)
        return Language(family), (torch.randint(0, 10, shape), torch.randint(0, 10, shape))
    images = torch.randn(batch, options.channels, options.size, options.size)
    images = images.to(memory_format=torch.channels_last)
    model: nn.Module
    if family == "vit-b16":
        model = Vit(options.size)
    elif family == "vgg16":
        model = Vgg16()
    else:
        model = ResNet(*RESNETS[family], options.channels, options.size)
    labels = torch.randint(0, 10, (batch,))
    return model.to(memory_format=torch.channels_last), (images, labels)


def peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Answer lines until there are no more."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--seq-length", type=int, default=64)
    parser.add_argument("--channels", type=int, default=3)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    libraries = peak_bytes()
    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    model, batch = make(options)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9, weight_decay=1e-4, fused=True)
    call = torch.compile(model) if options.compile else model
    for line in sys.stdin:
        times, cpu_times = [], []
        for _ in range(int(line)):
            start, cpu_start = time.perf_counter(), time.process_time()
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=options.dtype == "bf16"):
                loss = call(*batch)
            loss.backward()
            optimizer.step()
            times.append(time.perf_counter() - start)
            cpu_times.append(time.process_time() - cpu_start)
        answer = {"step_s": times, "cpu_s": cpu_times, "peak_bytes": peak_bytes()}
        print(json.dumps({**answer, "libraries_bytes": libraries}), flush=True)


if __name__ == "__main__":
    main()
