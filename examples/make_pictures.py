#!/usr/bin/env python3
"""Draw a small folder of pictures to train on: classes are shapes, everything else is chance.

    python3 examples/make_pictures.py pictures
    redpoll train --config examples/resnet-pictures.yaml

One sub-folder a class, below train/ and val/: circle, square, triangle and cross, each with a
size, place, colours and noise of its own. PNG files, written with Python's standard library
alone. The same seed draws the same bytes.
"""

from __future__ import annotations

import argparse
import random
import struct
import zlib
from pathlib import Path
from typing import Callable

Colour = tuple[int, int, int]
Shape = Callable[[float, float], bool]

SHAPES: dict[str, Shape] = {
    "circle": lambda x, y: x * x + y * y < 1,
    "square": lambda x, y: max(abs(x), abs(y)) < 0.9,
    "triangle": lambda x, y: -0.8 < y < 1 - 2 * abs(x),
    "cross": lambda x, y: min(abs(x), abs(y)) < 0.3 and max(abs(x), abs(y)) < 1,
}


def chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)


def png(width: int, height: int, pixels: bytes) -> bytes:
    """8 bits of red, green and blue; each row without a filter."""
    rows = b"".join(b"\0" + pixels[y * 3 * width : (y + 1) * 3 * width] for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def noisy(rng: random.Random, colour: Colour) -> bytes:
    return bytes(min(255, max(0, level + rng.randrange(-25, 26))) for level in colour)


def draw(rng: random.Random, shape: Shape) -> bytes:
    width, height = rng.randrange(32, 57), rng.randrange(32, 57)
    radius = rng.uniform(0.25, 0.4) * min(width, height)
    x0, y0 = rng.uniform(0.4, 0.6) * width, rng.uniform(0.4, 0.6) * height
    dark = (rng.randrange(110), rng.randrange(110), rng.randrange(110))
    light = (rng.randrange(150, 256), rng.randrange(150, 256), rng.randrange(150, 256))
    pixels = b"".join(
        noisy(rng, light if shape((x - x0) / radius, (y0 - y) / radius) else dark)
        for y in range(height)
        for x in range(width)
    )
    return png(width, height, pixels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where train/ and val/ are made")
    parser.add_argument("--train", type=int, default=40, help="pictures a class (40)")
    parser.add_argument("--val", type=int, default=10, help="pictures a class (10)")
    parser.add_argument("--seed", type=int, default=1)
    words = parser.parse_args()
    rng = random.Random(words.seed)
    for part, count in (("train", words.train), ("val", words.val)):
        for name, shape in SHAPES.items():
            folder = words.folder / part / name
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                (folder / f"{i:04}.png").write_bytes(draw(rng, shape))


if __name__ == "__main__":
    main()
