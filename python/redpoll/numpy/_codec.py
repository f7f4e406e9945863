"""Codecs and element types in the library's words."""

from __future__ import annotations

from typing import Any, Optional, Union

import numpy as np

from .. import _abi
from .._codec import CodecOfText

NUMBER = {
    "float32": _abi.DTYPES["F32"],
    "float16": _abi.DTYPES["F16"],
    "bfloat16": _abi.DTYPES["BF16"],
    "float64": _abi.DTYPES["F64"],
    "int8": _abi.DTYPES["I8"],
    "uint8": _abi.DTYPES["U8"],
    "int16": _abi.DTYPES["I16"],
    "int32": _abi.DTYPES["I32"],
    "int64": _abi.DTYPES["I64"],
    "uint16": _abi.DTYPES["U16"],
    "uint32": _abi.DTYPES["U32"],
    "uint64": _abi.DTYPES["U64"],
    "bool": _abi.DTYPES["BOOL"],
    "complex64": _abi.DTYPES["C64"],
    "complex128": _abi.DTYPES["C128"],
}
"""Types whose elements travel, by numpy's names; bfloat16 is that of ml_dtypes."""


def number_of(dtype: Any, operation: str) -> int:
    """The library's number of a type. TypeError: it does not travel."""
    found = NUMBER.get(dtype.name) if dtype.isnative else None
    if found is None:
        raise TypeError(
            f"{operation}: elements are {dtype}; numbers and bool of this machine's byte order "
            "travel: use array.astype(...)"
        )
    return found


class Codec(CodecOfText):
    """A codec of arrays' elements."""

    __slots__ = ()

    def is_exact(self, dtype: Any) -> bool:
        """Every value of a dtype survives."""
        return bool(_abi.rp_codec_is_exact(self.reference, number_of(np.dtype(dtype), "codec")))

    def supports(self, dtype: Any) -> bool:
        """It takes elements of a dtype."""
        number = NUMBER.get(np.dtype(dtype).name)
        return number is not None and bool(_abi.rp_codec_supports(self.reference, number))

    def encoded_bytes(self, dtype: Any, count: int) -> int:
        """Bytes that `count` elements encode to."""
        number = number_of(np.dtype(dtype), "codec")
        return int(_abi.rp_codec_encoded_bytes(self.reference, number, count))


CodecLike = Union[str, Codec, None]


def as_codec(codec: CodecLike) -> Optional[Codec]:
    """Of a text, or itself."""
    return Codec(codec) if isinstance(codec, str) else codec
