"""The Python package for a system that has its own packages: Debian, Spack, conda.

usage: python_package.py SOURCE DESTDIR SITE LIBRARY COMMAND

The modules, the metadata by which PyTorch finds the backend, and links to the library and the
command where the modules look for them. SITE, LIBRARY and COMMAND are where things will be;
DESTDIR, "/" where it is the same, is put before SITE now.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import tomllib


def metadata(source: Path, version: str) -> dict[str, str]:
    """The files of the dist-info folder."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version}"]
    lines += [f"Summary: {project['description']}", f"License: {project['license']}"]
    points = []
    for group, names in project["entry-points"].items():
        points += [f"[{group}]", *(f"{name} = {place}" for name, place in names.items()), ""]
    return {"METADATA": "\n".join(lines) + "\n", "entry_points.txt": "\n".join(points)}


def version_of(source: Path) -> str:
    text = (source / "CMakeLists.txt").read_text()
    found = re.search(r"^project\(redpoll VERSION ([0-9.]+)", text, re.MULTILINE)
    assert found is not None, "CMakeLists.txt states no version"
    return found.group(1)


def main() -> None:
    source, root, site, library, command = map(Path, sys.argv[1:])
    target = root / site.relative_to("/")
    shutil.copytree(
        source / "python/redpoll",
        target / "redpoll",
        ignore=shutil.ignore_patterns("__pycache__", "_lib"),
    )
    links = target / "redpoll/_lib"
    links.mkdir()
    there = site / "redpoll/_lib"
    (links / "libredpoll.so").symlink_to(os.path.relpath(library, there))
    (links / "redpoll").symlink_to(os.path.relpath(command, there))
    version = version_of(source)
    folder = target / f"redpoll-{version}.dist-info"
    folder.mkdir()
    for name, words in metadata(source, version).items():
        (folder / name).write_text(words)


if __name__ == "__main__":
    main()
