"""The wheel: built from an sdist of the source tree, installed, imported elsewhere.

What it holds is compiled once, and in the sdist's folder, where no file of the checkout helps.
Nothing is fetched: scikit-build-core, CMake, Ninja and a C compiler have to be here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("scikit_build_core") is None:
    pytest.skip("scikit-build-core is not installed", allow_module_level=True)
for _command in ("cmake", "ninja", "cc", "pkg-config"):
    if shutil.which(_command) is None:
        pytest.skip(f"{_command} is not installed", allow_module_level=True)


def run_any(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command in an environment without our PYTHONPATH; its output is one text."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """The output of a command that must succeed."""
    done = run_any(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout
    return done.stdout


def pip(*arguments: str | Path) -> str:
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments)


def build_wheel(project: Path, folder: Path, *options: str) -> Path:
    local = ("--no-index", "--no-deps", "--no-build-isolation")
    pip("wheel", *local, *options, "-w", folder, project)
    (wheel,) = folder.glob("*.whl")
    return wheel


# What it holds is the same, but for kernels for GPUs, which take minutes where nvcc is. Without
# words for debuggers, which take a third of the compiler's time.
QUICKLY = (
    "--config-settings=cmake.build-type=Debug",
    "--config-settings=cmake.define.CMAKE_C_FLAGS_DEBUG=-O0",
    "--config-settings=cmake.define.REDPOLL_CUDA=OFF",
)


OTHER_WHEELS = ("cgx", "bluefog", "horovod", "command", "cuda")  # of the same checkout


def listing(folder: Path) -> set[Path]:
    """All that lies there but Python's own cache, which importing the build backend writes."""
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def tree(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the package is built from, with what a developer may have lying there."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in ("cmake", "include", "share", "src"):
        shutil.copytree(source / folder, copy / folder)
    ignored = shutil.ignore_patterns("__pycache__", "_lib", *OTHER_WHEELS)
    shutil.copytree(source / "python", copy / "python", symlinks=True, ignore=ignored)
    for name in ("CMakeLists.txt", "LICENSE", "pyproject.toml"):
        shutil.copy(source / name, copy)
    leave_a_library(copy)
    return copy


def leave_a_library(checkout: Path) -> None:
    library = checkout / "python" / "redpoll" / "_lib" / "libredpoll.so"
    library.parent.mkdir()
    library.write_text("not the library that is built now")


@pytest.fixture(scope="module")
def project(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an sdist, where it was unpacked."""
    away = tmp_path_factory.mktemp("sdist")
    before = listing(tree)
    hook(f"build_sdist({str(away)!r})", tree)
    assert listing(tree) == before, "building leaves nothing behind"
    (archive,) = away.glob("*.tar.gz")
    with tarfile.open(archive) as sdist:
        sdist.extractall(away / "unpacked")
    (project,) = (away / "unpacked").iterdir()
    return project


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The option with which what one build of a project has compiled serves the next."""
    return f"--config-settings=build-dir={tmp_path_factory.mktemp('objects')}"


@pytest.fixture(scope="module")
def wheel(project: Path, objects: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    leave_a_library(project)
    before = listing(project)
    wheel = build_wheel(project, tmp_path_factory.mktemp("wheel"), *QUICKLY, objects)
    assert listing(project) == before, "building leaves nothing behind"
    return wheel


def test_one_wheel_for_every_python(wheel: Path) -> None:
    assert "-py3-none-linux_" in wheel.name


def test_wheel_holds_the_package_and_nothing_else(wheel: Path, tree: Path) -> None:
    sources = {
        str(path.relative_to(tree / "python"))
        for path in (tree / "python" / "redpoll").rglob("*")
        if path.suffix in (".py", ".c") or path.name == "py.typed"
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == sources | {"redpoll/_lib/libredpoll.so", "redpoll/_lib/redpoll"}


def test_library_exports_its_interface_only(wheel: Path, tmp_path: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    with zipfile.ZipFile(wheel) as archive:
        library = archive.extract("redpoll/_lib/libredpoll.so", tmp_path)
    lines = run("nm", "-D", "--defined-only", library).splitlines()
    names = {line.split()[-1].split("@")[0] for line in lines}
    assert names
    assert {name for name in names if not name.startswith("rp_")} == set()


def installed(wheel: Path, folder: Path, *options: str) -> Path:
    """The Python of a new virtual environment that holds the wheel and nothing else."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip("--python", python, "install", "--no-index", "--no-deps", *options, wheel)
    return python


def test_installed_wheel_brings_the_command(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path / "venv")
    command = python.with_name("redpoll")
    version = wheel.name.split("-")[1]
    for start in ([command], [python, "-m", "redpoll"]):
        assert version in run(*start, "info", cwd=tmp_path)
        ranks = run(
            *start, "run", "-n", "2", python, "-c", "import os; print(os.environ['RANK'])"
        )
        assert "0" in ranks and "1" in ranks
    options = "--model mlp --data synthetic --train-images 64 --test-images 64 --steps 2"
    assert "2 steps in" in run(command, "train", "-n", "2", *options.split(), cwd=tmp_path)
    wrong = run_any(command, "trian")
    assert wrong.returncode == 2 and "train" in wrong.stdout
    [program] = (tmp_path / "venv").rglob("_lib/redpoll")
    program.unlink()
    missing = run_any(command, "info")
    assert missing.returncode == 1 and "libyaml-dev" in missing.stdout
    assert "redpoll[command]" in missing.stdout


def test_installed_wheel_imports_without_an_environment(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path / "venv")
    pip("--python", python, "install", "--no-index", "--no-deps", "--force-reinstall", wheel)
    version = run(python, "-c", "import redpoll; print(redpoll.__version__)", cwd=tmp_path)
    assert version.strip() == wheel.name.split("-")[1]
    without_torch = run_any(python, "-c", "import redpoll.torch", cwd=tmp_path)
    assert without_torch.returncode != 0
    assert "pip install 'torch>=2.9'" in without_torch.stdout


TRAINS = """
import os
import torch, torch.distributed as dist
from torch import nn
torch.manual_seed(0)
dist.init_process_group("redpoll")
import redpoll.torch
model = nn.parallel.DistributedDataParallel(nn.Linear(200, 100))
state = redpoll.torch.compress(model, codec="q4")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(dist.get_rank())
for step in range(3):
    x = torch.randn(8, 200, generator=generator)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
said = redpoll.__file__, type(dist.group.WORLD).__name__, state.codecs()["weight"]
os.write(1, (" ".join(map(str, said)) + "\\n").encode())  # whole, beside the other rank's
dist.destroy_process_group()
"""


def test_wheel_beside_pytorch_trains(wheel: Path, tmp_path: Path) -> None:
    """In an environment with Python and PyTorch; nothing of ours is in it before."""
    torch = find_spec("torch")
    assert torch is not None and torch.origin is not None
    python = installed(wheel, tmp_path / "venv")
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "pytorch.pth").write_text(f"{Path(torch.origin).parents[1]}\n")
    script = tmp_path / "train.py"
    script.write_text(TRAINS)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    said = run(python, *launcher, script, cwd=tmp_path)
    lines = [line for line in said.splitlines() if "RedpollGroup" in line]
    assert len(lines) == 2, said
    assert all(line.startswith(str(site)) and "q4" in line for line in lines), said


def hook(call: str, folder: Path) -> str:
    """What a hook of the build backend gives, run in a folder as pip does it."""
    place = next(
        one for one in ("build_backend", "python/build_backend") if (folder / one).is_dir()
    )
    text = f"import sys; sys.path.insert(0, {place!r}); import redpoll_build; "
    return run(sys.executable, "-c", f"{text} print(redpoll_build.{call})", cwd=folder)


def test_sdist_holds_the_sources_and_nothing_else(tree: Path, project: Path) -> None:
    assert (project / "PKG-INFO").is_file()
    for folder in ("cmake", "include", "share", "src"):
        there, wanted = project / folder, tree / folder
        assert {path.relative_to(there) for path in listing(there)} == {
            path.relative_to(wanted) for path in listing(wanted)
        }
    held = {path.name for path in (project / "python").iterdir()}
    assert not held & {*OTHER_WHEELS, "Dockerfile"} and "redpoll" in held


def test_wheel_is_built_by_the_folder_python(
    project: Path, wheel: Path, objects: str, tmp_path: Path
) -> None:
    """As by the root of the checkout; the library alone, as it is asked for."""
    library_alone = "--config-settings=cmake.define.REDPOLL_COMMAND=OFF"
    metadata = hook(f"prepare_metadata_for_build_wheel({str(tmp_path)!r})", project)
    assert metadata.split()[-1].startswith("redpoll-")
    options = (*QUICKLY, objects, library_alone)
    by_python = build_wheel(project / "python", tmp_path / "wheel", *options)
    assert by_python.name == wheel.name
    with zipfile.ZipFile(by_python) as archive:
        held = {name for name in archive.namelist() if "/_lib/" in name}
    assert held == {"redpoll/_lib/libredpoll.so"}


# ---- where there is no compiler ----

COMPILERS = {  # PATH, CC, CMAKE_ARGS; what the one line says, None: nothing is wrong
    "none": ("", None, "", "no C compiler is installed"),
    "one that is not there": (None, "gcc-99 -O2", "", "CC=gcc-99 is not installed"),
    "one that does not compile": (None, "false", "", "false finds no headers"),
    "as it is": (None, None, "", None),
    "with words": (None, "cc -O1", "", None),
    "chosen for CMake": ("", None, "-DCMAKE_C_COMPILER=/opt/cc", None),
}


@pytest.mark.parametrize("case", COMPILERS)
def test_a_missing_compiler_is_one_line(source: Path, case: str) -> None:
    path, compiler, arguments, said = COMPILERS[case]
    environment = {**os.environ, "CMAKE_ARGS": arguments}
    environment.pop("CC", None)
    if path is not None:
        environment["PATH"] = path
    if compiler is not None:
        environment["CC"] = compiler
    text = "import sys; sys.path.insert(0, 'python/build_backend'); import redpoll_build; "
    command = [sys.executable, "-c", f"{text} redpoll_build.check_compiler()"]
    done = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, timeout=100
    )
    if said is None:
        assert done.returncode == 0 and not done.stderr
        return
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1 and line.startswith(f"redpoll: {said}")
    assert "apt-get install gcc libc6-dev" in line
