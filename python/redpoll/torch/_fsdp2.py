"""compress() of modules under fully_shard(), which can be given collectives of one's own."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Optional

import torch

from ._codec import Codec
from ._communicator import communicator_of
from ._policy import Piece, Policy
from ._sharded import ShardedState, Unit, internals
from ._spans import Field, Span, row_spans
from ._work import Work


class ShardedUnit(Unit):
    """The parameter group of one fully_shard() module."""

    def __init__(
        self, state: ShardedState, label: str, group: Any, names: dict[int, str]
    ) -> None:
        super().__init__(state, label)
        self._group = group
        self._names = names  # of modules, by id
        self.inner = group._reduce_scatter_comm  # PyTorch's own, for shards of another backend

    def _name(self, fsdp_param: Any) -> str:
        info = fsdp_param._module_info
        prefix = self._names[id(info.module)]
        return f"{prefix}.{info.param_name}" if prefix else info.param_name

    def parameters(self) -> list[tuple[str, torch.Size]]:
        return [(self._name(one), one._orig_size) for one in self._group.fsdp_params]

    def fields(self, trained_only: bool) -> list[Field]:
        """Of one row of the unit's buffers."""
        return [
            Field(one.padded_sharded_param_size.numel(), self._name(one), one._orig_size)
            for one in self._group.fsdp_params
            if one.sharded_param.requires_grad or not trained_only
        ]

    def spans(self, kind: str, row: int, world: int) -> list[Span]:
        """Of a buffer of `world` rows of `row` elements. kind: "grads", "weights" or
        "replicate". RuntimeError: it is not the unit's."""
        known = self._spans.get((kind, world))
        if known is None:
            rules = getattr(self.state, kind)
            assert rules is not None  # else nobody asks
            fields = self.fields(trained_only=kind != "weights")
            known = self._spans[kind, world] = row_spans(fields, world, rules)
        own = sum(span.blocks[0][1] for span in known)
        if own != row:
            raise RuntimeError(
                f"{self.label}: {row} elements a rank of {kind} came where its parameters have "
                f"{own}: parameters without a gradient in this step, or mixed types. "
                "They cannot be told apart, and so not be compressed; give them another "
                "fully_shard() unit, or leave this kind exact"
            )
        return known

    def check_shards(self) -> None:
        """RedpollValueError: the shards are another backend's, and asked to be lossy."""
        if self.state.grads.is_exact and self.state.weights is None:
            return
        self.check(self._group.mesh_info.shard_process_group)

    def replicas(self) -> Any:
        """The group between replicas; None without hybrid sharding."""
        return getattr(self._group.mesh_info, "replicate_process_group", None)

    def expect_all_reduce(self, output: torch.Tensor, group: Any) -> None:
        """Of `output`, this rank's shard of the gradients, between replicas, if asked for."""
        if self.state.replicate is None or not self._lossy_now():
            return
        spans = self.spans("replicate", output.numel(), group.size())
        sizes = [(span, span.blocks[group.rank()][1]) for span in spans]
        pieces = [Piece(n, self._codec(span, output.dtype)) for span, n in sizes if n]
        communicator_of(self.replicas()).policy.expect(output, pieces)


def _allocate(size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty(*size, dtype=dtype, device=device)


class _OfUnit:
    """A collective that FSDP2 is given in place of its own."""

    allocate = staticmethod(_allocate)

    def __init__(self, unit: ShardedUnit) -> None:
        self.unit = unit


class LossyReduceScatter(_OfUnit):
    """The reduce-scatter of one FSDP2 unit (torch.distributed.fsdp's ReduceScatter)."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> Optional[Work]:
        self.unit.expect_all_reduce(output_tensor, group)
        if self.unit.state.grads.is_exact:  # and perhaps another backend's
            inner: Work = self.unit.inner(output_tensor, input_tensor, group, op, async_op)
            self.unit.step += 1
            return inner
        spans = self.unit.spans("grads", output_tensor.numel(), group.size())
        work = self.unit.reduce_scatter(output_tensor, input_tensor, group, op, spans)
        return _awaited(work, async_op)


class LossyAllGather(_OfUnit):
    """The all-gather of one FSDP2 unit (torch.distributed.fsdp's AllGather)."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        async_op: bool = False,
    ) -> Optional[Work]:
        if not (input_tensor.is_floating_point() or input_tensor.is_complex()):
            raise RuntimeError(
                f"{self.unit.label}: its weights are gathered as bytes, because they are of "
                "mixed types; they cannot be compressed"
            )
        spans = self.unit.spans("weights", input_tensor.numel(), group.size())
        work = self.unit.all_gather(output_tensor, input_tensor, group, spans)
        return _awaited(work, async_op)


def _awaited(work: Work, async_op: bool) -> Optional[Work]:
    """What a collective returns, as PyTorch's own."""
    if async_op:
        return work
    work.wait()
    return None


class ReplicatePolicy(Policy):
    """Of the communicator between the replicas of hybrid sharding (HSDP). FSDP2 calls its
    all-reduce itself, with the tensor that the reduce-scatter before has filled: that tensor
    travels in the unit's pieces. Whatever else is reduced there travels as before."""

    def __init__(self, before: Optional[Policy], seed: int) -> None:
        super().__init__()
        self.before = before
        self.seed = seed
        self._expected: Optional[tuple[weakref.ref[torch.Tensor], list[Piece]]] = None

    def expect(self, tensor: torch.Tensor, pieces: list[Piece]) -> None:
        """This tensor comes next, of all that are announced."""
        self._expected = (weakref.ref(tensor), pieces)

    def pieces_of(self, tensor: torch.Tensor, op: object) -> Sequence[Piece] | None:
        if self._expected is not None and self._expected[0]() is tensor:
            pieces, self._expected = self._expected[1], None
            return pieces
        return self.before.pieces_of(tensor, op) if self.before else None

    def codec_for(
        self, operation: str, dtype: torch.dtype, count: int, op: object
    ) -> Codec | None:
        return self.before.codec_for(operation, dtype, count, op) if self.before else None


def _param_groups(module: Any) -> list[Any]:
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [state._fsdp_param_group]
    return [group for group in groups if group is not None]


def compress_fsdp2(model: torch.nn.Module, modules: list[Any], state: ShardedState) -> None:
    """Give every unit of `modules` lossy collectives, and `state` the units."""
    if not all(hasattr(one, "set_custom_reduce_scatter") for one in modules):
        raise RuntimeError(
            f"FSDP2 of PyTorch {torch.__version__} cannot be given other collectives; 2.9 can"
        )
    names = {id(module): name for name, module in model.named_modules()}
    placed = []
    with internals("FSDP2"):
        for module in modules:
            label = names[id(module)] or type(model).__name__
            unit = _sharded_unit(state, module, label, names)
            if unit is not None:
                placed.append((module, unit))
    _place_policies(state, [unit for _, unit in placed])
    state.units.extend(unit for _, unit in placed)
    state.check_names()
    for module, unit in placed:
        module.set_custom_reduce_scatter(LossyReduceScatter(unit))
        if state.weights is not None:
            module.set_custom_all_gather(LossyAllGather(unit))


def _place_policies(state: ShardedState, units: list[ShardedUnit]) -> None:
    """One for each communicator between replicas, where their all-reduce is to be lossy."""
    if state.replicate is None:
        return
    for unit in units:
        if unit.replicas() is None:
            raise ValueError(
                f"replicate= is for hybrid sharding, and {unit.label} is in one group of "
                "shards; give fully_shard() a mesh of two dimensions, or leave replicate= out"
            )
    for communicator in {communicator_of(unit.replicas()) for unit in units}:
        if not isinstance(communicator.policy, ReplicatePolicy):
            communicator.policy = ReplicatePolicy(communicator.policy, state.seed)


def _sharded_unit(
    state: ShardedState, module: Any, label: str, names: dict[int, str]
) -> ShardedUnit | None:
    """None: the module has no parameters of its own."""
    groups = _param_groups(module)
    if not groups:
        return None
    if len(groups) > 1:
        raise RuntimeError(f"{label} has parameters on several meshes; it cannot be compressed")
    (group,) = groups
    if type(group._reduce_scatter_comm).__name__ != "DefaultReduceScatter":
        raise RuntimeError(f"{label} has a custom reduce-scatter already")
    unit = ShardedUnit(state, label, group, names)
    unit.fields(trained_only=True)
    unit.check_shards()
    return unit
