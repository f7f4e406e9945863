"""Writes corpus/: a few small inputs for each fuzz target, from which libFuzzer goes on.

usage: python3 tests/fuzz/make_corpus.py       (files that are not of its making stay)
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import struct
import zlib
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def put(target: str, name: str, data: bytes) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def frame(kind: int, payload: bytes = b"", **fields: int) -> bytes:
    f = dict.fromkeys(("round", "comm", "epoch", "seq", "chunk", "part", "count", "sig"), 0)
    f.update(fields)
    return (
        struct.pack("<I", f.get("key", 0))
        + struct.pack("<BBHII", 3, kind, f["round"], f["comm"], f["epoch"])
        + struct.pack("<QIi", f["seq"], f["chunk"], f["part"])
        + struct.pack("<QI", f["count"], f["sig"])
        + bytes([f.get("operation", 0), 1, 0, 0])
        + struct.pack("<IIII", f.get("bucket", 0), len(payload), 0, 0)
        + payload
    )


def store(operation: int, key: bytes = b"", value: bytes = b"", number: int = 0) -> bytes:
    header = struct.pack("<BBHiIq", 1, operation, len(key), 0, len(value), number)
    return b"RPST" + header + key + value


def control(kind: int, text: bytes = b"", rank: int = 1, a: int = 7) -> bytes:
    return b"RPCT" + struct.pack("<BBHiiQQ", 1, kind, len(text), rank, 2, a, 0) + text


def call(purpose: int, step: int = 1, verdict: int = 0) -> bytes:
    head = b"RPPF" + bytes([1, purpose, step, verdict])
    return head + struct.pack("<iiQII", 1, 0, 7, 2, 0) + bytes(range(32))


def connections() -> None:
    for kind in range(1, 11):
        put("frame", f"kind-{kind}", frame(kind, b"payload", seq=1, count=7))
    requests = [
        store(1, b"key", b"value") + store(2, b"key"),
        store(2, b"absent", number=1),
        store(3, b"number", number=5) + store(3, b"number", number=-6),
        store(1, b"text", b"abc") + store(3, b"text", number=1),
        store(4, b"key"),
        store(1, b"k" * 255, bytes(1000)),
        call(1),
        b"GET / HTTP/1.1\r\n\r\n",
        store(7, b"view", struct.pack("<I", 0) + b"one") + store(2, b"view"),
        store(1, b"v", b"a") + store(7, b"v", struct.pack("<I", 1) + b"ab"),
        store(7, b"view", struct.pack("<I", 2**32 - 1) + b"one"),
        store(7, b"view", b"abc"),
    ]
    for i, request in enumerate(requests):
        put("store", f"request-{i}", request)
    put("store_reply", "value", store(5, value=b"abc"))
    put("store_reply", "long", store(5)[:12] + struct.pack("<Iq", 2**32 - 1, 0))
    hello = frame(2, seq=7, part=1, count=2, bucket=4096)
    for flags in range(8):
        put("hello", f"hello-{flags}", bytes([flags]) + hello)
        put("hello", f"proof-{flags}", bytes([flags]) + call(2) + call(2, 3)[:8] + bytes(32))
        put("hello", f"answer-{flags}", bytes([flags]) + call(2, 2) + bytes(32))
        put("hello", f"open-{flags}", bytes([flags]) + call(2, 2, 1) + bytes(32))
    for kind in range(1, 6):
        put("control", f"kind-{kind}", control(kind, b"text\n\x7f" * (kind == 4)))
    put("control", "several", b"".join(control(kind) for kind in range(1, 6)))
    put("control", "long", control(4, bytes(399)))


def views() -> None:
    """The newest view, an empty line, and what processes 1, 2, ... say."""
    view = b"4 1 3 1\n1 0 0 ann\n2 2 0 ben\n4 -1 0 dot\n3 1 3 cid\n"
    inputs = {
        "first": b"\n1 1 -1 0 ann\n2 1 -1 0 ben\n",
        "all": view + b"\n9 5 -1 0 ann\n9 5 -1 0 ben\n9 0 -1 1 cid\n9 5 -1 0 dot\n",
        "lost": view + b"\n9 5 1 0 ann\n9 5 0 0 ben\n9 4 -1 0 cid\n9 5 2 0 dot\n9 5 -1 0 eve\n",
        "twice": b"1 1 2 0\n1 -1 0 a\n1 -1 0 b\n",
        "last": b"4294967295 1 1 0\n1 -1 0 a\n\n1 0 -1 0 a\n",
    }
    for name, data in inputs.items():
        put("view", name, data)


def note(flags: int, word: int, buffer: int = 1, size: int = 0) -> bytes:
    return bytes([flags]) + b"RPLB" + struct.pack("<IQQ", word, buffer, size)


def shm_notes() -> None:
    """The first byte of a record: a file (1 is sealed), 8 hold, 16 release, 32 ask for one."""
    offer, accept, refuse, drop = 1, 2, 3, 4
    sealed, soft, other, hold, release, ask = 1, 2, 3, 8, 16, 32
    taken = note(sealed, offer, 1, 8192)
    inputs = {
        "taken": taken + note(hold, accept, 1, 8000) + note(release, drop),
        "dropped-while-held": taken
        + note(hold, accept, 1, 0)
        + note(0, drop)
        + note(release, 3),
        "twice": taken + taken,
        "soft": note(soft, offer, 1, 8192) + note(other, offer, 2, 8192) + note(0, offer, 3),
        "length": note(sealed, offer, 1, 4096) + note(sealed, offer, 2, 2**64 - 1),
        "outside": taken + note(hold, accept, 1, 8193) + note(hold, accept, 1, 2**64 - 1),
        "own": note(ask, refuse, 9) + note(ask, accept, 1) + note(ask, drop, 1),
        "many": b"".join(note(sealed, offer, 1 + i, 8192) for i in range(66)),
        "magic": b"\4" + b"RPST" + bytes(20),
        "short": taken + b"RPLB",
    }
    for name, data in inputs.items():
        put("shm_notes", name, data)


def window_frame(word: int, payload: bytes = b"", **fields: int) -> bytes:
    f = dict.fromkeys(("flags", "sequence", "chunk"), 0)
    f.update(fields)
    return bytes([word, f["flags"], f["sequence"], f["chunk"], len(payload)]) + payload


def windows() -> None:
    """Forty elements in pieces of 16; the first byte: codec, and what is under way."""
    lead = struct.pack("<IIdQ", 3, 1, 0.5, 0)
    encodings = {
        0: [bytes(64), bytes(64), bytes(32)],
        1: [bytes(16), bytes(16), bytes(12)],
        2: [struct.pack("<IHBHH", 7, 2, 16, 1, 2)] * 3,
        3: [bytes(6), bytes(6), bytes(5)],
    }
    for codec, pieces in encodings.items():
        message = [
            window_frame(1, (b"" if i else lead) + piece, sequence=1, chunk=i)
            for i, piece in enumerate(pieces)
        ]
        put("window", f"push-{codec}", bytes([codec]) + b"".join(message) + message[0])
        answer = struct.pack("<IIdQ", 1, 0, 0, 3)
        message[0] = window_frame(2, answer + pieces[0], sequence=1)
        message[1:] = [bytes([2]) + each[1:] for each in message[1:]]
        put("window", f"answer-{codec}", bytes([codec | 4]) + b"".join(message))
    for word in range(9):
        for start in (0, 0xFF, 0x78):
            frames = window_frame(word, sequence=2) + window_frame(word, sequence=3)
            put("window", f"word-{word}-{start}", bytes([start]) + frames)
    put("window", "mutex", bytes([32]) + window_frame(5) + window_frame(7) + window_frame(5))
    far = window_frame(1, lead + bytes(64), sequence=1, flags=4)
    put("window", "rank-0", b"\0" + far)
    put("window", "other", b"\0" + window_frame(4, sequence=1, flags=1))
    put("window", "held", bytes([32]) + window_frame(1, lead + bytes(64), sequence=1, flags=2))


def codecs() -> None:
    for codec in range(17):
        for count in (1, 64, 100):
            body = bytes((i * 37 + codec) % 256 for i in range(4 * count))
            put("codec", f"codec-{codec}-{count}", struct.pack("<BBH", codec, 0, count) + body)


def safetensors(header: object, data: bytes = bytes(8)) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def files() -> None:
    one = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    put("safetensors", "one", safetensors(one))
    put("safetensors", "metadata", safetensors({**one, "__metadata__": {"format": "pt"}}))
    two = {
        "a": {"dtype": "I8", "shape": [4], "data_offsets": [0, 4]},
        "b": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [4, 8]},
    }
    put("safetensors", "two", safetensors(two))
    put("safetensors", "empty", safetensors({}, b""))
    put("safetensors", "boastful", struct.pack("<Q", 2**63) + b"{}")
    put("yaml", "good", b"model:\n  name: gpt2\ntokens: {train_steps: 64}\n")
    put("yaml", "anchor", b"a: &x [1, 2]\nb: *x\n")
    put("yaml", "documents", b"---\nmodel: {name: 'x'}\n---\n{}\n")
    put("yaml", "text", b"optimizer:\n  learning_rate: 1e-3 # so\nnetwork:\n  overlap: false\n")
    images = b"\0\0\x08\x03" + struct.pack(">III", 2, 2, 2) + bytes(8)
    labels = b"\0\0\x08\x01" + struct.pack(">I", 2) + b"\1\2"
    put("idx", "good", struct.pack("<H", len(images)) + images + labels)
    four = b"\0\0\x08\x04" + struct.pack(">IIII", 1, 3, 1, 1) + bytes(3)
    put("idx", "channels", struct.pack("<H", len(four)) + four + labels[:7] + b"\1\0")
    put("idx", "huge", struct.pack("<H", 16) + b"\0\0\x08\x03" + b"\xff" * 12 + labels)


def planner() -> None:
    head = b"hidden,heads,layers,gpus,tensor,pipeline,global_batch,zero,recompute,iteration_s\n"
    put("measured", "good", b"# source: here\n" + head + b"2048,16,24,16,2,4,64,1,full,1.5\n")
    put("measured", "quoted", b'note,iteration_ms,recompute\n"one, ""two""",410.5,full\n\n')
    put("measured", "holes", head + b"2048,16,24,16,2,4,64,1,full\n")
    put("measured", "large", head + b"1e9,1e9,1e9,1e9,1e9,1e9,1e9,3,none,1e300\n")
    put("measured", "stages", head + b"64,1,16777216,16777216,1,16777216,16777216,0,none,1\n")
    put("measured", "cells", b"," * 70 + b"\n")
    put("spot_trace", "counts", b"# mine\nsecond,nodes\n0,4\n60,3\n60,5\n900,0\n1800,2\n")
    events = b"second,event,node\n0,join,a\n0,join,b\n99,lost,a\n"
    put("spot_trace", "events", events + b"150,join,a\n1e9,lost,b\n")
    put("spot_trace", "twice", events + b"150,join,b\n")
    put("spot_trace", "large", b"second,nodes\n1e-300,1e7\n1e12,0\n")
    put("spot_trace", "holes", b"second,nodes\r\n,\r\n")
    put(
        "devices",
        "good",
        b"# mine\nmine like h100 assumed why\nmine watts 300 measured a limit\n",
    )
    head = b'{"op": "machine", "cpu": "x", "ranks": 2, "threads": 1, '
    head += b'"rank_memory_bytes": 1e9, "items": ['
    product = (
        b'{"what": "product", "name": "fp32", "m": 64, "n": 64, "k": 64, "unit": "flop/s", '
    )
    copy = b'{"what": "copy", "bytes": 1e8, "unit": "bytes/s", '
    times = b'"value": 1e10, "low": 9e9, "high": 2e10, "repeats": 5}'
    put("machine", "good", head + product + times + b", " + copy + times + b"]}\n")
    put(
        "machine",
        "negative",
        head + product + b'"value": -1, "low": 1, "high": 1, "repeats": 1}]}',
    )
    put(
        "machine",
        "far",
        head
        + product
        + b'"value": 1e308, "low": 1e-308, "high": 1e308, "repeats": 1e99}, '
        + copy
        + times
        + b"]}",
    )
    put("machine", "short", head)
    put("devices", "short", b"mine\nmine watts\n")
    put("devices", "numbers", b"mine watts 1e999 measured x\nmine gemm_share nan measured x\n")


def png(
    colours: int, depth: int, rows: list[bytes], extra: bytes = b"", interlaced: int = 0
) -> bytes:
    """Four pixels wide and high."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", 4, 4, depth, colours, 0, 0, interlaced)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    body = chunk(b"IHDR", header) + extra + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def pictures() -> None:
    """The first byte says what is shown. JPEGs lie there already: nothing here writes them."""
    palette = struct.pack(">I", 6) + b"PLTE" + bytes(6)
    palette += struct.pack(">I", zlib.crc32(palette[4:]))
    passes = [bytes(3 * pixels) for pixels in (1, 1, 2, 2, 2, 4, 4)]
    put("picture", "rgb.png", b"\0" + png(2, 8, [bytes(range(12))] * 4))
    put("picture", "rgba16.png", b"\1" + png(6, 16, [bytes(range(32))] * 4))
    put("picture", "grey1.png", b"\3" + png(0, 1, [b"\xa0"] * 4))
    put("picture", "palette.png", b"\5" + png(3, 1, [b"\x50"] * 4, palette))
    put("picture", "interlaced.png", b"\5" + png(2, 8, passes, interlaced=1))


def spans() -> None:
    whole = {"text": "\u00e9t\u00e9", "answer_start": 6}
    asked = [
        {"id": "a", "question": "When?", "answers": [whole]},
        {"id": "b", "question": "Who sang a song that long?", "is_impossible": True},
    ]
    text = "In an \u00e9t\u00e9 long ago there was a finch, the red one."
    for name, qas in {
        "answers": asked,
        "start": [{**asked[0], "answers": [{**whole, "answer_start": 1e300}]}],
        "types": [{**asked[0], "answers": [3]}],
    }.items():
        data = {"data": [{"paragraphs": [{"context": text, "qas": qas}]}]}
        put("spans", f"{name}.json", json.dumps(data).encode())


def texts() -> None:
    """The first byte: 1 splits lines, 2 skips broken rows, above: a format."""
    line = b'{"text": "one"}\n'
    zstd = bytes.fromhex("28b52ffd200f7900007b2274657874223a226f6e65227d0a")
    inputs = {
        "text": b"\x01one\ntwo\r\n",
        "lines": b"\x02" + line + b'{"text": null}\n{"text": "\\ud83d\\u0000", "n": NaN}\n',
        "list": b"\x00\xef\xbb\xbf[" + line + b"," + line + b"]",
        "over": b'\x00{\n"text":\n"a"\n}\n{"text": "b"}',
        "json": b"\x08one\n" + line,
        "gzip": b"\x00" + 2 * gzip.compress(line, mtime=0),
        "xz": b"\x00" + lzma.compress(line, check=lzma.CHECK_CRC32) + bytes(8),
        "bzip2": b"\x00" + bz2.compress(line),
        "zstd": b"\x00" + zstd + b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + zstd,
        "utf16": b"\x00" + "hello".encode("utf-16"),
        "tar": b"\x00a" + bytes(256) + b"ustar" + bytes(250),
    }
    for name, data in inputs.items():
        put("texts", name, data)


def tokenizers() -> None:
    words = {letter: i for i, letter in enumerate(["<s>", *"abdeginrth"])}
    bpe = {"type": "BPE", "vocab": words, "merges": ["i n"], "unk_token": "<s>"}
    bpe["vocab"] = {**words, "in": len(words)}
    level = {"type": "ByteLevel", "add_prefix_space": False}
    added = [{"id": 0, "content": "<s>", "special": True}]
    whole = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": level,
        "decoder": level,
        "model": bpe,
    }
    put("tokenizer", "bpe.json", json.dumps(whole).encode())
    piece = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "vocab": {"[UNK]": 0, "in": 1, "##t": 2},
    }
    bert = {
        "normalizer": {"type": "BertNormalizer"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }
    put("tokenizer", "wordpiece.json", json.dumps({**bert, "model": piece}).encode())
    unigram = {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [["<unk>", 0], ["\u2581the", -2], ["e", -3]],
    }
    meta = {"pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581"}}
    put("tokenizer", "unigram.json", json.dumps({**meta, "model": unigram}).encode())
    split = {"type": "Split", "pattern": {"Regex": r"\p{L}+|\s"}, "behavior": "Isolated"}
    level_model = {"type": "WordLevel", "vocab": {"the": 0, "?": 1}, "unk_token": "?"}
    put(
        "tokenizer",
        "split.json",
        json.dumps({"pre_tokenizer": split, "model": level_model}).encode(),
    )
    put("tokenizer", "longer.json", b"{} {}")


if __name__ == "__main__":
    connections()
    shm_notes()
    views()
    windows()
    codecs()
    files()
    pictures()
    tokenizers()
    spans()
    texts()
    planner()
