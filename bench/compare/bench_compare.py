"""Two states of Redpoll side by side on this machine: every row of bench/rows.txt in turns.

    make bench-compare REF              # builds REF beside the tree at hand
    python3 bench/compare/bench_compare.py --old BUILD --new BUILD --only codec

Exit code 1: a row is more than 5 % down, or does not run any more (docs/performance.md).
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compare_builds import CannotBuild, build, commit_of, unpack
from compare_rows import BadRow, Rows, programs, read_rows
from compare_runs import Bench, Build, Result, groups
from compare_tables import line_of, processor, summary, title, write

ROOT = Path(__file__).resolve().parents[2]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compare the speed of two states of Redpoll on this machine, in turns."
    )
    parser.add_argument("ref", nargs="?", help="a commit, a tag or a branch")
    parser.add_argument("--old", type=Path, help="a build folder instead of REF")
    parser.add_argument("--new", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--rows", type=Path, default=ROOT / "bench" / "rows.txt")
    parser.add_argument("--only", default="", help="rows whose names hold one of A,B,...")
    parser.add_argument("--rounds", type=int, default=3, help="of old, new, new, old")
    parser.add_argument("--run", default="", help="put before each command: 'chrt -f 1'")
    parser.add_argument("--timeout", type=float, default=120, help="seconds of a command")
    parser.add_argument("--write", action="store_true", help="the table of this processor")
    parser.add_argument("--document", type=Path, default=ROOT / "docs" / "performance.md")
    parser.add_argument("--keep", action="store_true", help="keep the build of REF")
    it = parser.parse_args()
    if bool(it.ref) == bool(it.old):
        parser.error("say REF, or --old BUILD (make bench-compare REF=v0.2.0)")
    it.new = it.new.resolve()
    if it.rounds < 1:
        parser.error("--rounds is 1 or more")
    return it


def chosen(rows: Rows, only: str) -> Rows:
    words = [word.strip() for word in only.split(",") if word.strip()]
    kept = [row for row in rows.rows if not words or any(word in row.name for word in words)]
    if not kept:
        names = ", ".join(row.name for row in rows.rows)
        raise BadRow(f"no row's name holds {' or '.join(words)}; there are {names}")
    return Rows(kept, rows.yardsticks)


def prepare(rows_file: Path, work: Path, new: Path) -> None:
    """What commands read: bench/compare/prepare.sh makes it, once and for both."""
    script = rows_file.parent / "compare" / "prepare.sh"
    if script.exists():
        subprocess.run(["sh", str(script), str(work), str(new)], check=True)


def old_build(ref: str, folder: Path, commit: str, rows: Rows) -> Path:
    """The build folder of REF, whose files go to `folder`."""
    print(f"building {ref} in {folder}", flush=True)
    if not folder.exists():
        unpack(ROOT, commit, folder)
    return build(ROOT, folder, programs(rows))


def compare(it: argparse.Namespace, rows: Rows, old: Path, work: Path) -> list[Result]:
    prepare(it.rows, work, it.new)
    bench = Bench(rows, {"old": Build(old), "new": Build(it.new)}, work, it.run, it.timeout)
    bench.say = lambda text: print(text, flush=True)
    print(title(it.ref or "old"), flush=True)
    results = []
    for group in groups(rows.rows):
        for result in bench.measure(group, it.rounds):
            results.append(result)
            print(line_of(result), flush=True)
    return results


def run() -> int:
    it, began = arguments(), time.monotonic()
    rows = chosen(read_rows(it.rows), it.only)
    commit = commit_of(ROOT, it.ref) if it.ref else ""
    folder = ROOT / "build" / "compare" / commit[:12]
    work = Path(tempfile.mkdtemp(prefix="bench-compare-"))
    try:
        old = old_build(it.ref, folder, commit, rows) if it.ref else it.old
        results = compare(it, rows, old.resolve(), work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if it.ref and not it.keep:
            shutil.rmtree(folder, ignore_errors=True)
    text, fails = summary(results)
    print(f"\n{text}; {processor()}, {(time.monotonic() - began) / 60:.0f} minutes")
    if it.write:
        write(results, it.document, processor())
        print(f"the table of this processor is in {it.document}")
    return 1 if fails else 0


def stop(number: int, frame: object) -> None:
    """As by an exception, so that what runs and the build of REF are taken away."""
    sys.exit(f"bench-compare: stopped by signal {number}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        sys.exit(run())
    except (BadRow, CannotBuild) as why:
        sys.exit(f"bench-compare: {why}")
