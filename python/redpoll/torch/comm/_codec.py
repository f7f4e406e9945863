"""Codecs: how elements become bytes on the wire."""

from __future__ import annotations

import ctypes

import torch

from ... import _abi
from ...errors import check
from ._dtypes import NUMBER


class Codec:
    """A codec as `q4:bucket=512`; immutable, hashable, equal when the canonical texts are.

    docs/codecs.md says which there are and what they do to values. Two threads may share
    one."""

    __slots__ = ("structure", "reference", "_text")

    structure: _abi.rp_codec
    """The rp_codec; not to be changed."""

    def __init__(self, text: str) -> None:
        """Of a codec's text; redpoll.Error (INVALID) names what is wrong with it."""
        self.structure = _abi.rp_codec()
        self.reference = ctypes.pointer(self.structure)
        check(_abi.rp_codec_parse(str(text).encode(), self.reference))
        room = ctypes.create_string_buffer(64)
        self._text = _abi.rp_codec_text(self.reference, room, len(room)).decode()

    @classmethod
    def parse(cls, text: str | Codec) -> Codec:
        """The codec of a text; a codec passes through. redpoll.Error (INVALID) for a bad
        text."""
        return text if isinstance(text, Codec) else cls(text)

    @property
    def bits(self) -> int:
        """Bits an element; 0 where the dtype decides."""
        return self.structure.bits

    @property
    def bucket(self) -> int:
        """Elements that share a scale; 0 where the codec has none."""
        return self.structure.bucket

    @property
    def stochastic(self) -> bool:
        """True when rounding is random (keyed by seed, step, tensor and element)."""
        return self.structure.rounding == 1

    @property
    def granule(self) -> int:
        """Elements that are encoded together; cuts of a tensor must fall on multiples of it."""
        return _abi.rp_codec_granule(self.reference)

    def is_exact(self, dtype: torch.dtype = torch.float32) -> bool:
        """True when every value of dtype survives."""
        number = NUMBER.get(dtype)
        return number is None or bool(_abi.rp_codec_is_exact(self.reference, number))

    def supports(self, dtype: torch.dtype) -> bool:
        """True when the codec takes elements of dtype."""
        number = NUMBER.get(dtype)
        return number is not None and bool(_abi.rp_codec_supports(self.reference, number))

    def encoded_bytes(self, dtype: torch.dtype, count: int) -> int:
        """Bytes that `count` elements of dtype encode to."""
        return _abi.rp_codec_encoded_bytes(self.reference, NUMBER[dtype], count)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Codec({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Codec) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return Codec, (self._text,)
