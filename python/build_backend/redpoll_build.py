"""scikit-build-core, and what it cannot know of this project.

The version is the one that CMakeLists.txt states, an sdist carries what a wheel is built from
and nothing else, and a missing compiler is one line that says what installs it. The project is
the root of the checkout; python/ has a pyproject.toml that leads here, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

from scikit_build_core import build as _backend

_PYTHON = Path(__file__).resolve().parent.parent
_ROOT = _PYTHON.parent
_OF_ROOT = ("pyproject.toml", "CMakeLists.txt", "LICENSE", "cmake", "include", "share", "src")
_OF_PYTHON = (
    "pyproject.toml",
    "CMakeLists.txt",
    "README.md",
    "LICENSE",
    "build_backend",
    "redpoll",
)
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "_lib", "*.swp")

_INSTALLS = (
    "apt-get install gcc libc6-dev (Debian, Ubuntu), dnf install gcc (Fedora), "
    "apk add gcc musl-dev linux-headers (Alpine)"
)
_NEEDED = '#include <linux/futex.h>\n#include <stdio.h>\nint main(void) { return puts(""); }\n'

Settings = Optional[dict[str, Any]]


def dynamic_metadata(field: str, settings: Any, *_: Any) -> str:
    """The version, for scikit-build-core's table metadata.version."""
    text = (_ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    found = re.search(r"^project\(redpoll VERSION ([0-9.]+)", text, re.MULTILINE)
    if field != "version" or found is None:
        raise RuntimeError(f"no {field} in {_ROOT / 'CMakeLists.txt'}")
    return found.group(1)


# ---- the hooks ----


def _in_root(name: str) -> Callable[..., Any]:
    """The hook of that name, for which the project is where it is run."""
    hook = getattr(_backend, name)

    def run(*arguments: Any, **options: Any) -> Any:
        with _at(_ROOT):
            return hook(*arguments, **options)

    return run


get_requires_for_build_wheel = _in_root("get_requires_for_build_wheel")
get_requires_for_build_sdist = _in_root("get_requires_for_build_sdist")
get_requires_for_build_editable = _in_root("get_requires_for_build_editable")
prepare_metadata_for_build_wheel = _in_root("prepare_metadata_for_build_wheel")
prepare_metadata_for_build_editable = _in_root("prepare_metadata_for_build_editable")


def build_wheel(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: Optional[str] = None,
) -> str:
    check_compiler(config_settings)
    return _build("build_wheel", wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: Optional[str] = None,
) -> str:
    check_compiler(config_settings)
    return _build("build_editable", wheel_directory, config_settings, metadata_directory)


def _build(name: str, directory: str, settings: Settings, metadata: Optional[str]) -> str:
    place = None if metadata is None else os.path.abspath(metadata)
    wheel: str = _in_root(name)(os.path.abspath(directory), settings, place)
    return wheel


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Of a copy of what a wheel is built from."""
    target = os.path.abspath(sdist_directory)
    with tempfile.TemporaryDirectory() as folder:
        _copy(_ROOT, _OF_ROOT, Path(folder))
        _copy(_PYTHON, _OF_PYTHON, Path(folder) / "python")
        with _at(Path(folder)):
            return _backend.build_sdist(target, config_settings)


@contextlib.contextmanager
def _at(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _copy(source: Path, names: tuple[str, ...], target: Path) -> None:
    target.mkdir(exist_ok=True)
    for name in names:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, ignore=_LEFT_OUT)
        else:
            shutil.copy2(source / name, target / name)


# ---- the compiler ----


def check_compiler(config_settings: Settings = None) -> None:
    """Leave with one line where no C compiler is, or none that compiles. CMake's own choice is
    not questioned where somebody has made it."""
    words = f"{os.environ.get('CMAKE_ARGS', '')} {' '.join(config_settings or ())}"
    if "CMAKE_C_COMPILER" in words or "CMAKE_TOOLCHAIN_FILE" in words + " ".join(os.environ):
        return
    named = shlex.split(os.environ.get("CC", ""))
    found = [[one] for one in ("cc", "gcc", "clang") if shutil.which(one)]
    command = named or (found[0] if found else [])
    if not command or shutil.which(command[0]) is None:
        what = f"CC={named[0]} is not installed" if named else "no C compiler is installed"
        _leave(f"redpoll: {what}; {_INSTALLS}")
    if not _compiles(command):
        _leave(f"redpoll: {command[0]} finds no headers of C and Linux; {_INSTALLS}")


def _compiles(command: list[str]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "needed.c"
        source.write_text(_NEEDED)
        done = subprocess.run(
            [*command, "-c", str(source), "-o", str(source.with_suffix(".o"))],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    return done.returncode == 0


def _leave(message: str) -> None:
    print(message, file=sys.stderr)
    raise SystemExit(1)
