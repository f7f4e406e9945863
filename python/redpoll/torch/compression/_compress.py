"""compress(): lossy gradients with error feedback for DDP, lossy shards for FSDP."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from .._help import Unset, plainly_shown
from ..codecs._rules import DEFAULT_MIN_SIZE, CodecLike, Rules, RulesLike
from ..comm._communicator import communicator_of
from ..feedback._gathered import OfAll, gathered, states_in
from ..feedback._residuals import (
    FORMAT,
    VERSION,
    choose_states,
    shaped,
    sum_residuals,
)
from ..fsdp._fsdp import check_is_sharded, compress_sharded
from ..fsdp._sharded import Asked, ShardedState
from . import _feedback_files
from ._hook import compress_hook
from ._reducer import BucketReducer

_DDP_CODEC, _FSDP_CODEC = "q4", "q8"
_CODEC: Any = Unset(repr(_DDP_CODEC))
_GRADS: Any = Unset(repr(_FSDP_CODEC))
_WEIGHTS: Any = Unset(repr(_FSDP_CODEC))


class LoadReport(NamedTuple):
    """What load_state_dict(strict=False) passed over."""

    missing: list[str]  # lossy parameters of which the states hold no residual; now zero
    unexpected: list[str]  # residuals of names that are no parameter; not used


class CompressState(BucketReducer):
    """How the gradients of one DDP model travel, and what error feedback holds back.

    `step` counts reductions (backward passes outside of no_sync); `enabled` False makes every
    step exact. Change things between steps, and on all ranks in the same one: a disagreement
    is an error on every rank, in words. Not for use by several threads."""

    def set_codec(
        self, codec: CodecLike, *, rules: RulesLike = None, min_size: int | None = None
    ) -> None:
        """Other codecs from the next step on. rules None: those of before stay, and go before
        `codec`. Local. What was held back for parameters that now travel exact goes out with
        their next gradient; nothing is lost. ValueError, TypeError: as of compress(), and
        nothing has changed."""
        before = self.rules
        self.rules = before.replaced(codec, rules, min_size)
        try:
            self.check()
        except (ValueError, TypeError):
            self.rules = before
            raise
        self.set_rules(self.rules)

    def codecs(self) -> dict[str, str]:
        """How each parameter travels in a lossy step: the codec's text, or "exact"."""
        return {name: str(self.codec_of(name) or "exact") for name in self.parameters}

    def residual(self, name: str) -> torch.Tensor | None:
        """What is held back for a parameter here, with its shape; None: nothing."""
        self.loss_scale.settle()
        flat = self.residuals.get(name)
        return None if flat is None else shaped(flat, self.parameters[name])

    # ---- across restarts ----

    def state_dict(self, of: str = "own") -> dict[str, Any]:
        """The state, for a checkpoint.

        of: "own": this rank's part: every rank saves its own. Residuals by parameter name
        (without "module."), float32 (complex64 of complex parameters), on the parameter's
        device (on the CPU where gradients travel through that), with its shape; live tensors,
        as in an optimizer's state. Local. "all": the parts of all ranks, on the CPU, on every
        rank the same, so that one saves it for all: as many copies of the residuals as there
        are ranks. Collective. ValueError on every rank: they are not after the same step."""
        if of not in ("own", "all"):
            raise ValueError(f"of={of!r}; 'own' and 'all' are possible")
        if of == "all":
            return gathered(self._own_state(), self.parameters, self.communicator)
        return self._own_state()

    @property
    def of_all(self) -> OfAll:
        """For frameworks that save rank 0's state and load it everywhere: its state_dict() is
        state_dict(of="all").

        accelerator.register_for_checkpointing(state.of_all)"""
        return OfAll(self)

    def _own_state(self) -> dict[str, Any]:
        self.loss_scale.settle()
        self.settle_choice()
        for name, parameter in self.parameters.items():
            if self._keeps_residual(name):
                self.residuals.ensure(name, parameter)
        return {
            "format": FORMAT,
            "version": VERSION,
            "rank": self.communicator.rank,
            "world": self.communicator.world,
            "step": self.step,
            "scale": self.loss_scale.scale,
            "buckets": self.buckets(),
            "levels": dict(self.chooser.levels) if self.chooser else {},
            "lossy_from": (
                self.chooser.trial.lossy_from if self.chooser and self.chooser.trial else None
            ),
            "residuals": {
                name: self.residual(name) for name in self.parameters if name in self.residuals
            },
        }

    def _of_this_group(self, states: list[Any]) -> list[Any]:
        """A single dict that was this rank's own before its group shrank is that still."""
        now = {"rank": self.communicator.rank, "world": self.communicator.world}
        own = len(states) == 1 and (states[0].get("rank"), states[0].get("world"))
        return [{**states[0], **now}] if own and own == self.communicator.before else states

    def load_state_dict(
        self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]], strict: bool = True
    ) -> LoadReport:
        """Continue from a saved state. Local; every rank calls it.

        state: this rank's own dict of a run of as many ranks, or what state_dict(of="all") gave
        on any rank, or a sequence of the dicts of all ranks, of a run of any world: rank r
        takes over what ranks r, r + world, ... held back, so that the total, which is what
        training sees, is conserved. In the group of those that are left (shrink_group()) this
        rank's own dict of the group before will do: what the lost ones held back is lost.
        Tensors are copied.
        strict: names that are missing or no parameter are an error that lists them; else they
        are returned. ValueError also for shapes, for states of several runs or steps, and for
        another rank's dict; the state is then what it was."""
        states = states_in(state) if isinstance(state, Mapping) else list(state)
        if not states:
            raise ValueError("there is no state in the sequence")
        states = self._of_this_group(list(states))
        chosen = choose_states(states, self.communicator.rank, self.communicator.world)
        flats, unexpected, misfits = sum_residuals(chosen, self.parameters)
        wanted = [name for name in self.parameters if chosen and self._needs_residual(name)]
        report = LoadReport([name for name in wanted if name not in flats], unexpected)
        _check_load(report, misfits, strict)
        if flats and not self.error_feedback:
            raise ValueError("the state holds residuals, but error_feedback is False here")
        if self.chooser is not None:
            same_world = states[0]["world"] == self.communicator.world
            self.chooser.restore(
                states[0].get("levels", {}), states[0].get("lossy_from") if same_world else None
            )
        self._faster_exact = set()
        self.residuals.replace(flats)
        self.loss_scale.scale = states[0].get("scale", 1.0)
        self.step = states[0]["step"]
        self.forget_plans()
        self.replay(
            states[0]["buckets"] if states[0]["world"] == self.communicator.world else []
        )
        return report

    def _keeps_residual(self, name: str) -> bool:
        return self.error_feedback and self.codec_of(name) is not None

    def _needs_residual(self, name: str) -> bool:
        """Where exact may be faster, a parameter may have none."""
        chooser = self.chooser
        may_be_exact = chooser and chooser.codec.fastest and chooser.chooses(name)
        return self._keeps_residual(name) and not may_be_exact

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write what all ranks hold back into `folder`, a file a rank. Collective: every rank
        calls it, with no backward pass under way.

        A save is one step's, whole or not at all: it replaces the one that the folder held,
        of any world, when all ranks have written, and until then the earlier one counts. A
        folder holds one model's. Returns this rank's file.
        OSError on every rank: one of them cannot write, on a full disk for example; nothing
        is left behind and the earlier save still counts."""
        return _feedback_files.save(Path(folder), self.state_dict(), self.communicator)

    def load(self, folder: str | os.PathLike[str], strict: bool = True) -> LoadReport:
        """Continue from a folder that all ranks of a run of any world saved into. Local; a
        rank reads its own file, and after a change of the world those that it takes over.
        FileNotFoundError: it holds no save, or not the files of all ranks. ValueError: a file
        cannot be read or is another rank's or save's. Else as load_state_dict()."""
        rank, world = self.communicator.rank, self.communicator.world
        return self.load_state_dict(_feedback_files.load(Path(folder), rank, world), strict)

    def __deepcopy__(self, memo: Any) -> CompressState:
        """Itself: a copy of the model (AveragedModel makes one) holds it and does not use it,
        as DDP registers no hook for copies."""
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            "the state of compress() cannot be pickled with its model: save model.module (or "
            "its state_dict()), and this with save() or state_dict()"
        )

    def __repr__(self) -> str:
        lossy = sum(1 for name in self.parameters if self.codec_of(name) is not None)
        codec = self.rules.adaptive or self.rules.codec or "exact"
        return (
            f"CompressState({codec}, {lossy} of {len(self.parameters)} parameters lossy, "
            f"step {self.step}, error_feedback={self.error_feedback}"
            f"{'' if self.enabled else ', not enabled'})"
        )


def _check_load(report: LoadReport, misfits: list[str], strict: bool) -> None:
    wrong = []
    if strict and report.missing:
        wrong.append(f"no residual of {', '.join(report.missing)}")
    if strict and report.unexpected:
        wrong.append(f"residuals of no parameter: {', '.join(report.unexpected)}")
    if misfits:
        wrong.append(f"other shapes: {'; '.join(misfits)}")
    if wrong:
        raise ValueError("the state does not fit the model: " + "; ".join(wrong))


@plainly_shown
def compress(
    model: torch.nn.Module,
    codec: CodecLike = _CODEC,
    *,
    grads: CodecLike = _GRADS,
    weights: CodecLike = _WEIGHTS,
    replicate: CodecLike = None,
    rules: RulesLike = None,
    min_size: int = DEFAULT_MIN_SIZE,
    error_feedback: bool | None = None,
    grad_scaler: torch.amp.GradScaler | None = None,
    warmup_steps: int = 0,
    seed: int = 0,
) -> CompressState | ShardedState:
    """Let the gradients of a parallel model travel lossy from now on.

        model = DistributedDataParallel(net)          # under init_process_group("redpoll")
        state = redpoll.torch.compress(model, codec="q4")

        fully_shard(net)                              # FSDP2; or FullyShardedDataParallel
        state = redpoll.torch.compress(net, grads="q8")

    model: a DistributedDataParallel or FSDP model whose process group has the backend
        "redpoll", for CPU or CUDA tensors.
    codec: of DDP: how gradients travel. "q4" by default; "q8", "q4:bucket=1024",
        "q2:rounding=stochastic", "bf16", "fp16", ...; None: exact. "auto:like=q4,every=100"
        gives each parameter bits of its own, so that bytes are least at q4's error, chosen anew
        every so many steps from what all ranks have measured; codecs() shows them, and rank 0
        logs them (logger "redpoll", INFO). "auto" does the same in buckets that are faster so,
        and sends others exact: the first lossy step times all-reduces, about a second, and the
        next fourteen go each way in turn.
    grads: of FSDP: the codec of the gradients' reduce-scatter; "q8" by default.
    weights: of FSDP2: the codec of the weights' all-gathers, which are two thirds of its bytes;
        None: exact. "q8" by default, where neither this nor `grads` is given and the weights
        are of a type that it takes; the shards that the optimizer steps stay exact.
    replicate: of FSDP2 with hybrid sharding: the codec of the all-reduce between the replicas;
        exact by default. Of replicate(), and of hybrid sharding over one rank, nothing else
        travels: the codec is that of `grads` then where this is None.
    rules: for which parameters another codec is used. A mapping of globs of parameter names to
        codecs (None: exact), or a sequence of such pairs and Rules; the first that fits
        decides. Names are those of the wrapped module.
    min_size: where no rule fits, tensors of fewer elements travel exact, as those of one
        dimension do.
    error_feedback: what a step loses is added to the next one's gradient, for one float32 a
        lossy element of memory. True by default for DDP. False by default for FSDP, where each
        rank sends parts of all gradients, so that this is as much as the whole model, not as a
        shard; take it for codecs below 8 bits.
    grad_scaler: of DDP: the torch.amp.GradScaler that scales the loss, if there is one. What is
        held back follows its scale, and steps that it skips are taken back; that needs another
        float32 a lossy element, and one more look at each gradient.
    warmup_steps: so many exact steps first; error feedback starts after them.
    seed: of stochastic rounding, with the step and the parameter's name.

    Collective in effect: every rank calls it with equal arguments (a difference is an error on
    all ranks in the first step). Nothing travels in the call itself. After each backward pass
    gradients are the mean over all ranks, with the same bits on all of them.

    Returns the state, whose state_dict() belongs into checkpoints: a CompressState for DDP, a
    ShardedState for FSDP.

    TypeError: the model is of another kind, or has gradients that a codec does not take.
    ValueError: a codec, rule or number is wrong, or a codec would never be used. RuntimeError:
    the group's backend is not redpoll, or another hook is registered."""
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    if not isinstance(warmup_steps, int) or warmup_steps < 0:
        raise ValueError(f"warmup_steps is {warmup_steps!r}; 0 or more is wanted")
    if not isinstance(seed, int):
        raise ValueError(f"seed is {seed!r}; a whole number is wanted")
    if isinstance(model, DistributedDataParallel):
        lossy_weights = weights is not _WEIGHTS and weights is not None
        if grads is not _GRADS or lossy_weights or replicate is not None:
            raise ValueError("grads=, weights= and replicate= are for FSDP; DDP takes codec=")
        chosen = Rules(_DDP_CODEC if codec is _CODEC else codec, rules, min_size)
        feedback = True if error_feedback is None else bool(error_feedback)
        return _compress_ddp(model, chosen, feedback, grad_scaler, warmup_steps, seed)
    if grad_scaler is not None:
        check_is_sharded(model)
        raise ValueError(
            "grad_scaler= is for DDP: what FSDP holds back does not follow a loss scale; train "
            "in bf16, or without error_feedback="
        )
    if codec is not _CODEC:
        check_is_sharded(model)
        raise ValueError("FSDP takes grads= and weights=, each a codec, not codec=")
    asked = Asked(grads is not _GRADS, weights is not _WEIGHTS)
    if not asked.weights:
        weights = None if asked.grads else _FSDP_CODEC
    chosen_grads = grads if asked.grads else _FSDP_CODEC
    return compress_sharded(
        model,
        chosen_grads,
        weights,
        replicate,
        rules,
        min_size,
        warmup_steps,
        seed,
        asked,
        bool(error_feedback),
    )


def _compress_ddp(
    model: DistributedDataParallel,
    rules: Rules,
    error_feedback: bool,
    grad_scaler: torch.amp.GradScaler | None,
    warmup_steps: int,
    seed: int,
) -> CompressState:
    _check_no_hook(model)
    state = CompressState(
        communicator_of(model.process_group),
        _own_parameters(model, trained=True),
        rules,
        error_feedback=error_feedback,
        warmup_steps=warmup_steps,
        seed=seed,
        gradients_may_be_dropped=bool(model.find_unused_parameters or model.static_graph),
        grad_scaler=grad_scaler,
        frozen=_own_parameters(model, trained=False),
    )
    state.check()
    try:
        model.register_comm_hook(state, compress_hook)
    except RuntimeError as error:
        raise RuntimeError(f"DDP does not take the communication hook: {error}") from error
    return state


def compress_state(
    module: torch.nn.Module,
    codec: CodecLike = _DDP_CODEC,
    *,
    rules: RulesLike = None,
    min_size: int = DEFAULT_MIN_SIZE,
    error_feedback: bool = True,
    grad_scaler: torch.amp.GradScaler | None = None,
    warmup_steps: int = 0,
    seed: int = 0,
    group: Any = None,
) -> CompressState:
    """The state for compress_hook(), where something else registers DDP's communication hook.

        state = redpoll.torch.compress_state(net, codec="q4")
        model.register_comm_hook(state, redpoll.torch.compress_hook)    # as compress() does
        DDPStrategy(ddp_comm_state=state,                               # Lightning
                    ddp_comm_hook=redpoll.torch.compress_hook)

    module: what DistributedDataParallel wraps, or will wrap. group: its process group; None:
    the default one, which may not be there yet. The rest as of compress(). Every rank calls it
    with equal arguments. ValueError, TypeError: as of compress()."""
    ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
    named = {name: each for name, each in module.named_parameters() if name not in ignored}
    state = CompressState(
        None if group is None else communicator_of(group),
        {name: each for name, each in named.items() if each.requires_grad},
        Rules(codec, rules, min_size),
        error_feedback=error_feedback,
        warmup_steps=warmup_steps,
        seed=seed,
        gradients_may_be_dropped=True,  # nobody says that none is unused
        grad_scaler=grad_scaler,
        frozen={name: each for name, each in named.items() if not each.requires_grad},
    )
    state.check()
    return state


def _check_no_hook(model: DistributedDataParallel) -> None:
    hooks = [hook for hook, _ in getattr(model, "_comm_hooks", [])]
    if compress_hook in hooks:
        raise RuntimeError(
            "compress() was called on this model before (REDPOLL_COMPRESS does, where it is "
            "set); use its set_codec()"
        )
    if hooks:
        raise RuntimeError(
            f"DDP has the communication hook {hooks[0].__qualname__} already, and takes only "
            "one; compress() needs its place"
        )
    if getattr(model, "_use_python_reducer", False):
        raise RuntimeError(
            "this DDP was made under torch._dynamo.config.optimize_ddp='python_reducer', which "
            "has no buckets and calls hooks inside of the compiled backward pass; set "
            "optimize_ddp=True, which still splits the graph for overlap, before "
            "DistributedDataParallel is made"
        )
    if getattr(model, "_delay_all_reduce_params", None):
        raise RuntimeError(
            "DDP reduces delay_all_reduce_named_params outside of communication hooks, where "
            "they cannot be compressed"
        )


def _own_parameters(model: DistributedDataParallel, trained: bool) -> dict[str, torch.Tensor]:
    """Those that DDP looks after: that it averages, or that do not train."""
    ignored = getattr(model, "parameters_to_ignore", ())
    return {
        name: parameter
        for name, parameter in model.module.named_parameters()
        if parameter.requires_grad == trained and name not in ignored
    }
