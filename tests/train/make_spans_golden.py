"""A small Hugging Face folder of BertForQuestionAnswering with what transformers makes of it.

    python tests/train/make_spans_golden.py

writes huggingface_golden/bert-spans/. Beside config.json and the weights, expected.safetensors
holds one batch as the task spans has it (tokens, segments, documents: 1 in the padding, ends),
`logits` (batch x 2 x length), the `loss` in double precision, and `gradient.NAME` of it for all
parameters. The padding takes no part in the softmax; without padding the loss is checked to be
that of transformers itself.
"""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from make_bert_golden import LENGTH, SIZES, batch_of, draw
from safetensors.torch import save_file


def logits_of(
    model: torch.nn.Module, batch: dict[str, torch.Tensor], rows: slice
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (batch x 2 x length), and the loss of transformers."""
    out = model(
        input_ids=batch["tokens"][rows],
        token_type_ids=batch["segments"][rows],
        attention_mask=1 - batch["documents"][rows],
        start_positions=batch["ends"][rows, 0],
        end_positions=batch["ends"][rows, 1],
    )
    return torch.stack([out.start_logits, out.end_logits], 1), out.loss


def loss_of(logits: torch.Tensor, batch: dict[str, torch.Tensor], rows: slice) -> torch.Tensor:
    padding = batch["documents"][rows, None].bool().expand_as(logits)
    inside = logits.masked_fill(padding, float("-inf"))
    ends = batch["ends"][rows].flatten()
    return torch.nn.functional.cross_entropy(inside.flatten(0, 1), ends)


def main() -> None:
    folder = Path(__file__).parent / "huggingface_golden" / "bert-spans"
    generator = torch.Generator().manual_seed(5)
    model = transformers.BertForQuestionAnswering(transformers.BertConfig(**SIZES)).eval()
    draw(model, generator)
    model.save_pretrained(folder)
    model = model.double()
    batch = batch_of(generator)
    del batch["labels"], batch["next"]
    batch["ends"] = torch.tensor([[4, LENGTH - 1], [3, 3], [0, 0]])
    whole = slice(0, 1)
    logits, theirs = logits_of(model, batch, whole)
    assert torch.allclose(loss_of(logits, batch, whole), theirs, rtol=1e-12)
    every = slice(None)
    logits, _ = logits_of(model, batch, every)
    loss = loss_of(logits, batch, every)
    loss.backward()
    expected = {key: value.to(torch.int32) for key, value in batch.items()}
    expected |= {"logits": logits.detach().float(), "loss": loss.detach().float()}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        expected[f"gradient.{name}"] = parameter.grad.float()
    save_file(
        {key: value.contiguous() for key, value in expected.items()},
        folder / "expected.safetensors",
    )
    print(f"{loss.item():.6f}")


if __name__ == "__main__":
    main()
