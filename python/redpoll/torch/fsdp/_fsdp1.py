"""compress() of FullyShardedDataParallel, by its communication hook."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ._feedback import Layout
from ._sharded import ShardedState, Unit, internals
from ._spans import Field, Span, flat_spans


class FlatUnit(Unit):
    """The flat parameter of one FullyShardedDataParallel unit."""

    def __init__(self, state: ShardedState, label: str, module: Any) -> None:
        super().__init__(state, label, module.compute_device)
        self._flat = module._handle.flat_param
        self.group = module.process_group

    def fields(self) -> list[Field]:
        """Of the unit's flat gradient, alignment included."""
        flat, fields = self._flat, []
        infos = iter(zip(flat._fqns, flat._shapes))
        for count, is_padding in zip(flat._numels_with_padding, flat._is_padding_mask):
            name, shape = (None, torch.Size()) if is_padding else next(infos)
            fields.append(Field(count, name and f"{self.label}{name}", shape))
        return fields

    def parameters(self) -> list[tuple[str, torch.Size]]:
        return [(field.name, field.shape) for field in self.fields() if field.name]

    def layouts(self) -> dict[str, Layout]:
        is_complex = self._flat.is_complex()
        return {
            f"grads/{name}": Layout(shape, 1, 0, is_complex, shape.numel() * (1 + is_complex))
            for name, shape in self.parameters()
            if self.codec_of("grads", name, shape) is not None
        }

    @property
    def share(self) -> int | None:
        return dist.get_world_size(self.group)

    def spans(self, total: int, world: int) -> list[Span]:
        known = self._spans.get((total, world))
        if known is None:
            fields = flat_spans(self.fields(), total, world, self.state.grads)
            known = self._spans[total, world] = fields
        return known


def _fsdp1_hook(unit: FlatUnit, gradient: torch.Tensor, shard: torch.Tensor) -> None:
    spans = unit.spans(gradient.numel(), dist.get_world_size(unit.group))
    unit.reduce_scatter(shard, gradient, unit.group, dist.ReduceOp.AVG, spans).wait()


def compress_fsdp1(model: Any, state: ShardedState) -> None:
    """Register a hook that reduces every unit of `model` lossy; give `state` the units."""
    if state.weights is not None:
        raise ValueError(
            "FullyShardedDataParallel (FSDP1) gathers weights itself; weights= is for "
            "fully_shard() (FSDP2)"
        )
    if state.replicate is not None:
        raise ValueError(
            "FullyShardedDataParallel (FSDP1) takes no hooks under hybrid sharding; replicate= "
            "is for fully_shard() (FSDP2)"
        )
    labels = {id(module): _clean(name) for name, module in model.named_modules()}
    with internals("FullyShardedDataParallel"):
        modules = [one for one in type(model).fsdp_modules(model) if one._handle is not None]
        units = [_flat_unit(state, module, labels[id(module)]) for module in modules]
    state.units.extend(units)
    state.check_names()
    try:
        model.register_comm_hook(None, _fsdp1_hook)
    except AssertionError as error:
        raise RuntimeError(f"FSDP does not take the communication hook: {error}") from error
    for module, unit in zip(modules, units):
        module._comm_hook_state = unit


def _flat_unit(state: ShardedState, module: Any, label: str) -> FlatUnit:
    if module.sharding_strategy.name == "NO_SHARD":
        raise ValueError("NO_SHARD is data parallelism; use DistributedDataParallel")
    unit = FlatUnit(state, label, module)
    unit.fields()
    unit.check(unit.group)
    if not hasattr(module, "_comm_hook_state"):
        raise AttributeError("_comm_hook_state")
    return unit


def _clean(name: str) -> str:
    """The prefix of a unit's parameters, as the unwrapped model would name it."""
    parts = [part for part in name.split(".") if part and part != "_fsdp_wrapped_module"]
    return "".join(f"{part}." for part in parts)
