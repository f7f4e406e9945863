"""Questions of a file in SQuAD's format."""

from __future__ import annotations

import json
from pathlib import Path


def questions_of(path: Path) -> list[tuple[str, str, int, int]]:
    """Context, question, and the characters of the answer; 0 and 0: there is none."""
    found = []
    for article in json.loads(path.read_text())["data"]:
        for paragraph in article["paragraphs"]:
            for one in paragraph["qas"]:
                start = end = 0
                for answer in one["answers"][:1]:
                    start = answer["answer_start"]
                    end = start + len(answer["text"])
                found.append((paragraph["context"], one["question"], start, end))
    return found
