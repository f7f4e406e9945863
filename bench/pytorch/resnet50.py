"""ResNet-50 for pictures of 224 x 224, as torchvision names its shape: 25,557,032 parameters
with 1000 classes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3 (of the stride) and 1x1 convolutions, and a shortcut."""

    def __init__(self, channels: int, width: int, stride: int):
        super().__init__()
        filters = EXPANSION * width
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, filters, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(filters)
        self.downsample = None
        if stride != 1 or channels != filters:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        return functional.relu(self.bn3(self.conv3(y)) + shortcut)


class ResNet50(nn.Module):
    def __init__(self, classes: int = 1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        blocks, channels = [], 64
        for stage, (width, depth) in enumerate(STAGES):
            for index in range(depth):
                blocks.append(Bottleneck(channels, width, 2 if stage and not index else 1))
                channels = EXPANSION * width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.bn1(self.conv1(x)))
        x = functional.max_pool2d(x, 3, 2, 1)
        return self.fc(self.blocks(x).mean((2, 3)))
