#!/usr/bin/env python3
"""Writes what Hugging Face's tokenizers make of nasty texts, for tests/train/tokenizer_test.c.

usage: make_tokenizer_golden.py FOLDER [CASES [SEED]]     (needs: pip install tokenizers)

The committed files are made by `make_tokenizer_golden.py tests/train/tokenizer_golden`. With a
count, many more random texts: REDPOLL_TOKENIZER_GOLDEN=FOLDER makes the test read those.
Each file holds a tokenizer.json, texts as hexadecimal bytes, and for each the ids without and
with special tokens, those that plain special tokens give, and the decoded text; gpt2.json also
the texts that it was trained on.
"""

import json
import pathlib
import random
import sys
import unicodedata

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

CORPUS = [
    "In the beginning God created the heaven and the earth. And the earth was without",
    "form, and void; and darkness was upon the face of the deep. And the Spirit of God",
    "moved upon the face of the waters. And God said, Let there be light: and there was",
    "light. It's 1984, I'll say; we've 12,345 things they'd seen -- can't you?",
    "Ünïcödé naïve façade Ελληνικά русский 日本語 中文 العربية",
    'x = f(y) + 3.14159; // code\n\tif (a != b) { return "c"; }',
    "\n don't do not 'quoted' e\u0301a\u0300",
    "",
] * 8

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
UNDER = "\u2581"


def trained(tokenizer, trainer):
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def bpe(size, special=(), alphabet=(), **model):
    tokenizer = Tokenizer(models.BPE(**model))
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=list(alphabet),
        show_progress=False,
    )
    return tokenizer, trainer


def byte_alphabet():
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def gpt2():
    t, trainer = bpe(360, ["<|endoftext|>"], byte_alphabet())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel()
    return trained(t, trainer)


def roberta():
    t, trainer = bpe(340, ["<s>", "<pad>", "</s>", "<unk>"], byte_alphabet())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    t = trained(t, trainer)
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return t


def byte_pieces():
    return [f"<0x{byte:02X}>" for byte in range(256)]


def llama(metaspace):
    t, trainer = bpe(
        420,
        ["<unk>", "<s>", "</s>", *byte_pieces()],
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t = trained(t, trainer)
    data = json.loads(t.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["id"] < 3]
    t = Tokenizer.from_str(json.dumps(data))
    if not metaspace:
        t.pre_tokenizer = None
        t.normalizer = normalizers.Sequence(
            [normalizers.Prepend(UNDER), normalizers.Replace(" ", UNDER)]
        )
    t.decoder = decoders.Sequence(
        [
            decoders.Replace(UNDER, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return t


def llama3():
    t, trainer = bpe(380, [], byte_alphabet(), ignore_merges=True)
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    t.decoder = decoders.ByteLevel()
    t = trained(t, trainer)
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    begin = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", begin)]
            ),
        ]
    )
    return t


def bert(lowercase):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t = trained(
        t,
        trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False),
    )
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return t


def unigram(byte_fallback):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Strip(left=False),
        ]
    )
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>", *(byte_pieces() if byte_fallback else [])]
    t = trained(
        t,
        trainers.UnigramTrainer(
            vocab_size=280 + 256 * byte_fallback,
            special_tokens=special,
            unk_token="<unk>",
            show_progress=False,
        ),
    )
    data = json.loads(t.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["id"] < 3]
    data["model"]["byte_fallback"] = byte_fallback
    t = Tokenizer.from_str(json.dumps(data))
    t.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return t


def digits():
    t, trainer = bpe(340, ["<|endoftext|>"], byte_alphabet())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    t.decoder = decoders.ByteLevel()
    return trained(t, trainer)


def falcon():
    t, trainer = bpe(340, [">>TITLE<<", "<|endoftext|>"], byte_alphabet())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    )
    t.decoder = decoders.ByteLevel()
    return trained(t, trainer)


def word_level():
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer = normalizers.Sequence(
        [
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Strip(),
        ]
    )
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
    )
    return trained(
        t,
        trainers.WordLevelTrainer(
            vocab_size=150, special_tokens=["[UNK]"], show_progress=False
        ),
    )


def whitespace():
    t, trainer = bpe(200, ["<unk>"], unk_token="<unk>")
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    return trained(t, trainer)


def added():
    t, trainer = bpe(260, ["<unk>"], unk_token="<unk>", fuse_unk=True)
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.CharDelimiterSplit("-"),
            pre_tokenizers.Split("a", "merged_with_previous"),
        ]
    )
    t = trained(t, trainer)
    t.add_tokens(
        [
            AddedToken("God", single_word=True),
            AddedToken("GOD SAID", normalized=True),
            AddedToken("the", normalized=False, rstrip=True),
            AddedToken("café", lstrip=True, rstrip=True),
        ]
    )
    t.add_special_tokens(
        [
            AddedToken("<a>", single_word=True),
            AddedToken("<a><b>"),
            AddedToken("<c>", lstrip=True),
        ]
    )
    return t


def merged_with_next():
    t, trainer = bpe(200, ["<unk>"], unk_token="<unk>")
    t.normalizer = normalizers.NFKD()
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\s|[[:upper:]]"), "merged_with_next"),
            pre_tokenizers.Split("and", "removed"),
        ]
    )
    t.decoder = decoders.Fuse()
    return trained(t, trainer)


TOKENIZERS = {
    "gpt2": gpt2,
    "roberta": roberta,
    "llama2": lambda: llama(False),
    "llama_metaspace": lambda: llama(True),
    "llama3": llama3,
    "bert_uncased": lambda: bert(True),
    "bert_cased": lambda: bert(False),
    "unigram": lambda: unigram(False),
    "unigram_bytes": lambda: unigram(True),
    "digits": digits,
    "falcon": falcon,
    "word_level": word_level,
    "whitespace": whitespace,
    "added": added,
    "merged_with_next": merged_with_next,
}

NASTY = [
    "",
    " ",
    "  ",
    "   \n\n  \t",
    "Hello world",
    "Hello world!",
    " leading",
    "trailing ",
    "a  b   c",
    "It's we'll they've I'd you're I'm don't 'S 'LL ''s '' 's't",
    "12345 1,234.5 \u00b2\u00bd \u0664\u0665 \u2167",
    "\u65e5\u672c\u8a9e\u4e2d\u6587\u3000\u3042\u30a2",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "e\u0301\u0323 \u00e9 \u1e69 s\u0323\u0307 \u0130I\u0131 ",
    "\u03a3\u03c3\u03c2 \ufb01\ufb03 \u212b \u2126 \u01c5",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e9\u05dc\u05d5\u05dd \u202eabc\u202c",
    "\u00a0\u2003\u2028x\u0085y\u180ez\u200bw\ufeff",
    "a\u0000b\u0001c\u007f\u009f",
    "\ue000\U000e0001\U000f0000\U0010ffff\ufffd\ufffe",
    "x" * 200,
    "ab" * 300,
    " " * 70 + "x",
    "\n" * 50,
    "<|endoftext|>",
    "a<|endoftext|>b",
    " <s> </s><mask>  <mask> x",
    "[CLS] [MASK] x[SEP]",
    "<unk><0x41>\u2581\u2581a \u2581",
    "God GOD gods God's God,God theology the   the end cafe\u0301 caf\u00e9  x <a> ",
    "<a><b> x<a>y  <c> god said GOD SAID",
    "do not . , ? ! ' s n't 'm 've",
    "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab \U00020000\uf900",
    "e" + "\u0301" * 40,
    "##a ## [UNK]",
    "\r\n\r\n a\r b\r\n",
    ">>TITLE<<2020-01-02 0123456789",
]
PIECES = [
    "a",
    "b",
    "e",
    "A",
    "Z",
    "the ",
    " and",
    "God",
    "'s",
    "'ll",
    "'",
    " ",
    "  ",
    "\n",
    "\t",
    "\r\n",
    "1",
    "23",
    "456",
    ".",
    ",",
    "!",
    "-",
    "_",
    "#",
    "##",
    "\u00e9",
    "e\u0301",
    "\u00df",
    "\u0130",
    "\u03a3",
    "\u4e2d",
    "\u3042",
    "\uac00",
    "\U0001f600",
    "\u200d",
    "\ufe0f",
    "\u0627",
    "\u05d0",
    "\u00a0",
    "\u2003",
    "\u3000",
    "\u0300",
    "\u0323",
    "\u0903",
    "\u00bd",
    "\u0665",
    "\u2167",
    "\u24b6",
    "\u2581",
    "<s>",
    "<a>",
    "<c>",
    "[MASK]",
    "<|endoftext|>",
    "the",
    "do not",
    "\u0000",
    "\ufffd",
    "\u00ad",
    "\u2019",
    "\u00ab",
    "\u20ac",
    "$",
    "+",
    "~",
    "^",
]
BAD = [
    b"\xff",
    b"\xc3",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xc0\xaf",
    b"\xf0\x9f\x98",
    b"\x80",
]


def random_character(rng):
    """One that Unicode 3.2 had: newer ones depend on the tables of each library."""
    while True:
        span = rng.choice([(32, 127), (0, 0x250), (0x300, 0x3000), (0x3000, 0x30000)])
        character = chr(rng.randrange(*span))
        old = unicodedata.ucd_3_2_0
        stable = old.category(character) == unicodedata.category(character) not in ("Cn", "Cs")
        if stable and old.normalize("NFKD", character) == unicodedata.normalize(
            "NFKD", character
        ):
            return character


def random_text(rng):
    kind = rng.random()
    if kind < 0.55:
        parts = [rng.choice(PIECES).encode() for _ in range(rng.randrange(1, 24))]
    elif kind < 0.75:
        parts = [rng.choice(CORPUS).encode()[rng.randrange(40) :][: rng.randrange(1, 60)]]
    elif kind < 0.9:
        parts = [random_character(rng).encode() for _ in range(12)]
    else:
        parts = [
            rng.choice(PIECES).encode() if rng.random() < 0.6 else rng.choice(BAD)
            for _ in range(12)
        ]
    return b"".join(parts)


def case(tokenizer, raw):
    text = raw.decode("utf-8", "replace")
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    special = tokenizer.encode(text).ids
    tokenizer.encode_special_tokens = True
    unmarked = tokenizer.encode(text, add_special_tokens=False).ids
    tokenizer.encode_special_tokens = False
    return {
        "text": raw.hex(),
        "ids": plain,
        "special": special if special != plain else None,
        "plain_special": unmarked if unmarked != plain else None,
        "decoded": tokenizer.decode(special, skip_special_tokens=False)
        .encode("utf-8", "surrogatepass")
        .hex(),
        "skipped": tokenizer.decode(special).encode().hex(),
    }


def main():
    folder = pathlib.Path(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 24
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in TOKENIZERS.items():
        rng = random.Random(f"{seed} {name}")
        tokenizer = make()
        texts = [text.encode() for text in NASTY] + [random_text(rng) for _ in range(count)]
        lines = [json.dumps(case(tokenizer, raw), separators=(",", ":")) for raw in texts]
        body = json.dumps(
            json.loads(tokenizer.to_str()), separators=(",", ":"), ensure_ascii=True
        )
        cases = ",\n".join(lines)
        corpus = f'"corpus":{json.dumps(CORPUS)},\n' if name == "gpt2" else ""
        text = f'{{"tokenizer":{body},\n{corpus}"cases":[\n{cases}\n]}}\n'
        (folder / f"{name}.json").write_text(text)
        print(f"{name}: {len(lines)} texts, {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
