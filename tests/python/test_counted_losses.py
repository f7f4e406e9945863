"""What the losses of `redpoll eval` and `redpoll train` count, beside transformers on rows that
are made here, or for hidden tokens on those that an evaluation feeds its model."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hf_batches import Tensors, held_out
from squad_questions import questions_of

transformers = pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
COMMAND = Path(os.environ["REDPOLL_BUILD"]) / "src" / "cli" / "redpoll"
IGNORED, END, CLOSE = -100, 256, 1e-4
WORDS = "In the beginning was seed and finch saw that it good Who sows".split()
TEXT = "In the beginning was the seed. And the finch saw that it was good! Who sows it? "


def redpoll(*words: object) -> str:
    done = subprocess.run(
        [COMMAND, *map(str, words)], check=True, capture_output=True, text=True, timeout=300
    )
    return done.stdout


def evaluate(folder: Path, data: str, length: int, *words: object) -> dict[str, Any]:
    model = ["--model", f"hf:{folder}", "--data", data, "--seq-length", length]
    found: dict[str, Any] = json.loads(redpoll("eval", "--json", *model, *words))
    return found


def wide(model: Any, folder: Path) -> Any:
    """Saved, with weights so wide that tokens differ in their loss; in double precision."""
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.3, generator=generator)
    model.save_pretrained(folder)
    return model.double().eval()


# ---- prompts and completions ----

LENGTH, PAIRS = 30, 12


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, vocab_size=300, max_position_embeddings=LENGTH,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("decoder")
    return wide(transformers.LlamaForCausalLM(config), folder), folder


def draw_pairs(path: Path) -> list[tuple[str, str]]:
    """Some are shorter than a row, some are cut off, one prompt is empty."""
    rng = random.Random(2)
    pairs = [("", "seed")]
    while len(pairs) < PAIRS:
        prompt = " ".join(rng.choices(WORDS, k=rng.randint(1, 4)))[: LENGTH - 3] + ": "
        pairs.append((prompt, " ".join(rng.choices(WORDS, k=rng.randint(1, 9)))))
    lines = (json.dumps({"prompt": prompt, "completion": end}) for prompt, end in pairs)
    path.write_text("\n".join(lines) + "\n")
    return pairs


def rows_of(ids: list[tuple[list[int], list[int]]], end: int) -> tuple[torch.Tensor, ...]:
    """Tokens, and labels of the completions and the end behind them alone."""
    tokens, labels = [], []
    for prompt, completion in ids:
        row = prompt + completion + [end]
        learnt = [IGNORED] * len(prompt) + completion + [end]
        tokens.append((row[:LENGTH] + [end] * LENGTH)[:LENGTH])
        labels.append((learnt[1 : LENGTH + 1] + [IGNORED] * LENGTH)[:LENGTH])
    return torch.tensor(tokens), torch.tensor(labels)


def count_loss(model: Any, tokens: torch.Tensor, labels: torch.Tensor) -> float:
    with torch.no_grad():
        logits = model(tokens).logits
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED).item()


def losses_of_a_step(folder: Path, data: str, out: Path, *words: object) -> float:
    recipe = ["--seq-length", LENGTH, "--global-batch-size", PAIRS, "--steps", 1, "--no-eval"]
    model = ["--model", f"hf:{folder}", "--data", data, "--lr", "1e-30", "--out", out]
    redpoll("train", *model, *recipe, "--log-every", 1, *words)
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return float(next(line["loss"] for line in lines if "loss" in line))


@pytest.mark.parametrize("kind", ["byte", "bpe"])
def test_completions_alone_are_counted(
    decoder: tuple[Any, Path], tmp_path: Path, kind: str
) -> None:
    model, folder = decoder
    pairs = draw_pairs(tmp_path / "pairs.jsonl")
    if kind == "byte":
        tokenizer = "byte"
        ids = [(list(prompt.encode()), list(end.encode())) for prompt, end in pairs]
        last = END
    else:
        tokenizers = pytest.importorskip("tokenizers")
        (tmp_path / "text.txt").write_text(TEXT * 40)
        redpoll("data", "tokenize", "--tokenizer", "train:bpe=290", "--in",
                tmp_path / "text.txt", "--out", tmp_path / "text")  # fmt: skip
        tokenizer = f"{tmp_path}/text.tokenizer.json"
        theirs = tokenizers.Tokenizer.from_file(tokenizer)
        ids = [
            tuple(theirs.encode(part, add_special_tokens=False).ids for part in pair)
            for pair in pairs
        ]
        last = theirs.token_to_id("<|endoftext|>")
    tokens, labels = rows_of(ids, last)
    assert (labels == last).sum() < PAIRS or kind == "bpe"  # some are cut off
    wanted = count_loss(model, tokens, labels)
    path = tmp_path / "pairs.jsonl"
    data = f"pairs:{path},validation={path},tokenizer={tokenizer}"
    found = evaluate(folder, data, LENGTH)
    assert found["loss"] == pytest.approx(wanted, abs=CLOSE)
    assert found["tokens"] == (labels != IGNORED).sum().item()
    # A step counts each token alike, whatever rank and micro-batch its row is in.
    for name, words in (("one", []), ("two", ["-n", 2, "--accumulate", 3])):
        loss = losses_of_a_step(folder, data, tmp_path / name, *words)
        assert loss == pytest.approx(wanted, abs=CLOSE), name


# ---- hidden tokens ----


def test_hidden_tokens_and_pairs_are_counted(tmp_path: Path) -> None:
    length = 40
    config = transformers.BertConfig(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=4, intermediate_size=40,
        vocab_size=261, max_position_embeddings=length,
    )  # fmt: skip
    model = wide(transformers.BertForPreTraining(config), tmp_path / "hf")
    (tmp_path / "text.txt").write_text("\n".join(TEXT[i:] + TEXT * 3 for i in range(20)))
    redpoll("data", "tokenize", "--tokenizer", "byte", "--split-lines", "--in",
            tmp_path / "text.txt", "--out", tmp_path / "text")  # fmt: skip
    data = f"masked:{tmp_path / 'text'},validation={tmp_path / 'text'}"
    found = evaluate(tmp_path / "hf", data, length, "--samples", 24)
    batch = held_out(data, length, 24, tmp_path / "batch.safetensors")
    check_rows(batch, TEXT.encode())
    with torch.no_grad():
        out = model(
            input_ids=batch["tokens"],
            token_type_ids=batch["segments"],
            attention_mask=1 - batch["documents"],
            labels=batch["labels"],
            next_sentence_label=batch["next"],
        )
        follows = F.cross_entropy(out.seq_relationship_logits, batch["next"]).item()
    assert found["nsp_loss"] == pytest.approx(follows, abs=CLOSE)
    assert found["loss"] == pytest.approx(out.loss.item(), abs=CLOSE)
    hidden = batch["labels"] != IGNORED
    assert found["tokens"] == hidden.sum().item()
    right = out.prediction_logits.argmax(-1)[hidden] == batch["labels"][hidden]
    assert found["accuracy"] == pytest.approx(right.double().mean().item(), abs=1e-9)
    right = out.seq_relationship_logits.argmax(-1) == batch["next"]
    assert found["nsp_accuracy"] == pytest.approx(right.double().mean().item(), abs=1e-9)


def check_rows(batch: Tensors, text: bytes) -> None:
    """[CLS] piece [SEP] piece [SEP] and [PAD], whose pieces stand in the text, one behind the
    other where they are said to."""
    cls, sep, _, pad = range(257, 261)
    text = text * 4
    whole = torch.where(batch["labels"] == IGNORED, batch["tokens"], batch["labels"])
    for row, tokens in enumerate(whole.tolist()):
        used = int((batch["documents"][row] == 0).sum())
        middle = tokens.index(sep)
        assert tokens[0] == cls and tokens[used - 1] == sep and set(tokens[used:]) <= {pad}
        first, second = (
            bytes(part) for part in (tokens[1:middle], tokens[middle + 1 : used - 1])
        )
        assert first in text and second in text
        if batch["next"][row] == 0:
            assert first + second in text
        segments = batch["segments"][row].tolist()
        assert segments[: middle + 1] == [0] * (middle + 1)
        assert segments[middle + 1 : used] == [1] * (used - middle - 1)


# ---- spans ----


def windows_of(encoding: Any, question: list[int], answer: tuple[int, int], stride: int,
               length: int) -> list[tuple[list[int], int, tuple[int, int]]]:  # fmt: skip
    """Rows of one question: tokens, how many are of the question's part, the ends."""
    room = length - len(question) - 3
    count, first, rows = len(encoding.ids), 0, []
    inside = [
        index
        for index, (begin, end) in enumerate(encoding.offsets)
        if begin < answer[1] and end > answer[0]
    ]
    while True:
        last = min(first + room, count)
        ends = (0, 0)
        begin = len(question) + 2
        if inside and first <= inside[0] and inside[-1] < last:
            ends = (begin + inside[0] - first, begin + inside[-1] - first)
        rows.append((encoding.ids[first:last], begin, ends))
        if last == count:
            return rows
        first += min(stride, room)


def test_windows_of_questions_are_counted(tmp_path: Path) -> None:
    """Texts of several windows: an answer that a window does not hold whole is at [CLS]."""
    tokenizers = pytest.importorskip("tokenizers")
    length, stride = 20, 5
    script = ROOT / "examples" / "make_questions.py"
    few = ["--texts", "12", "--validation", "8"]
    subprocess.run([sys.executable, script, tmp_path / "birds", *few], check=True, timeout=60)
    vocabulary = (tmp_path / "birds" / "vocab.txt").read_text().splitlines()
    config = transformers.BertConfig(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=4, intermediate_size=40,
        vocab_size=len(vocabulary), max_position_embeddings=length,
    )  # fmt: skip
    model = wide(transformers.BertForQuestionAnswering(config), tmp_path / "hf")
    tokenizer = tokenizers.BertWordPieceTokenizer(str(tmp_path / "birds" / "vocab.txt"))
    cls, sep = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    losses = []
    path = tmp_path / "birds" / "validation.json"
    for context, asked, start, end in questions_of(path):
        question = tokenizer.encode(asked, add_special_tokens=False).ids
        encoding = tokenizer.encode(context, add_special_tokens=False)
        for text, begin, ends in windows_of(encoding, question, (start, end), stride, length):
            row = [cls, *question, sep, *text, sep]
            segments = [0] * begin + [1] * (len(text) + 1)
            with torch.no_grad():
                out = model(
                    input_ids=torch.tensor([row]),
                    token_type_ids=torch.tensor([segments]),
                    start_positions=torch.tensor([ends[0]]),
                    end_positions=torch.tensor([ends[1]]),
                )
            losses.append(out.loss.item())
    files = f"{tmp_path}/birds/train.json,validation={path}"
    data = f"spans:{files},tokenizer=bert:{tmp_path}/birds,stride={stride}"
    found = evaluate(tmp_path / "hf", data, length)
    assert len(losses) >= 2 * found["questions"]
    assert found["loss"] == pytest.approx(sum(losses) / len(losses), abs=CLOSE)
