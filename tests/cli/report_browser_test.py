"""Looks at report pages with a browser. usage: report_browser_test.py REDPOLL OUTPUT BROWSER

The screenshots stay in OUTPUT. What a person would notice at a glance is checked: nothing is
wider than the window, no label is cut off or lies on another, dark is dark, figures have ink.
"""

from __future__ import annotations

import html
import json
import math
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

REDPOLL, OUTPUT, BROWSER = sys.argv[1], Path(sys.argv[2]), sys.argv[3]

# What the page measures of itself, in a copy that has this script: its width, labels beyond the
# edges of their figure, and pairs of labels of one figure that overlap.
MEASURE = """<script>
const found = {width: document.documentElement.scrollWidth, outside: [], overlaps: []};
for (const figure of document.querySelectorAll('figure > svg')) {
  const frame = figure.getBoundingClientRect();
  const labels = [...figure.querySelectorAll('text')];
  const words = labels.map(label => label.textContent);
  const boxes = labels.map(label => label.getBoundingClientRect());
  boxes.forEach((a, i) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1 ||
        a.top < frame.top - 1 || a.bottom > frame.bottom + 1) found.outside.push(words[i]);
    boxes.slice(i + 1).forEach((b, j) => {
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 &&
          b.top < a.bottom - 4) found.overlaps.push([words[i], words[i + 1 + j]]);
    });
  });
}
parent.postMessage(JSON.stringify(found), '*');
</script></body>"""

# A frame is as narrow as it is told; a window is not.
FRAME = """<body><script>
addEventListener('message', event => document.body.setAttribute('data-found', event.data));
</script><iframe src="measured.html" style="width:%dpx;height:900px;border:0"></iframe>"""


def browse(profile: Path, page: Path, size: tuple[int, int], *words: str) -> str:
    # The sandbox needs what containers lack; the page is ours, and nothing is fetched.
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--disable-dev-shm-usage", f"--user-data-dir={profile}"]
    command += [f"--window-size={size[0]},{size[1]}", *words, page.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def measure(profile: Path, page: Path, width: int) -> dict[str, Any]:
    copy, frame = profile / "measured.html", profile / "frame.html"
    text = page.read_text(encoding="utf-8").replace("</body>", MEASURE)
    copy.write_text(text, encoding="utf-8")
    frame.write_text(FRAME % width, encoding="utf-8")
    words = ("--dump-dom", "--virtual-time-budget=3000")
    found = re.search(r'data-found="([^"]*)"', browse(profile, frame, (1400, 900), *words))
    assert found, "the page did not measure itself"
    measured: dict[str, Any] = json.loads(html.unescape(found.group(1)))
    return measured


def first_rows(path: Path, count: int) -> tuple[int, int, list[bytes]]:
    """Width, height and the uppermost rows of an 8-bit RGB or RGBA picture, not interlaced."""
    data, at, packed = path.read_bytes(), 8, b""
    width = height = channels = 0
    while at < len(data):
        (length,), kind = struct.unpack_from(">I", data, at), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colours, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colours in (2, 6) and not interlaced
            channels = 3 if colours == 2 else 4
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    raw = zlib.decompressobj().decompress(packed, count * (width * channels + 1))
    return width, height, unfilter(raw, width * channels, channels)


def unfilter(raw: bytes, stride: int, step: int) -> list[bytes]:
    rows: list[bytes] = []
    above = bytearray(stride)
    for start in range(0, len(raw), stride + 1):
        kind, row = raw[start], bytearray(raw[start + 1 : start + 1 + stride])
        if kind == 2:
            row = bytearray((a + b) & 255 for a, b in zip(row, above))
        elif kind:
            for i in range(stride):
                left = row[i - step] if i >= step else 0
                corner = above[i - step] if i >= step else 0
                row[i] = (row[i] + predict(kind, left, above[i], corner)) & 255
        rows.append(bytes(row))
        above = row
    return rows


def predict(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 1:
        return left
    if kind == 3:
        return (left + up) // 2
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))


def shoot(profile: Path, page: Path, name: str, size: tuple[int, int], dark: bool) -> None:
    path = OUTPUT / f"{name}.png"
    scheme = "--blink-settings=preferredColorScheme=" + ("0" if dark else "1")
    browse(profile, page, size, f"--screenshot={path}", scheme)
    width, height, rows = first_rows(path, 60)
    assert (width, height) == size, (name, width, height)
    light = sum(map(sum, rows)) / sum(map(len, rows))
    assert light < 90 if dark else light > 200, f"the mean of {name} is {light:.0f}"
    assert path.stat().st_size > 40e3, f"{name} is nearly empty"


def write_run(folder: Path, ranks: int, codec: str, seed: int, speed: float) -> Path:
    rng = random.Random(seed)
    folder.mkdir()
    options = {
        "data": "fashion-mnist",
        "link": "200Mbit,50us" if ranks > 1 else None,
        "seed": seed,
        "lr": 0.05,
    }
    header = {"redpoll": "0.1.0", "model": "resnet18", "ranks": ranks, "codec": codec}
    lines: list[dict[str, Any]] = [
        {**header, "first_step": 1, "time": 1700000000, "options": options}
    ]
    for i in range(1, 401):
        loss = 0.35 + 2.1 * math.exp(-i / 60) + rng.gauss(0, 0.06)
        time = speed * rng.lognormvariate(0, 0.08)
        exposed = time * (0 if ranks == 1 else 0.4 if codec == "fp32" else 0.06)
        line: dict[str, Any] = {"step": i, "loss": loss, "lr": 0.05, "images_s": 64 / time}
        line.update(
            step_s=time, compute_s=time - exposed, comm_s=1.7 * exposed, encode_s=0.02 * time
        )
        line.update(decode_s=0.02 * time, exposed_s=exposed, skew_s=0.2 * exposed)
        sent = 0 if ranks == 1 else 44700000 if codec == "fp32" else 5850000
        lines.append({**line, "wire_bytes": sent})
        if i % 100 == 0:
            lines.append({"evaluated_step": i, "test_accuracy": 0.7 + 0.0004 * i - 0.01 * seed})
    lines.append({"steps": 400, "images_s_median": 64 / speed})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def check(profile: Path, page: Path, name: str) -> None:
    for width, height, dark in ((1280, 2700, False), (1280, 2700, True), (400, 3600, False)):
        kind = "dark" if dark else "light" if width > 400 else "narrow"
        shoot(profile, page, f"{name}-{kind}", (width, height), dark)
        found = measure(profile, page, width)
        assert found["width"] <= width, (
            f"{name}: {found['width']} px wide in a window of {width}"
        )
        assert not found["outside"], f"{name}, {width} px: beyond the edge: {found['outside']}"
        assert not found["overlaps"], f"{name}, {width} px: overlapping: {found['overlaps']}"


def main() -> int:
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="redpoll-browser-") as folder:
        tmp = Path(folder)
        runs = [
            write_run(tmp / "one rank", 1, "fp32", 1, 0.62),
            write_run(tmp / "fp32", 2, "fp32", 2, 0.55),
            write_run(tmp / "q4", 2, "q4:bucket=512", 3, 0.34),
            write_run(tmp / "q4 on four ranks", 4, "q4:bucket=512", 4, 0.19),
        ]
        many = [
            write_run(tmp / f"seed-{i:02}", 2, "q4", i, 0.3 + 0.01 * i) for i in range(5, 17)
        ]
        for name, chosen in (("few", runs), ("one", runs[:1]), ("many", runs + many)):
            page = tmp / f"{name}.html"
            words = [
                REDPOLL,
                "report",
                *map(str, chosen),
                "-o",
                str(page),
                "--svg",
                str(OUTPUT),
            ]
            subprocess.run([*words, "--title", f"Report: {name}"], check=True, timeout=60)
            check(tmp, page, name)
            print(f"ok       {name}: {OUTPUT}/{name}-*.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
