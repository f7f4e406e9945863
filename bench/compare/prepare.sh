#!/bin/sh
# What rows of bench/rows.txt read: a text with its tokenizer, and a folder of pictures. Made once a comparison, by the tree at
# hand, for both builds. usage: prepare.sh FOLDER BUILD
set -eu
work=$1 redpoll=$2/src/cli/redpoll
root=$(cd "$(dirname "$0")/../.." && pwd)

i=0
cat "$root"/docs/*.md "$root"/src/codec/*.c >"$work/text.txt"
while [ $i -lt 40 ]; do
    cat "$work/text.txt"
    i=$((i + 1))
done >"$work/long.txt"
"$redpoll" data tokenize --tokenizer train:bpe=4096 --in "$work/text.txt" --split-lines --threads 1 --out "$work/bpe" >/dev/null
"$redpoll" data tokenize --tokenizer train:wordpiece=4096 --in "$work/text.txt" --split-lines --threads 1 --out "$work/wordpiece" >/dev/null

python3 - "$work/pictures" <<'END'
"""Pictures of 256 x 256 with edges and noise, of two classes, as PNG."""
import pathlib
import random
import struct
import sys
import zlib

SIDE = 256


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(seed):
    draw = random.Random(seed)
    rows = bytearray()
    for y in range(SIDE):
        rows.append(0)
        for x in range(SIDE):
            level = (x * (seed + 1) // 3 + y) % 256 if (x // 32 + y // 32) % 2 else 128
            rows += bytes((level, (level + y) % 256, draw.getrandbits(5) + 100))
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(bytes(rows), 6)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


for part in ("train", "val"):
    for label in ("a", "b"):
        folder = pathlib.Path(sys.argv[1], part, label)
        folder.mkdir(parents=True)
        for i in range(4):
            (folder / f"{i}.png").write_bytes(png(i))
END
