"""Real traffic, read by a decoder that was written from the documents alone."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Optional

import numpy as np
import pytest

import second_decoder as wire
from recorded_ranks import WAIT_S, ShmWire, check, record, run_over, wait
from redpoll import _abi

COUNT = 10_000
SEED, STEP, TENSOR = 0x123456789ABCDEF0, (1 << 32) + 7, 3
CODECS = [
    "fp32",
    "bf16",
    "fp16",
    *(f"q{bits}" for bits in range(1, 9)),
    "q4:bucket=100",
    "q3:bucket=128,rounding=stochastic",
    "topk",
    "topk:k=5,bucket=100,values=fp32",
    "topk:k=64,bucket=1024,values=q4",
    "randk",
    "randk:k=7,bucket=300,values=fp16",
    "randk:k=100,bucket=1024,values=q8",
    "sign",
    "sign:bucket=100",
    "v4:bucket=1000",
    "v1:bucket=512,quarters=3",
    "v8:bucket=300,rounding=stochastic",
]
ALL_REDUCE, ALL_GATHER = 0, 2


def inputs(rank: int) -> np.ndarray:
    values = np.random.default_rng(rank + 1).standard_normal(COUNT).astype(np.float32)
    values[100:700] = 0  # whole buckets, for those that leave zeros out
    values[5000] = 1e-42  # and a subnormal number
    return values


def codec_of(text: str) -> Any:
    codec = _abi.rp_codec()
    check(_abi.rp_codec_parse(text.encode(), ctypes.byref(codec)))
    return codec


def options() -> Any:
    return _abi.rp_collective_options(algorithm=b"sra", seed=SEED, step=STEP)


def reduce_recorded(
    text: str, values: list[np.ndarray], tls: bool = False
) -> tuple[bytes, bytes]:
    """All-reduce `values` in place; what rank 1 said to rank 0, and rank 0 to rank 1."""

    def live(comm: ctypes.c_void_p, rank: int) -> None:
        segment = _abi.rp_segment(
            data=values[rank].ctypes.data,
            count=COUNT,
            dtype=_abi.DTYPES["F32"],
            codec=codec_of(text),
            tensor=TENSOR,
        )
        request, how = ctypes.c_void_p(), options()
        check(
            _abi.rp_all_reduce_start(
                comm, ctypes.byref(segment), 1, ctypes.byref(how), ctypes.byref(request)
            )
        )
        wait(request)

    return record(live, tls)


def all_reduced(text: str) -> tuple[list[np.ndarray], list[list[wire.Frame]]]:
    """What each rank has afterwards, and the frames that each one sent."""
    results = [inputs(rank) for rank in range(2)]
    called, answered = reduce_recorded(text, results)
    return results, [frames_of(answered), frames_of(called)]


def frames_of(stream: bytes) -> list[wire.Frame]:
    frames = wire.read_frames(stream)
    hello = frames[0]
    assert hello.kind == wire.HELLO and hello.count == 2 and not hello.payload
    return [frame for frame in frames if frame.kind in wire.DATA_KINDS]


@pytest.mark.parametrize("text", CODECS)
def test_an_all_reduce_is_read(text: str) -> None:
    codec = wire.Codec.parse(text)
    context = wire.Context(SEED, STEP, TENSOR)
    results, sent = all_reduced(text)
    assert results[0].tobytes() == results[1].tobytes()
    chunks = 1 + max(frame.chunk for frames in sent for frame in frames)
    answer = np.full(COUNT, np.nan, np.float32)
    contributions = 0
    for rank, frames in enumerate(sent):
        for frame in frames:
            assert (frame.collective, frame.count, frame.dtype) == (ALL_REDUCE, COUNT, 1)
            assert wire.CODECS[frame.codec] == codec.name and not frame.is_exact
            if codec.name in ("q", "v"):
                assert (frame.bits, frame.bucket) == (codec.bits, codec.bucket)
            weight = codec.most_bytes(codec.granule)
            where = wire.part_of(
                COUNT, codec.granule, weight, 2 * chunks, 2 * frame.chunk + frame.part
            )
            values = wire.decode_payload(
                codec, frame.payload, where.stop - where.start, where.start, context
            )
            if frame.part == rank:  # the owner's sum, for everybody
                answer[where] = values
            else:
                contributions += 1
                limits(codec, inputs(rank)[where], values)
    assert contributions >= 2
    assert answer.tobytes() == results[0].tobytes()


def limits(codec: wire.Codec, values: np.ndarray, decoded: np.ndarray) -> None:
    """What the codec promises of one encoding."""
    if codec.name == "fp32":
        assert decoded.tobytes() == values.tobytes()
    elif codec.name in ("bf16", "fp16"):
        assert np.allclose(decoded, values, rtol=2**-8, atol=1e-7)
    elif codec.name == "q":
        for at in range(0, len(values), codec.bucket):
            bucket = slice(at, at + codec.bucket)
            step = np.ptp(values[bucket]) / (2**codec.bits - 1)
            assert np.abs(decoded[bucket] - values[bucket]).max() <= 1.001 * step
    elif codec.name == "v":
        error = np.square(decoded - values).sum()
        share = min(1.0, 3 * 3.3 ** (1 - codec.bits))
        assert error <= share * np.square(values).sum()
    elif codec.name == "sign":
        assert (np.signbit(decoded) == (values < 0))[values != 0].all()
    else:
        assert np.count_nonzero(decoded) <= codec.k * -(-len(values) // codec.bucket)


def test_the_examples_of_the_documents() -> None:
    assert wire.crc32c(b"123456789") == 0xE3069283
    q4 = bytes.fromhex("00000000 0000803f 1032547698badcfe")
    assert (wire.decode(wire.Codec.parse("q4:bucket=16"), q4, 16, 0, wire.Context())
            == np.arange(16)).all()  # fmt: skip
    topk = bytes.fromhex("0200 19 40c0a040")
    found = wire.decode(wire.Codec.parse("topk:k=2,bucket=8"), topk, 8, 0, wire.Context())
    assert found.tolist() == [0, -3, 0, 5, 0, 0, 0, 0]
    v1 = wire.Codec.parse("v1:quarters=3")
    for data, values in {"09 000000c0": [-2, -2, -2], "01 00000040 4040 02": [2, 5]}.items():
        found = wire.decode(v1, bytes.fromhex(data), len(values), 0, wire.Context())
        assert found.tolist() == values


def test_damage_is_refused() -> None:
    stream = reduce_recorded("q4", [inputs(0), inputs(1)])[0]
    assert wire.read_frames(stream)
    for at in range(0, len(stream), 97):
        damaged = bytearray(stream)
        damaged[at] ^= 4
        with pytest.raises(wire.Damaged):
            wire.read_frames(bytes(damaged))
    with pytest.raises(wire.Damaged):
        wire.read_frames(stream[:-1])
    topk = bytes.fromhex("02001940c0a040")
    with pytest.raises(wire.Damaged):
        wire.decode(wire.Codec.parse("topk:k=1,bucket=8"), topk, 8, 0, wire.Context())


# ---- shared memory ----


def buffer_of(values: np.ndarray) -> np.ndarray:
    """The same in memory that peers read in place."""
    library, address = _abi.load(), ctypes.c_void_p()
    check(library.rp_buffer_allocate(ctypes.c_size_t(values.nbytes), ctypes.byref(address)))
    memory = (ctypes.c_char * values.nbytes).from_address(address.value or 0)
    found = np.frombuffer(memory, np.float32)
    found[:] = values
    return found


class InPlace:
    """All-reduces of two ranks in buffers, until what rank 1 sends stays where it is. Then one
    more, which rank 0 joins late: `waiting` and `done` are the memory before and after."""

    def __init__(self) -> None:
        self.wire = ShmWire()
        self.meeting = threading.Barrier(2, timeout=WAIT_S)
        self.values = [buffer_of(inputs(rank)) for rank in range(2)]
        self.first = (0, 0)
        self.sequence = 0  # of the last all-reduce
        self.waiting: Optional[wire.SharedMemory] = None
        self.done: Optional[wire.SharedMemory] = None
        self.files: dict[bytes, bytes] = {}  # while rank 1 waits
        run_over(self.wire, self.live, tls=False, chunk_bytes=65536)
        self.results = [values.copy() for values in self.values]
        for values in self.values:
            check(_abi.load().rp_buffer_free(ctypes.c_void_p(values.ctypes.data)))

    def look(self) -> wire.SharedMemory:
        assert self.wire.memory is not None
        return wire.SharedMemory(self.wire.memory[:])

    def post(self, comm: ctypes.c_void_p, rank: int) -> ctypes.c_void_p:
        segment = _abi.rp_segment(
            data=self.values[rank].ctypes.data, count=COUNT, dtype=_abi.DTYPES["F32"]
        )
        request, how = ctypes.c_void_p(), options()
        check(
            _abi.rp_all_reduce_start(
                comm, ctypes.byref(segment), 1, ctypes.byref(how), ctypes.byref(request)
            )
        )
        return request

    def live(self, comm: ctypes.c_void_p, rank: int) -> None:
        for sequence in range(1, 500):  # counted from 1
            self.meeting.wait()
            self.sequence = sequence
            self.values[rank][:] = inputs(rank)
            if self.attempt(comm, rank):
                return
        raise AssertionError("nothing stays where it is")

    def attempt(self, comm: ctypes.c_void_p, rank: int) -> bool:
        """Rank 1 begins; rank 0 joins when its first frames are there."""
        if rank == 1:
            memory = self.look()
            self.first = (memory.released(1), memory.released(0))
            request = self.post(comm, rank)
            assert _abi.rp_request_wait_for(request, 0.05) == _abi.RP_PENDING
            self.waiting = self.look()
            self.files = {data: file[:] for data, file in dict(self.wire.files).items()}
        self.meeting.wait()
        if rank == 0:
            request = self.post(comm, rank)
        wait(request)
        self.meeting.wait()
        if rank == 0:
            self.done = self.look()
        self.meeting.wait()
        return bool(self.in_place(self.waiting, 1))

    def in_place(self, memory: Optional[wire.SharedMemory], side: int) -> list[wire.Posted]:
        """Frames of the last all-reduce with a place. A frame of one before it may still lie
        there: its all-reduce ends before its memory is given back."""
        assert memory is not None
        found = memory.posted(side, self.first[side])
        return [each for each in found if each.place and each.frame.sequence == self.sequence]


def test_what_stays_in_a_buffer_is_read() -> None:
    job = InPlace()
    notes = [[wire.Note.parse(each) for each in said] for said in job.wire.notes]
    offered = {
        note.buffer: (rank, note.bytes)
        for rank in range(2)
        for note in notes[rank]
        if note.word == wire.OFFER
    }
    assert {rank for rank, _ in offered.values()} == {0, 1}
    for data, file in job.wire.files.items():
        note = wire.Note.parse(data)
        assert note.word == wire.OFFER and len(file) == note.bytes >= 4 * COUNT
        accepted = [
            each for each in notes[1 - offered[note.buffer][0]] if each.word != wire.OFFER
        ]
        assert wire.Note(wire.ACCEPT, note.buffer, 0) in accepted

    assert job.waiting and job.waiting.takes_places(0) and job.waiting.takes_places(1)
    sent = job.in_place(job.waiting, 1)
    assert len(sent) == 1 and not sent[0].is_withdrawn
    frame, place = sent[0].frame, sent[0].place
    assert place and place.flags == wire.WRITABLE
    assert (frame.collective, frame.part, frame.count) == (ALL_REDUCE, 0, COUNT)
    assert offered[place.buffer][0] == 1
    half = wire.part_of(COUNT, 16, 64, 2, frame.part)
    assert (place.offset, place.bytes) == (4 * half.start, 4 * (half.stop - half.start))
    file = next(
        each for data, each in job.files.items() if wire.Note.parse(data).buffer == place.buffer
    )
    lies = np.frombuffer(file, np.float32, half.stop - half.start, place.offset)
    assert lies.tobytes() == inputs(1)[half].tobytes()
    for result in job.results:
        assert np.array_equal(result, inputs(0) + inputs(1))

    assert job.done and not job.done.is_writing(0) and not job.done.is_writing(1)
    answers = job.in_place(job.done, 0)
    written = [each for each in answers if each.place and each.place.flags == wire.WRITTEN]
    assert [each.frame.part for each in written] == [0]
    assert written[0].place and written[0].place.bytes == place.bytes


def test_a_recorded_job_with_tls_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what it reduces; a job without it shows it."""
    monkeypatch.setenv("REDPOLL_SECRET", "the secret of this recorded job")
    private = np.frombuffer(b"nobody may read " * (COUNT // 4), np.float32)
    for tls in (False, True):
        values = [private.copy(), np.zeros(COUNT, np.float32)]
        try:
            streams = reduce_recorded("fp32", values, tls)
        except RuntimeError as error:
            pytest.skip(str(error))  # a build without TLS
        assert values[1].tobytes() == private.tobytes()
        for stream in streams:
            assert b"RPPF" in stream  # proofs are open
            assert len(stream) > COUNT * 4
            assert (b"may read" in stream) is not tls
