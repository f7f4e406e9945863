"""compress() for FSDP: lossy reduce-scatter of gradients, lossy all-gather of weights if asked.

FSDP2 (fully_shard) takes its two collectives from objects that a module can be given, FSDP1
calls a communication hook; both hand over flat buffers, in which the tensors of a unit lie one
behind the other. Here the buffer is cut where its tensors begin and end, so that biases and
norms stay exact and no quantisation bucket crosses a tensor, and all pieces are the segments of
one collective, whose owners are the ranks that have the shards.
"""

from __future__ import annotations

from typing import Any

import torch

from ..codecs._rules import CodecLike, Rules, RulesLike, parse_codec
from ._fsdp1 import compress_fsdp1
from ._fsdp2 import compress_fsdp2
from ._sharded import Asked, ShardedState


def _is_fsdp1(model: torch.nn.Module) -> bool:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return isinstance(model, FullyShardedDataParallel)


def _fsdp2_modules(model: torch.nn.Module) -> list[Any]:
    from torch.distributed.fsdp import FSDPModule

    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def check_is_sharded(model: torch.nn.Module) -> None:
    """TypeError for a model that is neither DDP nor FSDP."""
    if any(kind.__name__ == "DeepSpeedEngine" for kind in type(model).__mro__):
        raise TypeError(
            "DeepSpeed's ZeRO-3 averages gradients and gathers weights by calls of its own, "
            "which take no codec and travel exact; where the link is slow, shard with "
            "fully_shard() (FSDP2), which compress() takes"
        )
    is_module = isinstance(model, torch.nn.Module)
    if not is_module or not (_is_fsdp1(model) or _fsdp2_modules(model)):
        raise TypeError(
            "compress() takes a DistributedDataParallel or FSDP model, not "
            f"{type(model).__name__}"
        )


def compress_sharded(
    model: torch.nn.Module,
    grads: CodecLike,
    weights: CodecLike,
    replicate: CodecLike,
    rules: RulesLike,
    min_size: int,
    warmup_steps: int,
    seed: int,
    asked: Asked,
    error_feedback: bool,
) -> ShardedState:
    """compress() of an FSDP model. asked: what is no default."""
    check_is_sharded(model)
    if _is_fsdp1(model) and not asked.weights:
        weights = None  # it gathers them itself
    for codec in (grads, weights, replicate):
        parse_codec(codec)  # auto, which Rules take, is for DDP
    weight_rules = None if weights is None else Rules(weights, rules, min_size)
    for lossy in weight_rules.codecs() if weight_rules else ():
        if lossy.sparse:
            raise ValueError(
                f"weights take no {lossy}: what it leaves out would be computed with as 0; "
                'weights="q8" is for them, and weights=None keeps them exact, rules and all'
            )
    state = ShardedState(
        Rules(grads, rules, min_size),
        weight_rules,
        None if replicate is None else Rules(replicate, rules, min_size),
        warmup_steps,
        seed,
        asked,
        error_feedback,
    )
    if _is_fsdp1(model):
        compress_fsdp1(model, state)
    else:
        compress_fsdp2(model, _fsdp2_modules(model), state)
    return state
