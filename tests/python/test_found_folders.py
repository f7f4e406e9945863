"""Hugging Face folders as people have them: config.json in another spelling, matrices under
either of their names, names behind a wrapper's. Redpoll has the logits of transformers.

A row of FOLDERS is what is done to the folder of a model that transformers has saved, and
what transformers is given where it does not read such a folder itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, NamedTuple

import pytest
import torch

from hf_batches import BACKENDS, Tensors, farthest, run

transformers = pytest.importorskip("transformers")

Config = dict[str, Any]
SIZES = {"vocab_size": 23, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {**SIZES, "max_position_embeddings": 12, "intermediate_size": 24,
         "num_key_value_heads": 2}  # fmt: skip
KINDS: dict[str, tuple[str, Config]] = {
    "gpt2": ("GPT2LMHeadModel", {**SIZES, "max_position_embeddings": 12}),
    "llama": ("LlamaForCausalLM", {**LLAMA, "tie_word_embeddings": True}),
    "mistral": ("MistralForCausalLM", {**LLAMA, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2ForCausalLM", {**LLAMA, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3ForCausalLM", {**LLAMA, "tie_word_embeddings": True, "head_dim": 4}),
}
TABLES = {"gpt2": "transformer.wte.weight"}
HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"


def rename_table(kind: str, tensors: Tensors, config: Config) -> None:
    tensors[HEAD] = tensors.pop(TABLES.get(kind, TABLE))


def copy_table(kind: str, tensors: Tensors, config: Config) -> None:
    tensors[HEAD] = tensors[TABLES.get(kind, TABLE)].clone()


def untie(kind: str, tensors: Tensors, config: Config) -> None:
    tensors[HEAD] = tensors[TABLES.get(kind, TABLE)].flip(0).contiguous()


def wrap(begin: str) -> Callable[[str, Tensors, Config], None]:
    def change(kind: str, tensors: Tensors, config: Config) -> None:
        for name in list(tensors):
            tensors[begin + name] = tensors.pop(name)

    return change


def spell(kind: str, tensors: Tensors, config: Config) -> None:
    for key, other in transformers.GPT2Config.attribute_map.items():
        config[key] = config.pop(other)


def spell_both(kind: str, tensors: Tensors, config: Config) -> None:
    """The other spelling counts."""
    for key, other in transformers.GPT2Config.attribute_map.items():
        config[key], config[other] = config[other], 2 * config[other]


def narrow(kind: str, tensors: Tensors, config: Config) -> None:
    copy_table(kind, tensors, config)
    for name in tensors:
        tensors[name] = tensors[name].bfloat16()


class Folder(NamedTuple):
    change: Callable[[str, Tensors, Config], None]
    kinds: tuple[str, ...] = ("gpt2", "llama", "mistral", "qwen2", "qwen3")
    plain: bool = True  # transformers reads it; else it reads the folder as it was before
    note: str = ""  # a part of what Redpoll says of it


LLAMAS = ("llama", "mistral", "qwen2", "qwen3")
FOLDERS = {
    "second-name": Folder(rename_table),
    "both-names": Folder(copy_table),
    "both-names-bf16": Folder(narrow),
    "untied": Folder(untie, LLAMAS, note="lm_head.weight and model.embed_tokens.weight differ"),
    "module": Folder(wrap("module."), plain=False, note="begin with 'module.'"),
    "compiled": Folder(wrap("_orig_mod."), plain=False, note="begin with '_orig_mod.'"),
    "peft": Folder(wrap("base_model.model."), plain=False, note="'base_model.model.'"),
    "spelling": Folder(spell, ("gpt2",)),
    "both-spellings": Folder(spell_both, ("gpt2",)),
}


def make(kind: str, folder: Path) -> Any:
    name, sizes = KINDS[kind]
    torch.manual_seed(3)
    model = getattr(transformers, name)(transformers.AutoConfig.for_model(kind, **sizes))
    model.eval().save_pretrained(folder)
    return model


def check(model: Any, folder: Path, note: str) -> None:
    ids = torch.randint(
        0, SIZES["vocab_size"], (2, 9), generator=torch.Generator().manual_seed(1)
    )
    with torch.no_grad():
        wanted = model.eval()(ids).logits
    scale = torch.tensor(1 / ids.numel())
    batch = {"tokens": ids, "labels": ids.roll(-1, 1), "scale": scale}
    _, said, found = run(folder, batch)
    assert note in said if note else not said, said
    for backend in BACKENDS:
        assert farthest(found[f"{backend}.logits"], wanted) <= 1e-4, backend


@pytest.mark.parametrize(
    ("label", "kind"), [(label, kind) for label, f in FOLDERS.items() for kind in f.kinds]
)
def test_a_folder_is_that_of_transformers(label: str, kind: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    row = FOLDERS[label]
    model = make(kind, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    row.change(kind, tensors, config)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(config))
    if row.plain:
        model = type(model).from_pretrained(tmp_path, dtype=torch.float32)
    check(model, tmp_path, row.note)


@pytest.mark.parametrize("kind", KINDS)
def test_what_safetensors_itself_saves(kind: str, tmp_path: Path) -> None:
    from safetensors.torch import save_model

    model = make(kind, tmp_path)
    save_model(model, str(tmp_path / "model.safetensors"))
    check(model, tmp_path, "")


def test_of_a_key_twice_the_last_counts(tmp_path: Path) -> None:
    make("llama", tmp_path)
    path = tmp_path / "config.json"
    text = path.read_text().rstrip().rstrip("}").rstrip()
    theta = '"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}'
    path.write_text(f'{text},\n"rms_norm_eps": 0.5, {theta}\n}}')
    check(transformers.LlamaForCausalLM.from_pretrained(tmp_path), tmp_path, "")
