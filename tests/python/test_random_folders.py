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
# A model of a folder that it writes, a batch, and keys of config.json to be refused.
Draw = Callable[[random.Random, torch.Generator, Path], tuple[Any, Tensors, list[str]]]
# Keys that a config.json may leave out, where transformers means what the model has.
UNSAID = (
    "hidden_act", "layer_norm_eps", "type_vocab_size", "tie_word_embeddings", "is_decoder",
    "add_cross_attention", "activation_function", "layer_norm_epsilon", "n_inner",
    "scale_attn_weights", "num_key_value_heads", "head_dim", "rms_norm_eps", "attention_bias",
    "mlp_bias", "attention_dropout", "sliding_window", "use_sliding_window",
    "max_window_layers", "layer_types", "rope_theta",
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
    config = say_rope_otherwise(rng, config)
    path.write_text(json.dumps(config))
    # Read again: buffers of a model that was narrowed stay narrow.
    return type(model).from_pretrained(folder, dtype=torch.float32).double().eval()


def compare(model: Any, found: Tensors, wanted: Wanted) -> None:
    gradients = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    whole = torch.stack(gradients).norm().item()
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
            far = distance(gradient, parameter.grad, whole)
            assert far <= GRADIENTS, f"{backend}: gradient of {name} is off by {far}"


def check(
    draw: Draw,
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
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish")
# What ours has, and what a folder may say instead, which is refused.
ENCODER_VARIANTS: list[tuple[str, Any, list[Any]]] = [
    ("hidden_act", "gelu", ["gelu_fast", "quick_gelu", "tanh"]),
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
    if "hidden_act" not in unknown:
        chosen["hidden_act"] = rng.choice(ACTIVATIONS)
    more = {"position_embedding_type": chosen.pop("position_embedding_type")}
    config = transformers.BertConfig(
        # Norms of a few elements are rounding more than anything else.
        hidden_size=heads * rng.randint(-(-8 // heads), 17), num_attention_heads=heads,
        num_hidden_layers=rng.randint(1, 3), intermediate_size=rng.randint(1, 90),
        vocab_size=vocabulary, max_position_embeddings=positions,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        layer_norm_eps=rng.choice([1e-12, 1e-5, rng.uniform(1e-7, 1e-1)]),
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


# ---- decoders ----

GPT2_VARIANTS: list[tuple[str, Any, list[Any]]] = [
    ("activation_function", "gelu_new", ["gelu_fast", "tanh"]),
    ("scale_attn_weights", True, [False]),
    ("scale_attn_by_inverse_layer_idx", False, [True]),
    ("tie_word_embeddings", True, [False]),
]


def draw_gpt2(rng: random.Random) -> tuple[Any, list[str]]:
    chosen = {
        key: rng.choice(others) if rng.random() < 0.1 else usual
        for key, usual, others in GPT2_VARIANTS
    }
    unknown = [key for key, usual, _ in GPT2_VARIANTS if chosen[key] != usual]
    if "activation_function" not in unknown:
        chosen["activation_function"] = rng.choice(ACTIVATIONS)
    heads = rng.randint(1, 5)
    config = transformers.GPT2Config(
        n_layer=rng.randint(1, 3), n_head=heads, n_embd=heads * rng.randint(-(-8 // heads), 17),
        vocab_size=rng.randint(5, 90), n_positions=rng.randint(2, 24), resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, n_inner=rng.choice([None, rng.randint(1, 90)]),
        layer_norm_epsilon=rng.choice([1e-5, rng.uniform(1e-7, 1e-1)]), **chosen,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config), unknown


def draw_yarn(rng: random.Random, factor: float) -> dict[str, Any]:
    found: dict[str, Any] = {"rope_type": "yarn", "factor": factor}
    if rng.random() < 0.6:
        found["beta_slow"] = rng.uniform(0.05, 1.5)
        found["beta_fast"] = found["beta_slow"] + rng.uniform(0.1, 4)
    if rng.random() < 0.4:
        found["truncate"] = rng.choice([True, False])
    if rng.random() < 0.4:
        found |= {"mscale": rng.choice([0.5, 1.0, 0]), "mscale_all_dim": rng.uniform(0.1, 1)}
    if rng.random() < 0.3:
        found["attention_factor"] = rng.uniform(0.5, 1.5)
    return found


def say_rope_otherwise(rng: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    """As releases before transformers 5 said it; or twice, where one of them counts."""
    way = rng.choice(["now", "before", "twice"])
    parameters = dict(config.get("rope_parameters") or {})
    if way == "now" or not parameters:
        return config
    others = {key: value for key, value in config.items() if key != "rope_parameters"}
    theta = parameters.pop("rope_theta")
    if way == "before":
        if rng.random() < 0.5:
            parameters["type"] = parameters.pop("rope_type")
        return others | {"rope_theta": theta, "rope_scaling": parameters}
    said = {"rope_type": "linear", "factor": 3.0, "rope_theta": 7.0}
    parameters["rope_theta"] = theta
    return others | {"rope_theta": 9.0, "rope_parameters": said, "rope_scaling": parameters}


def draw_rope(rng: random.Random, positions: int) -> dict[str, Any]:
    """How angles are stretched."""
    base = {"rope_theta": rng.choice([100.0, 10000.0, 500000.0])}
    kind = rng.choice(["default", "linear", "llama3", "yarn", "yarn", "dynamic"])
    factor = rng.choice([1.0, 1.5, 2.0, 8.0])
    if kind == "default":
        return base | {"rope_type": kind}
    if kind in ("linear", "dynamic"):
        return base | {"rope_type": kind, "factor": factor}
    original = {"original_max_position_embeddings": rng.randint(1, 2 * positions)}
    if kind == "yarn":
        return base | draw_yarn(rng, factor) | (original if rng.random() < 0.7 else {})
    low = rng.uniform(0.2, 2)
    high = low + rng.uniform(0.1, 4)
    more: dict[str, Any] = {"low_freq_factor": low, "high_freq_factor": high}
    if rng.random() < 0.7:
        more |= original
    return base | more | {"rope_type": kind, "factor": factor}


def draw_windows(rng: random.Random, layers: int) -> tuple[dict[str, Any], list[str]]:
    """Of Qwen2 and Qwen3: some layers have windows."""
    way = rng.choice(["none", "unused", "all", "beyond", "some", "types"])
    window = {"use_sliding_window": True, "sliding_window": rng.randint(1, 6)}
    if way == "none":
        return {}, []
    if way == "unused":
        return window | {"use_sliding_window": False}, []
    if way == "all":
        return window | {"max_window_layers": 0}, []
    if way == "beyond":
        return window | {"max_window_layers": layers}, []
    some = rng.randint(0, layers)
    if way == "some":
        unknown = [] if some in (0, layers) else ["max_window_layers", "layer_types"]
        return window | {"max_window_layers": some}, unknown
    types = ["sliding_attention"] * some + ["full_attention"] * (layers - some)
    rng.shuffle(types)
    return window | {"layer_types": types}, [] if some in (0, layers) else ["layer_types"]


def draw_llama(rng: random.Random, family: str) -> tuple[Any, list[str]]:
    """LLaMA and its relatives."""
    layers, kv_heads, positions = rng.randint(1, 3), rng.randint(1, 3), rng.randint(2, 24)
    heads = kv_heads * rng.randint(1, 3)
    size = 2 * rng.randint(2, 9)
    hidden = heads * max(size, -(-8 // heads))
    unknown: list[str] = []
    chosen: dict[str, Any] = {
        "num_hidden_layers": layers, "num_attention_heads": heads, "hidden_size": hidden,
        "num_key_value_heads": kv_heads, "intermediate_size": rng.randint(1, 90),
        "vocab_size": rng.randint(5, 90), "max_position_embeddings": positions,
        "rms_norm_eps": rng.choice([1e-6, 1e-5, 1e-3]),
        "rope_parameters": draw_rope(rng, positions),
        "tie_word_embeddings": rng.random() < 0.5, "hidden_act": "silu",
    }  # fmt: skip
    if rng.random() < 0.1:
        chosen["hidden_act"] = "gelu"
        unknown.append("hidden_act")
    if family == "Qwen3" or (hidden // heads) % 2 or rng.random() < 0.5:
        chosen["head_dim"] = 2 * rng.randint(2, 9)
    if family in ("Llama", "Qwen3"):
        chosen["attention_bias"] = rng.random() < 0.3
    if family == "Llama":
        chosen["mlp_bias"] = rng.random() < 0.3
    if family == "Mistral":
        chosen["sliding_window"] = rng.choice([None, rng.randint(1, 8), 4096])
    if family in ("Qwen2", "Qwen3"):
        windows, more = draw_windows(rng, layers)
        chosen |= windows
        unknown += more
    config = getattr(transformers, f"{family}Config")(**chosen)
    return getattr(transformers, f"{family}ForCausalLM")(config), unknown


def draw_decoder(family: str) -> Draw:
    def draw(
        rng: random.Random, generator: torch.Generator, folder: Path
    ) -> tuple[Any, Tensors, list[str]]:
        model, unknown = draw_gpt2(rng) if family == "GPT2" else draw_llama(rng, family)
        model = save(model, rng, generator, folder)
        positions = model.config.max_position_embeddings
        rows, length = rng.randint(1, 3), rng.randint(1, positions)
        shape, vocabulary = (rows, length), model.config.vocab_size
        labels = torch.randint(0, vocabulary, shape, generator=generator)
        ignored = torch.rand(shape, generator=generator) < 0.3
        ignored[0, 0] = False
        labels = labels.masked_fill(ignored, IGNORED)
        tokens = torch.randint(0, vocabulary, shape, generator=generator)
        scale = torch.tensor(1 / (~ignored).sum().item())
        return model, {"tokens": tokens, "labels": labels, "scale": scale}, unknown

    return draw


def judge_decoder(model: Any, batch: Tensors) -> Wanted:
    logits = model(batch["tokens"]).logits
    labels = batch["labels"].flatten()
    loss = F.cross_entropy(logits.flatten(0, 1), labels, ignore_index=IGNORED)
    loss.backward()
    seen = torch.ones_like(batch["tokens"], dtype=torch.bool)
    return Wanted({"logits": logits.detach()}, {"loss": loss}, seen)


@pytest.mark.parametrize("index", range(DRAWS))
@pytest.mark.parametrize("family", ["GPT2", "Llama", "Mistral", "Qwen2", "Qwen3"])
def test_random_decoders_are_those_of_transformers(
    family: str, index: int, tmp_path: Path
) -> None:
    check(draw_decoder(family), judge_decoder, index, tmp_path)
