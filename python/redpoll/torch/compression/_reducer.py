"""How the buckets of one DDP model are averaged: what compress() does in every step."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ... import _abi
from ..c10d import statistics
from ..codecs._adaptive import BitChooser, CodecTrial
from ..codecs._buckets import (
    check_dtype,
    check_holds,
    held_count,
    held_dtype,
    in_reals,
    tensor_id,
)
from ..codecs._rules import Rules
from ..comm import _cuda
from ..comm._backward import raise_at_end
from ..comm._codec import Codec
from ..comm._communicator import communicator_of
from ..feedback._residuals import Residuals
from ._loss_scale import LossScale
from ._replay import Replay

log = logging.getLogger("redpoll")


@dataclass
class Run:
    """Consecutive elements of a bucket that travel alike: one tensor, or exact neighbours."""

    offset: int
    count: int
    codec: Codec | None
    residual: torch.Tensor | None
    id: int
    name: str  # of the tensor; of the first of several


class BucketReducer:
    """Averages buckets of gradients; knows parameters by name and object, and no DDP."""

    def __init__(
        self,
        communicator: Any,
        parameters: Mapping[str, torch.Tensor],
        rules: Rules,
        *,
        error_feedback: bool,
        warmup_steps: int,
        seed: int,
        gradients_may_be_dropped: bool,
        grad_scaler: Any = None,
        frozen: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """communicator: of the model's group; None: of the default one, from the first bucket
        on. gradients_may_be_dropped: whoever calls throws
        away the gradient of a parameter that no rank has used (DDP with unused parameters).
        grad_scaler: what scales the loss, and skips steps that are not finite. frozen: those
        that come in no bucket, and therefore must not train."""
        self._communicator = communicator
        self.parameters = dict(parameters)
        self.rules = rules
        self.error_feedback = error_feedback
        self.warmup_steps = warmup_steps
        self.seed = seed
        self.step = 0
        self._enabled = True
        self.residuals = Residuals()
        self.loss_scale = LossScale(grad_scaler, self.residuals, self.forget_plans)
        self._gradients_may_be_dropped = gradients_may_be_dropped
        self._names = {parameter: name for name, parameter in self.parameters.items()}
        self._frozen = dict(frozen or {})
        self._due = set(self.parameters)  # those that this step has yet to bring
        self._plans: dict[int, tuple[Any, list[Run]]] = {}
        self._layout: list[list[str]] = []  # of this step, by bucket
        self._replay: Replay | None = None
        self.chooser = self._new_chooser()
        self._measures = False  # this step
        self._faster_exact: set[str] = set()  # parameters, by their buckets

    @property
    def communicator(self) -> Any:
        """RedpollValueError: there is no group yet, or its backend is not redpoll."""
        if self._communicator is None:
            self._communicator = communicator_of()
        return self._communicator

    # ---- what travels how ----

    def _new_chooser(self) -> BitChooser | None:
        """Of the parameters for which the rules want bits chosen."""
        if self.rules.adaptive is None:
            return None
        chosen = [
            name
            for name, parameter in sorted(self.parameters.items())
            if self.rules.is_adaptive(name, parameter.shape)
        ]
        return BitChooser(self.rules.adaptive, chosen)

    def set_rules(self, rules: Rules) -> None:
        """Other rules, from the next step on. Bits are chosen anew."""
        self.rules = rules
        self.chooser = self._new_chooser()
        self._measures = False
        self._faster_exact = set()
        self.forget_plans()

    def _ruled_codec(self, name: str) -> Codec | None:
        if self.chooser is not None and self.chooser.chooses(name):
            trial = self.chooser.trial
            never = trial is not None and trial.threshold == _abi.RP_LOSSY_NEVER
            is_exact = never or name in self._faster_exact
            return None if is_exact else self.chooser.codec_of(name)
        return self.rules.codec_for(name, self.parameters[name].shape)

    @property
    def enabled(self) -> bool:
        """False: exact steps, the first of which sends what was held back."""
        return self._enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._enabled = bool(value)
        self.forget_plans()

    def codec_of(self, name: str) -> Codec | None:
        """By the rules, for lossy steps; None: exact."""
        codec, dtype = self._ruled_codec(name), held_dtype(self.parameters[name].dtype)
        return None if codec is None or codec.is_exact(dtype) else codec

    def check(self) -> None:
        """ValueError or TypeError for rules that these parameters cannot follow."""
        self.rules.check_names(list(self.parameters))
        for named in self.rules.codecs():
            if self.error_feedback and named.bits == 1 and named.stochastic:
                raise ValueError(
                    f"{named}: with one bit and stochastic rounding error feedback diverges; "
                    "use rounding=nearest, two bits, or error_feedback=False"
                )
        for name, parameter in self.parameters.items():
            codec = self.rules.codec_for(name, parameter.shape)
            if codec is not None:
                check_dtype(codec, held_dtype(parameter.dtype), name)

    def is_lossy_step(self) -> bool:
        """Whether rules apply now; otherwise everything is exact."""
        return self.enabled and self.communicator.world > 1 and self.step >= self.warmup_steps

    def forget_plans(self) -> None:
        """After anything that decides how tensors travel has changed."""
        self._plans.clear()

    # ---- a bucket ----

    def reduce_bucket(self, bucket: Any) -> torch.futures.Future:
        """Post the average of a DDP GradBucket; the future's value is its buffer. Does not
        block. The last bucket of a backward pass ends the step."""
        held = bucket.buffer()
        buffer = in_reals(held)
        names = [self._name_of(parameter) for parameter in bucket.parameters()]
        check_holds(buffer, [self.parameters[name] for name in names])
        is_first, is_last = self._place_in_step(names)
        if self._replay is None:
            future = self._start(names, buffer, is_first, is_last)
        else:
            future = self._replay.collect(buffer, dict(zip(names, self._cut(names, buffer))))
            if is_last:
                self._replay.send(self._start)
                self._replay = None
        if is_last:
            self._next_step()
            self._check_frozen()
        elif bucket.is_last():
            self._refuse_missing()
        return future if buffer is held else _then_holds(future, held)

    def _cut(self, names: list[str], buffer: torch.Tensor) -> list[torch.Tensor]:
        """Each parameter's gradient, flat; a sparse one as it is."""
        if buffer.layout is torch.sparse_coo:
            return [buffer]
        counts = [held_count(self.parameters[name]) for name in names]
        return list(buffer.view(-1).split(counts))

    def _place_in_step(self, names: list[str]) -> tuple[bool, bool]:
        """Whether a bucket of these parameters is the first of its step, and the last. Not by
        its own word: in the first step of a static graph every bucket says that it is the first
        one and that others follow."""
        if not self._due.issuperset(names):  # the step before broke off
            self._due = set(self.parameters)
        is_first = len(self._due) == len(self.parameters)
        self._due.difference_update(names)
        is_last = not self._due
        if is_last:
            self._due = set(self.parameters)
        return is_first, is_last

    def _refuse_missing(self) -> None:
        missing, self._due = min(self._due), set(self.parameters)
        raise RuntimeError(
            f"no bucket holds the gradient of {missing!r}, so that it is not averaged: did it "
            "require no gradient when DistributedDataParallel was made? Make a new one, and "
            "call compress() on it"
        )

    def _check_frozen(self) -> None:
        for name, parameter in self._frozen.items():
            if parameter.requires_grad:
                raise RuntimeError(
                    f"parameter {name!r} required no gradient when DistributedDataParallel was "
                    "made and does now: its gradient is not averaged, and ranks would drift "
                    "apart; make a new DistributedDataParallel, and call compress() on it"
                )

    def _next_step(self) -> None:
        was_lossy = self.is_lossy_step()
        self.step += 1
        if self.is_lossy_step() != was_lossy:
            self.forget_plans()

    def buckets(self) -> list[list[str]]:
        """Names by bucket, of the latest step."""
        return [list(names) for names in self._layout]

    def replay(self, layout: Sequence[Sequence[str]]) -> None:
        """Send the next step in these buckets, if they are of these parameters."""
        fits = Replay.fits(layout, self.parameters)
        self._replay = Replay(layout) if fits else None
        self._layout = [list(names) for names in layout] if fits else []

    def _start(
        self, names: list[str], buffer: torch.Tensor, is_first: bool, is_last: bool
    ) -> torch.futures.Future:
        ready = time.perf_counter()
        if is_first:
            self._begin_step()  # which may ask how long buckets were
            self._layout = []
        self._layout.append(names)
        plan = self._plan(len(self._layout) - 1, names, buffer.dtype)
        if buffer.layout is torch.sparse_coo:
            return self._post_sparse(buffer, plan)
        if self.communicator.world == 1:
            return self._finish_alone(buffer, plan)
        future = self._post(buffer, plan, ready if is_last else None)
        if is_last and self._measures and self.chooser is not None:
            self.chooser.send(self.communicator)
        return future

    def _begin_step(self) -> None:
        self.loss_scale.begin_step()
        if self.error_feedback and self.is_lossy_step():
            self.loss_scale.warn_of_another()
        if self.chooser is not None:
            self._begin_choice(self.chooser)

    def settle_choice(self) -> None:
        """What the latest measuring step has led to counts from now on. Local: waits for an
        exchange that all ranks have begun."""
        if self.chooser is None or not self.chooser.settle():
            return
        self.forget_plans()
        if self.communicator.rank == 0:
            log.info("codec auto, after %d steps: %s", self.step, self.chooser.summary)

    def _begin_choice(self, chooser: BitChooser) -> None:
        self.settle_choice()
        lossy = self.is_lossy_step()
        first = chooser.trial is not None and lossy and self._try(chooser, chooser.trial)
        lossy_steps = self.step - self.warmup_steps
        due = first or lossy_steps % chooser.codec.every == 0
        self._measures = lossy and due and not self._is_tried_exact(chooser)
        if self._measures:
            chooser.begin()

    def _try(self, chooser: BitChooser, trial: CodecTrial) -> bool:
        """Follow the trial; whether its first lossy step begins. All ranks wait here when it
        asks, in front of a step's first bucket."""
        went_exact = trial.goes_exact
        trial.begin(time.perf_counter())
        if trial.asks:
            self._ask(chooser, trial)
        if trial.asks or trial.goes_exact != went_exact:
            self.forget_plans()
        return trial.is_first_lossy

    def _ask(self, chooser: BitChooser, trial: CodecTrial) -> None:
        buckets = self._layout or [list(self.parameters)]
        most = max(self._chosen_elements(chooser, names) for names in buckets)
        if not most:
            trial.lossy_from = _abi.RP_LOSSY_NEVER
            return
        text = trial.ask(self.communicator, chooser.codec.typical, most, self.error_feedback)
        if self.communicator.rank == 0:
            log.info("codec auto: %s", text)

    def _chosen_elements(self, chooser: BitChooser, names: list[str]) -> int:
        return sum(held_count(self.parameters[name]) for name in names if chooser.chooses(name))

    @staticmethod
    def _is_tried_exact(chooser: BitChooser) -> bool:
        """Now, whatever the bucket."""
        trial = chooser.trial
        if trial is None:
            return False
        return trial.goes_exact or trial.threshold == _abi.RP_LOSSY_NEVER

    def _choose_exact(self, names: list[str]) -> None:
        """Which parameters of a bucket travel exact because that is faster."""
        chooser = self.chooser
        if chooser is None or chooser.trial is None:
            return
        chosen = {name for name in names if chooser.chooses(name)}
        elements = sum(held_count(self.parameters[name]) for name in chosen)
        self._faster_exact -= chosen
        if chooser.trial.goes_exact or elements < chooser.trial.threshold:
            self._faster_exact |= chosen

    def _post(self, buffer: torch.Tensor, plan: list[Run], ready: float | None) -> Any:
        # The mean is taken before the sum (as DDP itself does): every residual, a sender's and
        # an owner's, is then in units of the mean, and its element may change owners freely.
        buffer.div_(self.communicator.world)
        tensors = [buffer.narrow(0, run.offset, run.count) for run in plan]
        residuals, held = self._residuals_for(tensors, plan)
        if self._measures:
            self._measure(tensors, plan)
        work = self.communicator.all_reduce(
            tensors,
            codecs=[run.codec for run in plan],
            residuals=residuals,
            ids=[run.id for run in plan],
            seed=self.seed,
            step=self.step,
        )

        def finish(_: torch.futures.Future) -> torch.Tensor:
            error = work.exception()
            if error is not None:
                raise error
            for kept, missed in held:
                kept.add_(missed)
                _cuda.seam.note_use(missed)
            self._drop_paid_out(buffer, plan, residuals)
            self.loss_scale.see(buffer)
            if ready is not None:
                statistics.record_exposed(self.communicator, time.perf_counter() - ready)
            return buffer

        raise_at_end(work)
        return work.get_future().then(finish)

    def _measure(self, tensors: list[torch.Tensor], plan: list[Run]) -> None:
        for run, tensor in zip(plan, tensors):
            chosen = self.chooser is not None and self.chooser.chooses(run.name)
            if self.chooser is not None and chosen and run.codec is not None:
                self.chooser.measure(run.name, tensor, run.residual)

    def _post_sparse(self, buffer: torch.Tensor, plan: list[Run]) -> torch.futures.Future:
        """DDP gives a sparse gradient a bucket of its own. It is summed exactly, or not at
        all."""
        for run in plan:
            if self.rules.codec_for(run.name, self.parameters[run.name].shape) is not None:
                raise TypeError(
                    f"the gradient of {run.name!r} is sparse, and codecs take dense ones; "
                    f"send it exact with rules={{{run.name!r}: None}}"
                )
        buffer.div_(self.communicator.world)
        work = self.communicator.all_reduce_sparse([buffer])
        raise_at_end(work)
        return work.get_future().then(lambda reduced: reduced.value()[0])

    def _residuals_for(
        self, tensors: list[torch.Tensor], plan: list[Run]
    ) -> tuple[list[torch.Tensor | None], list[tuple[torch.Tensor, torch.Tensor]]]:
        """The residual of each run, and those that are to be added to another one afterwards.

        DDP throws the result of a parameter away that no rank has used; a residual sent with it
        would be lost. So where this rank's gradient is all zeros its residual stays at home,
        and only what this very step misses (as owner of others' sum) is added to it."""
        residuals = [run.residual for run in plan]
        held: list[tuple[torch.Tensor, torch.Tensor]] = []
        if not self._gradients_may_be_dropped:
            return residuals, held
        zeros = _are_zero(tensors)
        for i, run in enumerate(plan):
            if run.residual is None or not zeros[i]:
                continue
            residuals[i] = None
            if run.codec is not None:
                residuals[i] = missed = torch.zeros_like(run.residual)
                held.append((run.residual, missed))
        return residuals, held

    def _drop_paid_out(
        self, buffer: torch.Tensor, plan: list[Run], residuals: list[torch.Tensor | None]
    ) -> None:
        """An exact step has sent a residual in full, but for what 16 bits could not hold."""
        if buffer.dtype not in (torch.float32, torch.float64):
            return
        for run, residual in zip(plan, residuals):
            if run.codec is None and residual is not None:
                self.residuals.drop(run.name)
                run.residual = None

    def _finish_alone(self, buffer: torch.Tensor, plan: list[Run]) -> torch.futures.Future:
        """In a world of one nothing is encoded; what was held back elsewhere is paid out."""
        for run in plan:
            gradient = buffer.narrow(0, run.offset, run.count)
            if run.residual is None or (self._gradients_may_be_dropped and _is_zero(gradient)):
                continue
            gradient.add_(run.residual.to(buffer.device))
            self.residuals.drop(run.name)
            run.residual = None
        self.loss_scale.see(buffer)
        future = _cuda.seam.future([buffer])
        future.set_result(buffer)
        return future

    # ---- its plan ----

    def _plan(self, index: int, names: list[str], dtype: torch.dtype) -> list[Run]:
        """Made once a bucket: DDP rebuilds buckets after the first step, and buckets of other
        parameters get other plans, but residuals stay with their names."""
        known = self._plans.get(index)
        if known is None or known[0] != (names, dtype):
            self._choose_exact(names)
            known = self._plans[index] = ((names, dtype), self._make_plan(names, dtype))
        return known[1]

    def _make_plan(self, names: list[str], dtype: torch.dtype) -> list[Run]:
        """Tensors lie in a bucket one behind the other."""
        runs: list[Run] = []
        offset = 0
        for name in names:
            run = self._run(name, dtype)
            run.offset = offset
            offset += run.count
            if runs and _may_join(runs[-1], run):
                runs[-1].count += run.count
            elif run.count:
                runs.append(run)
        return runs

    def _run(self, name: str, dtype: torch.dtype) -> Run:
        parameter = self.parameters[name]
        count, codec = held_count(parameter), self._ruled_codec(name)
        if codec is not None:
            check_dtype(codec, dtype, name)
        if codec is None or codec.is_exact(dtype) or not self.is_lossy_step():
            return Run(0, count, None, self.residuals.get(name), tensor_id(name), name)
        residual = self.residuals.ensure(name, parameter) if self.error_feedback else None
        return Run(0, count, codec, residual, tensor_id(name), name)

    def _name_of(self, parameter: torch.Tensor) -> str:
        name = self._names.get(parameter)
        if name is None:
            raise RuntimeError(
                f"a bucket holds a parameter of shape {list(parameter.shape)} that the model "
                "did not have when compress() was called; call it on a new "
                "DistributedDataParallel"
            )
        return name


def _may_join(before: Run, run: Run) -> bool:
    """Exact neighbours are one segment: fewer pieces to describe, the same bytes."""
    return all(one.codec is None and one.residual is None for one in (before, run))


def _is_zero(tensor: torch.Tensor) -> bool:
    return tensor[0].item() == 0 and not bool(tensor.any())


def _are_zero(tensors: list[torch.Tensor]) -> list[bool]:
    """Of each; a GPU is waited for once, and not once a tensor."""
    if not tensors or not _cuda.seam.holds(tensors[0]):
        return [_is_zero(tensor) for tensor in tensors]
    return [not found for found in torch.stack([one.any() for one in tensors]).tolist()]


def _then_holds(future: torch.futures.Future, held: torch.Tensor) -> torch.futures.Future:
    """When the future is done, `held`, whose memory it has filled, as DDP gave it."""

    def finish(done: torch.futures.Future) -> torch.Tensor:
        done.value()  # raises what went wrong
        return held

    return future.then(finish)
