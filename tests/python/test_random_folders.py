"""Random configurations of transformers' models: Redpoll reads a folder as transformers does,
logits, losses and gradients, or refuses it by the name of what it has not.

REDPOLL_TEST_SEED replays a seed, which a failure names; the long form draws more."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any, Callable, NamedTuple

import pytest
import torch
import torch.nn.functional as F

from hf_batches import BACKENDS, Refused, Tensors, distance, farthest, run

transformers = pytest.importorskip("transformers")

SEED = int(os.environ.get("REDPOLL_TEST_SEED", 20))
DRAWS = 120 if os.environ.get("REDPOLL_LONG_TESTS") else 12
LOGITS, LOSS, GRADIENTS = 1e-4, 1e-4, 1e-3  # absolute, relative, relative L2
IGNORED, FAR_BELOW = -100, -1e9
# Keys that a config.json may leave out, where transformers means what the model has.
UNSAID = (
    "hidden_act", "layer_norm_eps", "type_vocab_size", "tie_word_embeddings", "is_decoder",
    "add_cross_attention",
)  # fmt: skip


class Wanted(NamedTuple):
    """By names of found tensors, in double precision."""

    logits: Tensors
    losses: Tensors
    seen: torch.Tensor  # places whose logits count, as the shape of `logits` has them first


def draw_weights(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Every parameter from a normal distribution: also those that usually start as 0 or 1."""
    for name, parameter in model.named_parameters():
        is_scale = parameter.dim() == 1 and name.endswith("weight")
        values = torch.randn(parameter.shape, generator=generator) * 0.2 + is_scale
        parameter.data = values.to(parameter.dtype)


def save(
    model: Any, rng: random.Random, generator: torch.Generator, folder: Path, **more: Any
) -> Any:
    """The model as its folder has it, with the weights of some width, in double precision."""
    draw_weights(model, generator)
    dtype = rng.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    model.to(dtype).save_pretrained(folder, max_shard_size=rng.choice(["5GB", "20KB"]))
    path = folder / "config.json"
    config = json.loads(path.read_text()) | more
    usual = type(model.config)()
    for key in UNSAID:
        if rng.random() < 0.2 and key in config and config[key] == getattr(usual, key, None):
            del config[key]
    path.write_text(json.dumps(config))
    # Read again: buffers of a model that was narrowed stay narrow.
    return type(model).from_pretrained(folder, dtype=torch.float32).double().eval()


def compare(model: Any, found: Tensors, wanted: Wanted) -> None:
    assert sorted({key.split(".")[0] for key in found}) == sorted(BACKENDS)
    for backend in BACKENDS:
        for name, value in wanted.logits.items():
            seen = found[f"{backend}.{name}"]
            assert seen.shape == value.shape, name
            if name == "logits":
                seen, value = seen[wanted.seen], value[wanted.seen]
            far = farthest(seen, value)
            assert far <= LOGITS, f"{backend}: {name} differ by {far}"
        for name, value in wanted.losses.items():
            loss = found[f"{backend}.{name}"].item()
            assert loss == pytest.approx(value.item(), rel=LOSS), (backend, name)
        for name, parameter in model.named_parameters():
            gradient = found.get(f"{backend}.gradient.{name}")
            if parameter.grad is None:
                continue
            assert gradient is not None, name
            far = distance(gradient, parameter.grad)
            assert far <= GRADIENTS, f"{backend}: gradient of {name} is off by {far}"


def check(
    draw: Callable[[random.Random, torch.Generator, Path], tuple[Any, Tensors, list[str]]],
    judge: Callable[[Any, Tensors], Wanted],
    index: int,
    folder: Path,
) -> None:
    """A folder that Redpoll refuses names what it lacks, and lacks something."""
    print(f"REDPOLL_TEST_SEED={SEED}, draw {index}")
    rng = random.Random(SEED * 1000 + index)
    generator = torch.Generator().manual_seed(SEED * 1000 + index)
    model, batch, unknown = draw(rng, generator, folder)
    print(json.loads((folder / "config.json").read_text()), unknown)
    try:
        text, note, found = run(folder, batch)
    except Refused as refused:
        print(refused)
        assert any(f"'{key}' is " in str(refused) for key in unknown), (str(refused), unknown)
        return
    print(text, note)
    assert not unknown, f"{text}, where config.json has others of {unknown}"
    compare(model, found, judge(model, batch))


# ---- BERT ----

ENCODERS = ("BertForPreTraining", "BertForMaskedLM", "BertForQuestionAnswering")
# What ours always is, and what a folder may say instead, which is refused.
ENCODER_VARIANTS: list[tuple[str, Any, list[Any]]] = [
    ("hidden_act", "gelu", ["gelu_new", "relu", "silu"]),
    ("layer_norm_eps", 1e-12, [1e-5, 1e-7]),
    ("type_vocab_size", 2, [1, 3]),
    ("tie_word_embeddings", True, [False]),
    ("position_embedding_type", "absolute", ["relative_key", "relative_key_query"]),
]


def draw_pairs(
    rng: random.Random, generator: torch.Generator, vocabulary: int, positions: int
) -> Tensors:
    """Pairs of texts with hidden tokens, and padding behind some of them."""
    rows, length = rng.randint(1, 3), rng.randint(4, positions)
    places = torch.arange(length)
    used = torch.tensor([[rng.randint(4, length)] for _ in range(rows)])
    second = torch.tensor([[rng.randint(1, end[0] - 1)] for end in used.tolist()])
    documents = (places >= used).long()
    hidden = torch.rand(rows, length, generator=generator) < 0.4
    hidden[:, 0] = True
    labels = torch.randint(0, vocabulary, (rows, length), generator=generator)
    ends = [sorted(rng.randrange(end[0]) for _ in range(2)) for end in used.tolist()]
    return {
        "tokens": torch.randint(0, vocabulary, (rows, length), generator=generator),
        "segments": ((places >= second) & (places < used)).long(),
        "documents": documents,
        "labels": labels.masked_fill(~hidden | (documents == 1), IGNORED),
        "next": torch.randint(0, 2, (rows,), generator=generator),
        "ends": torch.tensor(ends),
        "outside": (documents * FAR_BELOW)[:, None].expand(-1, 2, -1).float(),
    }


def draw_encoder(
    rng: random.Random, generator: torch.Generator, folder: Path
) -> tuple[Any, Tensors, list[str]]:
    kind = rng.choice(ENCODERS)
    heads, vocabulary, positions = rng.randint(1, 5), rng.randint(5, 90), rng.randint(4, 24)
    chosen: dict[str, Any] = {}
    for key, usual, others in ENCODER_VARIANTS:
        chosen[key] = rng.choice(others) if rng.random() < 0.1 else usual
    unknown = [key for key, usual, _ in ENCODER_VARIANTS if chosen[key] != usual]
    more = {"position_embedding_type": chosen.pop("position_embedding_type")}
    config = transformers.BertConfig(
        # Norms of a few elements are rounding more than anything else.
        hidden_size=heads * rng.randint(-(-8 // heads), 17), num_attention_heads=heads,
        num_hidden_layers=rng.randint(1, 3), intermediate_size=rng.randint(1, 90),
        vocab_size=vocabulary, max_position_embeddings=positions,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        pad_token_id=None,  # else its row had no gradient
        **chosen,
    )  # fmt: skip
    model = save(getattr(transformers, kind)(config), rng, generator, folder, **more)
    batch = draw_pairs(rng, generator, vocabulary, positions)
    if chosen["type_vocab_size"] == 1:
        batch["segments"] *= 0
    valid = (batch["labels"] != IGNORED).sum().item()
    rows = len(batch["tokens"])
    is_spans = kind == "BertForQuestionAnswering"
    batch["scale"] = torch.tensor(1 / (2 * rows) if is_spans else 1 / valid)
    # The head of what follows starts anew where the folder has none: it shall not count.
    batch["sample_scale"] = torch.tensor(1 / rows if kind == ENCODERS[0] else 0.0)
    return model, batch, unknown


def judge_encoder(model: Any, batch: Tensors) -> Wanted:
    out = model(
        input_ids=batch["tokens"],
        token_type_ids=batch["segments"],
        attention_mask=1 - batch["documents"],
    )
    seen = batch["documents"] == 0
    if isinstance(model, transformers.BertForQuestionAnswering):
        logits = torch.stack([out.start_logits, out.end_logits], 1)
        seen = seen[:, None].expand_as(logits)
        inside = logits.masked_fill(~seen, float("-inf"))
        losses = {"loss": F.cross_entropy(inside.flatten(0, 1), batch["ends"].flatten())}
        all_logits = {"logits": logits.detach()}
    else:
        logits = out.prediction_logits if hasattr(out, "prediction_logits") else out.logits
        labels = batch["labels"].flatten()
        losses = {"loss": F.cross_entropy(logits.flatten(0, 1), labels, ignore_index=IGNORED)}
        all_logits = {"logits": logits.detach()}
        if hasattr(out, "seq_relationship_logits"):
            follows = out.seq_relationship_logits
            losses["sample_loss"] = F.cross_entropy(follows, batch["next"])
            all_logits["sample_logits"] = follows.detach()
    torch.stack(list(losses.values())).sum().backward()
    return Wanted(all_logits, losses, seen)


@pytest.mark.parametrize("index", range(DRAWS))
def test_random_encoders_are_those_of_transformers(index: int, tmp_path: Path) -> None:
    check(draw_encoder, judge_encoder, index, tmp_path)
