"""Rules, residuals, states and the averaging of buckets, without a network."""

from __future__ import annotations

import itertools

import pytest
import torch

from redpoll.torch.codecs._rules import Rule, Rules, parse_codec
from redpoll.torch.comm._codec import Codec
from redpoll.torch.compression._reducer import BucketReducer, tensor_id
from redpoll.torch.feedback._residuals import (
    FORMAT,
    VERSION,
    choose_states,
    flattened,
    is_dense,
    shaped,
    sum_residuals,
)

BIG, FLAT, SMALL = torch.Size([200, 100]), torch.Size([50_000]), torch.Size([9, 9])


# ---- rules ----


@pytest.mark.parametrize(
    "rules, name, shape, expected",
    [
        (None, "fc.weight", BIG, "q4:bucket=512"),
        (None, "fc.bias", FLAT, None),
        (None, "fc.weight", SMALL, None),
        ({"fc.*": None}, "fc.weight", BIG, None),
        ({"fc.*": "exact"}, "fc.weight", BIG, None),
        ({"fc.*": "fp32"}, "fc.weight", BIG, None),
        ({"fc.*": "q8"}, "fc.weight", BIG, "q8:bucket=512"),
        ({"fc.*": "q8"}, "conv.weight", BIG, "q4:bucket=512"),
        ({"*": "q8"}, "fc.bias", FLAT, "q8:bucket=512"),
        ([("fc.*", None), ("*", "q2")], "fc.weight", BIG, None),
        ([("*", "q2"), ("fc.*", None)], "fc.weight", BIG, "q2:bucket=512"),
        ([Rule("q8", min_size=20_000)], "fc.weight", BIG, "q8:bucket=512"),
        ([Rule("q8", min_size=20_001)], "fc.weight", BIG, "q4:bucket=512"),
        ([Rule("q8", max_size=20_000)], "fc.weight", BIG, "q8:bucket=512"),
        ([Rule("q8", max_size=19_999)], "fc.weight", BIG, "q4:bucket=512"),
        ([Rule("q8", min_dim=2)], "fc.bias", FLAT, None),
        ([Rule("q8", max_dim=1)], "fc.bias", FLAT, "q8:bucket=512"),
        ([Rule("q8", max_dim=1)], "fc.weight", BIG, "q4:bucket=512"),
    ],
)
def test_the_first_rule_that_fits_decides(rules, name, shape, expected):
    codec = Rules("q4", rules, 10_000).codec_for(name, shape)
    assert (codec and str(codec)) == expected


def test_min_size_counts_elements():
    assert Rules("q4", None, 81).codec_for("w", SMALL) is not None
    assert Rules("q4", None, 82).codec_for("w", SMALL) is None


@pytest.mark.parametrize("text", ["q9", "q4:bucket=0", "zip", "q4:bukket=3"])
def test_a_bad_codec_is_named(text):
    with pytest.raises(ValueError, match=text):
        parse_codec(text)


def test_what_is_no_codec_or_rule():
    with pytest.raises(TypeError, match="4"):
        parse_codec(4)
    with pytest.raises(TypeError, match="pair"):
        Rules("q4", ["fc.weight"])
    with pytest.raises(ValueError, match="min_size"):
        Rules("q4", None, -1)


def test_a_rule_that_fits_no_parameter_is_named():
    rules = Rules("q4", {"encoder.*": None})
    rules.check_names(["encoder.weight"])
    with pytest.raises(ValueError, match=r"'encoder\.\*' fits no parameter.*encode\.weight"):
        rules.check_names(["encode.weight", "head.weight"])


# ---- residuals ----

LAYOUTS = [
    torch.empty(3, 4),
    torch.empty(2, 3, 4, 5),
    torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last),
    torch.empty(4, 3).t(),
    torch.empty(()),
    torch.empty(1, 5, 1),
    torch.empty(0, 3),
]


@pytest.mark.parametrize("like", LAYOUTS, ids=lambda t: f"{list(t.shape)}/{t.stride()}")
def test_residuals_follow_the_parameters_elements(like):
    values = torch.arange(float(like.numel())).view(like.shape)
    flat = flattened(values, like)
    assert torch.equal(shaped(flat, like), values)
    if like.numel():
        like = torch.empty_strided(like.shape, like.stride()).copy_(values)
        assert torch.equal(like.as_strided((like.numel(),), (1,)), flat)


def test_what_is_dense():
    assert all(is_dense(tensor) for tensor in LAYOUTS if tensor.numel())
    assert not is_dense(torch.empty(4, 4)[:, :2])
    assert not is_dense(torch.empty(4, 1).expand(4, 3))


def state_of(rank, world, step=5, **residuals):
    return {
        "format": FORMAT,
        "version": VERSION,
        "rank": rank,
        "world": world,
        "step": step,
        "buckets": [],
        "residuals": residuals,
    }


@pytest.mark.parametrize("old, new", list(itertools.product((1, 2, 3, 5), repeat=2)))
def test_residuals_are_conserved_when_the_world_changes(old, new):
    like = {"w": torch.empty(4, 6)}
    states = [state_of(rank, old, w=torch.randn(4, 6)) for rank in range(old)]
    before = sum(state["residuals"]["w"] for state in states)
    after = torch.zeros(24)
    for rank in range(new):
        flats, unexpected, misfits = sum_residuals(choose_states(states, rank, new), like)
        assert not unexpected and not misfits
        after += flats.get("w", torch.zeros(24))
    torch.testing.assert_close(after.view(4, 6), before, rtol=0, atol=1e-6)


def test_the_same_world_keeps_its_bits():
    states = [state_of(rank, 3, w=torch.randn(5)) for rank in range(3)]
    for rank in range(3):
        flats, _, _ = sum_residuals(choose_states(states, rank, 3), {"w": torch.empty(5)})
        assert torch.equal(flats["w"], states[rank]["residuals"]["w"])


@pytest.mark.parametrize(
    "states, message",
    [
        ([state_of(1, 2)], r"rank 0 of 2 takes over what rank 0 of 2.*state of rank 1"),
        ([state_of(0, 4)], r"what rank 2 of 4"),
        ([state_of(0, 2), state_of(1, 3)], "runs of 2 and 3 ranks"),
        ([state_of(0, 2), state_of(1, 2, step=6)], "5 and 6 steps"),
        ([state_of(0, 2), state_of(0, 2)], "each rank once"),
        ([{"step": 5}], "no state of compress"),
        ([{**state_of(0, 2), "version": 9}], "version 9"),
    ],
)
def test_states_that_do_not_belong_here(states, message):
    with pytest.raises(ValueError, match=message):
        choose_states(states, 0, 2)


def test_unexpected_names_and_shapes_are_told():
    states = [state_of(0, 1, w=torch.zeros(3), v=torch.zeros(2), x=torch.zeros(1))]
    flats, unexpected, misfits = sum_residuals(
        states, {"w": torch.zeros(3), "v": torch.zeros(5)}
    )
    assert list(flats) == ["w"] and unexpected == ["x"] and misfits == ["v: [2], not [5]"]


# ---- buckets, with ranks that share a process ----


class FakeWork:
    def __init__(self):
        self.future, self.error = torch.futures.Future(), None

    def fail(self, error):
        self.error = error
        self.future.set_result([])

    def exception(self):
        return self.error

    def get_future(self):
        return self.future


class FakeWorld:
    """All ranks' communicators: reduces when the last rank has posted. What is lossy rounds to
    multiples of 1/4; the elements' owners change with every call, as they do when DDP rebuilds
    its buckets."""

    def __init__(self, world):
        self.world, self.calls = world, 0
        self.posted = [[] for _ in range(world)]  # in order, of each rank
        self.ranks = [FakeRank(self, rank) for rank in range(world)]

    def reduce(self):
        calls = [posted.pop(0) for posted in self.posted]
        self.calls += 1
        for i in range(len(calls[0][0])):
            self.reduce_tensor([(call[0][i], call[1][i], call[2][i]) for call in calls])
        for _, _, _, work in calls:
            work.future.set_result([])

    def reduce_tensor(self, parts):
        tensors, codecs, residuals = zip(*parts)
        assert all(codec == codecs[0] for codec in codecs)
        count = len(tensors[0])
        owner = (torch.arange(count) + self.calls) % self.world
        total = torch.zeros(count)
        for rank in range(self.world):
            sent = self.encode(tensors[rank].float(), codecs[0], residuals[rank], owner != rank)
            total += torch.where(owner == rank, tensors[rank].float(), sent)
        for rank in range(self.world):
            announced = self.encode(total, codecs[0], residuals[rank], owner == rank)
            total = torch.where(owner == rank, announced, total)
        for tensor in tensors:
            tensor.copy_(total)

    @staticmethod
    def encode(values, codec, residual, mask):
        wanted = values if residual is None else values + residual
        sent = wanted if codec is None else (wanted * 4).round() / 4
        if residual is not None:
            residual.copy_(torch.where(mask, wanted - sent, residual))
        return sent


class FakeRank:
    name = "fake"

    def __init__(self, world, rank):
        self.shared, self.world, self.rank, self.posts = world, world.world, rank, []

    def all_reduce(self, tensors, codecs, residuals, ids, seed, step):
        work = FakeWork()
        self.posts.append({"codecs": codecs, "ids": ids, "step": step, "residuals": residuals})
        self.shared.posted[self.rank].append((tensors, codecs, residuals, work))
        if all(self.shared.posted):
            self.shared.reduce()
        return work


class FakeBucket:
    def __init__(self, named, parameters, gradients, index=0, last=True, dtype=torch.float32):
        self._parameters = [parameters[name] for name in named]
        flat = [gradients[name].reshape(-1).to(dtype) for name in named]
        self._buffer = torch.cat(flat)
        self._index, self._last = index, last

    def index(self):
        return self._index

    def is_last(self):
        return self._last

    def buffer(self):
        return self._buffer

    def parameters(self):
        return list(self._parameters)

    def gradients(self):
        first, views = 0, []
        for parameter in self._parameters:
            views.append(self._buffer[first : first + parameter.numel()].view(parameter.shape))
            first += parameter.numel()
        return views


SHAPES = {"a.weight": (8, 8), "a.bias": (8,), "b.weight": (4, 16), "b.bias": (4,)}


class Fleet:
    """The reducers of a model of SHAPES on all ranks."""

    def __init__(self, world=3, dropped=False, dtype=torch.float32, **options):
        self.world = FakeWorld(world)
        options = {"error_feedback": True, "warmup_steps": 0, "seed": 0, **options}
        rules = options.pop("rules", Rules("q4", None, 10))
        self.parameters = {n: torch.zeros(s, dtype=dtype) for n, s in SHAPES.items()}
        self.dtype = dtype
        self.reducers = [
            BucketReducer(
                rank, self.parameters, rules, gradients_may_be_dropped=dropped, **options
            )
            for rank in self.world.ranks
        ]

    def gradients(self, seed):
        generator = torch.Generator().manual_seed(seed)
        return [
            {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
            for _ in self.reducers
        ]

    def step(self, gradients, buckets=(tuple(SHAPES),)):
        """One backward pass; returns the mean that rank 0 got, by name."""
        got = [{} for _ in self.reducers]
        started = []
        for index, names in enumerate(buckets):
            last = index == len(buckets) - 1
            for reducer, mine, own in zip(self.reducers, gradients, got):
                bucket = FakeBucket(names, self.parameters, mine, index, last, self.dtype)
                started.append((names, bucket, reducer.reduce_bucket(bucket), own))
        for names, bucket, future, own in started:
            assert future.wait() is bucket.buffer()
            own.update(zip(names, (view.clone() for view in bucket.gradients())))
        for name in SHAPES:
            assert all(torch.equal(mine[name], got[0][name]) for mine in got)
        return got[0]

    def held_back(self, name):
        total = torch.zeros(SHAPES[name])
        for reducer in self.reducers:
            flat = reducer.residuals.get(name)
            if flat is not None:
                total += flat.view(SHAPES[name])
        return total


def mean(gradients, name):
    return sum(mine[name] for mine in gradients) / len(gradients)


def test_vectors_are_exact_and_join_matrices_do_not():
    fleet = Fleet(dropped=False)
    gradients = fleet.gradients(1)
    got = fleet.step(gradients, [("a.weight", "a.bias", "b.bias", "b.weight")])
    for name in ("a.bias", "b.bias"):
        torch.testing.assert_close(got[name], mean(gradients, name))
    assert not torch.allclose(got["a.weight"], mean(gradients, "a.weight"), atol=1e-3)
    post = fleet.world.ranks[0].posts[0]
    assert [codec and str(codec) for codec in post["codecs"]] == [
        "q4:bucket=512",
        None,  # both biases
        "q4:bucket=512",
    ]
    assert post["ids"][0] == tensor_id("a.weight") and post["ids"][2] == tensor_id("b.weight")


def test_nothing_is_lost_while_buckets_are_rebuilt_and_owners_change():
    fleet = Fleet()
    sent = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    wanted = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    layouts = [
        [tuple(SHAPES)],
        [("b.bias", "b.weight"), ("a.bias", "a.weight")],
        [("b.weight", "a.weight"), ("b.bias",), ("a.bias",)],
    ]
    for step in range(12):
        gradients = fleet.gradients(step)
        got = fleet.step(gradients, layouts[step % 3])
        for name in SHAPES:
            sent[name] += got[name]
            wanted[name] += mean(gradients, name)
    for name in SHAPES:
        torch.testing.assert_close(
            sent[name] + fleet.held_back(name), wanted[name], rtol=0, atol=1e-5
        )
    assert fleet.held_back("a.weight").abs().max() > 0.01


def test_without_error_feedback_things_are_lost():
    fleet = Fleet(error_feedback=False)
    sent, wanted = torch.zeros(8, 8), torch.zeros(8, 8)
    for step in range(12):
        gradients = fleet.gradients(step)
        sent += fleet.step(gradients)["a.weight"]
        wanted += mean(gradients, "a.weight")
    assert not list(fleet.reducers[0].residuals)
    assert (sent - wanted).abs().max() > 0.1


def test_warmup_is_exact_then_lossy():
    fleet = Fleet(warmup_steps=2)
    for step in range(4):
        gradients = fleet.gradients(step)
        got = fleet.step(gradients, [("a.weight", "a.bias"), ("b.weight", "b.bias")])
        exact = torch.allclose(got["a.weight"], mean(gradients, "a.weight"), atol=1e-6)
        assert exact == (step < 2), step
    posts = fleet.world.ranks[0].posts
    assert [post["step"] for post in posts] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [len(post["codecs"]) for post in posts] == [1, 1, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_going_exact_pays_out_what_was_held_back(dtype):
    fleet = Fleet(dtype=dtype)
    fleet.step(fleet.gradients(0))
    held = fleet.held_back("a.weight")
    assert held.abs().max() > 0.01
    for reducer in fleet.reducers:
        reducer.enabled = False
    gradients = fleet.gradients(1)
    got = fleet.step(gradients)["a.weight"].float()
    tolerance = 1e-6 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(got, mean(gradients, "a.weight") + held, rtol=0, atol=tolerance)
    if dtype == torch.float32:
        assert not list(fleet.reducers[0].residuals)
        gradients = fleet.gradients(2)
        got = fleet.step(gradients)["a.weight"]
        torch.testing.assert_close(got, mean(gradients, "a.weight"))


def test_the_residual_of_an_unused_parameter_stays():
    fleet = Fleet(dropped=True)
    fleet.step(fleet.gradients(0))
    held = fleet.held_back("a.weight")
    gradients = fleet.gradients(1)
    for mine in gradients:
        mine["a.weight"].zero_()
    assert fleet.step(gradients)["a.weight"].abs().max() == 0
    assert torch.equal(fleet.held_back("a.weight"), held)


def test_nothing_is_lost_when_only_some_ranks_use_a_parameter():
    fleet = Fleet(dropped=True)
    sent, wanted = torch.zeros(8, 8), torch.zeros(8, 8)
    for step in range(9):
        gradients = fleet.gradients(step)
        gradients[step % 3]["a.weight"].zero_()
        sent += fleet.step(gradients)["a.weight"]
        wanted += mean(gradients, "a.weight")
    torch.testing.assert_close(sent + fleet.held_back("a.weight"), wanted, rtol=0, atol=1e-5)


def test_a_world_of_one_pays_out_what_it_took_over():
    fleet = Fleet(world=1)
    fleet.reducers[0].residuals.replace({"a.weight": torch.ones(64)})
    gradients = fleet.gradients(0)
    got = fleet.step(gradients)["a.weight"]
    torch.testing.assert_close(got, gradients[0]["a.weight"] + 1)
    assert not list(fleet.reducers[0].residuals)
    torch.testing.assert_close(fleet.step(gradients)["a.weight"], gradients[0]["a.weight"])


def test_a_dtype_that_the_codec_does_not_take_is_an_error():
    with pytest.raises(TypeError, match=r"'a.weight', whose type is torch.float64"):
        Fleet(dtype=torch.float64).reducers[0].check()
    Fleet(dtype=torch.float64, rules=Rules("exact")).reducers[0].check()
    reducer = Fleet(world=1).reducers[0]
    bucket = FakeBucket(
        ("a.weight",), reducer.parameters, {"a.weight": torch.ones(8, 8)}, dtype=torch.float64
    )
    with pytest.raises(TypeError, match="a.weight"):
        reducer.reduce_bucket(bucket)


def test_one_stochastic_bit_with_error_feedback_is_refused():
    rules = Rules("q1:rounding=stochastic", None, 10)
    with pytest.raises(ValueError, match="diverges"):
        Fleet(rules=rules).reducers[0].check()
    Fleet(rules=rules, error_feedback=False).reducers[0].check()


def test_a_parameter_that_was_not_there_is_named():
    fleet = Fleet(world=1)
    bucket = FakeBucket(("x",), {"x": torch.zeros(3, 7)}, {"x": torch.zeros(3, 7)})
    with pytest.raises(RuntimeError, match=r"shape \[3, 7\]"):
        fleet.reducers[0].reduce_bucket(bucket)


def test_a_replayed_step_has_the_saved_buckets_and_the_same_bits():
    layout = [("b.weight", "a.bias"), ("a.weight", "b.bias")]
    straight, replayed = Fleet(), Fleet()
    for fleet in (straight, replayed):
        fleet.step(fleet.gradients(0), layout)
    for reducer in replayed.reducers:
        reducer.replay(reducer.buckets())
        assert reducer.buckets() == [list(names) for names in layout]
    gradients = straight.gradients(1)
    expected = straight.step(gradients, layout)
    got = replayed.step(gradients, [("a.weight",), ("a.bias", "b.weight", "b.bias")])
    assert all(torch.equal(expected[name], got[name]) for name in SHAPES)
    assert replayed.reducers[0].buckets() == [list(names) for names in layout]
    gradients = straight.gradients(2)
    expected, got = straight.step(gradients, layout), replayed.step(gradients, layout)
    assert all(torch.equal(expected[name], got[name]) for name in SHAPES)


def test_a_layout_of_other_parameters_is_not_replayed():
    fleet = Fleet()
    for reducer in fleet.reducers:
        reducer.replay([["a.weight", "c.weight"]])
        reducer.replay([])
    fleet.step(fleet.gradients(0))
    assert len(fleet.world.ranks[0].posts) == 1


def test_a_failure_reaches_the_future_and_keeps_residuals():
    fleet = Fleet(world=2)
    fleet.step(fleet.gradients(0))
    held = fleet.held_back("a.weight").clone()
    reducer = fleet.reducers[0]
    bucket = FakeBucket(tuple(SHAPES), fleet.parameters, fleet.gradients(1)[0])
    future = reducer.reduce_bucket(bucket)
    fleet.world.posted[0][0][3].fail(RuntimeError("rank 1 died"))
    with pytest.raises(RuntimeError, match="rank 1 died"):
        future.wait()
    assert torch.equal(fleet.held_back("a.weight"), held)


def test_codecs_of_a_dtype_that_is_the_wires_are_exact():
    assert Codec("bf16").is_exact(torch.bfloat16)
    reducer = Fleet(dtype=torch.bfloat16, rules=Rules("bf16", None, 10)).reducers[0]
    assert reducer.codec_of("a.weight") is None
