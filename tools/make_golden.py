#!/usr/bin/env python3
"""Write the golden files of the engine's tests with PyTorch, in double precision.

    python tools/make_golden.py tests/engine/golden

For each model one safetensors file (https://github.com/huggingface/safetensors), all F32 but
the labels (I32):
    inputs              steps x batch x 1 x H x W
    labels              steps x batch
    losses              steps; of SGD with momentum 0.9, weight decay 5e-4, learning rate 0.1
    initial/NAME        parameters and running statistics before the first step
    gradient/NAME       gradients of the first step
    final/NAME          parameters and running statistics after the last step
Names of parameters are torchvision's. The test that reads them needs no PyTorch.
Transformers (golden_transformers.py) have one step:
    tokens, labels, documents   batch x length (I32), or
    images, labels, logits      batch x 3 x H x W, batch, batch x classes
    losses                      1
    initial/NAME, gradient/NAME

The network of open ReLUs (resnet_open) has one step, losses 1 and nothing final.

A pre-activation within rounding of zero would make any two correct programs differ, so the seed
is the first one whose pre-activations all stay away from zero by a margin in the first step.
"""

import argparse
import json
import pathlib
import struct

import golden_transformers
import torch
from torch import nn
from torch.nn import functional as F

STEPS, BATCH, SIZE, CLASSES = 10, 8, 10, 10
MARGIN = 1e-5
GROUP_SIZE = 8  # channels of a group
OPEN = 1.5  # of deviations that a pre-activation's mean is above 0


class Margin(nn.Module):
    """ReLU that remembers how near to zero its inputs came."""

    def __init__(self):
        super().__init__()
        self.nearest = float("inf")

    def forward(self, x):
        self.nearest = min(self.nearest, x.detach().abs().min().item())
        return F.relu(x)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = Margin()
        self.fc1 = nn.Linear(SIZE * SIZE, 32)
        self.fc2 = nn.Linear(32, CLASSES)

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x.flatten(1))))


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride, relu, norm):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = norm(outputs)
        self.relu = relu
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs)
            )

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + shortcut)


class ResNet(nn.Module):
    def __init__(self, widths=(16, 32), norm=nn.BatchNorm2d):
        super().__init__()
        self.relu = Margin()
        self.conv1 = nn.Conv2d(1, widths[0], 3, 1, 1, bias=False)
        self.bn1 = norm(widths[0])
        self.layer1 = nn.Sequential(BasicBlock(widths[0], widths[0], 1, self.relu, norm))
        self.layer2 = nn.Sequential(BasicBlock(widths[0], widths[1], 2, self.relu, norm))
        self.fc = nn.Linear(widths[1], CLASSES)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer2(self.layer1(x))
        return self.fc(x.mean((2, 3)))


class ResNetGroup(ResNet):
    """With norms of groups, whose scales and shifts begin apart: each tells which is which."""

    def __init__(self):
        super().__init__(norm=lambda channels: nn.GroupNorm(channels // GROUP_SIZE, channels))
        for name, parameter in self.named_parameters():
            if "bn" in name or "downsample.1" in name:
                nn.init.normal_(parameter, 1.0 if name.endswith("weight") else 0.0, 0.1)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, outputs, relu):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = relu
        self.downsample = None
        if inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + shortcut)


class ResNetOpen(nn.Module):
    """A stem with a pool and two bottlenecks, whose norms keep most pre-activations above 0:
    rounding to bf16 opens or closes few of their ReLUs, and moves gradients smoothly."""

    def __init__(self):
        super().__init__()
        self.relu = Margin()
        self.conv1 = nn.Conv2d(1, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(
            Bottleneck(16, 16, 32, self.relu), Bottleneck(32, 16, 32, self.relu)
        )
        self.fc = nn.Linear(32, CLASSES)
        for name, parameter in self.named_parameters():
            if "bn" in name and name.endswith("bias"):
                nn.init.constant_(parameter, OPEN)
        nn.init.constant_(self.bn1.bias, -1.0)  # else no window of the pool is closed

    def forward(self, x):
        x = self.pool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(self.layer1(x).mean((2, 3)))


def named(model):
    """Parameters and running statistics, as copies in f32."""
    return {
        name: tensor.detach().to(torch.float32).clone()
        for name, tensor in model.state_dict().items()
        if tensor.is_floating_point()
    }


def train(model_class, seed, steps):
    """The tensors of one golden file, and how near a pre-activation of step 0 came to zero."""
    torch.manual_seed(seed)
    model = model_class().to(torch.float32).to(torch.float64)
    inputs = torch.randn(steps, BATCH, 1, SIZE, SIZE, dtype=torch.float32)
    labels = torch.randint(0, CLASSES, (steps, BATCH))
    tensors = {"inputs": inputs, "labels": labels.to(torch.int32)}
    tensors |= {f"initial/{name}": tensor for name, tensor in named(model).items()}
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    losses, margin = [], None
    for step in range(steps):
        loss = F.cross_entropy(model(inputs[step].double()), labels[step])
        sgd.zero_grad()
        loss.backward()
        if step == 0:
            margin = model.relu.nearest
            tensors |= {
                f"gradient/{name}": p.grad.to(torch.float32).clone()
                for name, p in model.named_parameters()
            }
        sgd.step()
        losses.append(loss.item())
    tensors["losses"] = torch.tensor(losses, dtype=torch.float32)
    if steps > 1:
        tensors |= {f"final/{name}": tensor for name, tensor in named(model).items()}
    return tensors, margin


def save(path, tensors):
    header, blobs, offset = {}, [], 0
    for name, tensor in tensors.items():
        blob = (
            tensor.contiguous()
            .numpy()
            .astype("<i4" if tensor.dtype == torch.int32 else "<f4")
            .tobytes()
        )
        header[name] = {
            "dtype": "I32" if tensor.dtype == torch.int32 else "F32",
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    models = (
        ("mlp", Mlp, STEPS),
        ("resnet", ResNet, STEPS),
        ("resnet_group", ResNetGroup, STEPS),
        ("resnet_open", ResNetOpen, 1),
    )
    for name, model_class, steps in models:
        for seed in range(1, 1000):
            tensors, margin = train(model_class, seed, steps)
            if margin >= MARGIN:
                break
        path = folder / f"{name}.safetensors"
        save(path, tensors)
        print(
            f"{path}: seed {seed}, margin {margin:.1e}, {path.stat().st_size} bytes, "
            f"loss {tensors['losses'][0]:.4f} to {tensors['losses'][-1]:.4f}"
        )
    for name, model_class in golden_transformers.MODELS.items():
        tensors = golden_transformers.run(model_class, seed=1)
        path = folder / f"{name}.safetensors"
        save(path, tensors)
        print(f"{path}: {path.stat().st_size} bytes, loss {tensors['losses'][0]:.4f}")


if __name__ == "__main__":
    main()
