"""torch_cgx and cgx_utils: scripts written for them run unchanged."""

from __future__ import annotations

import copy
import os

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import cgx_utils
import torch_cgx  # registers the backend, also in the ranks, which import this module
from ranks import run_group, run_ranks, run_script, values

BITS = {"CGX_COMPRESSION_QUANTIZATION_BITS": "4"}

SCRIPT = """
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
import torch_cgx
from cgx_utils import cgx_hook, CGXState

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group(backend="cgx", init_method="env://", rank=rank, world_size=world)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
model = DistributedDataParallel(net)
state = CGXState(torch.distributed.group.WORLD, layer_min_size=1024,
                 compression_params={"bits": 4, "bucket_size": 1024})
model.register_comm_hook(state, cgx_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()
generator = torch.Generator().manual_seed(rank)
losses = []
for step in range(30):
    data = torch.randn(32, 64, generator=generator)
    target = data[:, :10].argmax(1)
    optimizer.zero_grad()
    loss = criterion(model(data), target)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
dist.barrier()
flat = torch.cat([p.detach().view(-1) for p in net.parameters()])
print("RESULT", losses[0], sum(losses[-5:]) / 5, flat.double().sum().item())
dist.destroy_process_group()
"""


@pytest.mark.host
def test_a_training_script_runs_unchanged():
    done = run_script(SCRIPT, 2, timeout=120)
    assert [one.returncode for one in done] == [0, 0], done[0].stderr + done[1].stderr
    lines = [
        line.split() for one in done for line in one.stdout.splitlines() if "RESULT" in line
    ]
    assert len(lines) == 2
    for _, first, last, _ in lines:
        assert float(last) < 0.6 * float(first)
    assert lines[0][3] == lines[1][3], "replicas differ"


# ---- the hook ----


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 64)
        self.long = nn.Parameter(torch.zeros(5000))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(torch.relu(self.body(x))) + self.long.sum()


def hook_errors(rank, world, params, later):
    """How far each gradient of a step is from the exact mean."""
    torch.manual_seed(1)
    net = Net()
    model = DDP(net)
    state = cgx_utils.CGXState(None, layer_min_size=1024, compression_params=params)
    model.register_comm_hook(state, cgx_utils.cgx_hook)
    answers = []
    for step in range(3):
        net.zero_grad()
        x = torch.randn(8, 64, generator=torch.Generator().manual_seed(rank + 10 * step))
        model(x).square().sum().backward()
        twin = copy.deepcopy(net)
        twin.zero_grad()
        twin(x).square().sum().backward()
        errors = {}
        for name, one in twin.named_parameters():
            exact = one.grad.double() / world
            dist.all_reduce(exact)
            ours = net.get_parameter(name).grad
            errors[name] = ((ours - exact).norm() / exact.norm()).item()
        answers.append(errors)
        if step == 1 and later:
            for index, layer in torch_cgx._layers[0].items():
                torch_cgx.set_quantization_bits(0, index, later)
                assert torch_cgx._layers[0][index].numel == layer.numel
    return answers


@pytest.mark.parametrize(
    "params, environment, later",
    [
        ({"bits": 4, "bucket_size": 1024}, {}, None),
        ({"bits": 4}, {"CGX_COMPRESSION_BUCKET_SIZE": "64"}, None),
        ({}, BITS, None),
        (None, BITS, 8),
        (
            {"bits": 4, "bucket_size": 1000},
            {"CGX_COMPRESSION_SKIP_INCOMPLETE_BUCKETS": "1"},
            32,
        ),
    ],
)
def test_the_hook_averages_matrices_lossy_and_the_rest_exact(params, environment, later):
    answers = values(
        run_group(hook_errors, 2, params, later, backend="cgx", environment=environment)
    )
    for errors in answers[0]:
        for name in ("body.bias", "head.weight", "head.bias", "long"):
            assert errors[name] < 1e-5, name
    first, _, last = (errors["body.weight"] for errors in answers[0])
    assert 0.01 < first < 0.4
    if later is None:
        assert 0.01 < last < 0.4
    else:
        assert last < (1e-5 if later == 32 else 0.03)


def hook_exact(rank, world):
    return hook_errors(rank, world, None, None)[0]


def test_without_bits_the_hook_is_exact():
    for errors in values(run_group(hook_exact, 2, backend="cgx")):
        assert max(errors.values()) < 1e-5


# ---- all-reduces without a hook ----


def error_of(tensor):
    """Of an all-reduce of this tensor, element by element."""
    each = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(each, tensor)
    exact = torch.stack([one.double() for one in each]).sum(0)
    dist.all_reduce(tensor)
    return (tensor.double() - exact).abs().view(-1)


def reduce_all(rank, world):
    torch.manual_seed(rank)
    told = {
        "float": error_of(torch.randn(5000)).max().item(),
        "half": error_of(torch.randn(5000).half()).max().item(),
        "integers": error_of(torch.arange(5000)).max().item(),
        "double": error_of(torch.randn(5000, dtype=torch.float64)).max().item(),
        "small": error_of(torch.randn(16)).max().item(),
        "just above": error_of(torch.randn(17)).max().item(),
    }
    os.environ["CGX_COMPRESSION_QUANTIZATION_BITS"] = "8"
    told["eight"] = error_of(torch.randn(5000)).max().item()
    os.environ["CGX_COMPRESSION_BUCKET_SIZE"] = "16"
    told["narrow"] = error_of(torch.randn(5000)).max().item()
    os.environ["CGX_COMPRESSION_QUANTIZATION_BITS"] = "32"
    told["off"] = error_of(torch.randn(5000)).max().item()
    os.environ["CGX_COMPRESSION_QUANTIZATION_BITS"] = "2"
    os.environ["CGX_COMPRESSION_BUCKET_SIZE"] = "512"
    os.environ["CGX_COMPRESSION_SKIP_INCOMPLETE_BUCKETS"] = "1"
    error = error_of(torch.randn(1100))
    told["whole"], told["tail"] = error[:1024].max().item(), error[1024:].max().item()
    del os.environ["CGX_COMPRESSION_SKIP_INCOMPLETE_BUCKETS"]

    torch_cgx.register_layer(3, 0, 600, 2, 64)
    torch_cgx.register_layer(3, 1, 50, 32, 64)
    torch_cgx.register_layer(3, 2, 777, 8, 64)
    scaled = torch.cat([1000 * torch.randn(600), torch.randn(50), torch.randn(777)])
    error = error_of(scaled)
    told["layers"] = [part.max().item() for part in error.split([600, 50, 777])]
    torch_cgx.set_quantization_bits(3, 0, 32)
    error = error_of(torch.randn(1427))
    told["set"] = [part.max().item() for part in error.split([600, 50, 777])]
    torch_cgx.register_layer(4, 0, 1427, 2, 64)
    with pytest.raises(ValueError, match="buckets 3 and 4"):
        dist.all_reduce(torch.randn(1427))
    return told


def test_all_reduces_follow_variables_and_layers_at_every_call():
    for told in values(run_group(reduce_all, 2, backend="cgx", environment=BITS)):
        assert 0.1 < told["float"] < 1 and 0.1 < told["half"] < 1
        assert told["integers"] == 0 and told["double"] < 1e-12 and told["small"] < 1e-6
        assert told["just above"] > 1e-4
        assert 1e-3 < told["eight"] < 0.06
        assert told["narrow"] < told["eight"]
        assert told["off"] < 1e-6
        assert told["whole"] > 0.1 and told["tail"] < 1e-6
        coarse, exact, fine = told["layers"]
        assert coarse > 100 and exact < 1e-5 and 1e-4 < fine < 0.06
        coarse, exact, fine = told["set"]
        assert coarse < 1e-5 and exact < 1e-5 and 1e-4 < fine < 0.06


def groups_again_and_again(rank, world):
    for _ in range(10):
        group = dist.new_group(backend="cgx")
        tensor = torch.ones(100)
        dist.all_reduce(tensor, group=group)
        assert tensor[0] == 2
        dist.destroy_process_group(group)
    return True


def test_groups_are_made_and_destroyed():
    assert all(values(run_group(groups_again_and_again, 2, backend="cgx", environment=BITS)))


# ---- what is refused ----


def start(rank, world):
    try:
        dist.init_process_group("cgx", store=dist.HashStore(), rank=0, world_size=1)
    except Exception as error:
        return str(error)
    return ""


HOSTS = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    "environment, said",
    [
        ({}, ""),
        (BITS, ""),
        ({"CGX_COMPRESSION_QUANTIZATION_BITS": "9"}, "CGX_COMPRESSION_QUANTIZATION_BITS is 9"),
        ({"CGX_COMPRESSION_QUANTIZATION_BITS": "four"}, "'four' is no number"),
        ({"CGX_COMPRESSION_BUCKET_SIZE": "0"}, "CGX_COMPRESSION_BUCKET_SIZE is 0"),
        ({"CGX_COMPRESSION_MINIMAL_SIZE": "-1"}, "CGX_COMPRESSION_MINIMAL_SIZE"),
        ({"CGX_COMPRESSION_SKIP_INCOMPLETE_BUCKETS": "2"}, "SKIP_INCOMPLETE_BUCKETS=2"),
        ({"CGX_FUSION_BUFFER_SIZE_MB": "64"}, ""),
        ({"CGX_FUSION_BUFFER_SIZE_MB": "0"}, "CGX_FUSION_BUFFER_SIZE_MB is 0"),
        ({"CGX_INNER_COMMUNICATOR_TYPE": "SHM"}, ""),
        ({"CGX_INNER_COMMUNICATOR_TYPE": "NCCL"}, "CGX_INNER_COMMUNICATOR_TYPE=NCCL"),
        ({"CGX_INNER_COMMUNICATOR_TYPE": "MPI"}, "CGX_INNER_COMMUNICATOR_TYPE=MPI"),
        ({"CGX_CROSS_COMMUNICATOR_TYPE": "MPI"}, ""),
        ({"CGX_CROSS_COMMUNICATOR_TYPE": "NCCL"}, "CGX_CROSS_COMMUNICATOR_TYPE=NCCL"),
        ({"CGX_INTRA_BROADCAST": "0"}, ""),
        ({"CGX_INTRA_BROADCAST": "x"}, "CGX_INTRA_BROADCAST=x"),
        ({"CGX_INNER_REDUCTION_TYPE": "Ring"}, ""),
        ({"CGX_INNER_REDUCTION_TYPE": "Tree"}, "CGX_INNER_REDUCTION_TYPE=Tree"),
        ({"CGX_CROSS_REDUCTION_TYPE": "SRA"}, ""),
        ({"CGX_CROSS_REDUCTION_TYPE": "Ring", **HOSTS}, "CGX_CROSS_REDUCTION_TYPE=ring"),
        ({"CGX_INTRA_COMPRESS": "0"}, ""),
        ({"CGX_INTRA_COMPRESS": "0", **HOSTS}, "CGX_INTRA_COMPRESS=0"),
    ],
    ids=lambda value: (
        "+".join(f"{k[4:]}={v}" for k, v in value.items()) if isinstance(value, dict) else ""
    ),
)
@pytest.mark.host
def test_variables_are_honoured_or_refused_by_name(environment, said):
    (text,) = values(run_ranks(start, 1, environment=environment))
    assert said in text and bool(said) == bool(text)


@pytest.mark.host
def test_calls_with_numbers_out_of_range():
    for call in (
        lambda: torch_cgx.register_layer(0, 0, 100, 9, 512),
        lambda: torch_cgx.register_layer(0, 0, 100, 4, 0),
        lambda: torch_cgx.register_layer(0, 0, 0, 4, 512),
        lambda: torch_cgx.set_quantization_bits(77, 0, 4),
        lambda: torch_cgx.set_quantization_bucket_size(77, 0, 512),
        lambda: cgx_utils.CGXState(None, compression_params={"bits": 9}),
        lambda: cgx_utils.CGXState(None, compression_params={"bitz": 4}),
    ):
        with pytest.raises(ValueError):
            call()
