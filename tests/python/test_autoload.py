"""What PyTorch does by itself where the package is installed: its entry points, as the wheel
has them, in a folder on the path."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from ranks import run_script

FINDS_BACKENDS = hasattr(dist.Backend, "_ensure_backend_registered")
AUTOLOADS = hasattr(torch, "_import_device_backends")

pytestmark = pytest.mark.skipif(not AUTOLOADS, reason="this PyTorch runs no entry points")


def outputs(
    text: str, at_import: dict[str, str], world: int = 2, modules: tuple[str, ...] = ()
) -> list[str]:
    done = run_script(text, world, at_import=at_import, modules=modules)
    assert all(one.returncode == 0 for one in done), [one.stderr for one in done]
    # Gloo of older releases prints there whom it is connected to.
    lines = (
        [it for it in one.stdout.splitlines() if not it.startswith("[Gloo]")] for one in done
    )
    return ["\n".join(it).strip() for it in lines]


ASKS_BY_NAME = """
import torch, torch.distributed as dist
dist.init_process_group("{name}")
tensor = torch.ones(3)
dist.all_reduce(tensor)
side = dist.new_group(backend="{name}")
dist.all_reduce(tensor, group=side)
print(dist.get_backend(side), type(dist.group.WORLD).__name__, tensor[0].item())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("name", ["redpoll", "cpu:redpoll"])
def test_the_backend_is_found_without_an_import(installed, name) -> None:
    for said in outputs(ASKS_BY_NAME.replace("{name}", name), installed):
        assert "RedpollGroup 4.0" in said, said


def test_importing_torch_imports_nothing_of_ours(installed) -> None:
    text = """
import sys, torch
print([name for name in sys.modules if name.startswith("redpoll.torch")])
print(torch.distributed.init_process_group.__module__)
"""
    (said,) = outputs(text, installed, 1)
    assert said.splitlines()[0] == "[]"


SAYS_GLOO = """
import torch, torch.distributed as dist
from torch.distributed import init_process_group
{start}
tensor = torch.ones(3)
dist.all_reduce(tensor)
side = dist.new_group(backend="gloo")
dist.all_reduce(tensor, group=side)
print(type(dist.group.WORLD).__name__, type(side).__name__, tensor[0].item())
dist.destroy_process_group()
"""

STARTS = {
    "by position": 'init_process_group("gloo")',
    "by name": 'dist.init_process_group(backend="gloo")',
    "as a Backend": "dist.init_process_group(dist.Backend.GLOO)",
    "by device": 'dist.init_process_group("cpu:gloo")',
    "by default": "dist.init_process_group()",
    "by a mesh": 'dist.device_mesh.init_device_mesh("cpu", (1,))',
}


@pytest.mark.parametrize("start", STARTS)
def test_a_script_that_says_gloo_runs_over_redpoll(installed, start) -> None:
    text = SAYS_GLOO.replace("{start}", STARTS[start])
    (said,) = outputs(text, {**installed, "REDPOLL_INSTEAD_OF": "gloo"}, 1)
    assert said == "RedpollGroup RedpollGroup 1.0"


def test_without_the_variable_gloo_is_gloo(installed) -> None:
    text = SAYS_GLOO.replace("{start}", STARTS["by position"])
    (said,) = outputs(text, installed, 1)
    assert said == "ProcessGroup ProcessGroup 1.0"


def test_a_backend_that_cannot_be_replaced_is_told(installed) -> None:
    text = """
import torch, torch.distributed as dist
try:
    dist.init_process_group("gloo")
except ValueError as error:
    print(error)
"""
    (said,) = outputs(text, {**installed, "REDPOLL_INSTEAD_OF": "glue"}, 1)
    assert "REDPOLL_INSTEAD_OF='glue'" in said and "gloo" in said


COMPRESSES = """
import torch, torch.distributed as dist
{imports}
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("{name}")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(200, 200))
torch.manual_seed(dist.get_rank())
model(torch.randn(4, 200)).square().sum().backward()
import redpoll.torch
hooks = [hook.__name__ for hook, _ in getattr(model, "_comm_hooks", [])]
ratio = max([one.ratio for one in redpoll.torch.stats().values()], default=0.0)
print(hooks, ratio > 1.2)  # the model itself was broadcast exact
del model  # threads of gloo that outlive its group end some processes by SIGABRT
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "name, imports, expected",
    [
        ("redpoll", "", "['compress_hook'] True"),
        ("redpoll", "import redpoll.torch", "['compress_hook'] True"),
        ("gloo", "", "[] False"),
    ],
)
def test_models_are_compressed_as_a_variable_says(installed, name, imports, expected) -> None:
    text = COMPRESSES.replace("{name}", name).replace("{imports}", imports)
    at_import = {**installed, "REDPOLL_COMPRESS": "q4"}
    for said in outputs(text, at_import, modules=("torch._dynamo",)):
        assert said == expected


def test_a_codec_that_is_none_is_told(installed) -> None:
    text = COMPRESSES.replace("{name}", "redpoll").replace("{imports}", "")
    at_import = {**installed, "REDPOLL_COMPRESS": "q99"}
    for done in run_script(text, 2, at_import=at_import, modules=()):
        assert done.returncode != 0 and "REDPOLL_COMPRESS='q99'" in done.stderr
