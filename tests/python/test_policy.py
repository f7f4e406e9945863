"""REDPOLL_CODEC: what travels lossy in a script that nobody edits."""

from __future__ import annotations

import logging.handlers

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ranks import run_group, run_ranks, values
from redpoll.torch.codecs._policy import Piece, Policy, policy_from_environment

SUM, AVG, MAX = dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX
BIG = 10_000


@pytest.mark.parametrize(
    "operation, dtype, count, op, lossy",
    [
        ("all_reduce", torch.float32, BIG, SUM, True),
        ("all_reduce", torch.float32, BIG, AVG, True),
        ("all_reduce", torch.float16, BIG, SUM, True),
        ("all_reduce", torch.bfloat16, BIG, SUM, True),
        ("all_reduce", torch.float32, BIG - 1, SUM, False),
        ("all_reduce", torch.float32, BIG, MAX, False),
        ("all_reduce", torch.float64, BIG, SUM, False),
        ("all_reduce", torch.int32, BIG, SUM, False),
        ("all_reduce", torch.complex64, BIG, SUM, False),
        ("all_gather", torch.float32, BIG, None, False),
        ("reduce_scatter", torch.float32, BIG, SUM, False),
    ],
)
def test_what_is_lossy(operation, dtype, count, op, lossy):
    policy = policy_from_environment({"REDPOLL_CODEC": "q4"})
    codec = policy.codec_for(operation, dtype, count, op)
    assert (codec is not None) == lossy
    pieces = policy.pieces(operation, dtype, count, op)
    assert (pieces is not None) == lossy and (not lossy or pieces == [Piece(count, codec)])


LEFT_EXACT = [  # of a group with REDPOLL_CODEC: operation, type, elements, reduction; told of
    ("reduce_scatter", torch.float32, BIG, SUM, True),
    ("reduce_scatter", torch.bfloat16, BIG, AVG, True),
    ("reduce_scatter", torch.float32, BIG - 1, SUM, False),
    ("reduce_scatter", torch.int64, BIG, SUM, False),
    ("reduce_scatter", torch.float32, BIG, MAX, False),
    ("all_gather", torch.float32, BIG, None, False),
    ("all_reduce", torch.float32, BIG, SUM, False),
    ("all_reduce", torch.float64, BIG, SUM, True),
]


@pytest.mark.parametrize("operation, dtype, count, op, told", LEFT_EXACT)
def test_what_stays_exact_is_told_once(operation, dtype, count, op, told, caplog):
    policy = policy_from_environment({"REDPOLL_CODEC": "q4"})
    for _ in range(3):
        policy.codec_for(operation, dtype, count, op)
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == int(told)
    assert all("q4" in text and "travel exact" in text for text in texts)


def scatter_gradients(rank: int, world: int) -> list[str]:
    handler = logging.handlers.BufferingHandler(100)
    logging.getLogger("redpoll").addHandler(handler)
    for _ in range(2):
        dist.reduce_scatter_tensor(torch.empty(BIG), torch.ones(BIG * world))
    return [record.getMessage() for record in handler.buffer]


def test_a_script_that_scatters_gradients_is_told() -> None:
    for texts in values(run_group(scatter_gradients, 2, environment={"REDPOLL_CODEC": "q8"})):
        assert len(texts) == 1 and "compress(model)" in texts[0]


def test_a_reduction_object_is_as_good_as_its_kind():
    policy = policy_from_environment({"REDPOLL_CODEC": "q4"})
    assert policy.codec_for("all_reduce", torch.float32, BIG, dist.ReduceOp(SUM)) is not None
    assert policy.codec_for("all_reduce", torch.float32, BIG, dist.ReduceOp(MAX)) is None


@pytest.mark.parametrize("text", ["", "  ", "fp32", "exact"])
def test_no_policy(text):
    assert policy_from_environment({"REDPOLL_CODEC": text}) is None
    assert policy_from_environment({}) is None


def test_the_minimum_size():
    policy = policy_from_environment({"REDPOLL_CODEC": "q8", "REDPOLL_CODEC_MIN_SIZE": "64"})
    assert policy.codec_for("all_reduce", torch.float32, 64, SUM) is not None
    assert policy.codec_for("all_reduce", torch.float32, 63, SUM) is None


@pytest.mark.parametrize("text", ["q9", "gzip", "q4:bukket=1", "4"])
def test_a_bad_codec_names_the_variable_and_the_codecs(text):
    with pytest.raises(ValueError, match=r"REDPOLL_CODEC=.*q1 \.\.\. q8"):
        policy_from_environment({"REDPOLL_CODEC": text})


@pytest.mark.parametrize("text", ["many", "-1", "1.5"])
def test_a_bad_minimum_names_the_variable(text):
    with pytest.raises(ValueError, match="REDPOLL_CODEC_MIN_SIZE"):
        policy_from_environment({"REDPOLL_CODEC_MIN_SIZE": text})


def start_wrongly(rank, world):
    import redpoll.torch  # noqa: F401

    with pytest.raises(Exception) as caught:
        store = dist.HashStore()
        dist.init_process_group("redpoll", store=store, rank=0, world_size=1)
    return str(caught.value)


def test_a_bad_value_ends_init_process_group():
    (text,) = values(run_ranks(start_wrongly, 1, environment={"REDPOLL_CODEC": "q44"}))
    assert "REDPOLL_CODEC" in text and "q44" in text and "q8" in text


def reduce_all(rank, world):
    import redpoll.torch

    torch.manual_seed(rank)
    answers = {}
    for name, tensor in {
        "big": torch.randn(BIG),
        "matrix": torch.randn(200, 100),
        "half": torch.randn(BIG).half(),
        "small": torch.randn(100),
        "double": torch.randn(BIG, dtype=torch.float64),
        "integers": torch.arange(BIG),
    }.items():
        each = [torch.empty_like(tensor) for _ in range(world)]
        dist.all_gather(each, tensor)
        exact = sum(one.double() for one in each)
        dist.all_reduce(tensor)
        worst = (tensor.double() - exact).abs().max().item()
        same = [torch.empty_like(tensor) for _ in range(world)]
        dist.all_gather(same, tensor)
        answers[name] = worst, all(torch.equal(one, tensor) for one in same)
    model = DDP(nn.Linear(300, 300))
    redpoll.torch.stats.reset()
    model(torch.randn(4, 300)).sum().backward()
    (stats,) = redpoll.torch.stats().values()
    return answers, stats.ratio, torch.isfinite(model.module.weight.grad).all().item()


def test_all_reduces_of_a_script():
    for answers, ratio, finite in values(
        run_group(reduce_all, 2, environment={"REDPOLL_CODEC": "q8"})
    ):
        assert all(same for _, same in answers.values())
        for name in ("big", "matrix", "half"):
            assert 1e-3 < answers[name][0] < 0.1, name
        for name in ("small", "double", "integers"):
            assert answers[name][0] < 1e-6, name
        assert ratio > 3 and finite


@pytest.mark.parametrize(
    "text, names, meant",
    [
        ("", ["0", "default_pg"], True),
        ("default_pg", ["0", "default_pg"], True),
        ("mesh_dp, mesh_fsdp", ["17", "mesh_dp"], True),
        ("mesh_*", ["17", "mesh_dp"], True),
        ("mesh_dp", ["17", "mesh_tp"], False),
        ("mesh_dp", ["17"], False),
        ("!mesh_tp", ["17", "mesh_tp"], False),
        ("!mesh_tp", ["17", "mesh_dp"], True),
        ("mesh_*, ! mesh_tp", ["17", "mesh_tp"], False),
        ("mesh_*, ! mesh_tp", ["17"], False),
        ("17", ["17", "undefined"], True),
    ],
)
def test_which_groups_are_meant(text, names, meant):
    policy = policy_from_environment({"REDPOLL_CODEC": "q4", "REDPOLL_CODEC_GROUPS": text})
    assert policy.serves(names) == meant


def test_a_bad_filter_names_the_variable():
    with pytest.raises(ValueError, match="REDPOLL_CODEC_GROUPS='a,!'.*names of groups"):
        policy_from_environment({"REDPOLL_CODEC": "q4", "REDPOLL_CODEC_GROUPS": "a,!"})


def reduce_in_groups(rank, world):
    """Whether a sum is lossy, by group; two of one description are told apart."""
    import redpoll.torch as rt

    groups = {
        "default": None,
        "grads": dist.new_group(group_desc="grads"),
        "tensor parallel": dist.new_group(group_desc="tensor parallel"),
        "no name": dist.new_group(),
        "lossy here": dist.new_group(pg_options=rt.Options(codec="q8"), group_desc="x"),
        "exact here": dist.new_group(pg_options=rt.Options(codec=None), group_desc="grads"),
        "large here": dist.new_group(pg_options=rt.Options(codec="q8", codec_min_size=20_000)),
    }
    if hasattr(dist, "split_group"):
        groups["split"] = dist.split_group(None, [[0, 1]], group_desc="grads")
    lossy = {}
    for name, group in groups.items():
        tensor = torch.linspace(0, 1 / 3, BIG)
        dist.all_reduce(tensor, group=group)
        lossy[name] = not torch.equal(tensor, torch.linspace(0, 1 / 3, BIG) * world)
    named = list(rt.stats())
    assert list(rt.stats(groups["grads"])) == ["grads"]
    tensor = torch.ones(5) if rank == 0 else torch.ones(6)
    with pytest.raises(rt.RedpollError, match="of group 'tensor parallel'"):
        dist.all_reduce(tensor, group=groups["tensor parallel"])
    return lossy, named, str(rt.stats())


def test_a_codec_is_for_the_groups_that_are_named():
    environment = {"REDPOLL_CODEC": "q4", "REDPOLL_CODEC_GROUPS": "grads,default_pg"}
    answers = values(run_group(reduce_in_groups, 2, environment=environment))
    for lossy, named, table in answers:
        assert {name for name, one in lossy.items() if one} == {
            "default",
            "grads",
            "split",
            "lossy here",
        }
        assert named[:3] == ["0", "grads", "tensor parallel"]
        assert named[4] == "x" and named[5].startswith("grads (")
        assert "\ntensor parallel " in table


def test_a_codec_without_a_filter_is_for_all_groups():
    ((lossy, *_), _) = values(
        run_group(reduce_in_groups, 2, environment={"REDPOLL_CODEC": "q4"})
    )
    assert {name for name, one in lossy.items() if not one} == {"exact here", "large here"}


def average_parameters(rank, world):
    """PostLocalSGD's averaging is an all-reduce of a flat tensor, as any other."""
    from torch.distributed.algorithms.model_averaging import utils

    changed = []
    for group in (dist.group.WORLD, dist.new_group(group_desc="averaging")):
        model = nn.Linear(200, 200, bias=False)
        model.weight.data.copy_(torch.linspace(0, 1, 40000).view(200, 200))
        before = model.weight.detach().clone()
        utils.average_parameters(iter(model.parameters()), group)
        changed.append(not torch.allclose(model.weight, before, rtol=1e-6))
    return changed


def test_parameters_that_are_averaged_are_lossy_too_unless_their_group_is_left_out():
    environment = {"REDPOLL_CODEC": "q2:bucket=1024", "REDPOLL_CODEC_GROUPS": "!averaging"}
    for changed in values(run_group(average_parameters, 2, environment=environment)):
        assert changed == [True, False]


def test_options_with_a_bad_codec():
    import redpoll.torch as rt

    with pytest.raises(ValueError, match="q44"):
        rt.Options(codec="q44")


def reduce_by_priority(rank, world):
    import redpoll.torch as rt

    names = (None, "bulk", "normal", "urgent")
    groups = [dist.new_group(pg_options=rt.Options(priority=name)) for name in names]
    tensors = [torch.full((BIG,), float(place)) for place, _ in enumerate(groups)]
    works = [
        dist.all_reduce(tensor, group=group, async_op=True)
        for tensor, group in zip(tensors, groups)
    ]
    for work in works:
        work.wait()
    return [tensor[0].item() for tensor in tensors]


def test_groups_of_every_priority_give_the_same_sums():
    for sums in values(run_group(reduce_by_priority, 2)):
        assert sums == [0, 2, 4, 6]


def test_options_with_a_bad_priority():
    import redpoll.torch as rt

    with pytest.raises(ValueError, match="priority is 'high'"):
        rt.Options(priority="high")


class Halves(Policy):
    """The first half of everything with q2, the rest exact."""

    def codec_for(self, operation, dtype, count, op):
        return None

    def pieces(self, operation, dtype, count, op):
        from redpoll.torch import Codec

        if operation != "all_reduce" or not dtype.is_floating_point or count < 10:
            return None
        return [Piece(count // 2, Codec("q2")), Piece(count - count // 2, None)]


def reduce_halves(rank, world):
    import redpoll.torch

    redpoll.torch.communicator_of().policy = Halves()
    torch.manual_seed(rank)
    tensor = torch.randn(7, 11)
    exact = torch.stack(gathered(tensor, world)).sum(0)
    work = dist.all_reduce(tensor, async_op=True)
    outputs = work.get_future().wait()
    error = (tensor - exact).abs().view(-1)
    whole = outputs[0].shape == tensor.shape and outputs[0].data_ptr() == tensor.data_ptr()
    with pytest.raises(ValueError, match="contiguous"):
        dist.all_reduce(torch.randn(7, 11).t())
    model = DDP(nn.Linear(30, 30))
    model(torch.randn(4, 30)).sum().backward()
    return error[:38].max().item(), error[38:].max().item(), whole


def gathered(tensor, world):
    each = [torch.empty_like(tensor) for _ in range(world)]
    dist.all_gather(each, tensor)
    return each


def test_pieces_of_one_tensor_travel_differently_and_come_back_as_one():
    for lossy, exact, whole in values(run_group(reduce_halves, 2)):
        assert lossy > 0.01 and exact < 1e-6 and whole
