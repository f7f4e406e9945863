"""What FSDP1 and FSDP2 share: the state of compress(), and the collectives of one unit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ..codecs._buckets import check_dtype, in_reals, tensor_id
from ..codecs._rules import Rules
from ..comm._codec import Codec
from ..comm._communicator import communicator_of
from ..comm._work import Work, joined
from ._spans import Span

FORMAT = "redpoll.compress.sharded"
VERSION = 1


class Asked(NamedTuple):
    """What the caller of compress() has given, and is no default."""

    grads: bool
    weights: bool


class ShardedState:
    """How the shards of one FSDP model travel. No error feedback: nothing is held back, and the
    state is a step counter, which warm-up and stochastic rounding depend on."""

    def __init__(
        self,
        grads: Rules,
        weights: Rules | None,
        replicate: Rules | None,
        warmup_steps: int,
        seed: int,
        asked: Asked,
    ) -> None:
        """asked: what is no default, and is an error where it cannot be."""
        self.grads = grads
        self.asked = asked
        self.weights = weights
        self.replicate = replicate
        self.warmup_steps = warmup_steps
        self.seed = seed
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

    @property
    def of_all(self) -> ShardedState:
        """Itself, as of a CompressState: the state is the same on every rank."""
        return self

    def state_dict(self, of: str = "own") -> dict[str, Any]:
        """The step counter; the same on every rank. of: as of a CompressState. Local."""
        return {"format": FORMAT, "version": VERSION, "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue counting. ValueError: this is no such state, or one of DDP."""
        if state.get("format") != FORMAT or state.get("version") != VERSION:
            raise ValueError(f"this is no state of compress() for FSDP: {str(state)[:80]}")
        for unit in self.units:
            unit.step = state["step"]

    def __repr__(self) -> str:
        kinds = {"grads": self.grads, "weights": self.weights, "replicate": self.replicate}
        texts = [f"{kind}={(one and one.codec) or 'exact'}" for kind, one in kinds.items()]
        return f"ShardedState({', '.join(texts)}, {len(self.units)} units, step {self.step})"


class Unit:
    """One FSDP unit: the tensors of its buffers, and its own count of reductions."""

    def __init__(self, state: ShardedState, label: str) -> None:
        self.state = state
        self.label = label
        self.step = 0
        self._spans: dict[Any, list[Span]] = {}

    def parameters(self) -> list[tuple[str, torch.Size]]:
        """Names and shapes of the unit's tensors."""
        raise NotImplementedError

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
        """`output` gets this rank's part of the reduced `flat`, when the Work is complete."""
        communicator = communicator_of(group)
        works, filled, lossy = [], 0, self._lossy_now()
        spans = _of_reals(spans, flat)
        output, flat = in_reals(output), in_reals(flat)
        for span in spans:
            own = span.blocks[communicator.rank][1]
            works.append(
                communicator.reduce_scatter(
                    output.narrow(0, filled, own),
                    [flat.narrow(0, first, count) for first, count in span.blocks],
                    op,
                    codec=self._codec(span, flat.dtype) if lossy else None,
                    seed=self._seed(span),
                    step=self.step,
                )
            )
            filled += own
        self.step += 1
        return joined(works)

    def all_gather(
        self, output: torch.Tensor, own: torch.Tensor, group: Any, spans: list[Span]
    ) -> Work:
        """`output` gets every rank's row, when the Work is complete. Weights that are gathered
        again in one step, for the backward pass, have the same bits."""
        communicator = communicator_of(group)
        works, taken, lossy = [], 0, self._lossy_now()
        spans = _of_reals(spans, own)
        output, own = in_reals(output), in_reals(own)
        for span in spans:
            count = span.blocks[communicator.rank][1]
            works.append(
                communicator.all_gather(
                    [output.narrow(0, first, size) for first, size in span.blocks],
                    own.narrow(0, taken, count),
                    codec=self._codec(span, own.dtype) if lossy else None,
                    seed=self._seed(span),
                    step=self.step,
                )
            )
            taken += count
        return joined(works)

    def _seed(self, span: Span) -> int:
        """These collectives number no tensors, so the tensor's number is part of the seed."""
        return (self.state.seed + (tensor_id(span.name) << 32)) % 2**64

    @staticmethod
    def _codec(span: Span, dtype: torch.dtype) -> Codec | None:
        if span.codec is not None:
            check_dtype(span.codec, dtype, span.name)
        return span.codec


def _of_reals(spans: list[Span], tensor: torch.Tensor) -> list[Span]:
    """Spans of a buffer's elements, for in_reals() of the buffer."""
    return [span.doubled() for span in spans] if tensor.is_complex() else spans


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
