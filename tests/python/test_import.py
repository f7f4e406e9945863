"""What an import needs, leaves and shows: private names, marks for Dynamo, help()."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import redpoll.torch
import torch_cgx
from ranks import run_script
from redpoll.torch import _untraced
from redpoll.torch.comm import _buffers

SCRIPT = """
import sys, torch
for path in sys.argv[1:]:
    place, _, name = path.rpartition(".")
    owner = torch._C
    for part in place.split("."):
        owner = getattr(owner, part)
    if hasattr(owner, name):  # another release
        delattr(owner, name)
import torch.distributed as dist, redpoll.torch
dist.init_process_group("redpoll")
with torch.profiler.profile() as profile:
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, async_op=True).wait()
assert tensor[0] == 1
spans = [event.key for event in profile.key_averages() if event.key.startswith("redpoll:")]
print("spans:", *spans)
dist.destroy_process_group()
"""

PROFILING = ["_profiler._RecordFunctionFast", "_autograd._profiler_enabled"]
DYNAMO = [
    "_dynamo.eval_frame." + name
    for name in ("_FrameAction", "_FrameExecStrategy", "set_code_exec_strategy")
]


@pytest.mark.parametrize("hidden", [[], PROFILING[:1], PROFILING[1:], DYNAMO[:1], DYNAMO])
def test_an_import_does_without(hidden: list[str]) -> None:
    (done,) = run_script(SCRIPT, 1, arguments=hidden, modules=())
    files = re.findall('File "([^"]*)"', done.stderr)
    if files and "/torch/_dynamo/" in files[-1]:
        pytest.skip("this PyTorch needs them itself")
    assert done.returncode == 0, done.stderr
    spans = "" if set(hidden) & set(PROFILING) else " redpoll:all_reduce"
    assert done.stdout.strip() == "spans:" + spans


COUNT = """
import sys, torch, torch.distributed
before = set(sys.modules)
import redpoll.torch
new = set(sys.modules) - before
print("ours:", *sorted(name for name in new if name.split(".")[0] == "redpoll"))
print("others:", *sorted(name for name in new if name.split(".")[0] != "redpoll"))
"""

PUBLIC_MODULES = {  # where it is, and something that it holds
    "async_local_sgd": "AsyncLocalSGD",
    "gossip": "Gossip",
    "local_sgd": "DiLoCo",
    "monitored": "monitored_barrier",
    "parameter_server": "ParameterServer",
    "registered": "empty",
    "statistics": "Stats",
    "window": "Window",
}


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_modules_have_their_names(name: str) -> None:
    """Whatever room they are in."""
    module = importlib.import_module(f"redpoll.torch.{name}")
    held = getattr(module, PUBLIC_MODULES[name])
    assert held is getattr(redpoll.torch, PUBLIC_MODULES[name])
    assert getattr(redpoll.torch, name) is module
    assert sys.modules[module.__name__] is module


OF_TRAINING = ("compress", "gathered", "reducer", "residuals", "sharded", "fsdp", "gossip")
OF_TRAINING += ("local_sgd", "served", "shard", "parameter_server", "window", "statistics")
MOST_MODULES = 55
"""Importing redpoll.torch takes at most 50 ms over torch's: one of these takes about 0.5 ms."""


def test_what_is_not_needed_is_not_imported() -> None:
    (done,) = run_script(COUNT, 1, python=sys.executable)
    assert done.returncode == 0, done.stderr
    ours, others = (line.split()[1:] for line in done.stdout.splitlines())
    assert "redpoll.torch.c10d._process_group" in ours and len(ours) <= MOST_MODULES, ours
    assert not [name for name in ours for part in OF_TRAINING if part in name.split(".")[-1]]
    assert set(others) <= {"hmac", "secrets"}


@pytest.mark.parametrize("name", redpoll.torch.__all__)
def test_every_name_is_there_as_the_first_one(name) -> None:
    assert name in dir(redpoll.torch)
    assert getattr(redpoll.torch, name).__class__ is not ModuleType


def test_submodules_are_attributes() -> None:
    text = """
import redpoll.torch
print(redpoll.torch.local_sgd.DiLoCo is redpoll.torch.DiLoCo)
print(redpoll.torch.statistics.stats is redpoll.torch.stats)
try:
    redpoll.torch.nothing
except AttributeError as error:
    print(error)
from redpoll.torch import *
print(Gossip.__module__, compress.__name__, "LocalSGD" in dir(redpoll.torch))
"""
    (done,) = run_script(text, 1, modules=())
    assert done.stdout.splitlines() == [
        "True",
        "True",
        "module 'redpoll.torch' has no attribute 'nothing'",
        "redpoll.torch.decentralised.gossip compress True",
    ]


def test_type_checkers_know_what_is_loaded_on_need() -> None:
    tree = ast.parse(Path(redpoll.torch.__file__).read_text())
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    assert ast.unparse(checked.test) == "TYPE_CHECKING"
    told = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert told == redpoll.torch._HOMES
    assert set(told) <= set(redpoll.torch.__all__)


LATE = """
import importlib, os, sys, redpoll.torch
from redpoll.torch import _untraced
marked = set()
_untraced._walked.clear()
_untraced._skipper = lambda: marked.add
_untraced.keep_untraced("redpoll")

def left_by(name):
    if name in redpoll.torch._HOMES:
        getattr(redpoll.torch, name)
    else:
        importlib.import_module(f"redpoll.torch.{name}")
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "redpoll":
            yield from (code for code in _untraced._codes_of(module) if code not in marked)

names = [name for name in (*redpoll.torch._MODULES, *redpoll.torch._HOMES)]
for name in names:
    if name[0] != "_" and not os.fork():  # nobody imports a private module
        left = list(left_by(name))
        print(name, len(marked) > 500, left, flush=True)
        os._exit(0)
    if name[0] != "_":
        os.wait()
"""


def test_what_is_loaded_on_need_is_marked_for_dynamo() -> None:
    (done,) = run_script(LATE, 1, modules=())
    names = [*redpoll.torch._MODULES, *redpoll.torch._HOMES]
    expected = [f"{name} True []" for name in names if name[0] != "_"]
    assert done.stdout.splitlines() == expected, done.stderr


CALLS = [name for name in redpoll.torch.__all__ if name[0].islower()]


@pytest.mark.parametrize("name", [*CALLS, "Options"])
def test_help_is_readable(name: str) -> None:
    shown = pydoc.render_doc(getattr(redpoll.torch, name), renderer=pydoc.plaintext)
    if name != "stats":  # an instance: its class is shown
        assert " at 0x" not in shown


def test_help_of_compress() -> None:
    text = pydoc.render_doc(redpoll.torch.compress, renderer=pydoc.plaintext)
    # Python 3.13 gives each parameter a line of its own where they do not fit one.
    signature = re.search(r"^compress\((.*?)\)(?: -> .*)?$", text, re.DOTALL | re.MULTILINE)
    assert signature
    assert "codec='q4', *, grads='q8', weights='q8'" in " ".join(signature[1].split())
    shown = text[signature.end() :].splitlines()
    for name in inspect.signature(redpoll.torch.compress).parameters:
        assert any(line.strip().startswith(f"{name}: ") for line in shown), name
    assert all(len(line) <= 96 for line in shown)


@pytest.mark.parametrize("package", [redpoll, torch_cgx], ids=["redpoll", "torch_cgx"])
def test_only_our_own_code_is_marked(package, monkeypatch) -> None:
    marked = []
    monkeypatch.setattr(_untraced, "_skipper", lambda: marked.append)
    monkeypatch.setattr(_untraced, "_walked", {})
    _untraced.keep_untraced(package.__name__)
    place = Path(package.__file__)
    place = place.parent if place.name == "__init__.py" else place
    assert marked
    for code in marked:
        assert Path(code.co_filename).is_relative_to(place), code


def test_what_is_below_a_decorator_is_marked(monkeypatch) -> None:
    marked = []
    monkeypatch.setattr(_untraced, "_skipper", lambda: marked.append)
    monkeypatch.setattr(_untraced, "_walked", {})
    _untraced.keep_untraced("redpoll")
    staged = vars(_buffers.Buffers)["_staged"]
    assert staged.__wrapped__.__code__ in marked
    # Older releases of PyTorch have one code object for all wrappers of no_grad().
    assert staged.__code__ not in marked
    assert torch.no_grad()(lambda: None).__code__ not in marked
