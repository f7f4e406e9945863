"""What an import needs, leaves and shows: private names, marks for Dynamo, help()."""

from __future__ import annotations

import inspect
import pydoc
import re
from pathlib import Path

import pytest
import torch

import redpoll.torch
import torch_cgx
from ranks import run_script
from redpoll.torch import _buffers, _untraced

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
    (done,) = run_script(SCRIPT, 1, arguments=hidden)
    assert done.returncode == 0, done.stderr
    spans = "" if set(hidden) & set(PROFILING) else " redpoll:all_reduce"
    assert done.stdout.strip() == "spans:" + spans


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
    assert "codec='q4', *, grads='q8', weights=None" in " ".join(signature[1].split())
    shown = text[signature.end() :].splitlines()
    for name in inspect.signature(redpoll.torch.compress).parameters:
        assert any(line.strip().startswith(f"{name}: ") for line in shown), name
    assert all(len(line) <= 96 for line in shown)


@pytest.mark.parametrize("package", [redpoll, torch_cgx], ids=["redpoll", "torch_cgx"])
def test_only_our_own_code_is_marked(package, monkeypatch) -> None:
    marked = []
    monkeypatch.setattr(_untraced, "_skipper", lambda: marked.append)
    _untraced.keep_untraced(package.__name__)
    place = Path(package.__file__)
    place = place.parent if place.name == "__init__.py" else place
    assert marked
    for code in marked:
        assert Path(code.co_filename).is_relative_to(place), code


def test_what_is_below_a_decorator_is_marked(monkeypatch) -> None:
    marked = []
    monkeypatch.setattr(_untraced, "_skipper", lambda: marked.append)
    _untraced.keep_untraced("redpoll")
    staged = vars(_buffers.Buffers)["_staged"]
    assert staged.__wrapped__.__code__ in marked
    # Older releases of PyTorch have one code object for all wrappers of no_grad().
    assert staged.__code__ not in marked
    assert torch.no_grad()(lambda: None).__code__ not in marked
