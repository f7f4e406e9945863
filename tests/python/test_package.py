"""The package without PyTorch: version, types, and what importing it may bring in."""

from __future__ import annotations

import configparser
import re
import shutil
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


@pytest.mark.parametrize("folder", ["cgx", "bluefog", "horovod", "command", "cuda"])
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


# ---- rooms ----

BREACHES = {  # a file that is added, what it says, what is said of it; empty: nothing
    "downward": ("fsdp/_new.py", "from ..comm import _codec", ""),
    "the same room": ("fsdp/_new.py", "from . import _spans", ""),
    "the foundation": ("comm/_new.py", "from .._help import Unset", ""),
    "the package above": ("comm/_new.py", "from ... import _abi", ""),
    "upward": (
        "comm/_new.py",
        "from ..codecs._rules import Rule",
        "comm may not import codecs",
    ),
    "a whole room above": (
        "codecs/_new.py",
        "from .. import fsdp",
        "codecs may not import fsdp",
    ),
    "to the side": (
        "fsdp/_new.py",
        "from ..decentralised import gossip",
        "fsdp may not import decentralised",
    ),
    "later": (
        "comm/_new.py",
        "def ask():\n    from ..c10d import statistics\n",
        "comm may not import c10d",
    ),
    "the top": ("comm/_new.py", "from ..launch import init", "comm may not import top"),
    "from a room in a room": (
        "decentralised/_new.py",
        "from .servers import _served",
        "decentralised may not import decentralised/servers",
    ),
    "a folder that is no room": ("attic/_new.py", "import os", "no room"),
}


def layers(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(__file__).parents[2] / "tools/python_layers.py"
    command = [sys.executable, str(program), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_rooms_import_what_they_may(source: Path) -> None:
    done = layers(source)
    assert done.returncode == 0, done.stdout


PACKAGE = Path("python/redpoll/torch")


def copied(source: Path, root: Path) -> Path:
    """What is looked at, in a folder of its own."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source / PACKAGE, root / PACKAGE, ignore=ignored)
    (root / "tools").mkdir()
    shutil.copy(source / "tools/python_layers.txt", root / "tools")
    return root


BORROWED = {
    "another object's": ("value = [one._poster for one in ()]", "one._poster is private to"),
    "deeper": ("def name(work): return work.one._poster", "work.one._poster is private to"),
    "imported": (
        "from ._home import _secret",
        "import of _secret is private to torch/comm/_home.py",
    ),
    "its own": ("class One:\n    def __init__(self, one): self._poster = one._poster", ""),
    "inherited": ("class One:\n    def call(self): return self._poster", ""),
    "of PyTorch": ("def name(group): return group._get_backend", ""),
    "a file": ("from . import _home", ""),
    "nobody's": ("def name(one): return one._nobody_has_it", ""),
}
"""What a file says, and what is said of it where another one has `_poster` and `_secret`."""


HOME = "_secret = 1\nclass Home:\n    def __init__(self): self._poster = 1\n"
ADDED = {  # by case: the file, its text, and what is said of it
    **{
        case: (name.replace("_new", f"_new_{number}"), text, said)
        for number, (case, (name, text, said)) in enumerate(BREACHES.items())
    },
    **{
        f"private: {case}": (f"comm/_user_{number}.py", text, said)
        for number, (case, (text, said)) in enumerate(BORROWED.items())
    },
}


@pytest.fixture(scope="module")
def told(source: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What is said of the package with all of these files, which know nothing of each other."""
    root = copied(source, tmp_path_factory.mktemp("rooms"))
    (root / PACKAGE / "comm/_home.py").write_text(HOME)
    for name, text, _ in ADDED.values():
        path = root / PACKAGE / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    done = layers(root)
    assert done.returncode == 1
    return done.stdout.splitlines()


@pytest.mark.parametrize("case", ADDED)
def test_a_breach_is_told(told: list[str], case: str) -> None:
    name, _, said = ADDED[case]
    lines = [line for line in told if line.split(":")[0].removeprefix("torch/") == name]
    assert len(lines) == (1 if said else 0) and said in "".join(lines), told


def test_nothing_else_is_told(told: list[str]) -> None:
    assert len(told) == len([said for _, _, said in ADDED.values() if said]), told


def test_a_circle_is_told(source: Path, tmp_path: Path) -> None:
    root = copied(source, tmp_path)
    folder = root / PACKAGE / "codecs"
    (folder / "_one.py").write_text("from ._two import two\n")
    (folder / "_two.py").write_text("from . import _one\n")
    done = layers(root)
    expected = "a circle of files: codecs/_one -> codecs/_two -> codecs/_one\n"
    assert (done.returncode, done.stdout) == (1, expected)
