"""Codecs: how elements become bytes on the wire."""

from __future__ import annotations

import torch

from ... import _abi
from ..._codec import CodecOfText
from ._dtypes import NUMBER


class Codec(CodecOfText):
    """A codec of tensors' elements."""

    __slots__ = ()

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
