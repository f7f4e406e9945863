"""Horovod's kind of script: a small convolutional network learns digits, on every rank a share.

horovodrun -np 2 python examples/horovod/pytorch_digits.py
horovodrun -np 2 python examples/horovod/pytorch_digits.py --compression q4

Nothing in it is Redpoll's but the choice of q4 and q8. The digits are drawn here: seven bars,
as on a pocket calculator, moved about and with noise on them.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy, max_pool2d, relu
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

# Which of the seven bars a digit has: top, middle, bottom, then left and right of both halves.
BARS = ("1011111", "0000011", "1110110", "1110011", "0101011")
BARS += ("1111001", "1111101", "1000011", "1111111", "1111011")


def drawn(digit: int) -> torch.Tensor:
    image = torch.zeros(13, 8)
    top, middle, bottom, left_high, left_low, right_high, right_low = (
        float(each) for each in BARS[digit]
    )
    image[0], image[6], image[12] = top, middle, bottom
    image[:7, 0], image[6:, 0] = left_high, left_low
    image[:7, 7], image[6:, 7] = right_high, right_low
    return image


def digits(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    images = torch.rand(count, 1, 18, 14, generator=generator) * 0.5
    shifts = torch.randint(4, (count, 2), generator=generator).tolist()
    for image, label, (down, right) in zip(images, labels.tolist(), shifts):
        image[0, down : down + 13, right : right + 8] += drawn(label)
    return TensorDataset(images, labels)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3)
        self.second = nn.Conv2d(8, 16, 3)
        self.hidden = nn.Linear(16 * 3 * 2, 64)
        self.last = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = relu(max_pool2d(self.first(images), 2))
        found = relu(max_pool2d(self.second(found), 2))
        return self.last(relu(self.hidden(found.flatten(1))))


def mean_over_ranks(value: float, name: str) -> float:
    return hvd.allreduce(torch.tensor(value), name=name).item()


@torch.no_grad()
def test(model: nn.Module, data: TensorDataset) -> float:
    images, labels = data.tensors
    own = slice(hvd.rank(), None, hvd.size())
    right = (model(images[own]).argmax(1) == labels[own]).float().mean().item()
    return mean_over_ranks(right, "accuracy")


def main() -> None:
    parser = argparse.ArgumentParser(description="Digits by Horovod's interface.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=0.02, help="of one rank")
    parser.add_argument("--compression", choices=("none", "fp16", "q8", "q4"), default="none")
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(42)
    data = digits(args.images, seed=1)
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    model = Net()

    # As many more images a step, as much larger a step.
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=getattr(hvd.Compression, args.compression),
    )
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        accuracy = test(model, digits(1000, seed=2))
        mean = mean_over_ranks(loss.item(), "loss")
        if hvd.rank() == 0:
            print(f"epoch {epoch}  loss {mean:.4f}  accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
