#!/usr/bin/env python3
"""The dependency law as a test, for Python: which room may import which says python_layers.txt;
and no file of the package uses the private members of another one's objects.

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


def borrowed(folder: Path) -> list[str]:
    """A line for each use of a private member (`other._name`, an import of `_name`) in a file
    that has none of that name, where another file of the package has. What a class has from its
    bases (self, cls) is its own; FOREIGN are not the package's."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.py"))
    }
    homes: dict[str, set[Path]] = {}
    for path, tree in trees.items():
        for name in _private_names(tree):
            homes.setdefault(name, set()).add(path)
    said = []
    modules = {path.stem for path in trees}
    for path, tree in trees.items():
        for line, name, text in _private_uses(tree):
            others = homes.get(name, set()) - {path}
            known = path in homes.get(name, ()) or name in FOREIGN or name in modules
            if others and not known:
                where = ", ".join(sorted(str(one.relative_to(folder)) for one in others))
                said.append(f"{path.relative_to(folder)}:{line}: {text} is private to {where}")
    return said


FOREIGN = {
    "_fields_": "of structures of ctypes",
    "_get_backend": "of process groups, PyTorch's",
    "_handle": "of modules under FSDP1, PyTorch's",
    "_shapes": "of a flat parameter of FSDP1, PyTorch's",
    "_name": "of libraries that ctypes has loaded",
    "_timeout": "of Backend.Options and of torchft's process groups",
}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _private_names(tree: ast.AST) -> set[str]:
    """What a file defines: functions, classes, variables, attributes of its objects."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return {name for name in found if _is_private(name)}


def _private_uses(tree: ast.AST) -> list[tuple[int, str, str]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not own and not isinstance(node.ctx, ast.Store):
                found.append((node.lineno, node.attr, ast.unparse(node)))
        elif isinstance(node, ast.ImportFrom) and node.level:
            names = [alias.name for alias in node.names if _is_private(alias.name)]
            found += [(node.lineno, name, f"import of {name}") for name in names]
    return found


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
    said = breaches(root / "python/redpoll/torch", text) + borrowed(root / "python/redpoll")
    print("\n".join(said), end="\n" if said else "")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
