"""An older state of the tree, built beside this one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Optional

PRESET = "release"


class CannotBuild(Exception):
    pass


def check_output(words: list[str], folder: Path) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise CannotBuild(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def commit_of(root: Path, ref: str) -> str:
    words = ["git", "rev-parse", "--verify", "--quiet", ref + "^{commit}"]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise CannotBuild(f"'{ref}' is no commit of this repository (git log --oneline)")
    return done.stdout.strip()


def unpack(root: Path, commit: str, folder: Path) -> None:
    """Its files and nothing of git's: there is nothing to take down again but the folder."""
    folder.mkdir(parents=True)
    archive = subprocess.Popen(
        ["git", "archive", "--format=tar", commit], cwd=root, stdout=subprocess.PIPE
    )
    unpacked = subprocess.run(["tar", "-x", "-C", str(folder)], stdin=archive.stdout)
    if archive.wait() or unpacked.returncode:
        raise CannotBuild(f"git archive {commit} cannot be unpacked into {folder}")


def launchers() -> list[str]:
    ccache: Optional[str] = shutil.which("ccache")
    return [
        f"-DCMAKE_{language}_COMPILER_LAUNCHER={ccache}" for language in ("C", "CXX") if ccache
    ]


def build(root: Path, folder: Path, targets: list[str]) -> Path:
    """The build folder; of `targets` those that this state has."""
    # The compiler's cache knows a file again wherever the tree lies below this folder.
    os.environ.setdefault("CCACHE_BASEDIR", str(root))
    os.environ.setdefault("CCACHE_NOHASHDIR", "1")
    check_output(["cmake", "--preset", PRESET, *launchers()], folder)
    build_folder = folder / "build" / PRESET
    known = check_output(["cmake", "--build", str(build_folder), "--target", "help"], folder)
    there = [name for name in targets if any(w.rstrip(":") == name for w in known.split())]
    check_output(["cmake", "--build", str(build_folder), "--target", *there], folder)
    return build_folder
