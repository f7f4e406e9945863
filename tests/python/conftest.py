"""What every test file of the Python package shares."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

SKIPPED = 77  # what ctest counts as skipped


def pytest_sessionstart() -> None:
    """Programs inherit an ignored Ctrl-C: from a shell that runs tests in the background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Over a stand-in for a GPU those are left out that would show nothing new."""
    if os.environ.get("REDPOLL_TEST_PLACE") == "stand-in":
        again = [item for item in items if item.get_closest_marker("host")]
        config.hook.pytest_deselected(items=again)
        items[:] = [item for item in items if not item.get_closest_marker("host")]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A file of which every case was skipped counts as skipped, not as passed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == pytest.ExitCode.OK and reporter is not None:
        if reporter.stats.get("skipped") and not reporter.stats.get("passed"):
            session.exitstatus = SKIPPED


@pytest.fixture(scope="session")
def source() -> Path:
    """The root of the source tree."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def installed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which PyTorch finds the entry points of pyproject.toml."""
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    folder = tmp_path_factory.mktemp("site") / "redpoll-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: redpoll\nVersion: 0\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in points.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")
    path = [str(folder.parent), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(path)}
