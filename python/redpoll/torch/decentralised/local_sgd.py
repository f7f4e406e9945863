"""LocalSGD() and its kin: many steps of each rank between two exchanges."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist
from torch import nn

from ... import _abi
from ...errors import last_message
from .._untraced import keep_untraced
from ..codecs._rules import DEFAULT_MIN_SIZE, CodecLike, Rules, RulesLike
from ..comm._attached import Attached
from ..comm._communicator import Communicator, communicator_of
from ..comm._dtypes import NUMBER
from ._twin import Twin, may_exchange
from ._untrained import Untrained
from ._wrapping import WrappingOptimizer, agree, check_feedback, check_model, check_state

log = logging.getLogger("redpoll")

_FORMAT, _VERSION = "redpoll.local_sgd", 1


@dataclass(frozen=True)
class LocalStep:
    """What a step has done beside the inner optimizer's."""

    started: Optional[int]  # the fragment whose exchange began
    finished: Optional[int]  # the one whose exchange ended: its parameters are agreed on
    gradient_norm: Optional[float]  # of the mean pseudo-gradient of `finished`
    autocorrelation: Optional[float]  # cosine of it and the same fragment's before
    wait_s: float  # the step has waited so long for others


class _Handle(Attached):
    """An rp_local_sgd."""

    def __init__(
        self, communicator: Communicator, tensors: Any, options: Any, kept: Any
    ) -> None:
        def create(comm: int, out: Any) -> int:
            count = len(tensors)
            return int(
                _abi.rp_local_sgd_create(comm, tensors, count, ctypes.byref(options), out)
            )

        destroy = _abi.rp_local_sgd_destroy
        super().__init__(communicator, "LocalSGD", create, destroy, kept, _is_in_flight)


def _is_in_flight(address: Any) -> bool:
    return int(_abi.rp_local_sgd_in_flight(address)) >= 0


class LocalSGD(WrappingOptimizer):
    """An optimizer that steps this rank's own parameters by `inner`, and every so many steps
    combines what all ranks have learnt. No DistributedDataParallel.

        model = Net()
        inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
        opt = redpoll.torch.DiLoCo(model, inner, every=100, fragments=4, delay=1, codec="q4")
        for x, y in batches:                    # each rank's own
            opt.zero_grad(); loss(model(x), y).backward(); opt.step()
        with opt.consensus():                   # the mean of all ranks
            evaluate(model)

    Every rank calls step() equally often. last: a LocalStep, of the latest step. The library
    runs the algorithm (<redpoll/local_sgd.h>); inner's state is never exchanged."""

    _outer = "average"

    def __init__(
        self,
        model: nn.Module,
        inner: torch.optim.Optimizer,
        every: int = 100,
        *,
        fragments: int = 1,
        delay: int = 0,
        mixing: float = 0.0,
        codec: CodecLike = None,
        rules: RulesLike = None,
        min_size: int = DEFAULT_MIN_SIZE,
        error_feedback: bool = True,
        seed: int = 0,
        broadcast: bool = True,
        group: Any = None,
        **outer: Any,
    ) -> None:
        """Collective over the group.

        model: dense float32 or float64 parameters on the CPU or one GPU, not wrapped in
        DistributedDataParallel. inner: any optimizer of them.
        every: steps between two exchanges of the same parameter.
        fragments: parameters are exchanged in so many parts by turns, each every `every` steps;
        divides it. delay: steps from the begin of an exchange to its end, under which it is
        hidden; less than every / fragments. mixing: what a rank's own parameters count when
        they are replaced: 0 (not at all) to 1.
        codec, rules, min_size: how what ranks have learnt travels, as of compress(); None:
        exact. error_feedback: what a codec loses goes out with the next exchange.
        seed: of stochastic rounding. broadcast: begin with rank 0's parameters and buffers;
        False: they are equal already. group: a process group; None: the default one.
        outer: outer_rate, outer_momentum, residual_decay, of DiLoCo nesterov, of NoLoCo
        consensus_rate; the paper's where they are not given, but for outer_momentum: with up to
        20 steps it is .3 at most, with up to 50 .6. What is beyond that, and windows of which
        most is lost, are logged.

        ValueError, on every rank: numbers that do not go together, parameters or codecs that
        cannot be exchanged, ranks that were given different things."""
        super().__init__(inner)
        self.model, self.group = model, group
        self.last = LocalStep(None, None, None, None, 0.0)
        self._communicator = communicator_of(group)
        self._who = type(self).__name__
        problem, facts = "", {}
        try:
            check_model(model, inner, self._who)
            numbers = {
                "every": every,
                "fragments": fragments,
                "delay": delay,
                "mixing": mixing,
                "seed": seed,
                **outer,
            }
            self._parameters = self._checked_parameters()
            self._untrained = Untrained(model, self._who)
            self._options = self._checked_options(numbers)
            self._codecs = self._checked_codecs(Rules(codec, rules, min_size))
            shapes = [(name, tuple(each.shape)) for name, each in self._parameters.items()]
            facts = {"class": self._who, **numbers, "codec": str(codec), "parameters": shapes}
            facts.update(self._untrained.facts(broadcast), broadcast=broadcast)
        except (ValueError, TypeError) as error:
            problem = str(error)
        agree(group, self._who, facts, problem)
        if broadcast:
            for parameter in self._parameters.values():
                self._communicator.broadcast(parameter.detach(), 0, blocking=True)
            self._untrained.broadcast(self._communicator)
        self._residuals = {
            name: torch.zeros(self._parameters[name].numel())
            for name, one in self._codecs.items()
            if one is not None and error_feedback
        }
        self._twin = Twin(list(self._parameters.values()))
        self._places = [each.data_ptr() for each in self._parameters.values()]
        self._handle = self._made()
        self._advise()

    # ---- making ----

    def _advise(self) -> None:
        """Before the first step; the watch over the run needs not say it again."""
        text = ctypes.create_string_buffer(512)
        _abi.rp_local_sgd_advise(ctypes.byref(self._options), text, len(text))
        self._is_advised = bool(text.value)
        if self._is_advised:
            log.warning("%s: %s", self._who, text.value.decode())

    def _checked_parameters(self) -> dict[str, torch.nn.Parameter]:
        found = {
            name: each for name, each in self.model.named_parameters() if each.requires_grad
        }
        if not found:
            raise ValueError(f"{self._who}: no parameter of the model requires a gradient")
        for name, each in found.items():
            if each.dtype not in (torch.float32, torch.float64):
                raise ValueError(
                    f"{self._who}: parameter {name!r} is {each.dtype}; float32 and float64 are "
                    "exchanged: call model.float() first"
                )
            if not may_exchange(each) or not each.is_contiguous():
                raise ValueError(
                    f"{self._who}: parameter {name!r} is on {each.device} with strides "
                    f"{each.stride()}; contiguous parameters on the CPU or a GPU are exchanged"
                )
            like, place = next(iter(found.items()))
            if each.device != place.device:
                raise ValueError(
                    f"{self._who}: parameter {name!r} is on {each.device}, and {like!r} on "
                    f"{place.device}; all parameters need one place"
                )
        return found

    def _checked_options(self, numbers: dict[str, Any]) -> _abi.rp_local_sgd_options:
        options = _abi.rp_local_sgd_options()
        _refuse(_abi.rp_local_sgd_defaults(self._outer.encode(), ctypes.byref(options)))
        known = {name for name, *_ in options._fields_}
        for name, value in numbers.items():
            if name not in known or name in ("size", "outer", "fragment_of", "partner"):
                raise TypeError(f"{self._who}: there is no option {name!r}")
            if value is None:
                continue
            if isinstance(value, int) and value < 0:
                raise ValueError(f"{self._who}: {name} is {value}; it is not negative")
            setattr(options, name, value)
        if numbers.get("outer_momentum") is None:
            options.outer_momentum = _abi.rp_outer_momentum(self._outer.encode(), options.every)
        count = len(self._parameters)
        _refuse(_abi.rp_local_sgd_check(ctypes.byref(options), count))
        if self._outer == "slowmo":
            self._rate()
        return options

    def _checked_codecs(self, rules: Rules) -> dict[str, Any]:
        if rules.adaptive is not None:
            raise ValueError(f"{self._who}: codec auto is of compress(); take one as q4")
        rules.check_names(list(self._parameters))
        codecs = {
            name: rules.codec_for(name, each.shape) for name, each in self._parameters.items()
        }
        for name, codec in codecs.items():
            dtype = self._parameters[name].dtype
            if codec is not None and not codec.supports(dtype):
                raise ValueError(f"{self._who}: codec {codec} does not take {dtype}: {name!r}")
        return codecs

    def _made(self) -> _Handle:
        count = len(self._parameters)
        tensors = (_abi.rp_segment * count)()
        self._twin.fetch()
        for i, (name, parameter) in enumerate(self._parameters.items()):
            one, codec = tensors[i], self._codecs[name]
            one.data, one.count = self._twin.host[i].data_ptr(), parameter.numel()
            one.dtype, one.tensor = NUMBER[parameter.dtype], i
            if codec is not None:
                one.codec = codec.structure
            if name in self._residuals:
                one.residual = self._residuals[name].data_ptr()
        partner = getattr(self, "_partner", None)
        kept = (self._options, list(self._residuals.values()), partner, self._twin)
        return _Handle(self._communicator, tensors, self._options, kept)

    # ---- steps ----

    @property
    def steps(self) -> int:
        """Inner steps so far."""
        with self._handle.used() as handle:
            return int(_abi.rp_local_sgd_steps(handle))

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:  # type: ignore[override]
        """The inner optimizer's step; and, where one is due, the begin of an exchange or its
        end, which waits for all ranks. RedpollError names a rank that has died."""
        self._untrained.check()
        loss = self.inner.step(closure)
        report = _abi.rp_local_sgd_report()
        data, rate = self._data(), self._rate()
        with self._handle.used() as handle:
            due = self._due(int(_abi.rp_local_sgd_steps(handle)) + 1)
            if due:
                self._twin.fetch(due)
            self._handle.check(_abi.rp_local_sgd_step(handle, data, rate, ctypes.byref(report)))
            if report.finished >= 0:
                self._twin.deliver(due)
        self.last = LocalStep(
            _fragment(report.started),
            _fragment(report.finished),
            _number(report.gradient_norm),
            _number(report.autocorrelation),
            report.wait_s,
        )
        if report.warning and not self._is_advised:
            log.warning("%s: %s", self._who, report.warning.decode())
        return loss

    def _due(self, step: int) -> list[int]:
        """Tensors of the fragment whose exchange begins or ends with this step: the library
        looks at no others."""
        options = self._options
        window = options.every // options.fragments
        of_window, fragment = (step - 1) % window + 1, (step - 1) // window % options.fragments
        if of_window not in (window, window - options.delay):
            return []
        return list(range(int(fragment), len(self._parameters), int(options.fragments)))

    def _data(self) -> Any:
        for (name, parameter), place in zip(self._parameters.items(), self._places):
            is_same = not self._twin.is_apart or parameter.data_ptr() == place
            if not parameter.is_contiguous() or not may_exchange(parameter) or not is_same:
                raise RuntimeError(
                    f"{self._who}: parameter {name!r} was moved to {parameter.device} or laid "
                    "out anew: do that before the optimizer is wrapped"
                )
        places = [
            each.data_ptr()
            for each in (self._twin.host if self._twin.is_apart else self._parameters.values())
        ]
        return (ctypes.c_void_p * len(places))(*places)

    def _rate(self) -> float:
        """The inner optimizer's, by which slowmo divides."""
        rates = {float(group.get("lr", 0.0)) for group in self.inner.param_groups}
        if self._outer == "slowmo" and len(rates) > 1:
            raise ValueError(
                f"{self._who} divides by the learning rate, and the groups of the inner "
                f"optimizer have {' and '.join(map(str, sorted(rates)))}"
            )
        return rates.pop()

    # ---- the mean of all ranks ----

    @contextmanager
    def consensus(self, buffers: bool = True) -> Iterator[None]:
        """Inside, the model has the mean of all ranks' parameters, the same bits on every rank;
        afterwards each its own again. Collective. Take no steps inside.

        buffers: floating-point ones are averaged too (running statistics of batch norms)."""
        tensors = self._averaged(buffers)
        own = [each.clone() for each in tensors]
        self._communicator.all_reduce(tensors, dist.ReduceOp.AVG, blocking=True)
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, kept in zip(tensors, own):
                    tensor.copy_(kept)

    def average_parameters(self, buffers: bool = True) -> None:
        """The mean of all ranks becomes every rank's parameters, as at the end of training.
        Collective. What is agreed on begins anew from it: momentum is 0 and nothing is in
        flight."""
        steps = self.steps
        tensors = self._averaged(buffers)
        self._communicator.all_reduce(tensors, dist.ReduceOp.AVG, blocking=True)
        data = self._data()
        self._twin.fetch()
        with self._handle.used() as handle:
            self._handle.check(_abi.rp_local_sgd_restart(handle, data, steps))

    def _averaged(self, buffers: bool) -> list[torch.Tensor]:
        more = [each for each in self.model.buffers() if buffers and each.is_floating_point()]
        return [*(each.detach() for each in self._parameters.values()), *more]

    # ---- across restarts ----

    def _vectors(self, handle: Any) -> Iterator[tuple[str, str, torch.Tensor]]:
        """(vector, parameter, memory of C)."""
        for index in range(_abi.rp_local_sgd_state_count(handle)):
            vector = _abi.rp_local_sgd_state_name(handle, index).decode()
            for i, (name, parameter) in enumerate(self._parameters.items()):
                place = _abi.rp_local_sgd_state(handle, index, i)
                if place and parameter.numel():
                    room = parameter.numel() * parameter.element_size()
                    memory = (ctypes.c_char * room).from_address(place)
                    yield vector, name, torch.frombuffer(memory, dtype=parameter.dtype)

    def state_dict(self) -> dict[str, Any]:
        """This rank's: the inner optimizer's, and under "local_sgd" what is agreed on and in
        flight. With the model's own state_dict() of the same rank training goes on bit for bit;
        every rank saves both, after the same step: what is in flight is waited for."""
        with self._handle.used() as handle:
            self._handle.check(_abi.rp_local_sgd_settle(handle))
            vectors = {
                (vector, name): memory.clone() for vector, name, memory in self._vectors(handle)
            }
            steps = int(_abi.rp_local_sgd_steps(handle))
        own = {
            "format": _FORMAT,
            "version": _VERSION,
            **self._place(),
            "step": steps,
            "vectors": vectors,
            "residuals": {name: each.clone() for name, each in self._residuals.items()},
        }
        return {**self.inner.state_dict(), "local_sgd": own}

    def _place(self) -> dict[str, Any]:
        return {
            "outer": self._outer,
            "rank": self._communicator.rank,
            "world": self._communicator.world,
            "every": self._options.every,
            "fragments": self._options.fragments,
            "delay": self._options.delay,
        }

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of the same rank in the same world, after the model's own load_state_dict().
        ValueError: the state is of something else; nothing has changed, and the text says how
        to go on from the mean of a saved run."""
        rest = dict(state_dict)
        own = rest.pop("local_sgd", None)
        self._check_state(own)
        self.inner.load_state_dict(rest)
        for name, residual in self._residuals.items():
            residual.copy_(own["residuals"][name])
        with self._handle.used() as handle:
            self._handle.check(_abi.rp_local_sgd_resume(handle, own["step"]))
            for vector, name, memory in self._vectors(handle):
                memory.copy_(own["vectors"][vector, name])

    def _check_state(self, own: Any) -> None:
        check_state(own, self._who, (_FORMAT, _VERSION), self._place())
        check_feedback(_elements(own["residuals"]), _elements(self._residuals), self._who)


class SlowMo(LocalSGD):
    """LocalSGD with slow momentum over the rounds (arXiv 1910.00643); outer_momentum .5
    (with up to 20 steps .3), outer_rate 1. It divides by inner's learning rate, of which there
    is one."""

    _outer = "slowmo"


class DiLoCo(LocalSGD):
    """LocalSGD with an outer SGD with Nesterov momentum (arXiv 2311.08105): outer_rate .7,
    outer_momentum .9 (with up to 50 steps .6, with up to 20 .3). With fragments and a delay it
    is Streaming DiLoCo (arXiv 2501.18512)."""

    _outer = "diloco"


class NoLoCo(LocalSGD):
    """DiLoCo without an all-reduce (arXiv 2506.10911): each round every rank combines what it
    has learnt with one random partner; outer_rate .7, outer_momentum .5 (with up to 20 steps
    .3), consensus_rate .7, which is below 2 (1 - outer_momentum^2), where ranks stay together.
    Between rounds ranks differ: evaluate inside consensus().

    partner: (round, rank) -> rank, the same on all ranks, the partner's partner the rank
    itself; None: drawn from the seed."""

    _outer = "noloco"

    def __init__(
        self,
        model: nn.Module,
        inner: torch.optim.Optimizer,
        every: int = 100,
        *,
        partner: Optional[Callable[[int, int], int]] = None,
        **options: Any,
    ) -> None:
        self._partner = _abi.Partner() if partner is None else _called(partner)
        super().__init__(model, inner, every, **options)

    def _checked_options(self, numbers: dict[str, Any]) -> _abi.rp_local_sgd_options:
        options = super()._checked_options(numbers)
        options.partner = ctypes.cast(self._partner, ctypes.c_void_p).value
        return options


class SparseLoCo(LocalSGD):
    """A few entries of what each rank has learnt, gathered from all (arXiv 2508.15706): what is
    not sent stays, times residual_decay (.95), for the next round; outer_rate 1 and no outer
    momentum, for which what stays stands in. codec: a sparse one as "topk:k=64,bucket=4096",
    or "topk:k=64,bucket=4096,values=q2", which is the default."""

    _outer = "sparseloco"

    def __init__(
        self,
        model: nn.Module,
        inner: torch.optim.Optimizer,
        every: int = 100,
        *,
        codec: CodecLike = "topk:k=64,bucket=4096,values=q2",
        **options: Any,
    ) -> None:
        super().__init__(model, inner, every, codec=codec, **options)


def _called(partner: Callable[[int, int], int]) -> Any:
    """For C, which names a partner that cannot be."""

    def call(_context: Any, round_number: int, rank: int) -> int:
        try:
            return int(partner(round_number, rank))
        except Exception:
            log.exception("NoLoCo: partner(%d, %d) has failed", round_number, rank)
            return -1

    return _abi.Partner(call)


def _elements(residuals: dict[str, torch.Tensor]) -> int:
    return sum(each.numel() for each in residuals.values())


def _refuse(code: int) -> None:
    if code < 0:
        raise ValueError(last_message())


def _fragment(number: int) -> Optional[int]:
    return number if number >= 0 else None


def _number(value: float) -> Optional[float]:
    return value if value == value else None


__all__: Sequence[str] = ("DiLoCo", "LocalSGD", "LocalStep", "NoLoCo", "SlowMo", "SparseLoCo")

keep_untraced("redpoll")
