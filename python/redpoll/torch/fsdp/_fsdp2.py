"""compress() of modules under fully_shard(), which can be given collectives of one's own."""

from __future__ import annotations

import functools
import logging
import math
import weakref
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

import torch

from ..codecs._buckets import held_dtype, tensor_id
from ..codecs._policy import Piece, Policy
from ..codecs._rules import Rules
from ..comm._codec import Codec
from ..comm._communicator import communicator_of
from ..comm._work import Work
from ..comm.registered import staging
from ._feedback import Layout
from ._sharded import ShardedState, Unit, internals
from ._spans import Field, Span, byte_spans, row_spans

log = logging.getLogger("redpoll")


class ShardedUnit(Unit):
    """The parameter group of one fully_shard() module."""

    def __init__(
        self, state: ShardedState, label: str, group: Any, names: dict[int, str]
    ) -> None:
        super().__init__(state, label, group.device)
        self.param_group = group
        self._names = names  # of modules, by id
        self._announced = 0  # tensors that an all-reduce between replicas has yet to bring

    def _name(self, fsdp_param: Any) -> str:
        info = fsdp_param._module_info
        prefix = self._names[id(info.module)]
        return f"{prefix}.{info.param_name}" if prefix else info.param_name

    def parameters(self) -> list[tuple[str, torch.Size]]:
        return [(self._name(one), one._orig_size) for one in self.param_group.fsdp_params]

    def fields(self, trained_only: bool) -> list[Field]:
        """Of one row of the unit's buffers."""
        return [
            Field(
                one.padded_sharded_param_size.numel(),
                self._name(one),
                one._orig_size,
                one.mp_policy.param_dtype or one.sharded_param.dtype,
            )
            for one in self.param_group.fsdp_params
            if one.sharded_param.requires_grad or not trained_only
        ]

    def layouts(self) -> dict[str, Layout]:
        kinds = [kind for kind in ("grads", "replicate") if self.is_lossy(kind)]
        return {
            f"{kind}/{self._name(one)}": self._layout(kind, one)
            for kind in kinds
            for one in self.param_group.fsdp_params
            if one.sharded_param.requires_grad
            and self.codec_of(kind, self._name(one), one._orig_size) is not None
        }

    def _layout(self, kind: str, one: Any) -> Layout:
        row, is_complex = one.padded_sharded_param_size.numel(), one.sharded_param.is_complex()
        if kind == "replicate" and not self.is_whole:
            return Layout(torch.Size([row]), 1, 0, is_complex, row * (1 + is_complex))
        world = 1 if self.is_whole else self.shards.size()
        numel = world * row * (1 + is_complex)
        return Layout(one._orig_size, world, one.fsdp_placement.dim, is_complex, numel)

    @property
    def share(self) -> Optional[int]:
        if any(getattr(one, "is_dtensor", False) for one in self.param_group.fsdp_params):
            return None  # tensor parallelism
        if self.replicas is None:
            return int(self.shards.size())
        return int(self.replicas.size()) if self.is_whole else None

    def check_in_place(self) -> None:
        group = self.param_group
        given: list[tuple[Any, type, str]] = [
            (group._reduce_scatter_comm, LossyReduceScatter, "reduce-scatter")
        ]
        if self.rules("weights") is not None:
            given.append((group._all_gather_comm, LossyAllGather, "all-gather"))
        for comm, kind, name in given:
            if not isinstance(comm, kind):
                raise RuntimeError(
                    f"{self.label}: its {name} was replaced by {type(comm).__name__} after "
                    "compress(), so that the codecs that were asked for are not used; give "
                    "modules other collectives before compress(), or leave them"
                )

    def spans(self, kind: str, row: int, world: int) -> list[Span]:
        """Of a buffer of `world` rows of `row` elements. kind: "grads", "weights" or
        "replicate". RuntimeError: it is not the unit's."""
        trained = tuple(one.sharded_param.requires_grad for one in self.param_group.fsdp_params)
        known = self._spans.get((kind, world, trained))
        if known is None:
            rules = self.rules(kind)
            assert rules is not None  # else nobody asks
            fields = self.fields(trained_only=kind != "weights")
            known = self._spans[kind, world, trained] = row_spans(fields, world, rules)
        self._check_row(kind, known, row)
        return known

    def _check_row(self, kind: str, spans: list[Span], row: int) -> None:
        own = sum(span.blocks[0][1] for span in spans)
        if own != row:
            raise RuntimeError(
                f"{self.label}: {row} elements a rank of {kind} came where its parameters have "
                f"{own}: parameters without a gradient in this step. "
                "They cannot be told apart, and so not be compressed; give them another "
                "fully_shard() unit, or leave this kind exact"
            )

    @property
    def shards(self) -> Any:
        """The group between shards; None: replicate() has none."""
        return getattr(self.param_group.mesh_info, "shard_process_group", None)

    @property
    def replicas(self) -> Any:
        """The group between replicas; None without hybrid sharding."""
        return getattr(self.param_group.mesh_info, "replicate_process_group", None)

    @property
    def is_whole(self) -> bool:
        """Every replica has all of it, as of replicate() and of hybrid sharding over one rank:
        FSDP2 gathers and scatters nothing then, and gradients travel between replicas alone."""
        return self.replicas is not None and (self.shards is None or self.shards.size() == 1)

    def rules(self, kind: str) -> Optional[Rules]:
        if kind == "weights" and not (self.state.asked.weights or self.may_gather):
            return None
        if not self.is_whole:
            return super().rules(kind)
        replicate = self.state.replicate
        of_gradients = self.state.grads if replicate is None else replicate
        return of_gradients if kind == "replicate" else None

    @functools.cached_property
    def may_gather(self) -> bool:
        """Some weights are of a type that the codec takes, and they are gathered as PyTorch
        does it."""
        group, rules = self.param_group, self.state.weights
        if rules is None or not _gathers_itself(group):
            return False
        if any(hasattr(one._sharded_local_tensor, _EXTENSION) for one in group.fsdp_params):
            return False
        types = {held_dtype(field.dtype) for field in self.fields(trained_only=False)}
        return any(all(codec.supports(one) for codec in rules.codecs()) for one in types)

    def gathered_spans(self, row: torch.Tensor, world: int) -> Optional[list[Span]]:
        """Of a row of weights, as FSDP2 gathers them; None: there is nothing to be lossy."""
        fields, rules = self.fields(trained_only=False), self.rules("weights")
        assert rules is not None  # else nobody asks
        if len({field.dtype for field in fields}) == 1:
            return self.spans("weights", row.numel(), world) if _is_real(row) else None
        key = ("bytes", world, tuple(field.dtype for field in fields))
        if key not in self._spans:
            lenient = not self.state.asked.weights
            self._spans[key] = byte_spans(fields, world, rules, lenient)
        known = self._spans[key]
        self._check_row("weights", known, row.nbytes)
        return known

    @property
    def stages(self) -> bool:
        """Whether the shards' group is redpoll's, and has memory for buffers."""
        if self.shards is None:
            return False
        try:
            communicator_of(self.shards)
        except (ValueError, RuntimeError):
            return False
        return True

    def gathers_lossy(self, group: Any) -> bool:
        """Whether weights travel lossy in a group: in that of the shards. What
        reshard_after_forward=N keeps among N neighbours was lossy on its way there."""
        if not self.is_lossy("weights") or self.shards is None:
            return False
        return bool(group.group_name == self.shards.group_name)

    @property
    def gathers(self) -> int:
        """How often weights travel in a step."""
        return 2 if self.param_group._reshard_after_forward else 1

    def check_asked(self) -> None:
        """ValueError: a codec was asked for that nothing of this unit would travel with.
        RedpollValueError: the shards are another backend's, and asked to be lossy."""
        state = self.state
        if state.replicate is not None and self.replicas is None:
            raise ValueError(
                f"replicate= is for hybrid sharding, and {self.label} is in one group of "
                "shards; give fully_shard() a mesh of two dimensions, or leave replicate= out"
            )
        if not self.is_whole:
            if not state.grads.is_exact or state.weights is not None:
                self.check(self.shards)
            return
        is_asked = state.weights is not None and state.asked.weights
        asked = ["weights="] if is_asked else []
        if state.replicate is not None and state.asked.grads and not state.grads.is_exact:
            asked.append("grads=")
        if asked and self.replicas.size() > 1:
            raise ValueError(
                f"every replica holds all of {self.label}, whose gradients travel in the "
                f"all-reduce between replicas and in nothing else: {' and '.join(asked)} would "
                "never be used; say replicate= alone"
            )

    def expect_all_reduce(self, output: torch.Tensor) -> None:
        """`output`, this rank's shard of the gradients, is reduced between replicas next.
        RuntimeError: those before never were, so that the codec that was asked for is not
        used."""
        rules = self.rules("replicate")
        if rules is None or rules.is_exact or not self.param_group.all_reduce_grads:
            return
        self._announced += 1
        # If it is whole, its input is announced, too, and PyTorch 2.9 also has it copied.
        if self._announced > (3 if self.is_whole else 1):
            raise RuntimeError(
                f"{self.label}: codec {rules.codec} was asked for between replicas, and the "
                "gradients of the step before were not all-reduced there by PyTorch "
                f"{torch.__version__} (or that step broke off); they would travel exact, or "
                "not at all: leave replicate= out"
            )
        number = self.step << 32 | tensor_id(self.label)  # of no other unit's, nor step's
        communicator_of(self.replicas).policy.expect(
            _Expected(weakref.ref(output), self._pieces(output), number, self.has_come)
        )

    def _pieces(self, output: torch.Tensor) -> Optional[list[Piece]]:
        """None: exact, and nothing was held back."""
        world, rank = (1, 0) if self.is_whole else (self.shards.size(), self.shards.rank())
        lossy, pieces = self._lossy_now(), []
        for span in self.spans("replicate", output.numel(), world):
            count, codec = span.blocks[rank][1], self._codec(span, output.dtype)
            codec = codec if lossy else None
            if count:
                residual = self._residual("replicate", span, codec, output.dtype, count)
                pieces.append(Piece(count, codec, residual))
        is_plain = all(one.codec is None and one.residual is None for one in pieces)
        return None if is_plain else pieces

    def has_come(self) -> None:
        """The all-reduce that was expected."""
        self._announced = 0
        if self.is_whole:
            self.step += 1


class _OfUnit:
    """A collective that FSDP2 is given in place of its own. inner: that, which knows where
    buffers come from if the script has said so."""

    def __init__(self, unit: ShardedUnit, inner: Any) -> None:
        self.unit = unit
        self.inner = inner
        self._stages = type(inner).__name__.startswith("Default") and unit.stages

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Memory that ranks of one host read in place, and that is used again in each step."""
        if self._stages and device.type == "cpu":
            return staging(math.prod(size), dtype).view(*size)
        buffer: torch.Tensor = self.inner.allocate(size, dtype=dtype, device=device)
        return buffer


class LossyReduceScatter(_OfUnit):
    """The reduce-scatter of one FSDP2 unit (torch.distributed.fsdp's ReduceScatter). For a unit
    that is whole FSDP2 asks it for two buffers, and reduces the second between replicas;
    PyTorch 2.9 also calls it, to copy the one to the other."""

    _has_input = False

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """FSDP2 asks for the input, then for the output, of which gradients stay views, and
        which no other rank reads."""
        is_output, self._has_input = self._has_input, not self._has_input
        if is_output and self._stages:
            buffer: torch.Tensor = self.inner.allocate(size, dtype=dtype, device=device)
        else:
            buffer = super().allocate(size, dtype=dtype, device=device)
        if self.unit.is_whole:
            self.unit.expect_all_reduce(buffer)
        return buffer

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> Optional[Work]:
        self._has_input = False
        self.unit.expect_all_reduce(output_tensor)
        if self.unit.is_whole:
            copied: Work = self.inner(output_tensor, input_tensor, group, op, async_op)
            return copied
        if self.unit.state.grads.is_exact:  # and perhaps another backend's
            inner: Work = self.inner(output_tensor, input_tensor, group, op, async_op)
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
        """A Work, which FSDP2 waits for before it copies out, also where it did not ask for
        one: so units that it gathers ahead travel while others compute."""
        arguments = (output_tensor, input_tensor, group, async_op)
        if not self.unit.gathers_lossy(group):
            return self._exact(*arguments)
        spans = self.unit.gathered_spans(input_tensor, group.size())
        if spans is None:
            return self._exact(*arguments)
        return self.unit.all_gather(output_tensor, input_tensor, group, spans)

    def _exact(self, *arguments: Any) -> Optional[Work]:
        work: Optional[Work] = self.inner(*arguments)
        return work


def _awaited(work: Work, async_op: bool) -> Optional[Work]:
    """What a collective returns, as PyTorch's own."""
    if async_op:
        return work
    work.wait()
    return None


class _Expected(NamedTuple):
    tensor: weakref.ref[torch.Tensor]
    pieces: Optional[list[Piece]]  # None: it travels as before
    number: int  # which keys stochastic rounding: a run that resumes has the same
    has_come: Callable[[], None]


class ReplicatePolicy(Policy):
    """Of the communicator between the replicas of hybrid sharding (HSDP). FSDP2 calls its
    all-reduce itself, with the tensor that the reduce-scatter before has filled: that tensor
    travels in the unit's pieces. Whatever else is reduced there travels as before."""

    def __init__(self, before: Optional[Policy], seed: int) -> None:
        super().__init__()
        self.before = before
        self.seed = seed
        self._expected: Optional[_Expected] = None
        self._number: Optional[int] = None  # of what is posted next

    def expect(self, expected: _Expected) -> None:
        """This tensor comes next, of all that are announced."""
        self._expected = expected

    def next_step(self) -> int:
        number, self._number = self._number, None
        return super().next_step() if number is None else number

    def pieces_of(self, tensor: torch.Tensor, op: object) -> Sequence[Piece] | None:
        expected = self._expected
        if expected is not None and expected.tensor() is tensor:
            self._expected = None
            expected.has_come()
            if expected.pieces is not None:
                self._number = expected.number
                return expected.pieces
        return self.before.pieces_of(tensor, op) if self.before else None

    def codec_for(
        self, operation: str, dtype: torch.dtype, count: int, op: object
    ) -> Codec | None:
        return self.before.codec_for(operation, dtype, count, op) if self.before else None


def param_groups(module: Any) -> list[Any]:
    """FSDP2's own record of a module's unit: one, or several from PyTorch 2.15 on."""
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
    units = [unit for _, unit in placed]
    _place_policies(state, units)
    state.units.extend(units)
    state.check_names()
    for module, unit in placed:
        group = unit.param_group
        module.set_custom_reduce_scatter(LossyReduceScatter(unit, group._reduce_scatter_comm))
        if unit.rules("weights") is not None:
            module.set_custom_all_gather(LossyAllGather(unit, group._all_gather_comm))
    with internals("FSDP2"):
        _tell_of_weights(state, units)


def _tell_of_weights(state: ShardedState, units: list[ShardedUnit]) -> None:
    """Once, on rank 0 of the shards, where gradients alone were asked for."""
    sharded = [unit for unit in units if not unit.is_whole]
    if state.weights is not None or state.asked.weights or state.grads.is_exact or not sharded:
        return
    if sharded[0].shards.rank() != 0 or sharded[0].shards.size() == 1:
        return
    counts = [sum(one.numel for one in unit.fields(trained_only=False)) for unit in sharded]
    gathered = sum(count * unit.gathers for count, unit in zip(counts, sharded))
    log.warning(
        "FSDP2's weights travel exact, which are %.0f %% of a step's bytes: compress(model, "
        "grads=..., weights='q8') sends them as 8 bits; weights=None says that exact is meant",
        100 * gathered / (gathered + sum(counts)),
    )


def _place_policies(state: ShardedState, units: list[ShardedUnit]) -> None:
    """One for each communicator between replicas, where their all-reduce is to be lossy."""
    between = [unit.replicas for unit in units if unit.is_lossy("replicate")]
    for communicator in {communicator_of(group) for group in between}:
        if not isinstance(communicator.policy, ReplicatePolicy):
            communicator.policy = ReplicatePolicy(communicator.policy, state.seed)


def _is_real(row: torch.Tensor) -> bool:
    return row.is_floating_point() or row.is_complex()


_EXTENSION = "fsdp_pre_all_gather"
"""Of tensors that say themselves what is gathered of them."""
_KNOWN = ("DefaultReduceScatter", "ProcessGroupAllocReduceScatter")
_KNOWN_GATHERS = ("DefaultAllGather", "ProcessGroupAllocAllGather")


def _gathers_itself(group: Any) -> bool:
    return type(group._all_gather_comm).__name__ in _KNOWN_GATHERS


def _sharded_unit(
    state: ShardedState, module: Any, label: str, names: dict[int, str]
) -> ShardedUnit | None:
    """None: the module has no parameters of its own."""
    groups = param_groups(module)
    if not groups:
        return None
    if len(groups) > 1:
        raise RuntimeError(f"{label} has parameters on several meshes; it cannot be compressed")
    (group,) = groups
    if type(group._reduce_scatter_comm).__name__ not in _KNOWN:
        raise RuntimeError(f"{label} has a custom reduce-scatter already")
    if state.weights is not None and state.asked.weights and not _gathers_itself(group):
        raise RuntimeError(f"{label} has a custom all-gather already")
    unit = ShardedUnit(state, label, group, names)
    unit.fields(trained_only=True)
    unit.check_asked()
    return unit
