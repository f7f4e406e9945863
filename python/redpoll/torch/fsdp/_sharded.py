"""What FSDP1 and FSDP2 share: the state of compress(), and the collectives of one unit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ..codecs._buckets import check_dtype, in_reals, tensor_id
from ..codecs._rules import Rules
from ..comm import _cuda
from ..comm._codec import Codec
from ..comm._communicator import communicator_of
from ..comm._owned import OwnedRun, OwnedRuns
from ..comm._work import Work
from ..feedback._gathered import OfAll, gathered, states_in
from ..feedback._residuals import Format, choose_states
from ._feedback import Feedback, Layout, carried, summed
from ._spans import Span

FORMAT = "redpoll.compress.sharded"
VERSION = 2
_KEYS = ("rank", "world", "step", "share", "averages", "residuals")
_OF_SHARDED = Format(FORMAT, VERSION, _KEYS)


class Asked(NamedTuple):
    """What the caller of compress() has given, and is no default."""

    grads: bool
    weights: bool


class ShardedLoadReport(NamedTuple):
    """What load_state_dict(strict=False) of a ShardedState passed over."""

    missing: list[str]  # lossy gradients of which the states hold no residual; now zero
    unexpected: list[str]  # residuals of what does not travel here; not used


class ShardedState:
    """How the shards of one FSDP model travel, and what error feedback holds back, if it was
    asked for. Without it the state is a step counter, which warm-up and stochastic rounding
    depend on."""

    def __init__(
        self,
        grads: Rules,
        weights: Rules | None,
        replicate: Rules | None,
        warmup_steps: int,
        seed: int,
        asked: Asked,
        error_feedback: bool = False,
    ) -> None:
        """asked: what is no default, and is an error where it cannot be."""
        self.grads = grads
        self.asked = asked
        self.weights = weights
        self.replicate = replicate
        self.warmup_steps = warmup_steps
        self.seed = seed
        self.error_feedback = error_feedback
        self.feedback = Feedback()
        self.averages = True  # reduce-scatters so far; False: they were sums
        self.units: list[Unit] = []
        self.enabled = True
        """False: exact from the next collective on. Equal on all ranks."""

    @property
    def step(self) -> int:
        """Reductions so far of the unit that had most."""
        return max((unit.step for unit in self.units), default=0)

    def codecs(self) -> dict[str, dict[str, str]]:
        """How each parameter travels after the warm-up: its gradient, its weights, and its
        gradient's shards between the replicas of hybrid sharding."""
        return {
            kind: {
                name: str(unit.codec_of(kind, name, shape) or "exact")
                for unit in self.units
                for name, shape in unit.parameters()
            }
            for kind in ("grads", "weights", "replicate")
        }

    def check_names(self) -> None:
        """ValueError for a rule that fits no parameter."""
        self.grads.check_names([name for unit in self.units for name, _ in unit.parameters()])

    def residual(self, name: str) -> torch.Tensor | None:
        """What the reduce-scatter has held back of a parameter's gradient here, with its shape,
        in units of this rank's contributions; None: nothing."""
        flat = self.feedback.get(f"grads/{name}")
        return None if flat is None else self._layouts()[f"grads/{name}"].shaped(flat)

    # ---- across restarts ----

    @property
    def of_all(self) -> Any:
        """For frameworks that save rank 0's state and load it everywhere: what of="all" gives,
        where that is another than each rank's own."""
        return OfAll(self) if self.error_feedback else self

    def state_dict(self, of: str = "own") -> dict[str, Any]:
        """The state, for a checkpoint.

        of: "own": this rank's part, live tensors where they can be; without error feedback the
        same on every rank. Local. "all": with error feedback the parts of all ranks of the
        default group, on the CPU, the same on every rank. Collective then."""
        if of not in ("own", "all"):
            raise ValueError(f"of={of!r}; 'own' and 'all' are possible")
        own = self._own_state()
        if of == "own" or not self.error_feedback:
            return own
        stand_ins = {key: layout.stand_in() for key, layout in self._layouts().items()}
        return gathered(own, stand_ins, communicator_of(dist.group.WORLD))

    def _own_state(self) -> dict[str, Any]:
        for unit in self.units:
            unit.check_in_place()
        rank, world = _place()
        state = {"format": FORMAT, "version": VERSION, "step": self.step, "rank": rank}
        state.update(world=world, share=self._share(), averages=self.averages)
        residuals: dict[str, torch.Tensor] = {}
        if self.error_feedback:
            for key, layout in self._layouts().items():
                flat = self.feedback.get(key)
                flat = torch.zeros(layout.numel) if flat is None else flat
                residuals[key] = layout.shaped(flat)
        return {**state, "residuals": residuals}

    def load_state_dict(
        self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]], strict: bool = True
    ) -> ShardedLoadReport:
        """Continue from a saved state. Local; every rank calls it.

        state: this rank's own of a run of as many ranks, or what state_dict(of="all") gave, or
        a sequence of the dicts of all ranks, of a run of any world. In another world rank r
        takes over what ranks r, r + world, ... held back, where all ranks of both share one
        model; where they do not (hybrid sharding, tensor parallelism) it is dropped, and a
        warning says so. Tensors are copied.
        strict: as of a CompressState. ValueError: this is no such state, or one of DDP, or of
        another rank; shapes do not fit."""
        states = states_in(state) if isinstance(state, Mapping) else list(state)
        if not states:
            raise ValueError("there is no state in the sequence")
        for one in states:
            if one.get("format") != FORMAT or one.get("version") not in (1, VERSION):
                raise ValueError(f"this is no state of compress() for FSDP: {str(one)[:80]}")
        held = [one for one in states if one.get("residuals")]
        flats, report = self._held_in(states if held else [], strict)
        self.feedback.replace(flats)
        if held:
            self.averages = bool(held[0]["averages"])
        for unit in self.units:
            unit.step = states[0]["step"]
        return report

    def _held_in(
        self, states: Sequence[Mapping[str, Any]], strict: bool
    ) -> tuple[dict[str, torch.Tensor], ShardedLoadReport]:
        """What this rank takes over."""
        if states and not self.error_feedback:
            raise ValueError("the state holds residuals, but error_feedback is False here")
        rank, world = _place()
        chosen = choose_states(states, rank, world, _OF_SHARDED) if states else []
        layouts, each = self._layouts(), [one["residuals"] for one in chosen]
        is_other = bool(chosen) and chosen[0]["world"] != world
        if is_other:
            each = carried(chosen, self._share(), layouts)
        devices = {key: unit.home for unit in self.units for key in unit.layouts()}
        flats, unexpected, misfits = summed(each, layouts, devices)
        missing = [key for key in layouts if key not in flats]
        report = ShardedLoadReport(missing if chosen and not is_other else [], unexpected)
        wrong = [f"other shapes: {'; '.join(misfits)}"] if misfits else []
        if strict and report.missing:
            wrong.append(f"no residual of {', '.join(report.missing)}")
        if strict and unexpected:
            wrong.append(f"residuals of nothing that travels here: {', '.join(unexpected)}")
        if wrong:
            raise ValueError("the state does not fit the model: " + "; ".join(wrong))
        return flats, report

    def _layouts(self) -> dict[str, Layout]:
        """Of everything that may be held back, by key."""
        return {key: one for unit in self.units for key, one in unit.layouts().items()}

    def _share(self) -> int | None:
        """Among how many ranks the mean of every gradient is; None: units differ."""
        shares = {unit.share for unit in self.units}
        return shares.pop() if len(shares) == 1 else None

    def __repr__(self) -> str:
        kinds = {"grads": self.grads, "weights": self.weights, "replicate": self.replicate}
        texts = [f"{kind}={(one and one.codec) or 'exact'}" for kind, one in kinds.items()]
        if self.error_feedback:
            texts.append("error_feedback=True")
        return f"ShardedState({', '.join(texts)}, {len(self.units)} units, step {self.step})"


def _place() -> tuple[int, int]:
    """This process in the run."""
    return dist.get_rank(), dist.get_world_size()


class Unit:
    """One FSDP unit: the tensors of its buffers, and its own count of reductions."""

    def __init__(self, state: ShardedState, label: str, device: torch.device) -> None:
        """device: of its flat buffers."""
        self.state = state
        self.label = label
        self.home = _cuda.home(torch.empty(0, device=device))
        """Where residuals of its gradients lie."""
        self.step = 0
        self._spans: dict[Any, list[Span]] = {}
        self._runs: dict[Any, tuple[list[Span], OwnedRuns]] = {}

    def parameters(self) -> list[tuple[str, torch.Size]]:
        """Names and shapes of the unit's tensors."""
        raise NotImplementedError

    def layouts(self) -> dict[str, Layout]:
        """Of what travels lossy and may be held back, by key."""
        raise NotImplementedError

    @property
    def share(self) -> int | None:
        """Among how many ranks the mean of its gradients is; None: they are cut by others,
        too."""
        raise NotImplementedError

    def check_in_place(self) -> None:
        """RuntimeError: the collectives that it was given are its no more, so that codecs that
        were asked for are not used."""

    def rules(self, kind: str) -> Rules | None:
        """Of its "grads", "weights" or "replicate"; None: nothing of this kind is lossy."""
        found: Rules | None = getattr(self.state, kind)
        return found

    def is_lossy(self, kind: str) -> bool:
        rules = self.rules(kind)
        return rules is not None and not rules.is_exact

    def codec_of(self, kind: str, name: str, shape: torch.Size) -> Codec | None:
        rules = self.rules(kind)
        return None if rules is None else rules.codec_for(name, shape)

    def check(self, group: Any) -> None:
        """Raise what would be raised in the first step."""
        communicator_of(group)

    def _lossy_now(self) -> bool:
        return self.state.enabled and self.step >= self.state.warmup_steps

    def reduce_scatter(
        self, output: torch.Tensor, flat: torch.Tensor, group: Any, op: Any, spans: list[Span]
    ) -> Work:
        """`output` gets this rank's part of the reduced `flat`, when the Work is complete. One
        operation for all spans."""
        communicator = communicator_of(group)
        self.check_in_place()
        runs = self._owned_runs("grads", spans, flat.dtype, communicator)
        self.state.averages = op == dist.ReduceOp.AVG
        work = communicator.reduce_scatter_segments(
            in_reals(output),
            in_reals(flat),
            runs,
            op,
            seed=self.state.seed % 2**64,
            step=self.step,
            key=tensor_id(self.label),
        )
        self.step += 1
        return work

    def all_gather(
        self, output: torch.Tensor, own: torch.Tensor, group: Any, spans: list[Span]
    ) -> Work:
        """`output` gets every rank's row, when the Work is complete. Weights that are gathered
        again in one step, for the backward pass, have the same bits. What is lost is lost:
        the next step brings new weights, and not their changes."""
        communicator = communicator_of(group)
        self.check_in_place()
        runs = self._owned_runs("weights", spans, own.dtype, communicator)
        return communicator.all_gather_segments(
            in_reals(output),
            in_reals(own),
            runs,
            seed=self.state.seed % 2**64,
            step=self.step,
            key=tensor_id(self.label),
        )

    def _owned_runs(
        self, kind: str, spans: list[Span], dtype: torch.dtype, communicator: Any
    ) -> OwnedRuns:
        """Made once, for as long as spans and residuals are the same."""
        lossy, feedback = self._lossy_now(), self.state.feedback
        key = (kind, dtype, lossy, communicator.world)
        known = self._runs.get(key)
        if known is not None and known[0] is spans and known[1].made_at == feedback.changes:
            return known[1]
        runs = OwnedRuns(self._each_run(kind, spans, dtype, lossy), communicator.rank)
        runs.made_at = feedback.changes
        self._runs[key] = (spans, runs)
        return runs

    def _each_run(
        self, kind: str, spans: list[Span], dtype: torch.dtype, lossy: bool
    ) -> list[OwnedRun]:
        found: list[OwnedRun] = []
        filled: dict[int, int] = {}  # bytes of each owner so far
        for span in spans:
            real, blocks = span.in_bytes(dtype)
            codec = self._codec(span, real) if lossy else None
            total, at = sum(count for _, count in blocks), 0
            residual = self._residual(kind, span, codec, real, total)
            for owner, (start, count) in enumerate(blocks):
                own, number = filled.get(owner, 0), (tensor_id(span.name) + owner) % 2**32
                place = (owner, start, own, count)
                if count:
                    found.append(OwnedRun(*place, real, codec, number, residual, at))
                filled[owner], at = own + count * real.itemsize, at + count
        return found

    def _residual(
        self, kind: str, span: Span, codec: Codec | None, dtype: torch.dtype, count: int
    ) -> torch.Tensor | None:
        """What is held back of a span of so many elements; in an exact step what there was goes
        out."""
        feedback, key = self.state.feedback, f"{kind}/{span.name}"
        if not self.state.error_feedback or kind == "weights" or span.codec is None:
            return None
        if codec is None or codec.is_exact(dtype):
            return feedback.get(key)
        return feedback.ensure(key, count, self.home)

    @staticmethod
    def _codec(span: Span, dtype: torch.dtype) -> Codec | None:
        if span.codec is not None:
            check_dtype(span.codec, dtype, span.name)
        return span.codec


@contextlib.contextmanager
def internals(what: str) -> Iterator[None]:
    """What a flat buffer holds is told by attributes that PyTorch does not document: say so
    where a release has moved one."""
    try:
        yield
    except AttributeError as error:
        raise RuntimeError(
            f"{what} of PyTorch {torch.__version__} is made otherwise than compress() knows it "
            f"({error}); leave it exact, or use another release"
        ) from error
