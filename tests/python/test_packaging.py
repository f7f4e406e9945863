"""Recipes of packages, without the tools that build them: each names options, parts and
libraries that there are, of this version. PARTS, EXTERNAL and RECIPES are tables; tools/deb.sh
and tools/wheels.sh build what they describe.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import redpoll

tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = ROOT / "packaging/debian"

# Wheels that hold a part of what `pip install .` installs: folder, its component, its extra.
PARTS = {"command": ("python_command", "command"), "cuda": ("python_cuda", "cuda")}

# A library by Debian's name of its headers, and as Spack and conda call it.
EXTERNAL = {
    "libdnnl-dev": ("onednn", "onednn"),
    "libssl-dev": ("openssl", "openssl"),
    "libyaml-dev": ("libyaml", "yaml"),
    "libcjson-dev": ("cjson", "cjson"),
    "zlib1g-dev": ("zlib-api", "zlib"),
    "libpcre2-dev": ("pcre2", "pcre2"),
    "libutf8proc-dev": ("utf8proc", "utf8proc"),
    "libjpeg-dev": ("jpeg", "libjpeg-turbo"),
    "libpng-dev": ("libpng", "libpng"),
    "liblzma-dev": ("xz", "xz"),
    "libbz2-dev": ("bzip2", "bzip2"),
    "libzstd-dev": ("zstd", "zstd"),
    "libhwloc-dev": ("hwloc", "libhwloc"),
}


def text(path: str | Path) -> str:
    return (ROOT / path).read_text()


def options() -> set[str]:
    """Of CMake."""
    pattern = r"(?:option|set)\((REDPOLL_\w+)"
    return set(re.findall(pattern, text("cmake/RedpollOptions.cmake")))


def defined_in(words: str) -> set[str]:
    return set(re.findall(r"\b(REDPOLL_[A-Z]+)\b", words))


def test_the_table_of_libraries_is_whole() -> None:
    """What tools/setup.sh installs to build with."""
    wanted = set(re.findall(r"\b(?:lib\w+|zlib1g)-dev\b", text("tools/setup.sh")))
    assert wanted - {"libc6-dev"} == set(EXTERNAL)


# ---- wheels ----


@pytest.mark.parametrize("folder", PARTS)
def test_a_part_is_a_component(folder: str) -> None:
    component, extra = PARTS[folder]
    project = tomllib.loads(text(f"python/{folder}/pyproject.toml"))
    whole = tomllib.loads(text("pyproject.toml"))
    settings = project["tool"]["scikit-build"]
    assert settings["install"]["components"] == [component]
    assert component in whole["tool"]["scikit-build"]["install"]["components"]
    assert f"COMPONENT {component}" in text("python/CMakeLists.txt")
    assert set(settings["cmake"]["define"]) <= options()
    assert project["project"]["version"] == redpoll.__version__
    assert project["project"]["dependencies"] == [f"redpoll=={redpoll.__version__}"]
    extras = whole["project"]["optional-dependencies"]
    assert extras[extra] == [project["project"]["name"]]


def test_every_row_of_the_wheels_script_is_said() -> None:
    script = text("tools/wheels.sh")
    rows = re.findall(r"^#   (\w+)  ", script, re.MULTILINE)
    assert rows == ["library", "command", "cuda", "aarch64"]
    done = subprocess.run(
        ["sh", ROOT / "tools/wheels.sh", "no-such-row"],
        env={**os.environ, "REDPOLL_SETUP": "never"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and all(row in done.stderr for row in rows), done.stderr


# ---- Debian ----


def test_debian_builds_with_what_setup_installs() -> None:
    source = text(DEBIAN / "control").split("\n\n")[0]
    assert all(re.search(rf"^ {name}\b", source, re.MULTILINE) for name in EXTERNAL)


def test_debian_has_this_version_and_its_packages() -> None:
    assert text(DEBIAN / "changelog").startswith(f"redpoll ({redpoll.__version__}-")
    packages = re.findall(r"^Package: (\S+)", text(DEBIAN / "control"), re.MULTILINE)
    lists = {path.stem for path in DEBIAN.glob("*.install")}
    assert lists == set(packages)
    major = redpoll.__version__.split(".")[0]
    assert f"libredpoll{major}" in packages
    assert f"libredpoll.so.{major} " in text(DEBIAN / "rules")
    assert defined_in(text(DEBIAN / "rules")) <= options()


# ---- Spack ----


class Recorded:
    """Spack's directives, which only say what they were given."""

    def __init__(self) -> None:
        self.said: dict[str, list[Any]] = {}

    def directive(self, name: str) -> Any:
        def take(*words: Any, **_: Any) -> Any:
            self.said.setdefault(name, []).append(words[0] if words else None)
            return self

        return take

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    def __call__(self, function: Any) -> Any:
        return function


class Recipe:
    run_tests = False

    def define(self, name: str, value: object) -> str:
        return f"-D{name}={value}"

    def define_from_variant(self, name: str, variant: str) -> str:
        return f"-D{name}={variant}"


def spack_recipe() -> tuple[Recorded, Any]:
    recorded = Recorded()
    names = ("license", "version", "variant", "depends_on", "when", "extends", "generator")
    space: dict[str, Any] = {name: recorded.directive(name) for name in (*names, "run_after")}
    module = types.ModuleType("spack.package")
    module.__dict__.update(space, CMakePackage=Recipe)
    package = types.ModuleType("spack")
    modules = {"spack": package, "spack.package": module}
    sys.modules.update(modules)
    try:
        found: dict[str, Any] = {}
        exec(compile(text("packaging/spack/package.py"), "package.py", "exec"), found)
    finally:
        for name in modules:
            del sys.modules[name]
    return recorded, found["Redpoll"]


def test_spack_names_options_and_libraries_that_there_are() -> None:
    recorded, recipe = spack_recipe()
    assert redpoll.__version__ in recorded.said["version"]
    needs = {name.split("@")[0] for name in recorded.said["depends_on"]}
    assert {spack for spack, _ in EXTERNAL.values()} <= needs
    given = [word.removeprefix("-D").split("=") for word in recipe().cmake_args()]
    assert {name for name, _ in given} <= options()
    variants = {value for _, value in given} - {"OFF", "False"}
    assert variants <= set(recorded.said["variant"])


# ---- conda ----


def test_conda_names_options_and_libraries_that_there_are() -> None:
    recipe = yaml.safe_load(text("packaging/conda/recipe.yaml"))
    assert recipe["context"]["version"] == redpoll.__version__
    host = {line.split()[0] for line in recipe["requirements"]["host"]}
    assert {conda for _, conda in EXTERNAL.values()} <= host
    assert defined_in("\n".join(recipe["build"]["script"])) <= options()
    keys = {"context", "package", "source", "build", "requirements", "tests", "about"}
    assert set(recipe) == keys


# ---- the Python package in all of them ----


def test_the_python_package_of_a_system(tmp_path: Path) -> None:
    """In a root of its own, where links lead to the library that it was told of."""
    site, library = "/usr/lib/python3/dist-packages", "/usr/lib/any/libredpoll.so.0"
    built = Path(redpoll.__file__).parent / "_lib/libredpoll.so"
    place = tmp_path / library.lstrip("/")
    place.parent.mkdir(parents=True)
    place.symlink_to(built.resolve())
    script = ROOT / "packaging/python_package.py"
    words = [ROOT, tmp_path, site, library, "/usr/bin/redpoll"]
    subprocess.run([sys.executable, script, *map(str, words)], check=True, timeout=60)
    program = (
        "import importlib.metadata as of, redpoll\n"
        "print(redpoll.__file__, redpoll.__version__, of.version('redpoll'))\n"
        "print(sorted({one.group for one in of.distribution('redpoll').entry_points}))\n"
        "from redpoll._library import load; load(); print('loaded')"
    )
    folder = str(tmp_path / site.lstrip("/"))
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={**os.environ, "PYTHONPATH": folder},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    file, version, of_metadata, *rest = done.stdout.split(maxsplit=3)
    assert file.startswith(folder) and version == of_metadata == redpoll.__version__
    assert "torch.backends" in rest[0] and "loaded" in rest[0]
    link = os.readlink(tmp_path / site.lstrip("/") / "redpoll/_lib/redpoll")
    assert link == "../../../../../bin/redpoll"
