"""The ctypes mirror against the headers: a C program prints sizes, offsets and constants."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from redpoll import _abi, errors

COMPILERS = [os.environ.get("CC", ""), "cc", "gcc", "clang"]
CONSTANTS = sorted(
    name for name, value in vars(_abi).items() if name.startswith("RP_") and type(value) is int
)
PREFIXES = {
    "STATUS": "RP_",
    "DTYPES": "RP_",
    "REDUCTIONS": "RP_",
    "MEMORIES": "RP_MEMORY_",
    "PRIORITIES": "RP_PRIORITY_",
}


def c_source() -> str:
    """Prints "name value" lines for everything that the mirror repeats."""
    lines = ['#include "redpoll/redpoll.h"', "#include <stddef.h>", "#include <stdio.h>"]
    lines.append("int main(void) {")

    def show(name: str, expression: str) -> None:
        lines.append(f'    printf("{name} %lld\\n", (long long)({expression}));')

    for table, prefix in PREFIXES.items():
        for name in getattr(_abi, table):
            show(f"{table}.{name}", prefix + name)
    for name in CONSTANTS:
        show(name, name)
    for structure in _abi.STRUCTURES:
        c_name = structure.__name__
        show(c_name, f"sizeof({c_name})")
        for field, _ in structure._fields_:
            show(f"{c_name}.{field}", f"offsetof({c_name}, {field})")
            show(f"{c_name}.{field}.size", f"sizeof((({c_name} *)0)->{field})")
    lines.append("    return 0;\n}")
    return "\n".join(lines)


def mirrored() -> dict[str, int]:
    found: dict[str, int] = {}
    for table in PREFIXES:
        for name, value in getattr(_abi, table).items():
            found[f"{table}.{name}"] = value
    for name in CONSTANTS:  # those of size_t are printed as signed, too
        found[name] = ctypes.c_longlong(getattr(_abi, name)).value
    for structure in _abi.STRUCTURES:
        found[structure.__name__] = ctypes.sizeof(structure)
        for field, _ in structure._fields_:
            descriptor = getattr(structure, field)
            found[f"{structure.__name__}.{field}"] = descriptor.offset
            found[f"{structure.__name__}.{field}.size"] = descriptor.size
    return found


@pytest.fixture(scope="module")
def compiler() -> str:
    for name in COMPILERS:
        if name and shutil.which(name):
            return name
    pytest.skip("no C compiler")


def include_folders(source: Path) -> list[str]:
    """Of the sources, and of the build for version.h."""
    build = os.environ.get("REDPOLL_BUILD")
    folders = [source / "include", *([Path(build) / "include"] if build else [])]
    return [f"-I{folder}" for folder in folders]


def test_layouts_and_constants(compiler: str, source: Path, tmp_path: Path) -> None:
    program, text = tmp_path / "layout", tmp_path / "layout.c"
    text.write_text(c_source())
    if not os.environ.get("REDPOLL_BUILD"):  # a stand-in for the generated header
        (tmp_path / "redpoll").mkdir()
        (tmp_path / "redpoll" / "version.h").write_text('#define REDPOLL_VERSION ""\n')
    flags = [*include_folders(source), f"-I{tmp_path}"]
    subprocess.run([compiler, *flags, "-o", str(program), str(text)], check=True)
    output = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    in_c = {name: int(value) for name, value in map(str.split, output.splitlines())}
    assert mirrored() == in_c


def test_header_tables_are_complete(source: Path) -> None:
    """A constant or a field added in C must be added here: counts of what the headers list."""
    headers = {one.name: one.read_text() for one in (source / "include/redpoll").glob("*.h")}
    assert headers["status.h"].count("    X(") == len(_abi.STATUS)
    assert headers["dtype.h"].count("    X(") == len(_abi.DTYPES)


@pytest.mark.parametrize("name", sorted(_abi.FUNCTIONS))
def test_function_is_exported_and_declared(name: str, source: Path) -> None:
    text = "".join(one.read_text() for one in (source / "include/redpoll").glob("*.h*"))
    declared, exported = f"{name}(" in text, hasattr(_abi, name)
    assert declared == exported
    assert exported


def test_last_error_carries_status_and_text() -> None:
    with pytest.raises(errors.Error, match="bits") as caught:
        errors.check(_abi.rp_codec_parse(b"q99", ctypes.byref(_abi.rp_codec())))
    assert caught.value.status == "INVALID"
    assert caught.value.code == _abi.RP_INVALID


def test_missing_library_says_where_it_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    from redpoll import _library

    def refuse(path: str) -> None:
        raise OSError(f"{path}: cannot open shared object file")

    monkeypatch.setattr(_library.ctypes, "CDLL", refuse)
    with pytest.raises(ImportError, match="_lib/libredpoll.so; in a checkout 'pip install"):
        _library.load.__wrapped__()
