"""scikit-build-core, and two things that it cannot know of a package inside a larger project.

The version is the one that the project's CMakeLists.txt states, and an sdist carries the C
sources, in core/, so that it builds alone.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Optional

from scikit_build_core import build as _backend
from scikit_build_core.build import *  # noqa: F403  (every hook but build_sdist is passed on)

_HERE = Path(__file__).resolve().parent.parent
_CORE = ("CMakeLists.txt", "LICENSE", "cmake", "include", "share", "src")
_PACKAGE = (
    "pyproject.toml",
    "CMakeLists.txt",
    "README.md",
    "LICENSE",
    "build_backend",
    "redpoll",
)
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "_lib", "*.swp")


def _core() -> Path:
    """The C project: core/ in an sdist, the folder above in the source tree."""
    inside = _HERE / "core"
    return inside if inside.is_dir() else _HERE.parent


def dynamic_metadata(field: str, settings: Any, *_: Any) -> str:
    """The version, for scikit-build-core's table metadata.version."""
    text = (_core() / "CMakeLists.txt").read_text(encoding="utf-8")
    found = re.search(r"^project\(redpoll VERSION ([0-9.]+)", text, re.MULTILINE)
    if field != "version" or found is None:
        raise RuntimeError(f"no {field} in {_core() / 'CMakeLists.txt'}")
    return found.group(1)


def build_sdist(sdist_directory: str, config_settings: Optional[dict[str, Any]] = None) -> str:
    """As the hook of that name, from a copy of the package with the C sources in it."""
    target = os.path.abspath(sdist_directory)
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        _copy(_HERE, _PACKAGE, Path(folder))
        _copy(_core(), _CORE, Path(folder) / "core")
        os.chdir(folder)
        try:
            return _backend.build_sdist(target, config_settings)
        finally:
            os.chdir(before)


def _copy(source: Path, names: tuple[str, ...], target: Path) -> None:
    target.mkdir(exist_ok=True)
    for name in names:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, ignore=_LEFT_OUT)
        else:
            shutil.copy2(source / name, target / name)
