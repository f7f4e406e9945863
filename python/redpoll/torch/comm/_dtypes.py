"""PyTorch's element types and reductions in the library's numbers."""

from __future__ import annotations

import torch
from torch.distributed import ReduceOp

from ..._abi import DTYPES, REDUCTIONS

_SAME = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float64": "F64",
    "int8": "I8",
    "uint8": "U8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "bool": "BOOL",
    "complex64": "C64",
    "complex128": "C128",
}

NUMBER: dict[torch.dtype, int] = {
    getattr(torch, name): DTYPES[code] for name, code in _SAME.items() if hasattr(torch, name)
}
"""Types whose elements the library can add: their numbers in <redpoll/dtype.h>."""

_BY_SIZE = {1: DTYPES["U8"], 2: DTYPES["U16"], 4: DTYPES["U32"], 8: DTYPES["U64"]}
_BY_SIZE[16] = DTYPES["C128"]

_SUM = ReduceOp.SUM
_REDUCTION = {
    getattr(ReduceOp, name): number
    for name, number in REDUCTIONS.items()
    if hasattr(ReduceOp, name)
}


def moved_number(dtype: torch.dtype) -> int:
    """The type under which elements travel that are moved and not added: any type of 1, 2, 4, 8
    or 16 bytes goes, bit for bit."""
    number = NUMBER.get(dtype)
    return _BY_SIZE[dtype.itemsize] if number is None else number


def reduced_number(dtype: torch.dtype) -> int:
    """The type's number for a reduction. TypeError names a type that the library cannot add."""
    number = NUMBER.get(dtype)
    if number is None:
        raise TypeError(
            f"{dtype} cannot be reduced; it can be broadcast, gathered, scattered, exchanged "
            "and sent. Convert it to float32 for a reduction"
        )
    return number


def reduction(op: object) -> tuple[int, float]:
    """(number in <redpoll/comm.h>, factor) of a ReduceOp or a member of ReduceOp.RedOpType.

    The factor is that of PREMUL_SUM, else 1. ValueError: no reduction."""
    if op == _SUM:  # looked up in a tenth of the time
        return 0, 1.0
    kind = getattr(op, "op", op)
    number = _REDUCTION.get(kind)
    if number is None:
        raise ValueError(f"{op} is no reduction of process groups")
    if number != REDUCTIONS["PREMUL_SUM"]:
        return number, 1.0
    return number, _factor(op)


def _factor(op: object) -> float:
    if hasattr(op, "factor"):
        return float(op.factor)
    # Releases before `factor` show it in the pickled state: (kind, tensor or number).
    state = op.__getstate__()  # type: ignore[attr-defined]
    return float(state[1])
