#!/usr/bin/env python3
"""The dependency law as a test, for Python: which room may import which says python_layers.txt.

usage: tools/python_layers.py [SOURCE_FOLDER]
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path, PurePosixPath


def rules_in(text: str) -> tuple[set[str], dict[str, set[str]]]:
    """The files of the foundation, and what each room may import."""
    rows = dict(
        line.split(":", 1) for line in text.splitlines() if line and not line.startswith("#")
    )
    foundation = set(rows.pop("foundation", "").split())
    return foundation, {room: set(below.split()) for room, below in rows.items()}


def imported(path: Path, package: PurePosixPath) -> list[tuple[int, PurePosixPath, bool]]:
    """Modules that a file names: line, place below the package's folder, and whether they are
    loaded with it. package: the file's folder, below the same."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = set(tree.body)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            place = package
            for _ in range(node.level - 1):
                place = place.parent if place.parts else PurePosixPath("..")
            if ".." not in place.parts:
                place = place.joinpath(*(node.module or "").split("."))
                each = [place / alias.name for alias in node.names]
                found += [(node.lineno, one, node in top) for one in each]
    return found


def room_of(place: PurePosixPath, rooms: dict[str, set[str]]) -> str:
    """The deepest room that a place lies in; "": none."""
    inside = [room for room in rooms if place.is_relative_to(room)]
    return max(inside, key=len, default="")


def breaches(folder: Path, text: str) -> list[str]:
    foundation, rooms = rules_in(text)
    said: list[str] = []
    edges: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        place = PurePosixPath(path.relative_to(folder).as_posix())
        room = room_of(place.parent, rooms) if place.parent.parts else ""
        if place.parent.parts and room != str(place.parent):
            said.append(f"{place}: no room of tools/python_layers.txt")
        for line, target, with_it in imported(path, place.parent):
            module = target if _is_module(folder, target) else target.parent
            other = room_of(module, rooms)
            if with_it and module != place.with_suffix(""):
                edges.setdefault(str(place.with_suffix("")), set()).add(str(module))
            if room == "" or other == room or other in rooms[room]:
                continue
            if other == "" and (str(module) in foundation or not module.parts):
                continue
            said.append(f"{place}:{line}: {room} may not import {other or 'top'} ({module})")
    return said + _circles(edges)


def _is_module(folder: Path, place: PurePosixPath) -> bool:
    return (folder / f"{place}.py").is_file() or (folder / place / "__init__.py").is_file()


def _circles(edges: dict[str, set[str]]) -> list[str]:
    """One line for each circle that a walk meets."""
    done: set[str] = set()
    said: list[str] = []

    def visit(at: str, trail: tuple[str, ...]) -> None:
        if at in trail:
            said.append("a circle of files: " + " -> ".join((*trail[trail.index(at) :], at)))
        elif at not in done:
            for after in sorted(edges.get(at, ())):
                visit(after, (*trail, at))
            done.add(at)

    for start in sorted(edges):
        visit(start, ())
    return said


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    text = (root / "tools/python_layers.txt").read_text(encoding="utf-8")
    said = breaches(root / "python/redpoll/torch", text)
    print("\n".join(said), end="\n" if said else "")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
