"""compress(codec="auto:like=q4"): bits of its own for each parameter, the same on all ranks."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ranks import run_group, values
from redpoll import _abi
from redpoll.torch.codecs._adaptive import AdaptiveCodec, BitChooser
from redpoll.torch.codecs._rules import Rules, parse_codec

BIG = torch.Size([200, 100])
EVERY, STEPS = 3, 8


# ---- texts and rules ----


def test_texts_are_those_of_the_command():
    codec = AdaptiveCodec("auto:like=q4,bucket=128")
    assert (str(codec.like), codec.every) == ("q4:bucket=128", 100)
    assert str(codec) == "auto:like=q4:bucket=128,every=100"
    assert codec == AdaptiveCodec(str(codec)) and hash(codec) == hash(AdaptiveCodec(str(codec)))
    assert codec != AdaptiveCodec("auto:like=q4") and codec != codec.like
    assert not codec.fastest and str(codec.typical).startswith("v4:")
    fastest = AdaptiveCodec("auto")
    assert fastest.fastest and str(fastest) == "auto:every=100"
    assert str(fastest.like) == "q4:bucket=512" and fastest == AdaptiveCodec(str(fastest))
    assert str(codec.at_level(0)) == "q4:bucket=128"
    assert str(codec.at_level(6)) == "v2:bucket=16384,quarters=1"


@pytest.mark.parametrize(
    "text, words",
    [
        ("auto:like=", "whose error may it have"),
        ("auto:bucket=64", "comes before like="),
        ("auto:like=topk", "no bits to choose"),
        ("auto:like=q9", "q9"),
        ("auto:like=q4,every=0", "every is 0"),
        ("auto:like=q4,size=3", "size"),
    ],
)
def test_wrong_texts_are_named(text, words):
    with pytest.raises(ValueError, match=words):
        Rules(text)


def test_rules_go_before_it():
    rules = Rules(" auto:like=q4 ", {"head.*": "q8", "stem.*": None}, 10_000)
    assert rules.adaptive is not None and str(rules.codec_for("fc", BIG)) == "q4:bucket=512"
    assert rules.is_adaptive("fc", BIG)
    assert not rules.is_adaptive("head.weight", BIG) and not rules.is_adaptive("stem.w", BIG)
    assert not rules.is_adaptive("fc", torch.Size([9, 9]))
    assert not Rules("q4").is_adaptive("fc", BIG)
    assert rules.replaced("q8", None, None).adaptive is None


@pytest.mark.parametrize("codec", ["auto:like=q4", "auto"])
def test_it_is_for_whole_models(codec):
    for attempt in (lambda: parse_codec(codec), lambda: Rules("q4", {"*": codec})):
        with pytest.raises(ValueError, match="for codec= of a DistributedDataParallel alone"):
            attempt()


# ---- choosing ----


def chosen_of(codec, gradients):
    """The choice of one rank."""
    chooser = BitChooser(AdaptiveCodec(codec), list(gradients))
    chooser.begin()
    for name, gradient in gradients.items():
        chooser.measure(name, gradient, None)
    chooser._work = type("Done", (), {"wait": lambda self: None})()
    chooser.settle()
    return chooser


def totals(chooser, level_of):
    """Squared error and bytes of all tensors, as measured at these levels."""
    rows = chooser._measured.tolist()
    levels = [level_of(name) for name in chooser.levels]
    lost = sum(row[level] for row, level in zip(rows, levels))
    return lost, sum(row[_abi.RP_LEVELS + level] for row, level in zip(rows, levels))


def test_fewer_bytes_at_no_more_error():
    generator = torch.Generator().manual_seed(5)
    scales = {"small": 1e-3, "large": 1.0, "between": 0.03}
    gradients = {n: torch.randn(64, 512, generator=generator) * s for n, s in scales.items()}
    chooser = chosen_of("auto:like=q4", gradients)
    levels = chooser.levels
    assert levels["small"] <= levels["between"] < levels["large"]
    assert str(chooser.codec_of("large")).startswith("v")
    lost, size = totals(chooser, levels.get)
    like_lost, like_size = totals(chooser, lambda name: 0)
    assert lost <= like_lost and 1.25 * size < like_size
    assert like_size == 3 * chooser.codec.like.encoded_bytes(torch.float32, 64 * 512)
    assert chooser.summary is not None and "times fewer bytes than q4" in chooser.summary


def test_measures_what_is_no_plain_float32():
    gradient = torch.randn(128, 64, generator=torch.Generator().manual_seed(6))
    plain = chosen_of("auto:like=q4", {"w": gradient})._measured
    for same in (gradient.double(), gradient.t().contiguous().t()):
        other = chosen_of("auto:like=q4", {"w": same})._measured
        if same.is_contiguous():
            assert torch.equal(plain, other)
        assert torch.allclose(plain.sum(), other.sum(), rtol=0.1)
    half = chosen_of("auto:like=q4", {"w": gradient.bfloat16()})._measured
    assert torch.allclose(plain[0, 1:17], half[0, 1:17], rtol=0.1)


def test_what_is_restored_is_of_these_parameters():
    chooser = BitChooser(AdaptiveCodec("auto:like=q4"), ["a", "b"])
    chooser.restore({"a": 3, "b": 32, "gone": 2})
    assert chooser.levels == {"a": 3, "b": 32}
    chooser.restore({"a": 3})
    assert chooser.levels == {} and str(chooser.codec_of("a")) == "q4:bucket=512"
    with pytest.raises(ValueError, match="cannot have been chosen"):
        chooser.restore({"a": 3, "b": 33})


# ---- a model ----


class Net(nn.Module):
    """Layers whose gradients differ in size by far."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 128)
        self.second = nn.Linear(128, 128)
        self.last = nn.Linear(128, 64)

    def forward(self, x):
        return self.last(torch.relu(self.second(torch.relu(self.first(0.01 * x)))))


def train(model, state, rank, steps, first=0):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    codecs = []
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(100 * step + rank)
        loss = model(torch.randn(8, 256, generator=generator)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        codecs.append(state.codecs())
    return codecs


def start():
    import redpoll.torch

    torch.manual_seed(0)
    model = DDP(Net())
    codec = f"auto:like=q4,every={EVERY}"
    return model, redpoll.torch.compress(model, codec, min_size=1000)


def numbers(model):
    return [float(p.detach().double().sum()) for p in model.parameters()]


def adaptive(rank, world):
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("redpoll").addHandler(handler)
    logging.getLogger("redpoll").setLevel(logging.INFO)
    model, state = start()
    codecs = train(model, state, rank, STEPS)
    assert all(one["first.bias"] == "exact" for one in codecs)
    assert codecs[0]["first.weight"] == "q4:bucket=512", "nothing is measured yet"
    assert len({*codecs[1].values()}) > 2, codecs[1]
    assert repr(state).startswith("CompressState(auto:like=q4:bucket=512,every=3, 3 of 6 ")
    told = [line for line in lines if line.startswith("codec auto, after 1 steps: ")]
    assert len(told) == (rank == 0)
    return codecs, numbers(model)


@pytest.mark.parametrize("world", [2, 3])
def test_all_ranks_choose_alike(world):
    results = values(run_group(adaptive, world))
    assert all(one == results[0] for one in results[1:])


def resumed(rank, world):
    """Saved after `cut` steps, also right behind one that has measured."""
    model, state = start()
    train(model, state, rank, STEPS)
    wanted = numbers(model)
    for cut in (2, EVERY + 1):
        model, state = start()
        train(model, state, rank, cut)
        kept, parameters = state.state_dict(), model.module.state_dict()
        model, other = start()
        model.module.load_state_dict(parameters)
        other.load_state_dict(kept)
        assert other.codecs() == state.codecs()
        train(model, other, rank, STEPS - cut, cut)
        assert numbers(model) == wanted, cut
    return True


def test_a_resumed_run_is_the_same():
    assert values(run_group(resumed, 2)) == [True, True]


def changed(rank, world):
    model, state = start()
    train(model, state, rank, 2)
    state.set_codec("q8")
    assert state.chooser is None and set(state.codecs().values()) == {"q8:bucket=512", "exact"}
    train(model, state, rank, 1)
    state.set_codec("auto:like=q2,every=1", rules={"last.weight": "q8"})
    codecs = train(model, state, rank, 3)
    assert {one["last.weight"] for one in codecs} == {"q8:bucket=512"}
    state.enabled = False
    train(model, state, rank, 2)
    return codecs


def test_it_comes_and_goes():
    results = values(run_group(changed, 2))
    assert results[0] == results[1]


def fastest(rank, world, wanted, gains):
    """What a comparison finds is followed: by buckets, from the first step on, and after a
    restart without another one."""
    import redpoll.torch
    from redpoll.torch.comm._communicator import Communicator

    compared = []
    known = Communicator.compare_codec

    def compare(self, codec, most, feedback):
        compared.append((str(codec), most, feedback))
        found = known(self, codec, 20_000, feedback)
        return found if wanted is None else (wanted, "as the test wants")

    Communicator.compare_codec = compare
    if gains is not None:
        _abi.rp_step_trial_gains = lambda seconds: gains
    torch.manual_seed(0)
    model = DDP(Net())
    state = redpoll.torch.compress(model, "auto:every=2", min_size=1000)
    codecs = train(model, state, rank, 18)
    assert compared == [("v4:bucket=16384", 57344, True)]
    kept = state.state_dict()
    other = DDP(Net())
    again = redpoll.torch.compress(other, "auto:every=2", min_size=1000)
    again.load_state_dict(kept)
    train(other, again, rank, 1)
    assert len(compared) == 1
    return codecs, kept["lossy_from"], numbers(model)


def lossy_steps(codecs):
    """Those in which all weights were, or none: 0 and 1."""
    steps = []
    for step in codecs:
        weights = [codec for name, codec in step.items() if name.endswith("weight")]
        lossy = sum(codec.startswith(("v", "q")) for codec in weights)
        assert lossy in (0, len(weights)) and step["first.bias"] == "exact"
        steps.append(int(lossy > 0))
    return steps


@pytest.mark.parametrize("wanted, gains", [(57344, 1), (57344, 0), (57345, 1)])
def test_what_is_faster_is_followed(wanted, gains):
    results = values(run_group(fastest, 2, wanted, gains))
    assert results[0] == results[1]
    codecs, lossy_from, _ = results[0]
    gains = gains and wanted <= 57344  # no bucket is longer
    assert lossy_from == (wanted if gains else _abi.RP_LOSSY_NEVER)
    assert len(codecs) == 18
    if wanted > 57344:
        assert lossy_steps(codecs) == 18 * [0]
    else:
        assert lossy_steps(codecs) == 7 * [0] + 7 * [1] + 4 * [gains]
        assert any(codec.startswith("v") for codec in codecs[9].values()), "bits were chosen"


def test_a_slow_link_is_found_out():
    link = {"REDPOLL_LINK": "20Mbit,1us"}
    results = values(run_group(fastest, 2, None, None, environment=link))
    codecs, lossy_from, _ = results[0]
    assert results[0] == results[1] and lossy_from <= 20_000
    assert lossy_steps(codecs)[7:] == 11 * [1]


def test_sharded_models_are_refused():
    import redpoll.torch

    with pytest.raises((TypeError, ValueError)):
        redpoll.torch.compress(nn.Linear(2, 2), grads="auto:like=q4")
