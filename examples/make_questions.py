#!/usr/bin/env python3
"""Write a small set of questions whose answers stand in a text, in SQuAD 2.0's layout.

    python3 examples/make_questions.py birds
    redpoll train --config examples/bert-spans.yaml

The folder gets train.json, validation.json and vocab.txt, the words as BERT's tokenizer wants
them. A text says of a bird two of what it eats, where it lives and when it sings; questions ask
for all three, so that the text has no answer to one. The same seed writes the same bytes.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

BIRDS = ["finch", "robin", "wren", "heron", "owl", "swift", "crane", "plover"]
SIZES = ["small", "old", "red", "long"]
# What is told of a bird, how it is asked for, and what it may be.
FACTS = [
    (
        "It eats",
        "What does the {} eat?",
        ["seeds", "worms", "berries", "fish", "mice", "flies"],
    ),
    ("It lives in", "Where does the {} live?", ["reeds", "barns", "trees", "caves", "cliffs"]),
    ("It sings at", "When does the {} sing?", ["dawn", "noon", "dusk", "midnight"]),
]
WORDS = ["this", "is", "a", "it", "eats", "lives", "in", "sings", "at", "what", "where", "when"]
WORDS += ["does", "the", "eat", "live", "sing", "?", ".", *BIRDS, *SIZES]
WORDS += [word for _, _, words in FACTS for word in words]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def question(name: str, text: str, answer: tuple[str, int] | None) -> dict[str, object]:
    answers = [{"text": answer[0], "answer_start": answer[1]}] if answer else []
    return {"id": name, "question": text, "answers": answers, "is_impossible": not answers}


def paragraph(number: int, draw: random.Random) -> dict[str, object]:
    bird = draw.choice(BIRDS)
    context = f"This is a {bird}."
    told: dict[str, tuple[str, int]] = {}
    for begin, asked, words in draw.sample(FACTS, 2):
        answer = " ".join([*draw.sample(SIZES, draw.randint(0, 1)), draw.choice(words)])
        told[asked] = (answer, len(context) + len(begin) + 2)
        context += f" {begin} {answer}."
    questions = [
        question(f"{number}-{k}", asked.format(bird), told.get(asked))
        for k, (_, asked, _) in enumerate(FACTS)
    ]
    return {"context": context, "qas": questions}


def write(path: Path, count: int, draw: random.Random) -> None:
    paragraphs = [paragraph(number, draw) for number in range(count)]
    data = {"version": "v2.0", "data": [{"title": path.stem, "paragraphs": paragraphs}]}
    path.write_text(json.dumps(data, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--validation", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    said = parser.parse_args()
    draw = random.Random(said.seed)
    said.folder.mkdir(parents=True, exist_ok=True)
    write(said.folder / "train.json", said.texts, draw)
    write(said.folder / "validation.json", said.validation, draw)
    (said.folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")


if __name__ == "__main__":
    main()
