#!/usr/bin/env python3
"""ResNet-18 on Fashion-MNIST with DistributedDataParallel, through gloo or through Redpoll.

    torchrun --nproc-per-node 2 ddp_image_classification.py --backend redpoll --codec q4

Every rank reads the same files and takes its own share of each global batch, in an order that
follows from --seed alone. With --checkpoint a run that was killed goes on where it stopped.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import time
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
MEAN, DEVIATION = 0.2860, 0.3530


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut: [N, C, H, W] to [N, F, H / stride, W / stride]."""

    def __init__(self, channels: int, filters: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.downsample = None
        if stride != 1 or channels != filters:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        return functional.relu(self.bn2(self.conv2(y)) + shortcut, inplace=True)


class ResNet18(nn.Module):
    """ResNet-18 for small images: a 3x3 stem of stride 1, no max pooling.

    `width` is the number of filters of the first stage; 64 makes 11,172,810 parameters.
    """

    def __init__(self, width: int = 64, channels: int = 1, classes: int = 10):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        blocks, previous = [], width
        for stage in range(4):
            filters = width << stage
            for index in range(2):
                stride = 2 if stage and not index else 1
                blocks.append(Block(previous, filters, stride))
                previous = filters
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(previous, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        return self.fc(self.blocks(x).mean((2, 3)))


def read_idx(path: Path) -> numpy.ndarray:
    """An IDX file of unsigned bytes, plain or gzip: magic 0 0 8 D, D sizes, the bytes."""
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        content = file.read()
    if content[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is no IDX file of unsigned bytes")
    dimensions = content[3]
    shape = numpy.frombuffer(content, ">u4", dimensions, 4)
    return numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * dimensions).reshape(shape)


def fashion_mnist(folder: Path, limit: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first `limit` training images, uint8 [N, 1, 28, 28], and labels, int64 [N]."""
    images_path = folder / "train-images-idx3-ubyte.gz"
    if not images_path.exists():
        raise SystemExit(
            f"{images_path} is missing; install it with `apt-get install "
            "dataset-fashion-mnist`, or name the folder that holds it with --data-dir"
        )
    images = read_idx(images_path)[:limit]
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz")[:limit]
    return torch.tensor(images).unsqueeze(1), torch.tensor(labels, dtype=torch.int64)


class Shares:
    """This rank's share of each global batch; the order depends on seed and step alone."""

    def __init__(self, options: argparse.Namespace):
        self.images, self.labels = fashion_mnist(Path(options.data_dir), options.images)
        self.batch, self.seed = options.batch, options.seed
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def at(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        per_epoch = len(self.images) // (self.batch * self.world)
        if not per_epoch:
            raise SystemExit(f"a global batch of {self.batch * self.world} exceeds --images")
        epoch, index = divmod(step, per_epoch)
        generator = torch.Generator().manual_seed((self.seed << 20) + epoch)
        order = torch.randperm(len(self.images), generator=generator)
        first = (index * self.world + self.rank) * self.batch
        chosen = order[first : first + self.batch]
        images = (self.images[chosen].float() / 255 - MEAN) / DEVIATION
        return images.contiguous(memory_format=torch.channels_last), self.labels[chosen]


def mean_over_ranks(value: torch.Tensor) -> float:
    total = value.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def feedback_folder(path: str, step: int) -> Path:
    """Error feedback belongs to a rank: each keeps a file of its own beside the shared one."""
    return Path(f"{path}.feedback-{step}")


def save(path: str, step: int, model: nn.Module, optimizer, compression) -> None:
    if compression is not None:
        compression.save(feedback_folder(path, step))
    dist.barrier()
    if dist.get_rank() == 0:
        state = {"step": step, "model": model.module.state_dict()}
        torch.save({**state, "optimizer": optimizer.state_dict()}, path + ".new")
        os.replace(path + ".new", path)
        for older in Path(path).parent.glob(Path(path).name + ".feedback-*"):
            if older != feedback_folder(path, step):
                shutil.rmtree(older)


def load(path: str, model: nn.Module, optimizer, compression) -> int:
    """Returns the step to go on with: 0 where there is no checkpoint."""
    if not Path(path).exists():
        return 0
    state = torch.load(path, weights_only=True)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    folder = feedback_folder(path, state["step"])
    if compression is not None and folder.exists():
        compression.load(folder)  # of a run of any number of ranks
    return state["step"]


def build(options: argparse.Namespace):
    """The wrapped model, its optimizer and, with --codec, the state of its compression."""
    torch.manual_seed(options.seed)
    model = ResNet18(options.width).to(memory_format=torch.channels_last)
    model = DistributedDataParallel(model)
    compression = None
    if options.codec:
        import redpoll.torch

        feedback = not options.no_error_feedback
        compression = redpoll.torch.compress(
            model, codec=options.codec, error_feedback=feedback
        )
    optimizer = torch.optim.SGD(
        model.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4
    )
    return model, optimizer, compression


def train(options: argparse.Namespace) -> dict:
    """Trains and returns losses (the mean over ranks, one a step) and the median speed."""
    model, optimizer, compression = build(options)
    shares = Shares(options)
    start = load(options.checkpoint, model, optimizer, compression) if options.checkpoint else 0
    say(f"from step {start} to {options.steps}")
    losses, seconds = [], []
    for step in range(start, options.steps):
        images, labels = shares.at(step)
        begun = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begun)
        losses.append(mean_over_ranks(loss))
        if step % options.log_every == 0 or step + 1 == options.steps:
            rate = speed(options, seconds)
            say(f"step {step:5d}  loss {losses[-1]:.4f}  {rate:8.1f} images/s")
        if options.checkpoint and (step + 1) % options.checkpoint_every == 0:
            save(options.checkpoint, step + 1, model, optimizer, compression)
    return {"first_step": start, "losses": losses, "images_s": speed(options, seconds)}


def speed(options: argparse.Namespace, seconds: list[float]) -> float:
    """Images a second of all ranks; the first two steps, which build buckets, do not count."""
    return options.batch * dist.get_world_size() / statistics.median(seconds[2:] or seconds)


def say(line: str) -> None:
    if dist.get_rank() == 0:
        print(line, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("gloo", "redpoll"), default="redpoll")
    parser.add_argument("--codec", help="compress gradients, q4 for example (redpoll only)")
    parser.add_argument("--no-error-feedback", action="store_true")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32, help="images a rank (%(default)s)")
    parser.add_argument("--width", type=int, default=64, help="filters of the first stage")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--images", type=int, default=60000, help="use the first N images")
    parser.add_argument("--data-dir", default=str(DEBIAN_FOLDER))
    parser.add_argument("--checkpoint", help="file to save to, and to resume from if it exists")
    parser.add_argument("--checkpoint-every", type=int, default=50, help="in steps")
    parser.add_argument("--log-every", type=int, default=10, help="in steps")
    parser.add_argument("--json", metavar="FILE", help="rank 0 writes losses and speed there")
    options = parser.parse_args()
    if options.codec and options.backend != "redpoll":
        parser.error("--codec needs --backend redpoll")
    return options


def main() -> None:
    options = parse()
    if options.backend == "redpoll":
        import redpoll.torch

        redpoll.torch.init()  # init_process_group("redpoll"), also under mpirun and srun
    else:
        dist.init_process_group(options.backend)
    result = train(options)
    if options.backend == "redpoll":
        say(str(redpoll.torch.stats()))
    if options.json and dist.get_rank() == 0:
        Path(options.json).write_text(json.dumps(result) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
