"""Optimizers whose parameters, or gradients, are averaged with others'."""

from __future__ import annotations

import enum
import warnings
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Callable, Optional, Union

import torch

from redpoll.torch import Work

from . import _weights, _windows
from ._context import context
from ._pass_timeline import timeline_hooks
from .mpi_ops import hierarchical_neighbor_allreduce, start_all_reduce, start_exchange

Models = Union[torch.nn.Module, Sequence[torch.nn.Module]]
StepFunction = Callable[..., None]


class CommunicationType(enum.Enum):
    """How an optimizer's vectors are averaged; empty: not at all."""

    neighbor_allreduce = "neighbor.allreduce"
    hierarchical_neighbor_allreduce = "hierarchical.neighbor.allreduce"
    allreduce = "allreduce"
    empty = "empty"


class Averages:
    """Averages of parameters that are on their way."""

    def __init__(
        self,
        named: dict[str, torch.nn.Parameter],
        kind: CommunicationType,
        outputs: list[torch.Tensor],
        work: Optional[Work] = None,
        check: Optional[Callable[[], None]] = None,
    ) -> None:
        self._named, self._outputs = named, outputs
        self._work, self._check = work, check
        self._labels = [f"{kind.value}.{name}" for name in named] if work is not None else []
        operation = kind.value.replace(".", "_").upper()
        for label in self._labels:
            context.timeline.start_operation(label, operation, "COMMUNICATE")

    @torch.no_grad()
    def finish(self) -> None:
        """Wait for them; the parameters become the averages."""
        try:
            if self._work is not None and self._check is not None:
                self._work.wait()
                self._check()
        finally:
            for label in self._labels:
                context.timeline.end_operation(label)
        for parameter, output in zip(self._named.values(), self._outputs):
            parameter.copy_(output)


def _older_name(name: str) -> property:
    """An attribute that is another one."""
    return property(
        lambda own: getattr(own, name), lambda own, value: setattr(own, name, value)
    )


class _Distributed:
    """In front of the class of an optimizer; says when its step communicates, and what.

    Every J-th forward pass in training mode, since the last exchange, makes the step that
    follows one that communicates."""

    self_weight: Optional[float] = None
    src_weights: Optional[Mapping[int, float]] = None
    dst_weights: Optional[_weights.Destinations] = None
    src_machine_weights: Optional[Mapping[int, float]] = None
    dst_machine_weights: Optional[_weights.Destinations] = None
    enable_topo_check = False

    # What 0.2 and the wheel of 0.3 called them.
    neighbor_weights = _older_name("src_weights")
    send_neighbors = _older_name("dst_weights")
    neighbor_machine_weights = _older_name("src_machine_weights")
    send_neighbor_machines = _older_name("dst_machine_weights")

    _watches_gradients = False
    _every = 1
    _communication_type = CommunicationType.neighbor_allreduce

    def _begin(self, models: Models, every: int) -> None:
        if isinstance(models, torch.nn.Module):
            models = [models]
        self._every = every
        self._named = _named_parameters(models, self)
        self._owners = _owners(models)
        self._forwards = 0
        self._skips = self._is_synchronised = self._has_gradients = False
        self._step_function: Optional[StepFunction] = None
        weak = weakref.ref(self)

        def count(module: torch.nn.Module, _inputs: Any) -> None:
            own = weak()
            if own is not None and module.training and torch.is_grad_enabled():
                own._forward_begins()

        self._models = list(models)
        self._hooks = [models[0].register_forward_pre_hook(count)]
        self._timeline_hooks: list[Any] = []
        if self._watches_gradients:
            self._watch_gradients(weak)
        if context.timeline.is_on:
            self.turn_on_timeline()

    def _watch_gradients(self, weak: Any) -> None:
        def seen(_parameter: torch.Tensor) -> None:
            own = weak()
            if own is not None:
                own._has_gradients = True

        for parameter in self._named.values():
            parameter.grad = torch.zeros_like(parameter)
            self._hooks.append(parameter.register_post_accumulate_grad_hook(seen))

    def _forward_begins(self) -> None:
        self._forwards += 1
        if self._forwards > self._every:
            warnings.warn(
                f"Unexpected behavior: forward pass {self._forwards} without step(), and "
                f"num_steps_per_communication is {self._every}",
                stacklevel=4,
            )

    @property
    def communication_type(self) -> CommunicationType:
        return self._communication_type

    @communication_type.setter
    def communication_type(self, value: CommunicationType) -> None:
        assert isinstance(value, CommunicationType), f"{value!r} is no CommunicationType"
        self._communication_type = value

    # ---- what kinds differ in ----

    def _communicate(self) -> None:
        """What comes before the inner step."""

    def _inner_step(self, closure: Any) -> Any:
        return super().step(closure)  # type: ignore[misc]

    # ---- what scripts call ----

    def synchronize(self) -> None:
        """What step() does before the inner step; then `with skip_synchronize(): step()`."""
        if self._forwards >= self._every:
            self._communicate()
            self._forwards = 0
        self._is_synchronised = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside, step() does not synchronize."""
        self._skips = True
        try:
            yield
        finally:
            self._skips = False

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        if not self._skips:
            if self._is_synchronised:
                warnings.warn(
                    "step() after synchronize() synchronizes again: use "
                    "`with optimizer.skip_synchronize(): optimizer.step()`",
                    stacklevel=2,
                )
            self.synchronize()
        self._is_synchronised = self._has_gradients = False
        return self._inner_step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        assert not (self._watches_gradients and self._has_gradients), (
            "zero_grad() between backward and step(): the gradients are still to be used"
        )
        super().zero_grad(set_to_none)  # type: ignore[misc]

    def register_step_function(self, function: StepFunction) -> None:
        """function(self, parameter, gradient, group) in place of the inner step, of
        adapt-then-combine."""
        self._step_function = function

    def turn_on_timeline(self) -> None:
        """Forward and backward passes are in the timeline, for each parameter. So they are from
        the start where BLUEFOG_TIMELINE is set."""
        if not self._timeline_hooks:
            labels = {name: self._label(name) for name in self._named}
            self._timeline_hooks = timeline_hooks(self._models, self._named, labels)

    def turn_off_timeline(self) -> None:
        """They are not, from now on; operations still are."""
        for hook in self._timeline_hooks:
            hook.remove()
        self._timeline_hooks.clear()

    def _label(self, name: str) -> str:
        return f"{self._communication_type.value}.{name}"

    # ---- averages ----

    def _live(self) -> dict[str, torch.nn.Parameter]:
        """Parameters that take part: those that are trained, of modules in training mode."""
        return {
            name: each
            for name, each in self._named.items()
            if each.requires_grad and self._owners[name].training
        }

    def _start(self) -> Averages:
        """Begin to average; all parameters are one operation."""
        kind, named = self._communication_type, self._live()
        values = [each.detach() for each in named.values()]
        name = " ".join(named)
        if kind is CommunicationType.neighbor_allreduce:
            edges = _weights.edges(
                _weights.ranks(), self.self_weight, self.src_weights, self.dst_weights
            )
            if self.enable_topo_check:
                _weights.check_both_ends(edges.sources, edges.destinations)
            outputs = [torch.empty_like(each) for each in values]
            return Averages(named, kind, outputs, *start_exchange(values, outputs, edges, name))
        if kind is CommunicationType.allreduce:
            outputs = [each.clone() for each in values]
            group = context.communicator()
            return Averages(named, kind, outputs, *start_all_reduce(group, outputs, True, name))
        if kind is CommunicationType.hierarchical_neighbor_allreduce:
            return Averages(named, kind, [self._of_machines(each) for each in values])
        return Averages(named, kind, values)

    def _of_machines(self, value: torch.Tensor) -> torch.Tensor:
        return hierarchical_neighbor_allreduce(
            value,
            self_weight=self.self_weight,
            src_machine_weights=self.src_machine_weights,
            dst_machine_weights=self.dst_machine_weights,
            enable_topo_check=self.enable_topo_check,
        )


class _AdaptWithCombine(_Distributed):
    """x becomes W x - step; x travels from the J-th forward pass on."""

    def _begin(self, models: Models, every: int) -> None:
        super()._begin(models, every)
        self._averages: Optional[Averages] = None

    def _forward_begins(self) -> None:
        super()._forward_begins()
        if self._forwards == self._every:
            self._averages = self._start()

    def _communicate(self) -> None:
        averages = self._averages or self._start()
        self._averages = None
        averages.finish()


class _AdaptThenCombine(_Distributed):
    """x becomes W (x - step)."""

    _watches_gradients = True

    def synchronize(self) -> None:
        """The whole step."""
        if not self._is_synchronised:
            self._stepped(None)
        self._is_synchronised = True

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if not (self._skips and self._is_synchronised):
            loss = self._stepped(closure)
        self._is_synchronised = self._has_gradients = False
        return loss

    def _stepped(self, closure: Any) -> Any:
        communicates = self._forwards >= self._every
        loss = self._adapt(closure)
        if communicates:
            self._forwards = 0
            self._start().finish()
        return loss

    def _adapt(self, closure: Any) -> Any:
        if self._step_function is None:
            return self._inner_step(closure)
        for group in self.param_groups:  # type: ignore[attr-defined]
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step_function(self, parameter, parameter.grad, group)
        return None


class _GradientAllreduce(_Distributed):
    """x becomes x - step of the mean gradient."""

    _watches_gradients = True

    def _communicate(self) -> None:
        for parameter in self._named.values():
            if parameter.grad is None:  # another rank may have one
                parameter.grad = torch.zeros_like(parameter)
        gradients = [each.grad for each in self._named.values() if each.grad is not None]
        name = "gradients of " + " ".join(self._named)
        work, check = start_all_reduce(context.communicator(), gradients, True, name)
        work.wait()
        check()


class _WinPut(_Distributed):
    """x becomes win_update - step; x goes into the neighbours' slots at the J-th forward pass.

    step() waits until the neighbours have this rank's puts, which they take in while they
    compute, and for no step of theirs: a slot is as old as its owner's latest step.
    force_barrier: all ranks' puts of this step are there before the update."""

    force_barrier = False
    _prefix: Optional[str] = None

    def register_window(self, prefix: Optional[str]) -> None:
        self._windows: dict[str, torch.Tensor] = {}
        self._was_put: list[str] = []
        self._prefix = prefix
        for name, parameter in self._named.items():
            window = self._window(name)
            if not _windows.win_create(parameter.data, window):
                raise ValueError(
                    f"there is a window {window!r} already: give window_prefix, or "
                    "unregister_window() the optimizer that has it"
                )
            self._windows[window] = parameter.data
        if self._timeline_hooks:  # which call parameters as the windows are called
            self.turn_off_timeline()
            self.turn_on_timeline()

    def _window(self, name: str) -> str:
        return name if self._prefix is None else f"{self._prefix}.{name}"

    def unregister_window(self) -> None:
        """Free the windows. Collective."""
        for name in self._windows:
            _windows.win_free(name)
        self._windows.clear()

    def _forward_begins(self) -> None:
        super()._forward_begins()
        if self._forwards == self._every:
            self._put()

    def _put(self) -> None:
        self._was_put = [self._window(name) for name in self._live()]
        for name in self._was_put:
            _windows.put_and_forget(self._windows[name], name, self.dst_weights)

    def _communicate(self) -> None:
        for name in self._was_put:
            context.windows[name].flush()
        if self.force_barrier:
            context.communicator().barrier(blocking=True)
        for name in self._was_put:
            _windows.win_update(name)

    def _label(self, name: str) -> str:
        return self._window(name)


def _named_parameters(
    models: Sequence[torch.nn.Module], optimizer: Any
) -> dict[str, torch.nn.Parameter]:
    """Of all models, those that require gradients. ValueError: a name twice, or a parameter of
    the optimizer that no model has."""
    named: dict[str, torch.nn.Parameter] = {}
    for model in models:
        for name, parameter in model.named_parameters():
            if name in named:
                raise ValueError(f"two models have a parameter {name!r}; names must differ")
            named[name] = parameter
    known = {id(each) for each in named.values()}
    groups = [each for group in optimizer.param_groups for each in group["params"]]
    if any(id(each) not in known for each in groups):
        raise ValueError("the optimizer has parameters that the model has not")
    mine = {id(each) for each in groups}
    return {
        name: each for name, each in named.items() if each.requires_grad and id(each) in mine
    }


def _owners(models: Sequence[torch.nn.Module]) -> dict[str, torch.nn.Module]:
    """By the name of a parameter the module that has it."""
    found: dict[str, torch.nn.Module] = {}
    for model in models:
        for path, module in model.named_modules():
            for name, _ in module.named_parameters(recurse=False):
                found[f"{path}.{name}" if path else name] = module
    return found


def _wrapped(
    kind: type,
    optimizer: torch.optim.Optimizer,
    model: Models,
    communication_type: Any,
    every: int,
) -> Any:
    context.check()
    assert isinstance(communication_type, CommunicationType), (
        f"{communication_type!r} is no CommunicationType"
    )
    if every < 1:
        raise ValueError(f"num_steps_per_communication is {every}; 1 or more are wanted")
    own = type(optimizer)
    wrapped: Any = object.__new__(type(own.__name__, (kind, own), {}))
    taken = {name: each for name, each in vars(optimizer).items() if name != "step"}
    vars(wrapped).update(taken, state=defaultdict(dict))
    wrapped._communication_type = communication_type
    wrapped._begin(model, every)
    return wrapped


def DistributedAdaptWithCombineOptimizer(
    optimizer: torch.optim.Optimizer,
    model: Models,
    communication_type: CommunicationType = CommunicationType.neighbor_allreduce,
    num_steps_per_communication: int = 1,
) -> Any:
    """x becomes W x - step(gradient at x). Parameters travel while gradients are computed."""
    every = num_steps_per_communication
    return _wrapped(_AdaptWithCombine, optimizer, model, communication_type, every)


def DistributedAdaptThenCombineOptimizer(
    optimizer: torch.optim.Optimizer,
    model: Models,
    communication_type: CommunicationType = CommunicationType.neighbor_allreduce,
    num_steps_per_communication: int = 1,
) -> Any:
    """x becomes W (x - step). Any inner optimizer; the exchange is in step()."""
    every = num_steps_per_communication
    return _wrapped(_AdaptThenCombine, optimizer, model, communication_type, every)


def DistributedGradientAllreduceOptimizer(
    optimizer: torch.optim.Optimizer, model: Models, num_steps_per_communication: int = 1
) -> Any:
    """x becomes x - step(mean gradient of all ranks)."""
    every, kind = num_steps_per_communication, CommunicationType.allreduce
    return _wrapped(_GradientAllreduce, optimizer, model, kind, every)


def _older(name: str, kind: CommunicationType) -> Callable[..., Any]:
    def make(
        optimizer: torch.optim.Optimizer, model: Models, num_steps_per_communication: int = 1
    ) -> Any:
        warnings.warn(
            f"{name}: use DistributedAdaptWithCombineOptimizer(..., "
            f"CommunicationType.{kind.name})",
            PendingDeprecationWarning,
            stacklevel=2,
        )
        return DistributedAdaptWithCombineOptimizer(
            optimizer, model, kind, num_steps_per_communication
        )

    make.__name__ = name
    make.__doc__ = f"Adapt with combine, by {kind.name}."
    return make


DistributedAllreduceOptimizer = _older(
    "DistributedAllreduceOptimizer", CommunicationType.allreduce
)
DistributedNeighborAllreduceOptimizer = _older(
    "DistributedNeighborAllreduceOptimizer", CommunicationType.neighbor_allreduce
)
DistributedHierarchicalNeighborAllreduceOptimizer = _older(
    "DistributedHierarchicalNeighborAllreduceOptimizer",
    CommunicationType.hierarchical_neighbor_allreduce,
)


def DistributedWinPutOptimizer(
    optimizer: torch.optim.Optimizer,
    model: Models,
    num_steps_per_communication: int = 1,
    window_prefix: Optional[str] = None,
) -> Any:
    """x becomes win_update - step(gradient at x). Parameters are put into windows
    `window_prefix.parameter` of the out-neighbours, and nobody waits for anybody.
    Collective."""
    every, kind = num_steps_per_communication, CommunicationType.neighbor_allreduce
    wrapped = _wrapped(_WinPut, optimizer, model, kind, every)
    wrapped.register_window(window_prefix)
    return wrapped
