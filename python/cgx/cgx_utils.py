# No `from __future__ import annotations` here: DDP compares the annotations of a hook with
# types.
"""The DDP communication hook of torch_cgx's users, on Redpoll."""

from typing import Any, Optional

import torch
import torch.distributed as dist

import torch_cgx
from redpoll.torch import Codec, Piece, communicator_of, gradients_of

__all__ = ["CGXState", "cgx_hook"]

HOOK_BUCKET_SIZE = 1024


class CGXState:
    """How gradients travel: matrices of at least `layer_min_size` elements with
    compression_params["bits"] bits and a scale for every compression_params["bucket_size"]
    elements, everything else exact. What the parameters do not say, CGX_COMPRESSION_* do."""

    def __init__(
        self,
        process_group: Optional[dist.ProcessGroup],
        layer_min_size: int = 1024,
        compression_params: Optional[dict[str, int]] = None,
    ) -> None:
        """process_group: None for the default one; its backend is "cgx" or "redpoll".
        ValueError: an unknown parameter, or a number out of range."""
        params = dict(compression_params or {})
        unknown = sorted(set(params) - {"bits", "bucket_size"})
        if unknown:
            raise ValueError(
                f"compression_params has {', '.join(unknown)}; known are bits and bucket_size"
            )
        self.process_group = process_group
        self.min_size = self.layer_min_size = int(layer_min_size)
        self.compression_params = params
        self.step = 0
        self._layouts: dict[int, list[int]] = {}
        self.bits()  # wrong numbers are told here
        self.bucket_size()

    def bits(self) -> int:
        """Of layers for which nothing else was set."""
        bits = self.compression_params.get("bits")
        return torch_cgx.quantization_bits() if bits is None else torch_cgx.checked_bits(bits)

    def bucket_size(self) -> int:
        """Of layers for which nothing else was set."""
        size = self.compression_params.get("bucket_size")
        if size is None:
            return torch_cgx.bucket_size(HOOK_BUCKET_SIZE)
        return torch_cgx.checked_bucket_size(size)

    def layers(self, bucket: dist.GradBucket) -> dict[int, torch_cgx.Layer]:
        """The compressible tensors of a bucket by their place in it."""
        return {
            index: torch_cgx.Layer(flat.numel(), self.bits(), self.bucket_size(), of_hook=True)
            for index, (one, flat) in enumerate(zip(bucket.parameters(), gradients_of(bucket)))
            if one.dim() > 1 and one.numel() >= self.layer_min_size
        }

    def announce(self, bucket: dist.GradBucket) -> None:
        """Make a bucket's layers known once, and again when DDP has rebuilt it."""
        layout = [one.numel() for one in gradients_of(bucket)]
        if self._layouts.get(bucket.index()) != layout:
            self._layouts[bucket.index()] = layout
            torch_cgx.announce_layers(bucket.index(), self.layers(bucket))


def cgx_hook(state: CGXState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients over the ranks, each tensor as the state says."""
    communicator = communicator_of(state.process_group)
    state.announce(bucket)
    buffer = bucket.buffer()
    buffer.div_(communicator.world)
    tensors, codecs = _segments(state, bucket)
    work = communicator.all_reduce(
        tensors, codecs=codecs, step=state.step, algorithm=torch_cgx.algorithm()
    )
    state.step += bucket.is_last()

    def finish(reduced: Any) -> torch.Tensor:
        reduced.value()  # raises what went wrong
        return buffer

    return work.get_future().then(finish)


def _segments(
    state: CGXState, bucket: dist.GradBucket
) -> tuple[list[torch.Tensor], list[Optional[Codec]]]:
    layers = state.layers(bucket)
    tensors: list[torch.Tensor] = []
    codecs: list[Optional[Codec]] = []
    compresses = torch_cgx.intra_compress()
    for index, flat in enumerate(gradients_of(bucket)):
        first = 0
        for piece in _pieces(bucket.index(), index, flat, layers.get(index), compresses):
            tensors.append(flat.narrow(0, first, piece.numel))
            codecs.append(piece.codec)
            first += piece.numel
    return tensors, codecs


def _pieces(
    bucket_idx: int,
    index: int,
    flat: torch.Tensor,
    layer: Optional[torch_cgx.Layer],
    compresses: bool,
) -> list[Piece]:
    if layer is None or not compresses or flat.dtype not in torch_cgx.COMPRESSED_DTYPES:
        return [Piece(flat.numel(), None)]
    known = torch_cgx.layer_at(bucket_idx, index)
    if known is not None and known.numel == layer.numel:
        layer = known
    return torch_cgx.pieces_of(layer.numel, layer.bits, layer.bucket_size)
