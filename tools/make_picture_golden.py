#!/usr/bin/env python3
"""Write tests/train/resample.golden with Pillow: what resizing makes of a made-up picture.

    python tools/make_picture_golden.py tests/train/resample.golden

For each case 12 little-endian int32: width and height of the picture, box (x, y, width,
height), the size that it becomes, the part that is kept of that (x, y, width, height); then the
bytes of that part. The test that reads them draws the same picture and needs no Pillow.
"""

import pathlib
import struct
import sys

import numpy as np
from PIL import Image

# picture, box, its new size, what is kept of that
CASES = [
    ((40, 30), (0, 0, 40, 30), (20, 15), (0, 0, 20, 15)),
    ((40, 30), (0, 0, 40, 30), (64, 48), (3, 5, 32, 32)),
    ((40, 30), (5, 7, 23, 19), (32, 32), (0, 0, 32, 32)),
    ((97, 61), (11, 2, 71, 53), (24, 24), (0, 0, 24, 24)),
    ((97, 61), (0, 0, 97, 61), (61, 38), (18, 3, 32, 32)),
    ((97, 61), (30, 30, 1, 1), (7, 5), (0, 0, 7, 5)),
    ((97, 61), (0, 60, 97, 1), (8, 8), (0, 0, 8, 8)),
    ((200, 3), (0, 0, 200, 3), (2440, 37), (1204, 2, 32, 32)),
    ((1, 1), (0, 0, 1, 1), (37, 37), (2, 2, 32, 32)),
    ((513, 400), (1, 1, 511, 398), (3, 2), (0, 0, 3, 2)),
    ((64, 64), (0, 0, 64, 64), (64, 64), (16, 16, 32, 32)),
]


def picture(width: int, height: int) -> np.ndarray:
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    mixed = (x * 40503) ^ (y * 30011) ^ (c * 20021)
    return ((mixed >> 5) + x * 2 + y * 3 + c * 60 & 255).astype(np.uint8)


def main() -> None:
    out = bytearray()
    for size, (x, y, w, h), to, (left, top, columns, rows) in CASES:
        box = Image.fromarray(picture(*size)).crop((x, y, x + w, y + h))
        resized = np.asarray(box.resize(to, Image.Resampling.BILINEAR))
        out += struct.pack("<12i", *size, x, y, w, h, *to, left, top, columns, rows)
        out += resized[top : top + rows, left : left + columns].tobytes()
    pathlib.Path(sys.argv[1]).write_bytes(out)


if __name__ == "__main__":
    main()
