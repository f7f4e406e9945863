#!/usr/bin/env python3
"""Training throughput of ResNet-18 for small images in PyTorch, as one JSON line.

The model is that of `redpoll train --model resnet18`: a 3x3 stem of stride 1, no max pooling,
10 classes. fp32, channels-last, SGD with momentum, synthetic data; a step is forward, backward
and update.
"""

import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, channels, filters, stride):
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

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        return functional.relu(self.bn2(self.conv2(y)) + shortcut, inplace=True)


class ResNet18(nn.Module):
    def __init__(self, channels, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        blocks, width = [], 64
        for stage, filters in enumerate((64, 128, 256, 512)):
            for index in range(2):
                blocks.append(Block(width, filters, 2 if stage and not index else 1))
                width = filters
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        return self.fc(self.blocks(x).mean((2, 3)))


def step(model, optimizer, images, labels):
    optimizer.zero_grad(set_to_none=True)
    functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--channels", type=int, default=1)
    parser.add_argument("--size", type=int, default=28)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--iters", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    model = ResNet18(args.channels).to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(args.batch_size, args.channels, args.size, args.size)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (args.batch_size,))

    times = []
    for iteration in range(args.warmup + args.iters):
        start = time.perf_counter()
        step(model, optimizer, images, labels)
        if iteration >= args.warmup:
            times.append(time.perf_counter() - start)
    median = statistics.median(times)
    print(
        json.dumps(
            {
                "what": "pytorch",
                "version": torch.__version__,
                "model": "resnet18",
                "batch_size": args.batch_size,
                "threads": args.threads,
                "iters": args.iters,
                "step_s": round(median, 6),
                "step_min_s": round(min(times), 6),
                "step_max_s": round(max(times), 6),
                "images_s": round(args.batch_size / median, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
