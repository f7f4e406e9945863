"""What a codec is whatever the arrays are that it encodes: torch/comm/_codec.py and
numpy/_codec.py add their element types."""

from __future__ import annotations

import ctypes
from typing import TypeVar, Union

from . import _abi
from .errors import check

Same = TypeVar("Same", bound="CodecOfText")


class CodecOfText:
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
    def parse(cls: type[Same], text: Union[str, Same]) -> Same:
        """The codec of a text; a codec passes through. redpoll.Error (INVALID) for a bad
        text."""
        return text if isinstance(text, cls) else cls(str(text))

    @property
    def bits(self) -> int:
        """Bits an element; 0 where the dtype decides."""
        return int(self.structure.bits)

    @property
    def bucket(self) -> int:
        """Elements that share a scale; 0 where the codec has none."""
        return int(self.structure.bucket)

    @property
    def stochastic(self) -> bool:
        """True when rounding is random (keyed by seed, step, tensor and element)."""
        return bool(self.structure.rounding == 1)

    @property
    def sparse(self) -> bool:
        """True when elements come back as 0: of use only where a residual keeps them."""
        return self._text.partition(":")[0] in ("topk", "randk")

    @property
    def granule(self) -> int:
        """Elements that are encoded together; cuts of a tensor must fall on multiples of it."""
        return int(_abi.rp_codec_granule(self.reference))

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Codec({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(other) == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self._text,)
