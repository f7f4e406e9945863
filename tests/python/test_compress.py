"""compress() of DDP models: what arrives, what is held back, what survives."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import logging
import math
import os
import resource

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel as DDP

from ranks import refusal, run_group, values

MIN_SIZE = 500  # the models here are small


class Net(nn.Module):
    """Two branches, of which a step may use one; a matrix, a vector and a scalar each."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.stem = nn.Linear(32, 64, dtype=dtype)
        self.left = nn.Linear(64, 64, dtype=dtype)
        self.right = nn.Linear(64, 64, dtype=dtype)
        self.head = nn.Linear(64, 10, dtype=dtype)
        self.scale = nn.Parameter(torch.ones((), dtype=dtype))

    def forward(self, x, branch="both"):
        x = torch.relu(self.stem(x))
        if branch in ("left", "both"):
            x = x + torch.relu(self.left(x))
        if branch in ("right", "both"):
            x = x + torch.relu(self.right(x))
        return self.head(x) * self.scale


def digest(model):
    """Of all bits of the parameters."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(parameter.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def batch(rank, step, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(16, 32, generator=generator)
    teacher = torch.randn(32, 10, generator=torch.Generator().manual_seed(7))
    return x.to(dtype), (x @ teacher).argmax(1)


def loss_of(model, rank, step, dtype=torch.float32, **options):
    x, y = batch(rank, step, dtype)
    return nn.functional.cross_entropy(model(x, **options).float(), y)


# ---- conservation, under everything that DDP may do ----

CASES = {
    "plain": {},
    "small buckets": {"ddp": {"bucket_cap_mb": 0.01}},
    "static graph": {"ddp": {"static_graph": True}},
    "views": {"ddp": {"gradient_as_bucket_view": True}},
    "unused on all ranks": {
        "ddp": {"find_unused_parameters": True},
        "branch": lambda rank, step: ("left", "right")[step % 2],
    },
    "unused on some ranks": {
        "ddp": {"find_unused_parameters": True, "bucket_cap_mb": 0.01},
        "branch": lambda rank, step: ("left", "right", "both")[(step + rank) % 3],
    },
    "accumulation": {"micro": 3},
    "channels last": {"conv": True},
    "bf16": {"dtype": torch.bfloat16, "tolerance": 0.05},
    "stochastic": {"codec": "q4:bucket=128,rounding=stochastic"},
    "two bits": {"codec": "q2:bucket=64"},
    "one bit": {"codec": "q1"},
    "half": {"codec": "fp16", "held": 1e-7},
    "largest": {"codec": "topk:k=8,bucket=256,values=q6"},
    "random places": {"codec": "randk:k=16,bucket=256"},
    "signs": {"codec": "sign:bucket=128"},
    "warm-up": {"warmup": 3},
}


class ConvNet(Net):
    def __init__(self, dtype=torch.float32):
        super().__init__(dtype)
        self.stem = nn.Sequential(
            nn.Unflatten(1, (8, 2, 2)), nn.Conv2d(8, 16, 3, padding=1), nn.Flatten()
        )
        self.to(memory_format=torch.channels_last)


def conserve(rank, world, name):
    """Ten steps; returns how far (what arrived + what is held back) is from the exact means."""
    import redpoll.torch

    case = CASES[name]
    dtype = case.get("dtype", torch.float32)
    torch.manual_seed(0)
    net = (ConvNet if case.get("conv") else Net)(dtype)
    model = DDP(net, **case.get("ddp", {}))
    state = redpoll.torch.compress(
        model,
        case.get("codec", "q4"),
        min_size=MIN_SIZE,
        warmup_steps=case.get("warmup", 0),
    )
    branch = case.get("branch", lambda rank, step: "both")
    arrived = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in net.named_parameters()}
    wanted = copy.deepcopy(arrived)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(10):
        exact = exact_means(net, rank, step, dtype, branch, case.get("micro", 1))
        optimizer.zero_grad(set_to_none=True)
        for micro in range(case.get("micro", 1)):
            last = micro == case.get("micro", 1) - 1
            with contextlib.nullcontext() if last else model.no_sync():
                here = branch(rank, step)
                loss_of(model, rank, 100 * micro + step, dtype, branch=here).backward()
        for one, parameter in net.named_parameters():
            if parameter.grad is not None:
                arrived[one] += parameter.grad
            wanted[one] += exact[one]
        optimizer.step()
    assert state.step == 10
    worst, held_most = 0.0, 0.0
    for one in arrived:
        held = state.residual(one)
        held = torch.zeros_like(arrived[one]) if held is None else held.double()
        dist.all_reduce(held)
        off = (arrived[one] + held - wanted[one]).abs().max().item()
        worst = max(worst, math.inf if math.isnan(off) else off)
        held_most = max(held_most, held.abs().max().item())
    return worst, held_most, digest(net)


def exact_means(net, rank, step, dtype, branch, micros):
    """The mean over ranks of gradients of the same model, computed without DDP."""
    twin = copy.deepcopy(net)
    twin.zero_grad(set_to_none=True)
    for micro in range(micros):
        loss_of(twin, rank, 100 * micro + step, dtype, branch=branch(rank, step)).backward()
    means = {}
    for name, parameter in twin.named_parameters():
        grad = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        means[name] = grad.double() / dist.get_world_size()
        dist.all_reduce(means[name])
    return means


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_lost(name):
    answers = values(run_group(conserve, 2 if "all ranks" in name else 3, name))
    worst, held, _ = answers[0]
    assert worst < CASES[name].get("tolerance", 2e-5)
    assert held > CASES[name].get("held", 1e-4), (
        "nothing was held back: was anything compressed?"
    )
    assert len({bits for _, _, bits in answers}) == 1, "replicas differ"


# ---- training ----


def train(rank, world, codec, error_feedback, seed=1, steps=60, warmup=0):
    """Returns the loss on everybody's data at the end, and the bits of the model."""
    import redpoll.torch

    torch.manual_seed(seed)
    model = DDP(Net(), bucket_cap_mb=0.02)
    if codec is not None:
        redpoll.torch.compress(
            model,
            codec,
            min_size=MIN_SIZE,
            error_feedback=error_feedback,
            warmup_steps=warmup,
        )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, rank, step % 8).backward()
        optimizer.step()
    with torch.no_grad():
        losses = [loss_of(model.module, r, s).item() for r in range(world) for s in range(8)]
    return sum(losses) / len(losses), digest(model)


def final_loss(codec, error_feedback):
    """The mean of three starts: one start's loss depends on the processor's rounding, too."""
    losses = []
    for seed in (1, 2, 3):
        answers = values(run_group(train, 2, codec, error_feedback, seed))
        assert len({bits for _, bits in answers}) == 1, "replicas differ"
        losses.append(answers[0][0])
    return sum(losses) / len(losses)


@pytest.mark.host
def test_error_feedback_trains_as_exact_and_two_bits_without_it_do_not():
    exact = final_loss(None, False)
    four, two, bare = final_loss("q4", True), final_loss("q2", True), final_loss("q2", False)
    print(f"exact {exact:.4f}, q4 {four:.4f}, q2 {two:.4f}, q2 without feedback {bare:.4g}")
    assert exact < 0.5, "the exact run has not learned; the test says nothing"
    assert abs(four - exact) < 0.15 * exact
    assert abs(two - exact) < 0.5 * exact
    assert not bare < 3 * exact  # it diverges, up to NaN


def one_step(rank, world, codec):
    import redpoll.torch

    torch.manual_seed(1)
    model = DDP(Net())
    if codec:
        redpoll.torch.compress(model, codec, min_size=MIN_SIZE)
    loss_of(model, rank, 0).backward()
    return [parameter.grad.numpy() for parameter in model.parameters()]


def test_the_exact_codec_is_ddps_own_mean():
    plain = values(run_group(one_step, 2, None))
    exact = values(run_group(one_step, 2, "exact"))
    for ours, theirs in zip(exact, plain):
        assert all((a == b).all() for a, b in zip(ours, theirs))


# ---- state ----


def training_run(rank, world, folder, first, last, **options):
    """Steps first ... last - 1 of one training, from the files in `folder` and into them."""
    import redpoll.torch

    torch.manual_seed(2)
    model = DDP(Net(), bucket_cap_mb=0.02)
    options = {"min_size": MIN_SIZE, "warmup_steps": 2, **options}
    state = redpoll.torch.compress(model, "q3:bucket=64,rounding=stochastic", **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if first:
        state.load(f"{folder}/{first}")
        saved = torch.load(f"{folder}/{first}/model.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    for step in range(first, last):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    state.save(f"{folder}/{last}")
    if rank == 0:
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(saved, f"{folder}/{last}/model.pt")
    dist.barrier()
    return digest(model), state.step, held_by(state)


# ---- a GradScaler ----

SKIPPED_STEPS = (4, 7, 8)


def scaled_run(rank, world, scales, tell=True, ddp=None):
    """Parameters and residuals after each step, in units of the unscaled loss; the scales."""
    import redpoll.torch

    torch.manual_seed(2)
    model = DDP(Net(), bucket_cap_mb=0.02, **(ddp or {}))
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=2.0**9, growth_interval=2, backoff_factor=0.25, enabled=scales
    )
    options = {"min_size": MIN_SIZE, "warmup_steps": 1}
    options.update({"grad_scaler": scaler} if scales and tell else {})
    state = redpoll.torch.compress(model, "q3:bucket=64", **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    told = []
    for step in range(12):
        state.enabled = step not in (6, 7)  # exact steps pay residuals out
        if step in SKIPPED_STEPS and not scales:
            continue
        optimizer.zero_grad()
        loss = loss_of(model, rank, step)
        if step in SKIPPED_STEPS and rank == step % world:
            loss = loss * float("inf")
        scale = scaler.get_scale()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        held = {name: one / scale for name, one in held_by(state).items()}
        if step not in SKIPPED_STEPS:
            told.append((digest(model), held, scale))
    moved = move_to_a_run_without(model, state, rank)
    return told, moved


def move_to_a_run_without(model, state, rank):
    """One more step, with the state loaded where no loss is scaled."""
    import redpoll.torch

    other = DDP(copy.deepcopy(model.module), bucket_cap_mb=0.02)
    unscaled = redpoll.torch.compress(other, "q3:bucket=64", min_size=MIN_SIZE)
    unscaled.load_state_dict(state.state_dict())
    loss_of(other, rank, 20).backward()
    return {name: one.grad.numpy().copy() for name, one in other.module.named_parameters()}


def same(one, other):
    return one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)


@pytest.mark.parametrize("ddp", [{}, {"find_unused_parameters": True}])
def test_a_changing_loss_scale_changes_no_bit(ddp):
    """Also not steps that are skipped, of which those of one rank alone are not finite."""
    plain = values(run_group(scaled_run, 2, False, True, ddp))
    scaled = values(run_group(scaled_run, 2, True, True, ddp))
    for (unscaled, moved), (steps, moved_too) in zip(plain, scaled):
        scales = [scale for *_, scale in steps]
        assert len(unscaled) == len(steps)
        assert len(set(scales)) > 3 and max(scales) > scales[0] > min(scales)
        for (bits, held, _), (bits_too, held_too, _) in zip(unscaled, steps):
            assert bits == bits_too and same(held, held_too)
        assert same(moved, moved_too)


def run_untold(rank, world):
    """What the log says where compress() does not know of the scaler."""
    messages = []
    logging.getLogger("redpoll").addHandler(handler := logging.Handler())
    handler.emit = lambda record: messages.append(record.getMessage())
    scaled_run(rank, world, False)
    assert not messages
    scaled_run(rank, world, True, tell=False)
    return messages


@pytest.mark.host
def test_a_scaler_that_nobody_told_of_is_a_warning():
    for messages in values(run_group(run_untold, 2)):
        assert sum("compress(grad_scaler=...)" in one for one in messages) == 1


def held_by(state):
    """What is held back here, by name, as arrays: tensors cannot leave a process that ends."""
    return {name: held.numpy().copy() for name, held in state.state_dict()["residuals"].items()}


def test_a_restart_is_the_uninterrupted_run_bit_for_bit(tmp_path):
    through = values(run_group(training_run, 2, str(tmp_path / "a"), 0, 9))
    values(run_group(training_run, 2, str(tmp_path / "b"), 0, 5))
    resumed = values(run_group(training_run, 2, str(tmp_path / "b"), 5, 9))
    for (bits, step, held), (bits_too, step_too, held_too) in zip(through, resumed):
        assert step == step_too == 9
        assert bits == bits_too
        assert held.keys() == held_too.keys()
        assert all((held[name] == held_too[name]).all() for name in held)


def resumed_elsewhere(rank, world, folder):
    import redpoll.torch

    torch.manual_seed(2)
    model = DDP(Net())
    state = redpoll.torch.compress(model, "q4", min_size=MIN_SIZE)
    state.load(folder)
    held = held_by(state)
    for residual in held.values():
        dist.all_reduce(torch.from_numpy(residual))
    loss_of(model, rank, 0).backward()
    return state.step, held


@pytest.mark.parametrize("old, new", [(2, 3), (3, 2), (3, 1), (1, 2)])
def test_another_world_takes_over_what_was_held_back(tmp_path, old, new):
    before = values(run_group(training_run, old, str(tmp_path), 0, 4))
    after = values(run_group(resumed_elsewhere, new, str(tmp_path / "4")))
    for step, held in after:
        assert step == 5
        for name in held:
            total = sum(one[2][name] for one in before)
            assert abs(held[name] - total).max() < 1e-6
    assert old == 1 or max(abs(one).max() for one in after[0][1].values()) > 1e-4


def load_errors(rank, world):
    import redpoll.torch

    def state_of(model, **options):
        return redpoll.torch.compress(DDP(model), min_size=MIN_SIZE, **options)

    state = state_of(Net())
    saved = state.state_dict()
    renamed = copy.deepcopy(saved)
    renamed["residuals"]["old.weight"] = renamed["residuals"].pop("left.weight")
    misshapen = copy.deepcopy(saved)
    misshapen["residuals"]["left.weight"] = torch.zeros(3)
    other_rank = {**saved, "rank": 1 - rank}
    texts = []
    partial = {key: saved[key] for key in ("format", "version", "step")}
    for bad in (renamed, misshapen, other_rank, {}, partial):
        with pytest.raises(ValueError) as caught:
            state.load_state_dict(bad)
        texts.append(str(caught.value))
    report = state.load_state_dict(renamed, strict=False)
    with pytest.raises(ValueError, match="error_feedback is False"):
        state_of(Net(), error_feedback=False).load_state_dict(saved, strict=False)
    with pytest.raises(FileNotFoundError):
        state.load("/nowhere")
    return texts, report


@pytest.mark.host
def test_states_that_do_not_fit_are_told_apart():
    texts, report = values(run_group(load_errors, 2))[0]
    assert "no residual of left.weight" in texts[0] and "old.weight" in texts[0]
    assert "left.weight: [3], not [64, 64]" in texts[1]
    assert "pass this rank's own state" in texts[2]
    assert "no state of compress" in texts[3]
    assert "lacks rank, world, buckets, residuals" in texts[4]
    assert report.missing == ["left.weight"] and report.unexpected == ["old.weight"]


class Grown(Net):
    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(10, 64)

    def forward(self, x, branch="both"):
        return super().forward(x, branch) + self.extra(super().forward(x, branch))[:, :10]


def grow(rank, world):
    import redpoll.torch

    torch.manual_seed(3)
    model = DDP(Net())
    state = redpoll.torch.compress(model, min_size=MIN_SIZE)
    for step in range(3):
        loss_of(model, rank, step).backward()
    saved = state.state_dict()
    grown = DDP(Grown())
    after = redpoll.torch.compress(grown, min_size=MIN_SIZE)
    report = after.load_state_dict(saved, strict=False)
    kept = all(
        torch.equal(after.residual(name), saved["residuals"][name])
        for name in saved["residuals"]
    )
    loss_of(grown, rank, 4).backward()
    return kept, report.missing, after.step


def test_parameters_that_are_added_later_keep_what_others_hold():
    for kept, missing, step in values(run_group(grow, 2)):
        assert kept and missing == ["extra.weight"] and step == 4


def through_bytes(rank, world):
    import torch.distributed.checkpoint as checkpoint

    import redpoll.torch

    def fresh():
        torch.manual_seed(3)
        model = DDP(Net())
        return model, redpoll.torch.compress(model, min_size=MIN_SIZE)

    model, state = fresh()
    for step in range(3):
        loss_of(model, rank, step).backward()
    file = io.BytesIO()
    torch.save(state.state_dict(), file)
    file.seek(0)
    _, again = fresh()
    again.load_state_dict(torch.load(file, weights_only=True))
    same = all(
        torch.equal(again.residual(name), state.residual(name)) for name in state.residuals
    )

    folder = [None]
    if rank == 0:
        import tempfile

        folder = [tempfile.mkdtemp(prefix="redpoll-test-")]
    dist.broadcast_object_list(folder, src=0)
    key = f"redpoll.{rank}"
    checkpoint.save({key: state.state_dict()}, checkpoint_id=folder[0])
    _, third = fresh()
    loaded = {key: third.state_dict()}
    checkpoint.load(loaded, checkpoint_id=folder[0])
    third.load_state_dict(loaded[key])
    same_too = all(
        torch.equal(third.residual(name), state.residual(name)) for name in state.residuals
    )
    dist.barrier()
    if rank == 0:
        import shutil

        shutil.rmtree(folder[0])
    return same, same_too, again.step, third.step


def copy_the_model(rank, world):
    import redpoll.torch

    model = DDP(Net())
    state = redpoll.torch.compress(model, min_size=MIN_SIZE)
    loss_of(model, rank, 0).backward()
    average = torch.optim.swa_utils.AveragedModel(model)
    loss_of(model, rank, 1).backward()
    average.update_parameters(model)
    assert state.step == 2
    return refusal(TypeError, lambda: torch.save(model, io.BytesIO()))


def test_a_model_can_be_copied_for_averaging():
    assert "model.module" in values(run_group(copy_the_model, 2))[0]


def damaged_files(rank, world, folder):
    import redpoll.torch

    state = redpoll.torch.compress(DDP(Net()), min_size=MIN_SIZE)
    whole = state.save(folder / "whole")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    full = [
        refusal(OSError, lambda: state.save(folder / "full")),
        refusal(OSError, lambda: state.save(folder / "whole")),
    ]
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    dist.barrier()
    left = [one.name for one in (folder / "full").iterdir()]
    state.load(folder / "whole")  # the earlier save
    dist.barrier()
    os.truncate(whole, 1000)
    dist.barrier()
    cut = refusal(ValueError, lambda: state.load(folder / "whole"))
    return full, left, cut, refusal(ValueError, lambda: state.load_state_dict([]))


@pytest.mark.host
def test_files_that_cannot_be_written_or_read_are_named(tmp_path):
    answers = values(run_group(damaged_files, 2, tmp_path))
    for rank, (full, left, cut, none) in enumerate(answers):
        assert all(text.startswith("rank 1 cannot write") for text in full)
        assert "redpoll-rank-00001-of-00002.pt" in full[0] and "bytes free" in full[0]
        assert left == []
        assert f"redpoll-rank-0000{rank}-of-00002.pt cannot be read" in cut
        assert "no state" in none


def test_state_goes_through_torch_save_and_distributed_checkpoint():
    for answer in values(run_group(through_bytes, 2)):
        assert answer == (True, True, 3, 3)


# ---- changes at run time ----


def change(rank, world):
    import redpoll.torch

    torch.manual_seed(4)
    net = Net()
    model = DDP(net)
    state = redpoll.torch.compress(model, "q4", min_size=MIN_SIZE, rules={"head.*": None})
    said = [
        state.codecs()["left.weight"],
        state.codecs()["head.weight"],
        state.codecs()["left.bias"],
    ]

    def step(number):
        model.zero_grad()
        exact = exact_means(net, rank, number, torch.float32, lambda *_: "both", 1)
        loss_of(model, rank, number).backward()
        return max((net.get_parameter(n).grad - exact[n]).abs().max().item() for n in exact)

    lossy = step(0)
    state.enabled = False
    flush, exact = step(1), step(2)
    state.enabled = True
    state.set_codec("q2")
    said.append(state.codecs()["left.weight"])
    coarse = step(3)
    with pytest.raises(ValueError, match="q99"):
        state.set_codec("q99")
    with pytest.raises(ValueError, match="nobody"):
        state.set_codec("q4", rules={"nobody.*": None})
    said.append(state.codecs()["left.weight"])
    return lossy, flush, exact, coarse, said, repr(state)


def test_codecs_change_at_run_time():
    lossy, flush, exact, coarse, said, text = values(run_group(change, 2))[0]
    assert lossy > 1e-5 and flush > 1e-6 and exact < 1e-7 and coarse > lossy
    q4, q2 = "q4:bucket=512", "q2:bucket=512"
    assert said == [q4, "exact", "exact", q2, q2]
    assert "q2" in text and "3 of 9" in text


# ---- what cannot be honoured ----


def refusals(rank, world):
    import redpoll.torch

    compress, told = redpoll.torch.compress, {}

    def tell(name, kind, action):
        told[name] = refusal(kind, action)

    hooked = DDP(Net())
    hooked.register_comm_hook(None, lambda state, bucket: None)
    twice = DDP(Net())
    compress(twice)
    builtin = DDP(Net())
    builtin._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    other = dist.new_group(backend="gloo")
    tell("plain", TypeError, lambda: compress(Net()))
    tell("plain grads", TypeError, lambda: compress(Net(), grads="q8"))
    tell("double", TypeError, lambda: compress(DDP(Net(torch.float64)), min_size=10))
    tell("hooked", RuntimeError, lambda: compress(hooked))
    tell("twice", RuntimeError, lambda: compress(twice))
    tell("builtin", RuntimeError, lambda: compress(builtin))
    tell("gloo", RuntimeError, lambda: compress(DDP(Net(), process_group=other)))
    tell("codec", ValueError, lambda: compress(DDP(Net()), "q4:bukket=3"))
    tell("grads", ValueError, lambda: compress(DDP(Net()), grads="q4"))
    tell("nothing", TypeError, lambda: compress(None))
    tell("scaler", TypeError, lambda: compress(DDP(Net()), grad_scaler=1024.0))
    tell("warm-up", ValueError, lambda: compress(DDP(Net()), warmup_steps=-1))
    tell("seed", ValueError, lambda: compress(DDP(Net()), seed="one"))
    tell("rule", ValueError, lambda: compress(DDP(Net()), rules={"haed.weight": None}))
    compress(DDP(Net(torch.float64)), min_size=10, rules={"*": None})
    torch._dynamo.config.optimize_ddp = "python_reducer"
    single = DDP(Net())
    tell("python reducer", RuntimeError, lambda: compress(single))
    torch._dynamo.config.optimize_ddp = True
    return told


@pytest.mark.host
def test_what_cannot_be_honoured_is_an_error():
    told = values(run_group(refusals, 2))[0]
    assert "DistributedDataParallel or FSDP" in told["plain"]
    assert "DistributedDataParallel or FSDP" in told["plain grads"]
    assert "float64" in told["double"] and "stem.weight" in told["double"]
    assert "already" in told["hooked"]
    assert "set_codec" in told["twice"]
    assert "hook" in told["builtin"]
    assert "not redpoll" in told["gloo"]
    assert "bukket" in told["codec"]
    assert "codec=" in told["grads"]
    assert "NoneType" in told["nothing"]
    assert "GradScaler" in told["scaler"]
    assert "optimize_ddp=True" in told["python reducer"]
    assert "warmup_steps" in told["warm-up"]
    assert "seed" in told["seed"]
    assert "haed.weight" in told["rule"] and "head.weight" in told["rule"]


def disagree(rank, world):
    import redpoll.torch

    model = DDP(Net())
    redpoll.torch.compress(model, ("q4", "q8")[rank], min_size=MIN_SIZE)
    with pytest.raises(RuntimeError) as caught:
        loss_of(model, rank, 0).backward()
    return str(caught.value)


def test_ranks_that_disagree_are_told_on_every_rank():
    for text in values(run_group(disagree, 2, destroy=False)):
        assert "all-reduce" in text and "rank 0" in text and "rank 1" in text, text


# ---- uneven inputs, several models, accounts ----


def uneven(rank, world):
    import redpoll.torch

    torch.manual_seed(5)
    model = DDP(Net())
    state = redpoll.torch.compress(model, min_size=MIN_SIZE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with model.join():
        for step in range(3 + 2 * rank):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            optimizer.step()
    return state.step, digest(model)


def test_uneven_inputs_with_join():
    answers = values(run_group(uneven, 2))
    assert {step for step, _ in answers} == {5}
    assert len({bits for _, bits in answers}) == 1


def two_models(rank, world):
    import redpoll.torch

    torch.manual_seed(6)
    models = [DDP(Net()), DDP(Net(), process_group=dist.new_group())]
    states = [
        redpoll.torch.compress(models[0], "q4", min_size=MIN_SIZE),
        redpoll.torch.compress(models[1], "q8", min_size=MIN_SIZE),
    ]
    for step in range(3):
        for model in models:
            loss_of(model, rank, step).backward()
    redpoll.torch.compress(DDP(Net()), "q2", min_size=MIN_SIZE)
    return [state.step for state in states], [digest(model) for model in models]


def test_several_models_in_several_groups():
    answers = values(run_group(two_models, 2))
    assert answers[0] == answers[1] and answers[0][0] == [3, 3]


def accounts(rank, world):
    import redpoll.torch

    model = DDP(nn.Linear(512, 512))
    redpoll.torch.compress(model, "q4")
    redpoll.torch.stats.reset()
    for _ in range(3):
        model(torch.randn(4, 512)).sum().backward()
    stats = redpoll.torch.stats()
    table, plain = str(stats), stats.as_dict()
    redpoll.torch.stats.reset()
    after = redpoll.torch.stats().as_dict()
    return table, plain, after


def test_accounts():
    table, plain, after = values(run_group(accounts, 2))[0]
    assert len(plain) == 1 and len(table.splitlines()) == 2
    (one,) = plain.values()
    assert one["operations"] >= 3 and one["steps"] == 3 and one["world"] == 2
    assert 7 < one["ratio"] < 8
    assert one["wire_bytes_sent"] > 0 and one["encode_s"] > 0 and one["exposed_s"] > 0
    assert next(iter(after.values()))["wire_bytes_sent"] == 0


# ---- with hooks of PyTorch ----


def two_layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 200))


def train_by_hook(rank, world, register, codec):
    """The gradients after four steps, and the ratio."""
    import redpoll.torch

    options = redpoll.torch.Options(codec=codec, codec_min_size=100)
    group = dist.new_group(pg_options=options)
    net = two_layers()
    model = DDP(net, process_group=group)
    if register is not None:
        register(model, net, group)
    redpoll.torch.stats.reset(group)
    torch.manual_seed(rank)
    for _ in range(4):
        model.zero_grad()
        model(torch.randn(8, 300)).square().sum().backward()
    (stats,) = redpoll.torch.stats(group).values()
    return torch.cat([one.grad.flatten() for one in model.parameters()]), stats


def in_halves(wrapper):
    def register(model, net, group):
        import redpoll.torch

        state = redpoll.torch.compress_state(net, codec="q4", group=group)
        model.register_comm_hook(state, wrapper(redpoll.torch.compress_hook))

    return register


def power_sgd(model, net, group):
    state = powerSGD_hook.PowerSGDState(
        group, matrix_approximation_rank=4, start_powerSGD_iter=2
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


HOOKS = {  # how it is registered, the codec of the group, the least ratio, the largest error
    "fp16 around q4": (in_halves(default_hooks.fp16_compress_wrapper), None, 3.5, 0.3),
    "bf16 around q4": (in_halves(default_hooks.bf16_compress_wrapper), None, 3.5, 0.3),
    "PowerSGD": (power_sgd, None, 1.0, 0.99),
    "PowerSGD by q8": (power_sgd, "q8", 3.5, 0.99),
    "PowerSGD by q4": (power_sgd, "q4", 6.5, 0.99),
}


def compose(rank, world):
    exact, _ = train_by_hook(rank, world, None, None)
    found = {}
    for name, (register, codec, _, _) in HOOKS.items():
        gradients, stats = train_by_hook(rank, world, register, codec)
        error = ((gradients - exact).norm() / exact.norm()).item()
        digest = hashlib.sha256(gradients.numpy().tobytes()).hexdigest()
        found[name] = (digest, stats.ratio, error)
    return found


def test_hooks_of_pytorch_compose_with_codecs():
    first, second = values(run_group(compose, 2))
    for name, (_, _, ratio, most) in HOOKS.items():
        assert first[name][0] == second[name][0], name
        assert first[name][1] > ratio * 0.99 and 0 < first[name][2] < most, (name, first[name])


# ---- what one rank saves for all ----


def save_on_rank_0(rank, world, folder, steps):
    """As frameworks do: every rank is asked for its state, and rank 0's is written."""
    import redpoll.torch

    torch.manual_seed(5)
    model = DDP(Net())
    state = redpoll.torch.compress(model, "q2", min_size=MIN_SIZE)
    place = folder / "checkpoint.pt"
    if place.exists():
        saved = torch.load(place, weights_only=True)
        model.load_state_dict(saved["model"])
        state.of_all.load_state_dict(saved["feedback"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = held_by(state) if place.exists() else {}
    for step in range(state.step, state.step + steps):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    found = {"model": model.state_dict(), "feedback": state.of_all.state_dict()}
    if rank == 0:
        torch.save(found, place)
    return digest(model), before, held_by(state), state.step


@pytest.mark.parametrize("world", [2, 3])
def test_what_rank_0_saves_goes_on_everywhere(world, tmp_path):
    through = tmp_path / "through"
    through.mkdir()
    whole = values(run_group(save_on_rank_0, world, through, 4))
    values(run_group(save_on_rank_0, world, tmp_path, 2))
    resumed = values(run_group(save_on_rank_0, world, tmp_path, 2))
    assert [one[0] for one in resumed] == [one[0] for one in whole]  # bit for bit
    assert all(one[3] == 4 for one in resumed)


@pytest.mark.parametrize("world", [1, 3, 4])
def test_what_rank_0_saves_goes_on_in_another_world(world, tmp_path):
    first = values(run_group(save_on_rank_0, 2, tmp_path, 2))
    later = values(run_group(save_on_rank_0, world, tmp_path, 0))
    for name, held in first[0][2].items():
        total = held + first[1][2][name]
        taken = sum(one[1].get(name, 0) for one in later)
        assert abs(taken - total).max() < 1e-6


def confuse_states(rank, world):
    import redpoll.torch

    model = DDP(Net())
    state = redpoll.torch.compress(model, "q2", min_size=MIN_SIZE)
    loss_of(model, rank, 0).backward()
    told = [refusal(ValueError, lambda: state.state_dict(of="rank 0"))]
    newer = {**state.state_dict(of="all"), "version": 9}
    told.append(refusal(ValueError, lambda: state.load_state_dict(newer)))
    objects = [state.state_dict()]
    dist.broadcast_object_list(objects, 0)
    if rank:
        told.append(refusal(ValueError, lambda: state.load_state_dict(objects[0])))
    state.step += rank
    told.append(refusal(ValueError, lambda: state.state_dict(of="all")))
    return told


def test_states_that_cannot_be_are_told():
    first, second = values(run_group(confuse_states, 2))
    assert "'own' and 'all'" in first[0] and "version 9" in first[1]
    assert "state_dict(of='all')" in second[2]
    assert first[-1] == second[-1] and "rank 1 2" in first[-1]


# ---- the hook in PyTorch's own shape ----


def hooked(rank, world, by):
    import redpoll.torch

    torch.manual_seed(5)
    net = Net()
    if by == "compress":
        model = DDP(net, find_unused_parameters=True)
        state = redpoll.torch.compress(model, "q2", min_size=MIN_SIZE)
    else:
        state = redpoll.torch.compress_state(net, "q2", min_size=MIN_SIZE)
        model = DDP(net, find_unused_parameters=True)
        model.register_comm_hook(state, redpoll.torch.compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    again = refusal(RuntimeError, lambda: redpoll.torch.compress(model))
    return digest(model), state.step, again


def test_a_hook_that_is_registered_by_hand_does_the_same():
    wanted = values(run_group(hooked, 2, "compress"))
    found = values(run_group(hooked, 2, "hand"))
    assert [one[:2] for one in found] == [one[:2] for one in wanted]
    assert all("set_codec" in one[2] for one in found)
