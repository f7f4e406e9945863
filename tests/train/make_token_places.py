"""Where tokens lie in a text, by the tokenizers package.

    python tests/train/make_token_places.py

writes token_places.golden: for the texts of tokenizer_golden/bert_*.json and some more a line
of the tokenizer's name, the text in hexadecimal digits, and ID:FROM:TO of each token, in bytes.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer

HERE = Path(__file__).parent
MORE = [
    "The Normans (Norman: Nourmands; French: Normands) were the people",
    "caf\u00e9 na\u00efve \u00c5ngstr\u00f6m, \u4e2d\u6587 and \u00dcber-\u00c9cole",
    "e\u0301t\u00e9 \u2014 1066\u20131087 \u20ac5\u00a0million",
    "zero\u200bwidth \u0130stanbul \ufb01ne",
]


def line_of(name: str, tokenizer: Tokenizer, text: str) -> str:
    tokenizer.encode_special_tokens = True
    encoding = tokenizer.encode(text, add_special_tokens=False)

    def place(index: int) -> int:
        return len(text[:index].encode())

    tokens = [
        f"{token}:{place(begin)}:{place(end)}"
        for token, (begin, end) in zip(encoding.ids, encoding.offsets)
    ]
    return " ".join([name, text.encode().hex() or "-", *tokens])


def main() -> None:
    lines = []
    for name in ("bert_uncased", "bert_cased"):
        golden = json.loads((HERE / "tokenizer_golden" / f"{name}.json").read_text())
        tokenizer = Tokenizer.from_str(json.dumps(golden["tokenizer"]))
        for case in golden["cases"]:
            raw = bytes.fromhex(case["text"])
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                continue
            lines.append(line_of(name, tokenizer, text))
        lines += [line_of(name, tokenizer, text) for text in MORE]
    (HERE / "token_places.golden").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
