"""What a call of the handler does: `struct plan` of xla_collective.c, filled in by Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char, c_int64, c_void_p
from typing import Any, Optional

import numpy as np

from .. import _abi
from .._library import load
from ..numpy._codec import Codec, number_of
from ..numpy._communicator import OPS

KINDS = {"all_reduce": 0, "all_gather": 1, "reduce_scatter": 2, "broadcast": 3, "barrier": 4}


class Plan(ctypes.Structure):
    _fields_ = [
        ("comm", c_void_p),
        ("kind", c_int64),
        ("start", c_void_p),
        ("attend", c_void_p),
        ("leave", c_void_p),
        ("wait_for", c_void_p),
        ("release", c_void_p),
        ("last_error", c_void_p),
        ("count", c_int64),
        ("feedback", c_int64),
        ("bytes", POINTER(c_int64)),
        ("segments", c_void_p),
        ("segment_bytes", c_int64),
        ("data_at", c_int64),
        ("residual_at", c_int64),
        ("options", c_void_p),
        ("options_bytes", c_int64),
        ("step_at", c_int64),
        ("elements", c_int64),
        ("dtype", c_int64),
        ("codec", c_void_p),
        ("room", POINTER(c_char)),
    ]

    kept: Any  # what it points at
    address: int


def make(
    comm: int,
    kind: str,
    shapes: Sequence[Any],
    op: str,
    codecs: Sequence[Optional[Codec]],
    feedback: bool,
    seed: int,
    key: int,
    root: int,
    elements: int,
) -> Plan:
    """shapes: things with shape and dtype; of the operands. elements: of the shorter end of a
    gather or scatter. ValueError: no such op."""
    if op not in OPS:
        raise ValueError(f"op is {op!r}; known are {', '.join(OPS)}")
    plan = Plan(comm=comm, kind=KINDS[kind], count=len(shapes), feedback=int(feedback))
    library = load()

    def place(name: str) -> Any:
        return ctypes.cast(getattr(library, name), c_void_p)

    plan.start = place(f"rp_{kind}_start")
    plan.attend, plan.leave = place("rp_comm_attend"), place("rp_comm_leave")
    plan.wait_for, plan.release = place("rp_request_wait_for"), place("rp_request_free")
    plan.last_error = place("rp_last_error")
    options = _abi.rp_collective_options(
        reduce=_abi.REDUCTIONS[OPS[op]], factor=1.0, seed=seed, key=key, root=root
    )
    segments = (_abi.rp_segment * max(len(shapes), 1))()
    sizes = [int(np.prod(each.shape)) for each in shapes]
    for i, (each, codec) in enumerate(zip(shapes, codecs)):
        segments[i].count, segments[i].tensor = sizes[i], i
        segments[i].dtype = number_of(np.dtype(each.dtype), kind)
        if codec is not None:
            segments[i].codec = codec.structure
    held = [4 * size if codec is not None else 0 for size, codec in zip(sizes, codecs)]
    counts = [size * np.dtype(each.dtype).itemsize for size, each in zip(sizes, shapes)]
    every = (c_int64 * max(2 * len(shapes), 1))(*counts, *held)
    room = (c_char * max(ctypes.sizeof(segments), 1))()
    plan.bytes, plan.room = every, room
    plan.segments = ctypes.addressof(segments)
    plan.segment_bytes = ctypes.sizeof(_abi.rp_segment)
    plan.data_at, plan.residual_at = (
        _abi.rp_segment.data.offset,
        _abi.rp_segment.residual.offset,
    )
    plan.options, plan.options_bytes = ctypes.addressof(options), ctypes.sizeof(options)
    plan.step_at = _abi.rp_collective_options.step.offset
    if shapes:
        plan.elements, plan.dtype = elements, segments[0].dtype
        if codecs[0] is not None:
            plan.codec = ctypes.addressof(codecs[0].structure)
    plan.kept = (options, segments, every, room, list(codecs))
    plan.address = ctypes.addressof(plan)
    return plan
