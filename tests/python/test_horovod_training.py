"""Training by the interface of Horovod: the optimizer, batch normalisation, ranks that are
lost, the command, and the table of names in docs/horovod.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import horovod.torch as hvd
from horovod.runner import launch
from ranks import refusal, run_group, values


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 40), nn.Linear(40, 2))


def data(rank, world, rows=8):
    """This rank's share of what all have together."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(rows * world, 6, generator=generator)
    y = torch.stack([x.sum(1), x[:, 0] - x[:, 1]], 1)
    return x[rank::world], y[rank::world]


def train(model, optimizer, x, y, steps=4, passes=1):
    for _ in range(steps):
        optimizer.zero_grad()
        for part_x, part_y in zip(x.chunk(passes), y.chunk(passes)):
            (mse_loss(model(part_x), part_y) / passes).backward()
        optimizer.step()
    return [each.detach().clone() for each in model.parameters()]


def alone(world, kind=torch.optim.SGD, **options):
    """One process with everybody's data."""
    model = net()
    x, y = data(0, 1, 8 * world)
    return train(model, kind(model.parameters(), **options), x, y)


CASES = [
    {},
    {"backward_passes_per_step": 2},
    {"gradient_predivide_factor": 2.0},
    {"num_groups": 2},
    {"groups": 3},
    {"groups": "lists"},
    {"named": False},
    {"compression": hvd.Compression.fp16, "near": 2e-3},
    {"compression": hvd.Compression.q8, "near": 2e-2},
    {"compression": hvd.Compression.codec("q4", min_size=0), "near": 1e-1},
]


def optimizers(rank, world):
    hvd.init()
    wanted = alone(world, lr=0.05, momentum=0.9)
    told = []
    for case in CASES:
        case, model = dict(case), net()
        near, named = case.pop("near", 1e-6), case.pop("named", True)
        if case.get("groups") == "lists":
            first, second, *_ = model.parameters()
            case["groups"] = [[first, second]]
        plain = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            optimizer = hvd.DistributedOptimizer(
                plain, model.named_parameters() if named else None, **case
            )
        assert isinstance(optimizer, torch.optim.SGD)
        passes = case.get("backward_passes_per_step", 1)
        found = train(model, optimizer, *data(rank, world), passes=passes)
        worst = max((a - b).abs().max().item() for a, b in zip(found, wanted))
        assert worst < near, (case, worst)
        told.append([each.tolist() for each in found])
    return told


def test_optimizers_do_what_one_process_with_all_data_does():
    first, second = values(run_group(optimizers, 2))
    assert first == second  # all ranks have the same bits


def compressed(rank, world):
    """What few bits lose comes back: error feedback, through a checkpoint too."""
    hvd.init()

    def run(steps, kept=None):
        model = net()
        plain = torch.optim.SGD(model.parameters(), lr=0.05)
        codec = hvd.Compression.codec("q2", min_size=0)
        named = model.named_parameters()
        optimizer = hvd.DistributedOptimizer(plain, named, compression=codec)
        if kept is not None:
            model.load_state_dict(kept[0])
            optimizer.load_compression_state_dict(kept[1])
        train(model, optimizer, *data(rank, world), steps=steps)
        return model.state_dict(), optimizer.compression_state_dict()

    whole, state = run(6)
    resumed, _ = run(3, run(3))
    assert set(state) == {"gradient.0.weight.0", "gradient.2.weight.0", "gradient.3.weight.0"}
    # Stochastic codecs know the number of a step; q2 rounds to nearest.
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    by_hand = torch.linspace(-1, 1, 4096).view(64, 64) * (rank + 1)
    mean = hvd.allreduce(by_hand, compression=hvd.Compression.q4)
    assert 0 < (mean - by_hand / (rank + 1) * 1.5).abs().max() < 0.2
    bias = hvd.allreduce(by_hand[0], compression=hvd.Compression.q4)
    assert torch.equal(bias, by_hand[0] / (rank + 1) * 1.5)  # one dimension: exact
    share = hvd.reducescatter(by_hand, compression=hvd.Compression.q8)
    assert share.shape == (32, 64)
    return True


def test_few_bits_with_error_feedback():
    assert values(run_group(compressed, 2)) == [True, True]


def habits(rank, world):
    """Clipping, heads that only some ranks use, sparse gradients, and what is told of them."""
    hvd.init()
    model = net()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    x, y = data(rank, world)
    mse_loss(model(x), y).backward()
    told = {"before optimizer.step()": refusal(AssertionError, optimizer.zero_grad)}
    optimizer.synchronize()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    before = model[0].weight.detach().clone()
    with optimizer.skip_synchronize():
        optimizer.step()
    assert 0 < (model[0].weight - before).norm() < 0.0011
    optimizer.zero_grad()
    mse_loss(model(x), y).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    assert "without optimizer.skip_synchronize()" in str(caught[0].message)
    optimizer.zero_grad()
    mse_loss(model(x), y).backward()
    told["backward_passes_per_step"] = refusal(
        AssertionError, lambda: mse_loss(model(x), y).backward()
    )
    optimizer.step()

    heads = nn.ModuleList([nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)])
    plain = torch.optim.SGD(heads.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(plain, heads.named_parameters())
    hvd.broadcast_parameters(heads.state_dict(), 0)
    start = [each.weight.detach().clone() for each in heads]
    for _ in range(2):
        optimizer.zero_grad()
        heads[rank](torch.ones(1, 2)).sum().backward()
        optimizer.step()
    for each, begun in zip(heads, start):
        assert torch.allclose(each.weight, begun - 1.0)  # half of each step's gradient, twice

    for as_dense in (False, True):
        table = nn.Embedding(5, 2, sparse=True)
        hvd.broadcast_parameters(table.state_dict(), 0)
        begun = table.weight.detach().clone()
        plain = torch.optim.SGD(table.parameters(), lr=1.0)
        optimizer = hvd.DistributedOptimizer(plain, sparse_as_dense=as_dense)
        table(torch.tensor([rank, 3, 3])).sum().backward()
        optimizer.step()
        moved = (begun - table.weight)[:, 0].tolist()
        assert moved == pytest.approx([0.5, 0.5, 0, 2, 0])
    sparse = torch.sparse_coo_tensor([[rank, 2]], [1.0, 2.0], (4,))
    handle = hvd.sparse_allreduce_async(sparse, "own", op=hvd.Sum)
    assert hvd.synchronize(handle).to_dense().tolist() == [1, 1, 4, 0]
    return told


def test_habits_of_scripts():
    for told in values(run_group(habits, 2)):
        for part, said in told.items():
            assert part in said


def refused(rank, world):
    hvd.init()
    model, other = net(), net()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    both = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    weight = model[0].weight

    def said(optimizer, *arguments, **named):
        return refusal(
            ValueError, lambda: hvd.DistributedOptimizer(optimizer, *arguments, **named)
        )

    named = [*model.named_parameters(), *other.named_parameters()]
    return {
        "names twice": said(both, named),
        "lacks 4 parameters": said(plain, list(model.named_parameters())[:2]),
        "tuples": said(plain, model.parameters()),
        "for op=hvd.Average": said(plain, op=hvd.Sum, gradient_predivide_factor=2.0),
        "Adasum is not supported": said(plain, op=hvd.Adasum),
        "hvd.Average or hvd.Sum": said(plain, op=hvd.Max),
        "0 or more": said(plain, groups=-1),
        "lists of parameters": said(plain, groups=[weight]),
        "parameter twice": said(plain, groups=[[weight], [weight]]),
        "the optimizer has not": said(plain, groups=[[other[0].weight]]),
        "1 or more are wanted": said(plain, backward_passes_per_step=0),
        "LBFGS": refusal(
            ValueError,
            lambda: hvd.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()), 0),
        ),
        "2 or more": refusal(ValueError, lambda: hvd.SyncBatchNorm(3)(torch.ones(3))),
    }


def test_what_optimizers_refuse():
    (told,) = values(run_group(refused, 1))
    for part, said in told.items():
        assert part in said, said


def normalised(rank, world):
    hvd.init()
    generator = torch.Generator().manual_seed(3)
    for shape in ((7, 4), (7, 4, 3), (7, 4, 3, 2)):
        whole = torch.randn(shape, generator=generator, dtype=torch.float64) * 3 + 100
        kinds = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d)
        for momentum in (0.1, None):
            plain = kinds[len(shape) - 2](4, momentum=momentum).double()
            synced = hvd.SyncBatchNorm(4, momentum=momentum).double()
            share = slice(0, 2) if rank == 0 else slice(2, 7)
            all_x = whole.clone().requires_grad_()
            own_x = whole[share].clone().requires_grad_()
            weights = torch.linspace(0, 1, whole.numel(), dtype=torch.float64).view(shape)
            (plain(all_x) * weights).sum().backward()
            found = synced(own_x)
            (found * weights[share]).sum().backward()
            assert torch.allclose(found, plain.train()(whole)[share])
            assert torch.allclose(own_x.grad, all_x.grad[share])
            for name in ("weight", "bias"):
                summed = hvd.allreduce(getattr(synced, name).grad, op=hvd.Sum)
                assert torch.allclose(summed, getattr(plain, name).grad)
            synced(whole[share])
            assert torch.allclose(synced.running_mean, plain.running_mean)
            assert torch.allclose(synced.running_var, plain.running_var)
            assert torch.allclose(synced.eval()(whole), plain.eval()(whole))


def test_batch_norm_over_all_ranks():
    values(run_group(normalised, 2))


# ---- samples ----


def samplers(rank, world):
    hvd.init()
    sampler = hvd.elastic.ElasticSampler(range(10), shuffle=True, seed=1)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
        assert len(epochs[-1]) == len(sampler) == 5
    assert epochs[0] != epochs[1]
    sampler.record_batch(0, 2)
    state = sampler.state_dict()
    sampler.load_state_dict(state)
    left = list(sampler)
    assert not set(left) & set(epochs[1][:2])
    torch_state = hvd.elastic.TorchState(net(), sampler=sampler, epoch=rank)
    torch_state.sync()  # what any rank used is used
    assert torch_state.epoch == 0 and len(sampler.processed_indices) == 4
    torch_state.epoch = 5
    torch_state.restore()
    assert torch_state.epoch == 0
    return epochs[1], list(sampler)


def test_samples_are_shared_out():
    first, second = values(run_group(samplers, 2))
    assert sorted(first[0] + second[0]) == list(range(10))
    used = set(first[0][:2] + second[0][:2])
    assert set(first[1] + second[1]) == set(range(10)) - used


# ---- the command, and ranks that are lost ----

TREE = Path(__file__).resolve().parents[2]
RUN = [sys.executable, "-m", "horovod.runner.launch"]


def horovodrun(*words, **variables):
    environment = {**os.environ, **variables}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        environment.pop(name, None)
    return subprocess.run(
        [*RUN, *words], env=environment, capture_output=True, text=True, timeout=300
    )


def has_command():
    import redpoll
    from redpoll._library import place_of

    assert redpoll.__version__
    return place_of("redpoll").exists()


needs_command = pytest.mark.skipif(not has_command(), reason="redpoll was built without it")

PLACES = """
import json, os, horovod.torch as hvd
hvd.init()
mine = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(),
        hvd.cross_size(), hvd.is_homogeneous()]
told = [int(os.environ["HOROVOD_" + name]) for name in
        ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")]
assert mine[:6] == told, (mine, told)
if hvd.rank() == 0:
    print(json.dumps(mine))
"""


@needs_command
def test_horovodrun_starts_ranks(tmp_path):
    script = tmp_path / "places.py"
    script.write_text(PLACES)
    done = horovodrun("-np", "2", "--verbose", sys.executable, str(script))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [0, 2, 0, 2, 0, 1, True]


ELASTIC = """
import os, signal, sys, torch, horovod.torch as hvd
hvd.init()
begun = hvd.rank()
torch.manual_seed(begun)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
state = hvd.elastic.TorchState(model, optimizer, step=0, sizes=[])
resets = []
state.register_reset_callbacks([lambda: resets.append(hvd.size())])

@hvd.elastic.run
def train(state):
    while state.step < 12:
        if begun == 1 and state.step == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        x = torch.ones(2, 4) * (hvd.rank() + 1)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        state.step += 1
        state.sizes.append(hvd.size())
        if state.step % 4 == 0:
            state.commit()
    return state.sizes

sizes = train(state)
assert sizes == [3] * 4 + [2] * 8, sizes  # from the commit at step 4 on
assert resets == [2] and hvd.size() == hvd.local_size() == 2
everyone = hvd.allgather(model.weight.detach())
assert torch.equal(everyone[0], everyone[1])
open(f"{sys.argv[1]}/{begun}", "w").write(str(hvd.rank()))
"""


@needs_command
def test_training_goes_on_without_a_rank(tmp_path):
    script = tmp_path / "elastic.py"
    script.write_text(ELASTIC)
    words = ["-np", "3", "--min-np", "2", sys.executable, str(script), str(tmp_path)]
    done = horovodrun(*words)
    ranks = {each.name: each.read_text() for each in tmp_path.glob("[0-9]")}
    assert ranks == {"0": "0", "2": "1"}, done.stderr


def still_fails(rank, world):
    """A failure by which no rank is lost ends elastic training."""
    hvd.init()

    @hvd.elastic.run
    def train(state):
        hvd.allreduce(torch.ones(2 + rank), name="odd")

    state = hvd.elastic.ObjectState(step=0)
    return refusal(hvd.HorovodInternalError, lambda: train(state))


def test_other_failures_end_elastic_training():
    for said in values(run_group(still_fails, 2)):
        assert "allreduce.odd: ranks differ" in said


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "how many ranks?"),
        (["-np", "2"], "what is to run?"),
        (["-np", "2", "--mpi", "x"], "--mpi is not supported: there is no MPI"),
        (["-np", "2", "--host-discovery-script", "s", "x"], "no host joins"),
        (["-np", "2", "--autotune", "x"], "--autotune is not supported"),
        (["-np", "2", "--max-np", "4", "x"], "no rank joins"),
        (["-np", "2", "--nonsense", "x"], "--nonsense"),
    ],
)
def test_horovodrun_refuses(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        launch.main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_horovodrun_hands_over(monkeypatch):
    """What `redpoll run` is told of options."""
    import redpoll.__main__

    told = []
    monkeypatch.setattr(redpoll.__main__, "main", lambda: told.append(list(sys.argv)))
    monkeypatch.setattr(os, "environ", {**os.environ, "HOROVOD_A": "1"})
    launch.main(
        "-np 3 -H a:2,b:1 -p 2222 --min-np 2 --timeline-filename t.json --gloo "
        "--fusion-threshold-mb 2 --output-filename out python train.py -v".split()
    )
    (words,) = told
    cut = words.index("--")
    assert words[cut + 3 :] == ["--as-rank", "python", "train.py", "-v"]
    options = " ".join(words[2:cut])
    for part in ("-n 3", "-H a:2,b:1", "--ssh ssh -p 2222", "--on-loss continue"):
        assert part in options
    for part in ("--output-dir out", "-x HOROVOD_A", "-x HOROVOD_TIMELINE"):
        assert part in options
    assert os.environ["HOROVOD_FUSION_THRESHOLD"] == str(2 << 20)


# ---- the table of names ----


def test_every_name_is_in_the_table():
    """docs/horovod.md says of each name what it does here."""
    text = (TREE / "docs" / "horovod.md").read_text()
    told = set(re.findall(r"`hvd\.([\w.]+)", text))
    told |= {each.split(".")[0] for each in told}
    names = set(hvd.__all__) | {f"elastic.{each}" for each in hvd.elastic.__all__}
    names |= {f"Compression.{each}" for each in vars(hvd.Compression) if each[0] != "_"}
    assert not names - told
    known = {each.split(".")[0] for each in told}
    assert all(hasattr(hvd, each) for each in known)
    options = {each for each in re.findall(r"`(--[a-z][\w-]+)`", text)}
    source = Path(launch.__file__).read_text()
    assert options and all(f'"{each}"' in source for each in options)
    variables = set(re.findall(r"HOROVOD_\w+", source))
    variables |= set(re.findall(r"HOROVOD_\w+", Path(hvd._context.__file__).read_text()))
    places = {"HOROVOD_"} | {each for each in variables if each.endswith("_")}
    assert not variables - places - set(re.findall(r"HOROVOD_\w+", text))
