"""Pictures to batches, core by core, beside torchvision and Pillow: the same files, in turns.

    python bench/peers/pictures.py build/release/bench/pictures_bench [--turns 7] [--size 224]

Needs torch, torchvision and Pillow. Draws JPEGs of 500x375, as ImageNet's are on average, then
measures pictures a second of processor time for decoding, a random box, mirroring and
normalisation (medians), and compares what both make of the pictures for evaluation.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from torchvision.transforms import v2

WIDTH, HEIGHT, PICTURES, CLASSES = 500, 375, 128, 4
MEANS, DEVIATIONS = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def draw(folder: Path) -> None:
    """Smooth colours, edges and some noise: files of about 50 kB at quality 90."""
    rng = np.random.default_rng(1)
    for i in range(PICTURES):
        coarse = rng.integers(0, 256, (13, 17, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        pixels = np.asarray(smooth).astype(int) + rng.normal(0, 6, (HEIGHT, WIDTH, 3))
        for _ in range(20):
            y, x = rng.integers(0, HEIGHT), rng.integers(0, WIDTH)
            pixels[y : y + 60, x : x + 80] += rng.integers(-60, 60)
        picture = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        for part in ("train", "val"):
            name = folder / part / f"class{i % CLASSES}" / f"{i:04}.jpg"
            name.parent.mkdir(parents=True, exist_ok=True)
            picture.save(name, quality=90)


def numbers() -> v2.Transform:
    return v2.Compose(
        [
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEANS, DEVIATIONS),
        ]
    )


def torchvision_rate(folder: Path, size: int, pictures: int) -> float:
    steps = v2.Compose([v2.RandomResizedCrop(size), v2.RandomHorizontalFlip(), numbers()])
    data = torchvision.datasets.ImageFolder(folder / "train", steps)
    begin = time.process_time()
    for i in range(pictures):
        data[i % len(data)]
    return pictures / (time.process_time() - begin)


def evaluation_difference(folder: Path, size: int, dump: Path) -> tuple[float, float]:
    """Largest difference of any number, in levels of a byte, and the share that differ."""
    steps = v2.Compose([v2.Resize((size * 16 + 7) // 14), v2.CenterCrop(size), numbers()])
    data = torchvision.datasets.ImageFolder(folder / "val", steps)
    theirs = torch.stack([data[i][0] for i in range(len(data))])
    ours = torch.from_numpy(np.fromfile(dump, dtype=np.float32)).reshape(theirs.shape)
    levels = (ours - theirs).abs() * torch.tensor(DEVIATIONS)[:, None, None] * 255
    return float(levels.max()), float((levels > 0.5).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bench", help="the program pictures_bench")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--pictures", type=int, default=512, help="of one turn")
    words = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    rates: dict[str, list[float]] = {"redpoll": [], "torchvision": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw(folder)
        call = [words.bench, name, str(words.size), "standard", str(words.pictures)]
        for _ in range(words.turns):
            rates["redpoll"].append(float(subprocess.check_output(call)))
            rates["torchvision"].append(torchvision_rate(folder, words.size, words.pictures))
        subprocess.check_output([*call, name + "/dump"])
        worst, share = evaluation_difference(folder, words.size, folder / "dump")
    ours, theirs = (statistics.median(r) for r in rates.values())
    print(f"python {sys.version.split()[0]}, torchvision {torchvision.__version__}, ", end="")
    print(f"Pillow {PIL.__version__}; {WIDTH}x{HEIGHT} to {words.size}")
    ratio = ours / theirs
    print(f"a core: redpoll {ours:.0f} pictures/s, torchvision {theirs:.0f}, ratio {ratio:.2f}")
    print(f"evaluation: at most {worst:.2f} levels apart, {share:.2e} of numbers differ")


if __name__ == "__main__":
    main()
