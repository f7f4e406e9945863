#!/usr/bin/env python3
"""Share of the time that four hosts compute when DiLoCo exchanges every H steps over slow
links, exact and with 4 bits, beside a published grid (30.8 M parameters, four hosts, TCP).

    python bench/local_steps.py                    # a quarter of an hour; root (namespaces)
    python bench/local_steps.py --links 50mbit --every 8,128 --json
    python bench/local_steps.py --emulate                # no root: the library slows itself
    python bench/local_steps.py --emulate --scale 32     # few cores: a 32nd of all sizes

Hosts are network namespaces whose links the kernel shapes (tbf). A step of training is a sleep
of --step milliseconds, so that no processor is needed for it; exchanges, sums and outer steps
are real. The published step is not known: 25.5 ms fits that grid. Where the cores of this
machine cannot move and add so much (from 1 Gbit/s on), the shares are of this machine, not of
the link. What else a machine does only lengthens a cell: --repeats takes the quickest of some.
--scale N divides the parameters and the rates by N: bytes take as long as before, and
what processors do with them an Nth.

Needs PyTorch and Redpoll in the interpreter that runs it (`pip install .`).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent / "pytorch"
SKIPPED = 77
LINKS = ["50mbit", "200mbit", "1gbit", "5gbit"]
# DiLoCo, fp32: % of the time that is computing, by H and link.
PUBLISHED = {
    1: [0.07, 0.32, 1.74, 7.76],
    8: [0.55, 2.48, 12.4, 40.2],
    32: [2.41, 10.0, 36.0, 68.1],
    128: [11.6, 36.1, 71.5, 87.0],
}
FEWER = 8  # q4 sends so many times fewer bytes, about: it is compared with so many times H


def bytes_a_second(link: str) -> float:
    for unit, factor in (("mbit", 1e6), ("gbit", 1e9)):
        if link.endswith(unit):
            return float(link[: -len(unit)]) * factor / 8
    raise SystemExit(f"link is {link}; 50mbit or 1gbit are understood")


def wire_seconds(options: argparse.Namespace, codec: str, link: str) -> float:
    """Of an all-reduce, by its bytes alone: a rank sends 2 (P - 1) / P vectors."""
    bytes_each = 4.0 if codec == "fp32" else 0.5 + 8 / 512
    share = 2 * (options.ranks - 1) / options.ranks
    return share * options.parameters * bytes_each / bytes_a_second(link)


def cells_of(options: argparse.Namespace, link: str) -> list[dict]:
    """So many windows of each that a few seconds are measured."""
    wanted = {("fp32", every) for every in options.every}
    if "q4" in options.codecs:
        wanted |= {("q4", every) for every in options.every}
        wanted |= {("fp32", FEWER * every) for every in options.every}
    cells = []
    for codec, every in sorted(wanted, key=lambda each: (each[0] == "fp32", each[1])):
        if codec not in options.codecs:
            continue
        window = every * options.step_s + wire_seconds(options, codec, link)
        windows = max(1, min(20, int(options.seconds / window)))
        cells.append({"codec": codec, "every": every, "windows": windows})
    return cells


def processes(options: argparse.Namespace, link: str, command: list[str]) -> list:
    """The ranks: on hosts of their own by namespaces.sh, or here with an emulated link."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if not options.emulate:
        command = ["sh", str(HERE / "namespaces.sh"), str(options.ranks), link, *command]
        return [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(probe.getsockname()[1]))
    environment.update(
        WORLD_SIZE=str(options.ranks),
        LOCAL_WORLD_SIZE=str(options.ranks),
        REDPOLL_LINK=f"{8e-6 * bytes_a_second(link) / options.scale:.6f}Mbit,50us",
    )
    return [
        subprocess.Popen(
            command,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(options.ranks)
    ]


def measure(options: argparse.Namespace, link: str) -> list[dict]:
    """All cells of one link, in one world."""
    job = {"parameters": options.parameters // options.scale, "step_s": options.step_s}
    job["repeats"] = options.repeats
    job["min_size"] = 10000 // options.scale  # as ever: smaller tensors travel exact
    job["cells"] = cells_of(options, link)
    command = [sys.executable, str(HERE / "local_steps.py"), json.dumps(job)]
    started = processes(options, link, command)
    found = []
    try:
        for line in started[0].stdout:
            found.append({"link": link, **json.loads(line)})
            print(f"  {link} {line.strip()}", file=sys.stderr, flush=True)
        codes = [process.wait() for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
    if SKIPPED in codes:
        raise SystemExit("skipped: no shaped namespaces here; --emulate does without")
    if any(codes):
        raise SystemExit(f"bench/local_steps.py: ranks ended with {codes}; see above")
    return found


def percent(share: float) -> str:
    return f"{100 * share:.2f}" if share < 0.1 else f"{100 * share:.1f}"


def table(options: argparse.Namespace, found: dict) -> list[str]:
    """found: (codec, every, link) to a measured cell."""
    lines = [
        f"| H | codec | {' | '.join(options.links)} |",
        f"|---|---|{'---|' * len(options.links)}",
    ]
    for every in sorted({each[1] for each in found}):
        if every in PUBLISHED:
            known = dict(zip(LINKS, PUBLISHED[every]))
            row = " | ".join(str(known.get(link, "")) for link in options.links)
            lines.append(f"| {every} | published, fp32 | {row} |")
        for codec in options.codecs:
            cells = [found.get((codec, every, link)) for link in options.links]
            if any(cells):
                row = " | ".join(percent(c["utilisation"]) if c else "" for c in cells)
                lines.append(f"| {every} | {codec} | {row} |")
    return lines


def compared(options: argparse.Namespace, found: dict) -> list[str]:
    """q4's cells as a share of fp32's with FEWER times H; in brackets where the exchange took
    much longer than its bytes do, so that something else than these is what limits."""
    lines = [
        f"| H with q4, {FEWER} H with fp32 | {' | '.join(options.links)} |",
        f"|---|{'---|' * len(options.links)}",
    ]
    for every in options.every:
        row = []
        for link in options.links:
            few, many = (
                found.get((*key, link)) for key in (("q4", every), ("fp32", FEWER * every))
            )
            if not few or not many:
                row.append("")
                continue
            ratio = f"{few['utilisation'] / many['utilisation']:.3f}"
            exchange = few["seconds"] / few["windows"] - every * options.step_s
            limits = exchange < 1.2 * wire_seconds(options, "q4", link)
            row.append(ratio if limits else f"({ratio})")
        lines.append(f"| {every} | {' | '.join(row)} |")
    return lines


def parse() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--links", type=lambda text: text.split(","), default=LINKS)
    parser.add_argument("--every", type=numbers, default=list(PUBLISHED), help="H: 1,8,32,128")
    parser.add_argument("--codecs", type=lambda text: text.split(","), default=["fp32", "q4"])
    parser.add_argument("--parameters", type=int, default=30_800_000)
    parser.add_argument("--step", type=float, default=25.5, help="milliseconds (25.5)")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a cell, about (3)")
    parser.add_argument("--emulate", action="store_true", help="links slowed by the library")
    parser.add_argument("--repeats", type=int, default=1, help="the quickest one counts (1)")
    parser.add_argument("--scale", type=int, default=1, help="with --emulate: see above (1)")
    parser.add_argument("--json", action="store_true", help="each cell as a line of JSON")
    options = parser.parse_args()
    unknown = set(options.codecs) - {"fp32", "q4"}
    if unknown:
        parser.error(f"--codecs: {', '.join(unknown)}; fp32 and q4 are compared")
    for link in options.links:
        bytes_a_second(link)
    if options.scale < 1 or (options.scale > 1 and not options.emulate):
        parser.error(
            "--scale is 1 or more, and goes with --emulate: what the kernel's shaping lets "
            "pass at once would be much of what is sent"
        )
    options.step_s = 1e-3 * options.step
    return options


def main() -> None:
    options = parse()
    found = {}
    for link in options.links:
        for cell in measure(options, link):
            found[cell["codec"], cell["every"], link] = cell
            if options.json:
                print(json.dumps(cell), flush=True)
    if options.json:
        return
    scaled = f" (parameters and rates a {options.scale}th)" if options.scale > 1 else ""
    print(f"{options.ranks} hosts, {options.parameters} parameters{scaled}, ", end="")
    print(f"steps of {options.step} ms, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}")
    print("% of the time computing:\n")
    print("\n".join(table(options, found)))
    if "q4" in options.codecs and "fp32" in options.codecs:
        print("\n" + "\n".join(compared(options, found)))


if __name__ == "__main__":
    main()
