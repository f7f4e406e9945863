"""The interface of torch_cgx on Redpoll: `import torch_cgx` registers the backend "cgx".

An all-reduce of SUM or AVG of floating tensors travels with CGX_COMPRESSION_QUANTIZATION_BITS
bits, in buckets of CGX_COMPRESSION_BUCKET_SIZE elements; both are read at every call. Layers
that were registered cut a buffer whose size is the sum of theirs, each with its own bits.
Integers and float64 travel exact. No error feedback, as in torch_cgx; redpoll.torch.compress()
has it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

import redpoll.torch
from redpoll.torch import Codec, Piece, Policy, keep_untraced

__all__ = [
    "register_layer",
    "set_quantization_bits",
    "set_quantization_bucket_size",
]

EXACT_BITS = 32
COMPRESSED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Layer:
    """How one tensor of a bucket travels."""

    numel: int
    bits: int
    bucket_size: int
    of_hook: bool = False  # made known by cgx_hook, which knows its borders itself


_layers: dict[int, dict[int, Layer]] = {}


def register_layer(
    bucket_idx: int, layer_idx: int, layer_numel: int, bits: int, bucket_size: int
) -> None:
    """Layer `layer_idx` of bucket `bucket_idx` has `layer_numel` elements, which travel with
    `bits` bits (1 to 8; 32: exact) and a scale for every `bucket_size`. Again: replaced.

    Without a hook a buffer is recognised by its size, the sum of a bucket's layers in order of
    their index. ValueError: a number out of range."""
    layer = Layer(
        _at_least("layer_numel", layer_numel, 1),
        checked_bits(bits),
        checked_bucket_size(bucket_size),
    )
    _layers.setdefault(int(bucket_idx), {})[int(layer_idx)] = layer


def set_quantization_bits(bucket_idx: int, layer_idx: int, bits: int) -> None:
    """Other bits for a known layer, from the next call on. ValueError: unknown or wrong."""
    layer = _known(bucket_idx, layer_idx)
    _layers[bucket_idx][layer_idx] = replace(layer, bits=checked_bits(bits))


def set_quantization_bucket_size(bucket_idx: int, layer_idx: int, bucket_size: int) -> None:
    """Another bucket size for a known layer. ValueError: unknown, out of range."""
    layer = _known(bucket_idx, layer_idx)
    size = checked_bucket_size(bucket_size)
    _layers[bucket_idx][layer_idx] = replace(layer, bucket_size=size)


def _known(bucket_idx: int, layer_idx: int) -> Layer:
    layer = layer_at(bucket_idx, layer_idx)
    if layer is None:
        raise ValueError(
            f"layer {layer_idx} of bucket {bucket_idx} is unknown: register_layer() it, or let "
            "cgx_hook reduce it once"
        )
    return layer


def checked_bits(bits: int, name: str = "bits") -> int:
    """`bits`; ValueError: neither 1 to 8 nor 32."""
    if int(bits) != EXACT_BITS and not 1 <= int(bits) <= 8:
        raise ValueError(f"{name} is {bits}; 1 to 8 compress, {EXACT_BITS} is off")
    return int(bits)


def checked_bucket_size(size: int, name: str = "bucket_size") -> int:
    """`size`; ValueError: below 1. How large it may be depends on the bits (Codec says)."""
    return _at_least(name, size, 1)


def _at_least(name: str, value: int, least: int) -> int:
    if int(value) < least:
        raise ValueError(f"{name} is {value}; {least} or more is wanted")
    return int(value)


# ---- variables ----


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "").strip()
    try:
        return int(text) if text else default
    except ValueError:
        raise ValueError(f"{name}={text!r} is no number") from None


def quantization_bits() -> int:
    """CGX_COMPRESSION_QUANTIZATION_BITS now; 32 when it is not set."""
    name = "CGX_COMPRESSION_QUANTIZATION_BITS"
    return checked_bits(_number(name, EXACT_BITS), name)


def bucket_size(default: int) -> int:
    """CGX_COMPRESSION_BUCKET_SIZE now."""
    name = "CGX_COMPRESSION_BUCKET_SIZE"
    return checked_bucket_size(_number(name, default), name)


def minimal_size() -> int:
    """CGX_COMPRESSION_MINIMAL_SIZE now: elements; only more than so many are compressed."""
    name = "CGX_COMPRESSION_MINIMAL_SIZE"
    return _at_least(name, _number(name, 16), 0)


def skip_incomplete_buckets() -> bool:
    """CGX_COMPRESSION_SKIP_INCOMPLETE_BUCKETS now."""
    return _choice("CGX_COMPRESSION_SKIP_INCOMPLETE_BUCKETS", "0", {"0", "1"}, "") == "1"


def algorithm() -> str:
    """CGX_INNER_REDUCTION_TYPE now, by its name in Redpoll."""
    kinds = {"SRA", "RING"}
    return _choice("CGX_INNER_REDUCTION_TYPE", "SRA", kinds, "use SRA or Ring").lower()


def _choice(name: str, default: str, allowed: set[str], advice: str) -> str:
    value = os.environ.get(name, "").strip() or default
    if value.upper() not in allowed:
        advice = advice or "use " + " or ".join(sorted(allowed))
        raise ValueError(f"{name}={value} is not supported; {advice}")
    return value.upper()


def check_variables() -> None:
    """ValueError names the first variable that asks for what Redpoll does not do, and says what
    to do. Called when a group is created."""
    quantization_bits()
    bucket_size(512)
    minimal_size()
    skip_incomplete_buckets()
    _at_least("CGX_FUSION_BUFFER_SIZE_MB", _number("CGX_FUSION_BUFFER_SIZE_MB", 64), 1)
    _choice(
        "CGX_INNER_COMMUNICATOR_TYPE",
        "SHM",
        {"SHM"},
        "ranks of a host share memory here: use SHM, or unset it",
    )
    _choice(
        "CGX_CROSS_COMMUNICATOR_TYPE",
        "MPI",
        {"MPI"},
        "hosts are joined by TCP here, in MPI's place: use MPI, or unset it",
    )
    _choice("CGX_INTRA_BROADCAST", "1", {"0", "1"}, "")
    inner = algorithm()
    cross = _choice(
        "CGX_CROSS_REDUCTION_TYPE", "RING", {"SRA", "RING"}, "use SRA or Ring"
    ).lower()
    intra_compress()
    if not _several_hosts():
        return
    if "CGX_CROSS_REDUCTION_TYPE" in os.environ and cross != inner:
        raise ValueError(
            f"CGX_CROSS_REDUCTION_TYPE={cross} and CGX_INNER_REDUCTION_TYPE={inner} are not "
            "supported together: one algorithm serves all ranks; make them equal, or unset both"
        )


def intra_compress() -> bool:
    """CGX_INTRA_COMPRESS now: False means that ranks of one host exchange exact values."""
    compresses = _choice("CGX_INTRA_COMPRESS", "1", {"0", "1"}, "") == "1"
    if not compresses and _several_hosts():
        raise ValueError(
            "CGX_INTRA_COMPRESS=0 is not supported on several hosts: one all-reduce serves all "
            "ranks and compresses for all of them; unset it"
        )
    return compresses


def _several_hosts() -> bool:
    """As launchers tell it; without their variables all ranks count as one host's."""
    world = _number("WORLD_SIZE", 1)
    return _number("LOCAL_WORLD_SIZE", world) < world


# ---- the policy of backend "cgx" ----


def codec_of(bits: int, bucket: int) -> Codec | None:
    """None for 32 bits."""
    return None if bits == EXACT_BITS else Codec.parse(f"q{bits}:bucket={bucket}")


def pieces_of(count: int, bits: int, bucket: int) -> list[Piece]:
    """How `count` elements of one tensor travel, by the variables' limits."""
    codec = codec_of(bits, bucket) if count > minimal_size() else None
    if codec is None or not skip_incomplete_buckets() or count % bucket == 0:
        return [Piece(count, codec)]
    whole = count - count % bucket
    tail = Piece(count - whole, None)
    return [Piece(whole, codec), tail] if whole else [tail]


class CgxPolicy(Policy):
    """Asks the variables and the registered layers at every all-reduce."""

    def __init__(self) -> None:
        super().__init__()
        check_variables()

    def codec_for(
        self, operation: str, dtype: torch.dtype, count: int, op: object
    ) -> Codec | None:
        pieces = self.pieces(operation, dtype, count, op)
        return pieces[0].codec if pieces else None

    def pieces(
        self, operation: str, dtype: torch.dtype, count: int, op: object
    ) -> Sequence[Piece] | None:
        if operation != "all_reduce" or dtype not in COMPRESSED_DTYPES:
            return None
        if not any(op == one for one in (dist.ReduceOp.SUM, dist.ReduceOp.AVG)):
            return None
        if not intra_compress():
            return None
        self.algorithm = algorithm()
        layers = _registered(count) or [Layer(count, quantization_bits(), bucket_size(512))]
        pieces = [
            piece for one in layers for piece in pieces_of(one.numel, one.bits, one.bucket_size)
        ]
        return pieces if any(piece.codec for piece in pieces) else None


def _registered(count: int) -> list[Layer] | None:
    """The layers of the bucket of `count` elements, in order; None: no such bucket.

    Two buckets of one size and other borders cannot be told apart: guessing by the order of
    calls would cut tensors where none ends."""
    found: list[tuple[int, list[Layer]]] = []
    for bucket_idx, layers in _layers.items():
        row = [layers[index] for index in sorted(layers)]
        if sum(layer.numel for layer in row) == count and not any(one.of_hook for one in row):
            found.append((bucket_idx, row))
    if len(found) > 1 and any(row != found[0][1] for _, row in found):
        raise ValueError(
            f"buckets {' and '.join(str(index) for index, _ in found)} have {count} elements "
            "each and other layers; cgx_utils.cgx_hook knows which is which"
        )
    return found[0][1] if found else None


def announce_layers(bucket_idx: int, layers: Mapping[int, Layer]) -> None:
    """Of cgx_hook: the layers of a bucket, so that set_quantization_bits() finds them. What was
    registered or set for a layer of the same size stays."""
    known = _layers.get(bucket_idx, {})
    _layers[bucket_idx] = {
        index: known[index] if index in known and known[index].numel == layer.numel else layer
        for index, layer in layers.items()
    }


def layer_at(bucket_idx: int, layer_idx: int) -> Layer | None:
    """What is known of a layer."""
    return _layers.get(bucket_idx, {}).get(layer_idx)


redpoll.torch.register_backend("cgx", CgxPolicy)
keep_untraced(__name__)
