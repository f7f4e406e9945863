"""The package without PyTorch: version, types, and what importing it may bring in."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

import redpoll


def test_version_is_the_projects(source: Path) -> None:
    text = (source / "CMakeLists.txt").read_text()
    project = re.search(r"project\(redpoll VERSION ([0-9.]+)", text)
    assert project is not None
    assert redpoll.__version__ == project.group(1)


@pytest.mark.parametrize("folder", ["cgx", "bluefog", "horovod"])
def test_other_wheels_are_of_the_same_version(source: Path, folder: str) -> None:
    text = (source / "python" / folder / "pyproject.toml").read_text()
    assert f'version = "{redpoll.__version__}"' in text
    assert f'dependencies = ["redpoll=={redpoll.__version__}"' in text


def test_mypy_passes_over_what_pip_leaves_behind(source: Path) -> None:
    """`pip install ./python/cgx` copies its modules to python/cgx/build/lib."""
    settings = configparser.ConfigParser()
    settings.read(source / "python/mypy.ini")
    exclude = re.compile(settings["mypy"]["exclude"])
    assert exclude.search("python/cgx/build/lib/cgx_utils.py")
    for each in ["python/cgx/cgx_utils.py", "python/build_backend/redpoll_build.py"]:
        assert not exclude.search(each)


def test_package_is_typed() -> None:
    assert (Path(redpoll.__file__).parent / "py.typed").is_file()


def test_import_needs_no_torch() -> None:
    program = "import sys, redpoll; redpoll.__version__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_ctest_runs_every_file() -> None:
    folder = Path(__file__).parent
    listed = re.findall(r"test_\w+\.py", (folder / "CMakeLists.txt").read_text())
    assert set(listed) >= {path.name for path in folder.glob("test_*.py")}
