#!/usr/bin/env python3
"""docs/images/topologies.svg: graphs and rounds as `redpoll plan gossip --json` gives them.

usage: tools/topology_picture.py build/release/src/cli/redpoll >docs/images/topologies.svg
"""

from __future__ import annotations

import json
import math
import subprocess
import sys

PANEL, RADIUS, NODE = 150, 50, 9
GRAPHS = [("ring", 8), ("torus", 9), ("star", 8), ("exponential", 8), ("full", 8)]
ROUNDS = ("base", 5)
STYLE = """
  text { font: 11px sans-serif; fill: #333; text-anchor: middle }
  line { stroke: #888; stroke-width: 1.5 }
  circle { fill: #e8eef7; stroke: #4a6fa5; stroke-width: 1.2 }
  .name { font-weight: bold }
  rect { fill: #fff }
  @media (prefers-color-scheme: dark) {
    text { fill: #ddd } line { stroke: #999 } circle { fill: #26344a } rect { fill: #111 }
  }
"""

Edge = tuple[int, int, str]


def plan(redpoll: str, topology: str, ranks: int) -> list[list[Edge]]:
    """The edges of each round between different ranks, both directions as one."""
    words = [redpoll, "plan", "gossip", "-t", topology, "-n", str(ranks), "--size", "1MB"]
    out = json.loads(subprocess.run([*words, "--json"], capture_output=True, check=True).stdout)
    rounds = []
    for edges in out["rounds"]:
        pairs = {
            (min(e["from"], e["to"]), max(e["from"], e["to"]), e["weight"])
            for e in edges
            if e["from"] != e["to"]
        }
        rounds.append(sorted(pairs))
    return rounds


def place(rank: int, ranks: int, grid: bool) -> tuple[float, float]:
    if grid:
        side = math.isqrt(ranks)
        step = 2 * RADIUS / (side - 1)
        return rank % side * step - RADIUS, rank // side * step - RADIUS
    angle = 2 * math.pi * rank / ranks - math.pi / 2
    return RADIUS * math.cos(angle), RADIUS * math.sin(angle)


def line(x: float, y: float, u: float, v: float) -> str:
    return f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{u:.0f}" y2="{v:.0f}"/>'


def text(x: float, y: float, words: object, name: str = "") -> str:
    return f'<text class="{name}" x="{x:.0f}" y="{y:.0f}">{words}</text>'


def panel(at: tuple[int, int], name: str, ranks: int, edges: list[Edge], weights: bool) -> str:
    grid = name == "torus"
    where = [place(rank, ranks, grid) for rank in range(ranks)]
    if name == "star":
        where = [(0.0, 0.0)] + [place(rank, ranks - 1, False) for rank in range(ranks - 1)]
    parts = [f'<g transform="translate({at[0] + PANEL // 2},{at[1] + PANEL // 2 + 12})">']
    parts.append(text(0, -RADIUS - 20, name, "name"))
    for a, b, weight in edges:
        (x, y), (u, v) = where[a], where[b]
        if grid and max(abs(x - u), abs(y - v)) > 1.5 * RADIUS:  # round the back
            dx, dy = (18, 0) if y == v else (0, 18)
            parts += [line(x, y, x - dx, y - dy), line(u, v, u + dx, v + dy)]
            continue
        parts.append(line(x, y, u, v))
        if weights:
            parts.append(text(1.3 * (x + u) / 2, 1.3 * (y + v) / 2 + 4, weight))
    for rank, (x, y) in enumerate(where):
        parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{NODE}"/>')
        parts.append(text(x, y + 4, rank))
    return "\n".join([*parts, "</g>"])


def main(redpoll: str) -> None:
    panels = []
    for i, (name, ranks) in enumerate(GRAPHS):
        edges = plan(redpoll, name, ranks)[0]
        panels.append(panel((i * PANEL, 0), name, ranks, edges, weights=False))
    for i, edges in enumerate(plan(redpoll, *ROUNDS)):
        name = f"{ROUNDS[0]}, round {i}"
        panels.append(panel((i * PANEL, PANEL + 10), name, ROUNDS[1], edges, weights=True))
    width, height = PANEL * len(GRAPHS), 2 * PANEL + 30
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">')
    print(f"<style>{STYLE}</style>")
    print(f'<rect width="{width}" height="{height}"/>')
    print("\n".join(panels))
    print("</svg>")


if __name__ == "__main__":
    main(sys.argv[1])
