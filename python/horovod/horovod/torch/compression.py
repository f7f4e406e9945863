"""How tensors of a reduction travel."""

from __future__ import annotations

from typing import Any, Optional, Union

import torch

from redpoll.torch import Codec

__all__ = ["CodecCompressor", "Compression", "Compressor"]


class Compressor:
    """compress() makes what is reduced of a tensor, decompress() what is handed back."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """What travels, and what decompress() is to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Everything as it is."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class FP16Compressor(Compressor):
    """Floats with 16 bits, of which sums are made too."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        if not tensor.dtype.is_floating_point:
            return tensor, tensor.dtype
        return tensor.to(torch.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx) if ctx.is_floating_point else tensor


class CodecCompressor(NoneCompressor):
    """Redpoll's, not Horovod's: the library encodes what travels, and no copy is made. Tensors
    of one dimension, those of fewer than min_size elements and those that are no floats travel
    exact. DistributedOptimizer adds what was lost to the next step's gradient.

    codec: a text of docs/codecs.md, "q4" or "topk:k=32". redpoll.Error names what is
    wrong with it."""

    def __init__(self, codec: Union[str, Codec], min_size: int = 1024) -> None:
        self.codec, self.min_size = Codec.parse(codec), min_size

    def codec_for(self, tensor: torch.Tensor) -> Optional[Codec]:
        """None: exact."""
        is_large = tensor.dim() > 1 and tensor.numel() >= self.min_size
        return self.codec if is_large and self.codec.supports(tensor.dtype) else None

    def __repr__(self) -> str:
        return f"CodecCompressor({str(self.codec)!r})"


class Compression:
    """Those that there are: none and fp16 are Horovod's; q4, q8 and codec(text) Redpoll's."""

    none = NoneCompressor
    fp16 = FP16Compressor
    q4 = CodecCompressor("q4")
    q8 = CodecCompressor("q8")
    codec = CodecCompressor
