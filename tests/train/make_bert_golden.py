"""Small Hugging Face folders of BERT with what transformers makes of them, in double precision.

    python tests/train/make_bert_golden.py

writes huggingface_golden/bert/ (BertForPreTraining) and megatron-bert/, which normalises first.
Beside config.json and the weights, expected.safetensors holds one batch as the task
masked-lm has it (tokens, segments, documents: 1 in the padding, labels, next), `logits`,
`next_logits`, the two `losses`, and `gradient.NAME` of their sum for all parameters.
"""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

BATCH, LENGTH, VOCABULARY, POSITIONS, IGNORED = 3, 11, 37, 14, -100
SIZES = {
    "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2,
    "intermediate_size": 40, "vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-12,
    "pad_token_id": None,  # else its row had no gradient
}  # fmt: skip
MODELS = {
    "bert": (transformers.BertForPreTraining, transformers.BertConfig),
    "megatron-bert": (transformers.MegatronBertForPreTraining, transformers.MegatronBertConfig),
}


def draw(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Every parameter from a normal distribution: also those that usually start as 0 or 1."""
    for name, parameter in model.named_parameters():
        is_scale = parameter.dim() == 1 and name.endswith("weight")
        values = torch.randn(parameter.shape, generator=generator) * 0.2 + is_scale
        parameter.data = values.to(parameter.dtype)


def batch_of(generator: torch.Generator) -> dict[str, torch.Tensor]:
    places = torch.arange(LENGTH)
    second, used = torch.tensor([[4], [3], [7]]), torch.tensor([[LENGTH], [7], [10]])
    documents = (places >= used).long()
    labels = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)
    hidden = torch.rand(BATCH, LENGTH, generator=generator) < 0.3
    return {
        "tokens": torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator),
        "segments": ((places >= second) & (places < used)).long(),
        "documents": documents,
        "labels": labels.masked_fill(~hidden | (documents == 1), IGNORED),
        "next": torch.tensor([0, 1, 1]),
    }


def make(name: str, folder: Path) -> None:
    kind, config = MODELS[name]
    generator = torch.Generator().manual_seed(4)
    model = kind(config(**SIZES)).eval()
    draw(model, generator)
    model.save_pretrained(folder)
    model = model.double()
    batch = batch_of(generator)
    out = model(
        input_ids=batch["tokens"],
        token_type_ids=batch["segments"],
        attention_mask=1 - batch["documents"],
    )
    logits, next_logits = out.prediction_logits, out.seq_relationship_logits
    loss = torch.nn.functional.cross_entropy
    losses = (
        loss(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED),
        loss(next_logits, batch["next"]),
    )
    sum(losses).backward()
    expected = {key: value.to(torch.int32) for key, value in batch.items()}
    expected |= {"logits": logits.detach().float(), "next_logits": next_logits.detach().float()}
    expected["losses"] = torch.stack([value.detach() for value in losses]).float()
    for parameter, tensor in model.named_parameters():
        assert tensor.grad is not None
        expected[f"gradient.{parameter}"] = tensor.grad.float()
    save_file(
        {key: value.contiguous() for key, value in expected.items()},
        folder / "expected.safetensors",
    )
    print(name, *(f"{value.item():.4f}" for value in losses))


if __name__ == "__main__":
    for name in MODELS:
        make(name, Path(__file__).parent / "huggingface_golden" / name)
