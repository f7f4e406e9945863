"""A reader of wire and codecs, written from docs/wire.md and docs/codecs.md alone.

It shares no line with the library: where it and real traffic disagree, the documents or the
library are wrong. Slow, and for small tests."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Optional

import numpy as np

HEADER_BYTES = 64
HELLO = 2
DATA_KINDS = (1, 5)
CODECS = {
    1: "fp32",
    2: "bf16",
    3: "fp16",
    4: "q",
    5: "topk",
    6: "randk",
    7: "sign",
    8: "v",
}
_U64 = (1 << 64) - 1
_U32 = (1 << 32) - 1


class Damaged(Exception):
    """Bytes that the documents do not allow."""


# ---- wire.md: frames ----


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)  # 0x1EDC6F41, reflected
        table.append(value)
    return table


_CRC = _crc_table()


def crc32c(data: bytes) -> int:
    value = _U32
    for byte in data:
        value = _CRC[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ _U32


@dataclass
class Frame:
    kind: int
    round: int
    communicator: int
    epoch: int
    sequence: int
    chunk: int
    part: int
    count: int
    signature: int
    operation: int
    dtype: int
    codec: int
    bits: int
    bucket: int
    payload: bytes

    @property
    def collective(self) -> int:
        return self.operation & 15

    @property
    def is_exact(self) -> bool:
        return bool(self.round & 0x8000)


def _read_header(stream: bytes, at: int) -> tuple[tuple[int, ...], int, int]:
    """Fields of a frame but for its payload, the payload's bytes and CRC."""
    header = stream[at : at + HEADER_BYTES]
    if len(header) < HEADER_BYTES or header[4] != 3:
        raise Damaged(f"no header at {at}")
    if struct.unpack_from("<I", header, 60)[0] != crc32c(b"RPLL" + header[:60]):
        raise Damaged(f"the header at {at} has another CRC")
    return (struct.unpack_from("<BHIIQIiQIBBBBI", header, 5),
            *struct.unpack_from("<II", header, 52))  # fmt: skip


def read_frames(stream: bytes) -> list[Frame]:
    """All frames of one direction of a tcp connection, from its hello on."""
    frames, at = [], 0
    while at < len(stream):
        fields, size, payload_crc = _read_header(stream, at)
        payload = stream[at + HEADER_BYTES : at + HEADER_BYTES + size]
        frame = Frame(*fields, payload)
        if len(payload) < size or (frame.kind != HELLO and crc32c(payload) != payload_crc):
            raise Damaged(f"the payload at {at} is short, or has another CRC")
        if not 1 <= frame.kind <= 14:
            raise Damaged(f"a frame of kind {frame.kind}")
        frames.append(frame)
        at += HEADER_BYTES + size
    return frames


# ---- wire.md: shared memory ----

_END, _WORDS = 2176, 256
OFFER, ACCEPT, REFUSE, DROP = 1, 2, 3, 4
WRITABLE, WRITTEN = 1, 2


@dataclass
class Note:
    word: int
    buffer: int
    bytes: int

    @staticmethod
    def parse(data: bytes) -> Note:
        magic, word, buffer, size = struct.unpack("<4sIQQ", data)
        if magic != b"RPLB" or not OFFER <= word <= DROP or not buffer:
            raise Damaged("a note that there is not")
        if word != OFFER and size:
            raise Damaged("only an offer has a length")
        return Note(word, buffer, size)


@dataclass
class Place:
    buffer: int
    offset: int
    bytes: int
    flags: int


@dataclass
class Posted:
    """A frame in shared memory. place: where its payload lies, if not behind the header."""

    frame: Frame
    place: Optional[Place]
    is_withdrawn: bool


class SharedMemory:
    """What lies in a link's memory at a moment; side 0 is the lower rank."""

    def __init__(self, memory: bytes) -> None:
        self._memory = memory
        self._area = (len(memory) - 2 * _END) // 2

    def _number(self, side: int, offset: int) -> int:
        return int(struct.unpack_from("<I", self._memory, side * _END + offset)[0])

    def takes_places(self, side: int) -> bool:
        return self._number(side, 4) == 1

    def released(self, side: int) -> int:
        """Frames of the other that this side has given back."""
        return self._number(side, 64)

    def is_writing(self, side: int) -> bool:
        return self._number(side, 68) == 1

    def posted(self, side: int, first: int) -> list[Posted]:
        """Frames of a side from number `first` on, but for those given back whose memory has a
        later one."""
        words, number = [], first
        while len(words) < _WORDS:
            at = side * _END + 128 + 8 * (number % _WORDS)
            word = struct.unpack_from("<Q", self._memory, at)[0]
            if word >> 63 != (number // _WORDS + 1) % 2:
                break
            words.append(word)
            number += 1
        found: list[Posted] = []
        lies: list[tuple[int, int]] = []
        for word in reversed(words):
            size, offset = self._lies(word)
            if all(offset + size <= begin or end <= offset for begin, end in lies):
                found.append(self._frame(side, word))
                lies.append((offset, offset + size))
        return found[::-1]

    @staticmethod
    def _lies(word: int) -> tuple[int, int]:
        """Bytes and offset of a frame in its side's area."""
        return word & _U32, (word >> 32 & ((1 << 29) - 1)) * 64

    def _frame(self, side: int, word: int) -> Posted:
        size, offset = self._lies(word)
        if offset + size > self._area:
            raise Damaged("a frame outside of its area")
        begin = 2 * _END + side * self._area + offset
        data = self._memory[begin : begin + size]
        fields, payload, crc = _read_header(data, 0)
        if crc:
            raise Damaged("memory of one kernel is not checksummed")
        if not word >> 61 & 1:
            if size != HEADER_BYTES + payload:
                raise Damaged("a frame that is longer or shorter than it says")
            return Posted(Frame(*fields, data[HEADER_BYTES:]), None, bool(word >> 62 & 1))
        place = Place(*struct.unpack("<QQII", data[HEADER_BYTES:]))
        if place.bytes != payload or not payload or place.flags not in (0, WRITABLE, WRITTEN):
            raise Damaged("a place that there is not")
        if place.flags == WRITTEN and (place.buffer or place.offset):
            raise Damaged("what was written has no place")
        return Posted(Frame(*fields, b""), place, bool(word >> 62 & 1))


# ---- wire.md: parts ----


def part_of(count: int, granule: int, granule_bytes: int, pieces: int, k: int) -> slice:
    """Elements of piece k of so many of a vector (one segment)."""
    units = -(-count // granule)
    places = [units * granule_bytes * n // pieces // granule_bytes for n in (k, k + 1)]
    first, last = (count if place >= units else place * granule for place in places)
    return slice(first, last)


# ---- codecs.md: codecs ----


_RUN = 256  # elements of v that share a scale


@dataclass
class Codec:
    """What a codec's name says: `topk:k=2,bucket=8,values=bf16`."""

    name: str
    bucket: int
    bits: int = 0
    k: int = 0
    values: str = "bf16"

    @staticmethod
    def parse(text: str) -> Codec:
        name, _, rest = text.partition(":")
        options = dict(word.split("=") for word in rest.split(",")) if rest else {}
        if name[0] == "q":
            return Codec("q", int(options.get("bucket", 512)), bits=int(name[1:]))
        if name[0] == "v":
            return Codec("v", int(options.get("bucket", 16384)), bits=int(name[1:]))
        if name in ("topk", "randk"):
            return Codec(
                name,
                int(options.get("bucket", 4096)),
                k=int(options.get("k", 32)),
                values=options.get("values", "bf16"),
            )
        return Codec(name, int(options.get("bucket", 512 if name == "sign" else 1)))

    @property
    def varies(self) -> bool:
        return self.name in ("topk", "v")

    @property
    def granule(self) -> int:
        return 16 if self.name in ("fp32", "bf16", "fp16") else self.bucket  # 64 bytes of f32

    def most_bytes(self, count: int) -> int:
        """Of `count` elements; of topk and v the limit."""
        return sum(self._bucket_bytes(n) for n in _buckets(count, self.bucket))

    def _bucket_bytes(self, n: int) -> int:
        if self.name == "fp32":
            return 4 * n
        if self.name in ("bf16", "fp16"):
            return 2 * n
        if self.name == "q":
            return 8 + -(-n * self.bits // 8)
        if self.name == "v":
            return 7 * -(-n // _RUN) + -(-n * min(self.bits + 1, 8) // 8)
        if self.name == "sign":
            return 4 + -(-n // 8)
        if self.name == "randk":
            return _value_bytes(self.values, -(-n * self.k // self.bucket))
        kept = min(self.k, n)
        return 2 + -(-kept * _index_bits(self.bucket) // 8) + _value_bytes(self.values, kept)


@dataclass
class Context:
    """What encoder and decoder are told besides."""

    seed: int = 0
    step: int = 0
    tensor: int = 0


def _buckets(count: int, bucket: int) -> list[int]:
    return [min(bucket, count - at) for at in range(0, count, bucket)]


def _index_bits(bucket: int) -> int:
    return (bucket - 1).bit_length()


def _unpack(data: bytes, count: int, bits: int) -> np.ndarray:
    """Numbers of so many bits, from the lowest of the first byte up."""
    flat = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    if flat[count * bits :].any():
        raise Damaged("unused bits are set")
    if bits == 0:
        return np.zeros(count, np.int64)
    weights = 1 << np.arange(bits, dtype=np.int64)
    return flat[: count * bits].reshape(count, bits).astype(np.int64) @ weights


def _value_bytes(values: str, count: int) -> int:
    if values[0] == "q":
        return 8 + -(-count * int(values[1:]) // 8) if count else 0
    return (4 if values == "fp32" else 2) * count


def _decode_values(values: str, data: bytes, count: int) -> np.ndarray:
    if count == 0:
        return np.zeros(0, np.float32)
    if values[0] == "q":
        return _decode_quantised(data, count, int(values[1:]))
    return decode_plain(values, data)


def decode_plain(name: str, data: bytes) -> np.ndarray:
    if name == "fp32":
        return np.frombuffer(data, "<f4").copy()
    if name == "fp16":
        return np.frombuffer(data, "<f2").astype(np.float32)
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)


def _decode_quantised(data: bytes, n: int, bits: int) -> np.ndarray:
    least, unit = np.frombuffer(data[:8], "<f4")
    levels = _unpack(data[8:], n, bits).astype(np.float32)
    with np.errstate(all="ignore"):
        highest = np.float32(least + np.float32(unit * np.float32((1 << bits) - 1)))
        if not (np.isfinite(least) and np.isfinite(unit) and np.isfinite(highest)):
            return np.full(n, np.nan, np.float32)
        return (least + (unit * levels).astype(np.float32)).astype(np.float32)


def _decode_sign(data: bytes, n: int) -> np.ndarray:
    mean = np.frombuffer(data[:4], "<f4")[0]
    return np.where(_unpack(data[4:], n, 1) == 1, -mean, mean).astype(np.float32)


def _philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox 4x32-10 (Salmon et al., 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        low, high = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(high >> 32) ^ c[1] ^ k[0], high & _U32, (low >> 32) ^ c[3] ^ k[1], low & _U32]
        k = [(k[0] + 0x9E3779B9) & _U32, (k[1] + 0xBB67AE85) & _U32]
    return c


def _split(number: int) -> list[int]:
    return [number & _U32, number >> 32 & _U32]


def places_of(codec: Codec, context: Context, number: int, n: int) -> list[int]:
    """randk: which elements of bucket `number` of the tensor, which has n, are kept."""
    d = _philox([*_split(context.step), context.tensor, 0x646E6172], _split(context.seed))
    m = -(-n * codec.k // codec.bucket)
    places = []
    for j in range(m):
        first, last = j * n // m, (j + 1) * n // m
        block = number * -(-codec.k // 4) + j // 4
        w = _philox([*_split(block), d[2], d[3]], d[:2])
        places.append(first + (w[j % 4] * (last - first) >> 32))
    return places


def decode(codec: Codec, data: bytes, count: int, first: int, context: Context) -> np.ndarray:
    """`count` f32 elements, the first of which is element `first` of the tensor."""
    out, at = np.zeros(count, np.float32), 0
    for i, n in enumerate(_buckets(count, codec.bucket)):
        here = slice(i * codec.bucket, i * codec.bucket + n)
        if codec.varies:
            read = _decode_topk if codec.name == "topk" else _decode_runs
            at = read(codec, data, at, n, out[here])
            continue
        piece = data[at : at + codec._bucket_bytes(n)]
        at += codec._bucket_bytes(n)
        if codec.name == "q":
            out[here] = _decode_quantised(piece, n, codec.bits)
        elif codec.name == "sign":
            out[here] = _decode_sign(piece, n)
        elif codec.name == "randk":
            places = places_of(codec, context, (first + here.start) // codec.bucket, n)
            values = _decode_values(codec.values, piece, len(places))
            out[here][places] = values
            if not np.isfinite(values).all():
                out[here] = np.nan
        else:
            out[here] = decode_plain(codec.name, piece)
    if at != len(data):
        raise Damaged(f"{len(data) - at} bytes are left over")
    return out


def _decode_topk(codec: Codec, data: bytes, at: int, n: int, out: np.ndarray) -> int:
    kept = struct.unpack_from("<H", data, at)[0]
    at += 2
    if kept == 0xFFFF:
        out[:] = np.nan
        return at
    bits = _index_bits(codec.bucket)
    index_bytes, value_bytes = -(-kept * bits // 8), _value_bytes(codec.values, kept)
    places = _unpack(data[at : at + index_bytes], kept, bits)
    if kept > codec.k or (np.diff(places) <= 0).any() or (places >= n).any():
        raise Damaged("indices that nobody has encoded")
    at += index_bytes
    out[places] = _decode_values(codec.values, data[at : at + value_bytes], kept)
    return at + value_bytes


def _decode_runs(codec: Codec, data: bytes, at: int, n: int, out: np.ndarray) -> int:
    """A bucket of v: runs that say how many bits their elements have."""
    for first in range(0, n, _RUN):
        run = out[first : first + _RUN]
        width, at = data[at], at + 1
        if width == 0 or width == 255:
            run[:] = np.nan if width else 0
        elif width == 9:
            run[:] = np.frombuffer(data[at : at + 4], "<f4")[0]
            at += 4
        elif width <= 8:
            levels = -(-len(run) * width // 8)
            scales = data[at : at + 4] + bytes(2) + data[at + 4 : at + 6]
            run[:] = _decode_quantised(scales + data[at + 6 : at + 6 + levels], len(run), width)
            at += 6 + levels
        else:
            raise Damaged(f"a run of {width} bits")
    return at


def decode_payload(
    codec: Codec, payload: bytes, count: int, first: int, context: Context
) -> np.ndarray:
    """A frame's payload that is one piece (elements of one segment)."""
    if not codec.varies:
        return decode(codec, payload, count, first, context)
    if count == 0:
        return np.zeros(0, np.float32)
    if struct.unpack_from("<I", payload)[0] != len(payload) - 4:
        raise Damaged("the length before an encoding is not that of the rest of the frame")
    return decode(codec, payload[4:], count, first, context)
