"""compress() of FSDP models: which elements travel how, and what arrives."""

from __future__ import annotations

import functools
import hashlib

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ranks import refusal, run_group, values

MIN_SIZE = 500


# ---- layouts, without a network ----


def fields_of(*named):
    from redpoll.torch.fsdp._spans import Field

    return [Field(count, name, torch.Size(shape)) for count, name, shape in named]


def covered(spans, rank):
    return [
        index for span in spans for index in range(span.blocks[rank][0], sum(span.blocks[rank]))
    ]


@pytest.mark.host
def test_rows_are_cut_where_tensors_end():
    from redpoll.torch.codecs._rules import Rules
    from redpoll.torch.fsdp._spans import row_spans

    fields = fields_of(
        (300, "w", (20, 30)), (10, "b", (20,)), (5, "g", (10,)), (300, "v", (600, 1))
    )
    spans = row_spans(fields, 2, Rules("q4", None, MIN_SIZE))
    assert [(span.name, str(span.codec)) for span in spans] == [
        ("w", "q4:bucket=512"),
        ("b", "None"),
        ("v", "q4:bucket=512"),
    ]
    assert spans[1].blocks == [(300, 15), (915, 15)]
    for rank in range(2):
        assert covered(spans, rank) == list(range(rank * 615, rank * 615 + 615))


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.host
def test_flat_buffers_are_cut_where_tensors_and_shards_end(world):
    from redpoll.torch.codecs._rules import Rules
    from redpoll.torch.fsdp._spans import flat_spans

    fields = fields_of(
        (600, "w", (20, 30)), (3, None, ()), (20, "b", (20,)), (900, "v", (30, 30))
    )
    total = -(-1523 // world) * world
    spans = flat_spans(fields, total, world, Rules("q4", None, MIN_SIZE))
    assert [span.codec is not None for span in spans[:3]] == [True, False, True]
    shard = total // world
    for rank in range(world):
        assert covered(spans, rank) == list(range(rank * shard, (rank + 1) * shard))


@pytest.mark.host
@pytest.mark.parametrize("total", [610, 615, 628])
def test_a_flat_buffer_of_other_tensors_is_refused(total):
    from redpoll.torch.codecs._rules import Rules
    from redpoll.torch.fsdp._spans import flat_spans

    fields = fields_of((600, "w", (20, 30)), (20, "b", (20,)))
    assert "cannot be told apart" in refusal(
        RuntimeError, lambda: flat_spans(fields, total, 4, Rules("q4"))
    )


# ---- FSDP2 and FSDP1 ----


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(48)
        self.up = nn.Linear(48, 97)
        self.down = nn.Linear(97, 48)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(48, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make(kind, dtype=None, **options):
    torch.manual_seed(0)
    net = Net()
    if kind == "fsdp2":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
        for block in net.blocks:
            fully_shard(block, mp_policy=policy)
        return fully_shard(net, mp_policy=policy)
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return FullyShardedDataParallel(
        net,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        mixed_precision=MixedPrecision(param_dtype=dtype, reduce_dtype=dtype)
        if dtype
        else None,
        use_orig_params=True,
        **options,
    )


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(8, 48, generator=generator)
    return x, x[:, :10].argmax(1)


def full_gradients(model, kind):
    if kind == "fsdp2":
        return {name: one.grad.full_tensor().float() for name, one in model.named_parameters()}
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    with FSDP.summon_full_params(model, with_grads=True):
        named = {name: one.grad.float().clone() for name, one in model.named_parameters()}
    return {name.replace("_fsdp_wrapped_module.", ""): grad for name, grad in named.items()}


def exact_means(rank, world, step):
    torch.manual_seed(0)
    net = Net()
    x, y = batch(rank, step)
    nn.functional.cross_entropy(net(x), y).backward()
    means = {}
    for name, parameter in net.named_parameters():
        means[name] = parameter.grad / world
        dist.all_reduce(means[name])
    return means


def errors(rank, world, kind, grads, weights, dtype_name, options):
    """Relative error of every parameter's gradient in one step."""
    import redpoll.torch

    model = make(kind, dtype_name and getattr(torch, dtype_name))
    state = redpoll.torch.compress(
        model, grads=grads, weights=weights, min_size=MIN_SIZE, **options
    )
    x, y = batch(rank, 0)
    nn.functional.cross_entropy(model(x).float(), y).backward()
    ours, exact = full_gradients(model, kind), exact_means(rank, world, 0)
    assert ours.keys() == exact.keys()
    return (
        {
            name: ((ours[name] - exact[name]).norm() / exact[name].norm()).item()
            for name in exact
        },
        state.codecs(),
        state.step,
    )


MATRICES = ("up.weight", "down.weight")


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("kind", ["fsdp2", "fsdp1"])
def test_matrices_are_lossy_and_everything_else_is_exact(kind, world):
    for each, codecs, step in values(run_group(errors, world, kind, "q4", None, None, {})):
        assert step == 1
        for name, error in each.items():
            if name.endswith(MATRICES):
                assert 0.01 < error < 0.3, (name, error)
                assert codecs["grads"][name] == "q4:bucket=512"
            else:
                assert error < 1e-5, (name, error)
                assert codecs["grads"][name] == "exact"
            assert codecs["weights"][name] == "exact"


@pytest.mark.parametrize(
    "kind, grads, weights, dtype, options, least, most",
    [
        ("fsdp2", "q8", None, None, {}, 1e-4, 0.02),
        ("fsdp2", "q8:rounding=stochastic", None, None, {"seed": 5}, 1e-4, 0.04),
        ("fsdp2", "exact", "q8", None, {}, 1e-4, 0.1),
        ("fsdp2", "q4", None, None, {"warmup_steps": 1}, 0, 1e-5),
        ("fsdp2", "q4", None, None, {"rules": {"*": None}}, 0, 1e-5),
        ("fsdp2", "q8", None, "bfloat16", {}, 1e-3, 0.2),
        ("fsdp2", "q8", None, "float16", {}, 1e-4, 0.05),
        ("fsdp1", "q8", None, None, {}, 1e-4, 0.02),
        ("fsdp1", "q4", None, None, {"warmup_steps": 1}, 0, 1e-5),
        ("fsdp1", "q8", None, "bfloat16", {}, 1e-3, 0.2),
    ],
)
def test_how_far_gradients_are(kind, grads, weights, dtype, options, least, most):
    each, _, _ = values(run_group(errors, 2, kind, grads, weights, dtype, options))[0]
    worst = max(error for name, error in each.items() if name.endswith(MATRICES))
    assert least <= worst < most


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(48, 40, dtype=torch.complex64) / 7)

    def forward(self, x):
        return (x.to(torch.complex64) @ self.weight).abs()


def complex_errors(rank, world, grads, weights):
    """Relative errors of a complex gradient, its real and its imaginary part."""
    from torch.distributed.fsdp import fully_shard

    import redpoll.torch

    torch.manual_seed(0)
    twin, model = Complex(), Complex()
    model.load_state_dict(twin.state_dict())
    fully_shard(model)
    redpoll.torch.compress(model, grads=grads, weights=weights, min_size=MIN_SIZE)
    x, _ = batch(rank, 0)
    model(x).square().mean().backward()
    twin(x).square().mean().backward()
    exact = torch.view_as_real(twin.weight.grad / world)
    dist.all_reduce(exact)
    ours = torch.view_as_real(model.weight.grad.full_tensor())
    return [((ours - exact)[..., i].norm() / exact[..., i].norm()).item() for i in range(2)]


@pytest.mark.parametrize(
    "grads, weights, least, most",
    [(None, None, 0, 1e-6), ("q8", None, 1e-4, 0.02), (None, "q8", 1e-4, 0.1)],
)
def test_complex_parameters_are_whole(grads, weights, least, most):
    for errors in values(run_group(complex_errors, 3, grads, weights)):
        assert all(least <= error < most for error in errors), errors


def train(rank, world, kind, grads, weights):
    import redpoll.torch

    model = make(kind)
    if grads:
        redpoll.torch.compress(model, grads=grads, weights=weights, min_size=MIN_SIZE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    losses = []
    for step in range(40):
        x, y = batch(rank, step % 4)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    mean = torch.stack(losses[-4:]).mean()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    return losses[0].item(), mean.item()


@pytest.mark.parametrize("kind, weights", [("fsdp2", None), ("fsdp2", "q8"), ("fsdp1", None)])
@pytest.mark.host
def test_training_goes_as_without(kind, weights):
    first, exact = values(run_group(train, 2, kind, None, None))[0]
    _, lossy = values(run_group(train, 2, kind, "q8", weights))[0]
    assert exact < 0.5 * first
    assert abs(lossy - exact) < 0.1 * exact


def weights_seen(rank, world):
    """The bits of the weights that each rank computes with, under a lossy all-gather."""
    import redpoll.torch

    model = make("fsdp2")
    weights = "q4:rounding=stochastic"
    redpoll.torch.compress(model, grads="exact", weights=weights, min_size=MIN_SIZE)
    seen = []

    def see(module, *_):
        seen.append(module.weight.detach().clone())

    block = model.blocks[0]
    block.up.register_forward_hook(see)
    block.up.register_full_backward_pre_hook(see)
    model(batch(rank, 0)[0]).sum().backward()
    assert len(seen) == 2 and torch.equal(*seen)  # gathered twice, forward and backward
    original = make("fsdp2").blocks[0].up.weight.full_tensor()
    bits = hashlib.sha256(seen[0].numpy().tobytes()).hexdigest()
    return bits, (seen[0] - original).abs().max().item()


def test_lossy_weights_are_the_same_on_every_rank():
    answers = values(run_group(weights_seen, 3))
    assert len({bits for bits, _ in answers}) == 1
    assert 1e-4 < answers[0][1] < 0.1


def bytes_sent(rank, world, kind, grads):
    import redpoll.torch

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512))
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        model = fully_shard(net)
    else:
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    if grads:
        redpoll.torch.compress(model, grads=grads)
    model(torch.ones(2, 512)).sum().backward()
    return next(iter(redpoll.torch.stats().values())).wire_bytes_sent


@pytest.mark.parametrize("kind", ["fsdp2", "fsdp1"])
def test_fewer_bytes_travel(kind):
    plain = values(run_group(bytes_sent, 2, kind, None))[0]
    lossy = values(run_group(bytes_sent, 2, kind, "q4"))[0]
    # A rank sends half of the gradients, 1 MiB, which become an eighth; and its weights, exact.
    assert 0.8 * 2**20 < plain - lossy < 1.0 * 2**20


# ---- what travels where little is said ----


class MixedNet(nn.Module):
    """FSDP2 gathers weights of several types as bytes."""

    def __init__(self):
        super().__init__()
        self.small = nn.Linear(48, 96).to(torch.bfloat16).requires_grad_(False)
        self.large = nn.Linear(96, 48)

    def forward(self, x):
        return self.large(self.small(x.to(torch.bfloat16)).float())


def small_net(kind):
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    torch.manual_seed(0)
    if kind == "mixed":
        return fully_shard(MixedNet())
    if kind == "float64":
        return fully_shard(nn.Linear(96, 96, dtype=torch.float64))
    net = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512))
    if kind == "fsdp1":
        return FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    for one in net:
        fully_shard(one)
    return fully_shard(net)


def say_little(rank, world, kind, options, trains):
    import logging.handlers

    import redpoll.torch

    handler = logging.handlers.BufferingHandler(100)
    logging.getLogger("redpoll").addHandler(handler)
    model = small_net(kind)
    state = redpoll.torch.compress(model, min_size=MIN_SIZE, **options)
    redpoll.torch.stats.reset()
    if trains:
        first = next(model.parameters())
        x = torch.ones(2, first.shape[1] if first.dim() > 1 else 512, dtype=first.dtype)
        model(x.float() if kind == "mixed" else x).sum().backward()
    (stats,) = redpoll.torch.stats().values()
    weights = {text.split(":")[0] for text in state.codecs()["weights"].values()}
    said = [record.getMessage() for record in handler.buffer]
    return weights, stats.ratio, [text for text in said if "weights" in text]


LITTLE = {  # the model, what is said of it, whether it is trained, codecs of weights, the least
    # ratio, and whether rank 0 is told that weights are most of the bytes
    "nothing": ("fsdp2", {}, True, {"q8", "exact"}, 3.5, False),
    "weights None": ("fsdp2", {"weights": None}, True, {"exact"}, 1.2, False),
    "grads alone": ("fsdp2", {"grads": "q8"}, True, {"exact"}, 1.2, True),
    "both": ("fsdp2", {"grads": "q8", "weights": "q4"}, True, {"q4", "exact"}, 4.5, False),
    "grads None": ("fsdp2", {"grads": None}, True, {"exact"}, 0.9, False),
    "FSDP1": ("fsdp1", {}, True, {"exact"}, 1.2, False),
    "mixed types": ("mixed", {}, True, {"q8", "exact"}, 2.0, False),
    "a type that q8 does not take": ("float64", {}, False, {"exact"}, 0.0, False),
}


@pytest.mark.parametrize("case", LITTLE)
@pytest.mark.host
def test_weights_are_most_of_the_bytes(case):
    kind, options, trains, codecs, ratio, told = LITTLE[case]
    first, second = values(run_group(say_little, 2, kind, options, trains))
    assert first[0] == second[0] == codecs
    assert not trains or first[1] > ratio
    assert not second[2] and len(first[2]) == int(told)
    if told:
        assert "weights='q8'" in first[2][0] and "67 %" in first[2][0]


class MixedTypes(nn.Module):
    """What is trained is of one type, as FSDP2 wants it; what is frozen of others, some of it
    where no float32 may begin in every row."""

    def __init__(self, odd):
        super().__init__()
        frozen = {"requires_grad": False}
        self.brain = nn.Parameter(torch.randn(48, 96).to(torch.bfloat16) / 7, **frozen)
        self.odd = nn.Parameter(torch.randn(2 if odd else 16).to(torch.bfloat16), **frozen)
        self.table = nn.Parameter(torch.arange(2000).view(50, 40), **frozen)
        self.wide = nn.Parameter(torch.randn(48, 48, dtype=torch.float64), **frozen)
        self.large = nn.Parameter(torch.randn(96, 48) / 7)

    def forward(self, x):
        x = (x.to(torch.bfloat16) @ self.brain).float() @ self.large
        return x * self.odd.float().sum() + self.table.sum() / 1e6 + self.wide.sum().float()


def gather_mixed(rank, world, odd):
    """Which weights come as they are, and the bits of those that do not."""
    from torch.distributed.fsdp import fully_shard

    import redpoll.torch

    torch.manual_seed(0)
    plain, model = MixedTypes(odd), MixedTypes(odd)
    model.load_state_dict(plain.state_dict())
    fully_shard(model)
    redpoll.torch.compress(model, min_size=MIN_SIZE)
    model.unshard()
    found = {}
    for name, one in plain.named_parameters():
        seen = getattr(model, name).detach()
        error = (seen.double() - one.double()).abs().max() / one.double().abs().max()
        found[name] = (torch.equal(seen, one), error.item(), hash(seen.double().sum().item()))
    model.reshard()
    model(torch.ones(2, 48)).sum().backward()
    assert model.large.grad.full_tensor().isfinite().all()
    return found


takes_integers = pytest.mark.skipif(
    torch.__version__.startswith("2.9."), reason="FSDP2 of PyTorch 2.9 takes no integers"
)


@takes_integers
@pytest.mark.parametrize("world, odd", [(2, False), (2, True), (3, False)])
def test_weights_of_mixed_types_are_lossy_each_in_its_own(world, odd):
    """In a buffer of bytes; a type that the codec does not take, or that is no float, is
    exact."""
    first, *others = values(run_group(gather_mixed, world, odd))
    assert all(one == first for one in others)
    lossy = {name for name, (is_same, _, _) in first.items() if not is_same}
    assert {"brain"} <= lossy <= {"brain", "large"} and ("large" in lossy) != odd
    assert all(error < 0.01 for _, error, _ in first.values())


def ask_for_doubles(rank, world):
    from torch.distributed.fsdp import fully_shard

    import redpoll.torch

    model = fully_shard(MixedTypes(False))
    redpoll.torch.compress(model, weights="q8", min_size=MIN_SIZE)
    return refusal(TypeError, lambda: model(torch.ones(2, 48)))


@takes_integers
def test_a_type_that_cannot_be_lossy_is_an_error_where_it_was_asked_for():
    for text in values(run_group(ask_for_doubles, 2)):
        assert "wide" in text and "float64" in text


def replicated(rank, world, options, inner=None):
    """Bytes and errors of a step of hybrid sharding: two replicas of two shards each. inner:
    the backend of the shards, where that is not redpoll."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import redpoll.torch

    names = ("replicate", "shard")
    override = {"backend_override": {"replicate": "redpoll"}} if inner else {}
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names, **override)
    torch.manual_seed(0)
    net = Net()
    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    model = fully_shard(net, mesh=mesh)
    state = redpoll.torch.compress(model, min_size=MIN_SIZE, **options)
    between = mesh.get_group("replicate")
    for micro in range(2):  # with accumulation: the shards of the first step do not travel
        model.set_requires_all_reduce(micro == 1)
        x, y = batch(rank, micro)
        nn.functional.cross_entropy(model(x), y).backward()
        large = torch.full((20000,), 1 / 3)  # of the user, in the same group: exact
        dist.all_reduce(large, group=between)
        assert torch.equal(large, torch.full((20000,), 1 / 3) * 2)
    ours = full_gradients(model, "fsdp2")
    exact = [exact_means(rank, world, micro) for micro in range(2)]
    error = {
        name: ((grad - exact[0][name] - exact[1][name]).norm() / grad.norm()).item()
        for name, grad in ours.items()
    }
    sent = redpoll.torch.stats(between)[between.group_desc].wire_bytes_sent
    digest = hashlib.sha256(b"".join(one.numpy().tobytes() for one in ours.values()))
    return error, sent, state.codecs(), digest.hexdigest()


def test_what_replicas_exchange_is_lossy_when_asked():
    asked = {"grads": None, "replicate": "q4"}
    answers = values(run_group(replicated, 4, asked))
    assert len({digest for *_, digest in answers}) == 1
    error, sent, codecs, _ = answers[0]
    for name, one in error.items():
        lossy = name.endswith(MATRICES)
        assert codecs["grads"][name] == "exact"
        assert codecs["replicate"][name] == ("q4:bucket=512" if lossy else "exact")
        assert 0.01 < one < 0.3 if lossy else one < 1e-5, (name, one)
    exact_error, exact_sent, codecs, _ = values(run_group(replicated, 4, {"grads": None}))[0]
    assert max(exact_error.values()) < 1e-5 and set(codecs["replicate"].values()) == {"exact"}
    # Of 18 KiB of matrices a shard, a rank sends as much and an eighth of it.
    assert exact_sent - sent > 0.6 * 4 * 2 * 48 * 97


def whole(kind, world):
    """A model of which every rank has all: FSDP2 reduces between replicas, and nothing else."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    net = Net()
    if kind == "replicate()":
        from torch.distributed._composable.replicate_with_fsdp import replicate

        return [replicate(one) for one in (*net.blocks, net)][-1]
    mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("between", "inside"))
    return [fully_shard(one, mesh=mesh) for one in (*net.blocks, net)][-1]


def train_whole(rank, world, kind, options):
    """Errors of each of three steps, the second of two passes; bytes, codecs and steps."""
    import redpoll.torch

    model = whole(kind, world)
    state = redpoll.torch.compress(model, min_size=MIN_SIZE, **options)
    errors = []
    for step, passes in enumerate((1, 2, 1)):
        exact = {}
        for micro in range(passes):
            model.set_requires_all_reduce(micro == passes - 1)
            number = 10 * step + micro
            x, y = batch(rank, number)
            nn.functional.cross_entropy(model(x), y).backward()
            for name, one in exact_means(rank, world, number).items():
                exact[name] = exact.get(name, 0) + one
        ours = full_gradients(model, "fsdp2")
        errors.append(
            {
                name: ((grad - exact[name]).norm() / grad.norm()).item()
                for name, grad in ours.items()
            }
        )
        model.zero_grad()
    sent = sum(one.wire_bytes_sent for one in redpoll.torch.stats().values())
    return errors, sent, state.codecs(), state.step


WHOLE = {  # what is asked for, and the first lossy step
    "replicate": ({"replicate": "q4"}, 0),
    "replicate and no grads": ({"grads": None, "replicate": "q4"}, 0),
    "grads": ({"grads": "q4"}, 0),
    "nothing": ({}, 0),
    "after a warm-up": ({"replicate": "q4", "warmup_steps": 1}, 1),
}


@pytest.mark.parametrize("asked", WHOLE)
@pytest.mark.parametrize("kind", ["replicate()", "hybrid over one rank"])
def test_where_every_rank_has_all_gradients_travel_as_asked(kind, asked):
    options, lossy_from = WHOLE[asked]
    answers = values(run_group(train_whole, 2, kind, options))
    for errors, _, codecs, steps in answers:
        assert steps == 3
        for step, of_step in enumerate(errors):
            for name, one in of_step.items():
                lossy = name.endswith(MATRICES) and step >= lossy_from
                assert 1e-4 < one < 0.3 if lossy else one < 1e-5, (step, name, one)
        text = options.get("replicate") or options.get("grads") or "q8"
        for name in codecs["replicate"]:
            wanted = f"{text}:bucket=512" if name.endswith(MATRICES) else "exact"
            assert codecs["replicate"][name] == wanted
            assert codecs["grads"][name] == codecs["weights"][name] == "exact"
    exact = values(run_group(train_whole, 2, kind, {"grads": None}))
    assert answers[0][1] < 0.8 * exact[0][1]


def refuse_sparse(rank, world, kind):
    import redpoll.torch

    cases = [{"weights": "topk"}, {"rules": {"*": "randk"}}]
    return [
        refusal(
            ValueError,
            functools.partial(redpoll.torch.compress, make(kind), **one, min_size=MIN_SIZE),
        )
        for one in cases
    ]


def test_weights_of_which_a_part_is_left_out_are_refused():
    for told in values(run_group(refuse_sparse, 2, "fsdp2")):
        assert "topk" in told[0] and "randk" in told[1]
        assert all('weights="q8"' in one for one in told)


def refuse_whole(rank, world, kind):
    import redpoll.torch
    from redpoll.torch.fsdp._fsdp2 import param_groups

    told = {}
    for name, options in {
        "weights": {"weights": "q8"},
        "both": {"grads": "q8", "replicate": "q4"},
    }.items():
        model = whole(kind, world)
        told[name] = refusal(
            ValueError, functools.partial(redpoll.torch.compress, model, **options)
        )
    model = whole(kind, world)
    redpoll.torch.compress(model, replicate="q4", min_size=MIN_SIZE)
    between = redpoll.torch.communicator_of(
        param_groups(model)[0].mesh_info.replicate_process_group
    )
    between.policy = None  # as a PyTorch that reduces gradients otherwise

    def step():
        x, y = batch(rank, 0)
        nn.functional.cross_entropy(model(x), y).backward()

    between.policy = Deaf()
    step()
    told["unused"] = refusal(RuntimeError, step)
    return told


class Deaf:
    """A policy that is told what to expect, and never asked."""

    seed, algorithm = 0, None

    def expect(self, *_):
        pass

    def pieces_of(self, *_):
        return None

    def codec_for(self, *_):
        return None


@pytest.mark.parametrize("kind", ["replicate()", "hybrid over one rank"])
def test_a_codec_that_is_never_used_is_an_error(kind):
    for told in values(run_group(refuse_whole, 2, kind, destroy=False)):
        assert "weights=" in told["weights"] and "never be used" in told["weights"]
        assert "grads=" in told["both"]
        assert "q4" in told["unused"] and "replicate=" in told["unused"]


def staged(rank, world, lossy):
    """FSDP2's buffers in memory that ranks read in place, with and without codecs."""
    import redpoll.torch

    model = make("fsdp2")
    if not hasattr(model, "set_allocate_memory_from_process_group_for_comm"):
        return None
    for module in (*model.blocks, model):
        module.set_allocate_memory_from_process_group_for_comm(True)
    if lossy:
        redpoll.torch.compress(model, weights="q8", min_size=MIN_SIZE)
    taken = []
    from redpoll.torch.c10d import _process_group

    real = _process_group.staging
    _process_group.staging = lambda count, dtype: taken.append(count) or real(count, dtype)
    answers = []
    for step in range(4):
        x, y = batch(rank, step)
        nn.functional.cross_entropy(model(x), y).backward()
        exact = exact_means(rank, world, step)
        ours = full_gradients(model, "fsdp2")
        answers += [
            ((ours[name] - one).norm() / one.norm()).item() for name, one in exact.items()
        ]
        model.zero_grad()
    return max(answers), len(taken)


@pytest.mark.parametrize("lossy", [False, True], ids=["exact", "lossy"])
def test_buffers_of_fsdp2_may_be_the_groups_memory(lossy):
    answers = values(run_group(staged, 2, lossy))
    if answers[0] is None:
        pytest.skip("this PyTorch's FSDP2 does not ask the group for memory")
    for error, taken in answers:
        assert taken > 12
        assert error < (0.1 if lossy else 1e-5)


def another_backend_inside(rank, world, options):
    """As where NCCL has the GPUs of a host, and Redpoll what is between hosts."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import redpoll.torch

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    lossy = fully_shard(nn.Linear(100, 100), mesh=mesh)
    refused = refusal(ValueError, lambda: redpoll.torch.compress(lossy, replicate="q4"))
    return (*replicated(rank, world, options, inner="gloo"), refused)


def test_shards_of_another_backend():
    import inspect

    from torch.distributed.device_mesh import init_device_mesh

    if "backend_override" not in inspect.signature(init_device_mesh).parameters:
        pytest.skip("this PyTorch's meshes have one backend")
    asked = {"grads": None, "replicate": "q4"}
    wanted = values(run_group(replicated, 4, asked))
    found = values(run_group(another_backend_inside, 4, asked, backend="gloo"))
    assert len({digest for *_, digest, _ in found}) == 1
    for (error, _, codecs, _, refused), expected in zip(found, wanted):
        assert codecs == expected[2] and "is not redpoll" in refused
        for name, one in error.items():  # gloo means by another order of operations
            assert abs(one - expected[0][name]) < 1e-5, name


def work_of_collectives(rank, world):
    """FSDP2 may ask for a Work, as when it gathers ahead."""
    import redpoll.torch

    model = make("fsdp2")
    state = redpoll.torch.compress(model, weights="q8", min_size=MIN_SIZE)
    handles = [module.unshard(async_op=True) for module in (*model.blocks, model)]
    assert all(handle is not None for handle in handles)
    for handle in handles:
        handle.wait()
    model.reshard()
    unit, group = state.units[-1], dist.group.WORLD
    row = sum(field.numel for field in unit.fields(trained_only=True))
    from redpoll.torch.fsdp._fsdp2 import LossyAllGather, LossyReduceScatter

    flat, own = torch.ones(world * row), torch.ones(row)
    gather, scatter = LossyAllGather(unit, None), LossyReduceScatter(unit, None)
    works = [
        gather(flat, own, group, async_op=True),
        scatter(own, flat, group, dist.ReduceOp.SUM, async_op=True),
    ]
    assert all(isinstance(work, redpoll.torch.Work) and work.wait() for work in works)
    assert gather(flat, own, group).wait()
    assert scatter(own, flat, group, dist.ReduceOp.SUM) is None


def test_collectives_of_fsdp2_do_not_block_where_they_need_not():
    values(run_group(work_of_collectives, 2))


class Partly(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(48, 48), nn.Linear(48, 48)

    def forward(self, x):
        return self.used(x)


class DeepSpeedEngine(nn.Module):
    """By its name alone."""


def refusals(rank, world):
    from torch.distributed.fsdp import ShardingStrategy, fully_shard

    import redpoll.torch

    compress, told = redpoll.torch.compress, {}

    def tell(name, kind, action):
        told[name] = refusal(kind, action)

    tell("codec", ValueError, lambda: compress(make("fsdp2"), "q4"))
    tell("engine", TypeError, lambda: compress(DeepSpeedEngine()))
    scaler = torch.amp.GradScaler("cpu")
    tell("scaler", ValueError, lambda: compress(make("fsdp2"), grad_scaler=scaler))
    tell("rule", ValueError, lambda: compress(make("fsdp2"), rules={"tail.*": None}))
    tell("weights", ValueError, lambda: compress(make("fsdp1"), weights="q8"))
    twice = make("fsdp2")
    compress(twice)
    tell("twice", RuntimeError, lambda: compress(twice))
    twice = make("fsdp1")
    compress(twice)
    tell("twice1", RuntimeError, lambda: compress(twice))
    tell("replicate", ValueError, lambda: compress(make("fsdp2"), replicate="q4"))
    tell("replicate1", ValueError, lambda: compress(make("fsdp1"), replicate="q4"))
    no_shard = make("fsdp1", sharding_strategy=ShardingStrategy.NO_SHARD)
    tell("state", ValueError, lambda: compress(make("fsdp2")).load_state_dict({"step": 1}))
    tell("no shard", ValueError, lambda: compress(no_shard))
    partly = fully_shard(Partly())
    compress(partly, min_size=MIN_SIZE)
    tell("unused", RuntimeError, lambda: partly(torch.ones(2, 48)).sum().backward())
    return told


@pytest.mark.host
def test_a_release_that_is_made_otherwise_is_told():
    from redpoll.torch.fsdp._sharded import internals

    def look():
        with internals("FSDP2"):
            raise AttributeError("no attribute '_orig_size'")

    text = refusal(RuntimeError, look)
    assert f"PyTorch {torch.__version__}" in text and "_orig_size" in text


@pytest.mark.host
def test_what_cannot_be_honoured_is_an_error():
    told = values(run_group(refusals, 2, destroy=False))[0]
    assert "grads=" in told["codec"]
    assert "ZeRO-3" in told["engine"] and "fully_shard" in told["engine"]
    assert "grad_scaler=" in told["scaler"] and "bf16" in told["scaler"]
    assert "tail" in told["rule"]
    assert "fully_shard" in told["weights"]
    assert "mesh of two dimensions" in told["replicate"]
    assert "FSDP2" in told["replicate1"]
    assert "already" in told["twice"] and "already" in told["twice1"]
    assert "no state of compress() for FSDP" in told["state"]
    assert "DistributedDataParallel" in told["no shard"]
    assert "without a gradient" in told["unused"]
