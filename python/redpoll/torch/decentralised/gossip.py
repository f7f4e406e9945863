"""Gossip(): every rank trains parameters of its own and averages them with a few neighbours."""

from __future__ import annotations

import ctypes
import logging
import math
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist
from torch import nn

from ... import _abi
from ...errors import last_message
from .._untraced import keep_untraced
from ..codecs._rules import DEFAULT_MIN_SIZE, CodecLike, Rules, RulesLike
from ..comm._buffers import Lent
from ..comm._communicator import Communicator, communicator_of
from ..comm._errors import RedpollError
from ..comm._posting import Operation
from ..comm._work import Work
from ._flat import FlatParameters, Layout, address, chunks
from ._twin import GRADIENT, VALUES, Twin
from ._wrapping import WrappingOptimizer, agree, check_feedback, check_model, check_state

log = logging.getLogger("redpoll")

_FORMAT, _VERSION = "redpoll.gossip", 1


def _start(_communicator: int, gossip: Any, step: int, rate: float, out: Any) -> int:
    return int(_abi.rp_gossip_post(gossip, step, rate, out))


_GOSSIP = Operation("gossip", _start)


class _Handle:
    """An rp_gossip, until nobody holds this; an exchange in flight does."""

    def __init__(self, communicator: Communicator, setup: _abi.rp_gossip_setup) -> None:
        self.address = ctypes.c_void_p()
        with communicator.poster.entered("Gossip") as comm:
            code = _abi.rp_gossip_create(comm, ctypes.byref(setup), ctypes.byref(self.address))
        if code < 0:
            raise communicator.error(code, last_message(), "Gossip")

    def __del__(self) -> None:
        if self.address:
            _abi.rp_gossip_destroy(self.address)


class Gossip(WrappingOptimizer):
    """An optimizer that steps this rank's own parameters by `inner` and averages them with the
    neighbours of a topology's rounds. No DistributedDataParallel, no all-reduce.

        model = Net()
        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        opt = redpoll.torch.Gossip(inner, model, topology="base", algorithm="atc", codec="q8")
        for x, y in batches:                    # each rank's own
            opt.zero_grad(); loss(model(x), y).backward(); opt.step()
        with opt.consensus():                   # the mean of all ranks
            evaluate(model)

    Every rank calls step() equally often. A rank waits for those whose vectors it averages, and
    for nobody else. The library runs the algorithm, as in `redpoll train --strategy gossip`."""

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        model: nn.Module,
        topology: Optional[str] = None,
        algorithm: str = "atc",
        codec: CodecLike = None,
        *,
        gamma: Optional[float] = None,
        on_loss: str = "fail",
        rules: RulesLike = None,
        min_size: int = DEFAULT_MIN_SIZE,
        error_feedback: bool = True,
        seed: int = 0,
        broadcast: bool = True,
        group: Any = None,
    ) -> None:
        """Collective over the group. The model's trainable parameters become views of one
        vector.

        inner: any optimizer of the model's parameters; gradient-tracking and push-diging
        exchange gradients, and take SGD without momentum and weight decay.
        model: float32 or float64 parameters on the CPU or one GPU, not wrapped in
        DistributedDataParallel. Buffers stay each rank's own.
        topology: "base", "ring", "exponential", "torus:shape=2x2", ... (docs/topologies.md).
        None: base, of choco and exact-diffusion torus.
        algorithm: "atc": W (x - step); "awc": W x - step, x travels while gradients are
        computed; "exact-diffusion", "gradient-tracking": no bias where data differ; "choco":
        atc for codecs of few bits, which neighbours' copies of x bear; "push-sum",
        "push-diging": for graphs that go one way.
        codec, rules, min_size: how parameters travel, as of compress(); None: exact. Parameters
        bear less than gradients: take "bf16" or "q8", or algorithm="choco". error_feedback:
        what a codec loses goes out with the next exchange; a float32 for each element that
        travels lossy, of choco none.
        gamma: of choco, up to 1: how far a step goes towards the neighbours' copies; None:
        chosen by what the codec loses (opt.info.gamma).
        on_loss: when a rank dies. "fail": RedpollError, on every rank. "continue": those that
        are left go on by themselves; opt.members says who, and a line of the log.
        seed: of stochastic rounding. broadcast: begin with rank 0's parameters and buffers.
        group: a process group; None: the default one.

        Memory beside model, gradients and inner's state: one vector of the parameters' size,
        what the algorithm keeps (exact-diffusion 1, choco and gradient-tracking 2, push-sum 1,
        push-diging 3), and one that is received under the computation or sent apart (atc and
        push-sum: none).

        ValueError, on every rank: no topology or algorithm of that name, or not for so many
        ranks; weights that would bias the average; an algorithm that drifts apart over this
        topology (the text says which fit); a codec that is none; parameters that cannot be
        exchanged; ranks that were given different things."""
        super().__init__(inner)
        self.model = model
        self.algorithm, self.gamma = algorithm, gamma
        self.steps = 0
        self.group = group
        self._communicator = communicator_of(group)
        self.on_loss, self.members = on_loss, list(range(self._communicator.world))
        self._behind = 0  # steps to take alone, until this rank is where others are
        self._early_error: Optional[RedpollError] = None
        self._seed = seed
        self._work: Optional[Work] = None
        self._is_posted = False
        problem = ""
        try:
            check_model(model, inner, "Gossip")
            self.info = self._checked_info(topology)
            self.topology = topology or self.info.topology.decode()
            self._check_gamma()
            self._check_on_loss()
            parsed = Rules(codec, rules, min_size)
            if parsed.adaptive is not None:
                raise ValueError("Gossip: codec auto chooses for gradients; take bf16 or q8")
            self._flat = FlatParameters(model, "Gossip")
            parsed.check_names(list(self._flat.parameters))
            self._layout = Layout(self._flat, parsed, error_feedback and not self.info.copies)
        except (ValueError, TypeError) as error:
            problem = str(error)
        facts = {} if problem else self._facts(str(codec), broadcast)
        agree(group, "Gossip", facts, problem)
        self._step_vector = torch.zeros_like(self._flat.values)
        self._twin = Twin([self._flat.values, self._step_vector])
        self._handle = self._made()
        text = ctypes.create_string_buffer(1024)
        _checked(_abi.rp_gossip_advise(self._handle.address, text, len(text)))
        if text.value:
            log.warning("Gossip: %s", text.value.decode())
        if broadcast:
            self._communicator.broadcast(self._flat.values, 0, blocking=True)
            self._flat.untrained.broadcast(self._communicator)
        if self.info.early:
            self._post_before_forward()

    # ---- making ----

    def _checked_info(self, topology: Optional[str]) -> _abi.rp_gossip_info:
        info = _abi.rp_gossip_info()
        code = _abi.rp_gossip_check(
            topology.encode() if topology else None,
            self.algorithm.encode(),
            self._communicator.world,
            ctypes.byref(info),
        )
        if code < 0:
            raise ValueError(f"Gossip: {last_message()}")
        if info.exchanged > 1:
            _check_plain_sgd(self.inner, self.algorithm)
        return info

    def _check_gamma(self) -> None:
        if self.gamma is None:
            return
        if not self.info.copies:
            raise ValueError(f"Gossip: gamma is of choco, and {self.algorithm} has none")
        if not 0 < self.gamma <= 1:
            raise ValueError(f"Gossip: gamma is {self.gamma}; above 0 and up to 1 are allowed")

    def _check_on_loss(self) -> None:
        if self.on_loss not in ("fail", "continue"):
            raise ValueError(
                f"Gossip: on_loss is {self.on_loss!r}; 'fail' and 'continue' are there"
            )
        if self.on_loss == "fail":
            return
        if self.info.pushes:
            raise ValueError(
                f"Gossip: with {self.algorithm} a lost rank takes its part of the sum along; "
                "on_loss='continue' goes with atc, awc, exact-diffusion, choco and "
                "gradient-tracking"
            )
        names = self.topology.encode(), self.algorithm.encode()
        for world in range(1, self._communicator.world):
            if _abi.rp_gossip_check(*names, world, None) < 0:
                raise ValueError(
                    f"Gossip: on_loss='continue' needs a topology for fewer ranks, too: "
                    f"{last_message()}"
                )

    def _facts(self, codec: str, broadcast: bool) -> dict[str, Any]:
        return {
            "topology": self.topology,
            "algorithm": self.algorithm,
            "gamma": self.gamma,
            "on_loss": self.on_loss,
            "codec": codec,
            "dtype": str(self._flat.dtype),
            "parameters": [
                (name, tuple(each.shape)) for name, each in self._flat.parameters.items()
            ],
            "broadcast": broadcast,
            **self._flat.untrained.facts(broadcast),
        }

    def _made(self) -> _Handle:
        layouts = [
            self._layout.segments(),
            # Nothing of the second vector is held back; it draws other random numbers.
            self._layout.segments(len(self._flat.parameters), feedback=False),
        ]
        setup = _abi.rp_gossip_setup(
            topology=self.topology.encode(),
            algorithm=self.algorithm.encode(),
            dtype=layouts[0][0].dtype,
            count=len(self._flat),
            x=self._twin.host[VALUES].data_ptr(),
            gradient=self._twin.host[GRADIENT].data_ptr(),
            seed=self._seed,
            gamma=self.gamma or 0.0,
        )
        for i, layout in enumerate(layouts):
            setup.layouts[i], setup.layout_counts[i] = address(layout), len(layout)
        self._twin.fetch([VALUES])
        handle = _Handle(self._communicator, setup)
        _abi.rp_gossip_get_info(handle.address, ctypes.byref(self.info))
        return handle

    def _post_before_forward(self) -> None:
        """x leaves when gradients at it begin to be computed."""
        weak = weakref.ref(self)

        def post(module: nn.Module, _inputs: Any) -> None:
            own = weak()
            if own is not None and module.training and torch.is_grad_enabled():
                own._post_early()

        self._hook = self.model.register_forward_pre_hook(post)

    # ---- steps ----

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:  # type: ignore[override]
        """Step, and average with the neighbours of this round. Afterwards parameters are this
        rank's next. closure: as of the inner optimizer. RedpollError names a neighbour that has
        died or whose round does not match; parameters are then what was sent, and the group is
        of no more use. With on_loss="continue" a death ends nothing: this rank takes the step
        by itself and goes on with those that are left."""
        self._flat.check()
        if self._behind:
            self._behind -= 1
            self.steps += 1
            return self.inner.step(closure)
        if self.info.exchanged > 1:
            loss, rate = self._take_gradients(closure)
        else:
            loss, rate = self._take_step(closure), 1.0
        try:
            self._exchange(rate)
        except RedpollError as error:
            self._go_on(error, rate)
        self.steps += 1
        return loss

    def _exchange(self, rate: float) -> None:
        has_begun = self._is_posted or self._early_error is not None
        self._twin.fetch([GRADIENT] if has_begun else None)
        if self._early_error is not None:
            error, self._early_error = self._early_error, None
            raise error
        if not self._is_posted:
            self._post(rate, blocking=True)
        _checked(_abi.rp_gossip_apply(self._handle.address, rate))
        self._twin.deliver([VALUES])
        self._is_posted = False

    def _take_step(self, closure: Optional[Callable[[], Any]]) -> Any:
        """x as before, and what the inner optimizer would take from it."""
        if self.info.early:
            self._post_early()
            try:
                self._settle()  # the optimizer writes what the exchange reads
            except RedpollError as error:
                self._early_error = error
        values, step = self._flat.values, self._step_vector
        step.copy_(values)
        loss = self.inner.step(closure)
        for now, before in chunks(values, step):
            difference = before - now
            now.copy_(before)
            before.copy_(difference)
        return loss

    def _take_gradients(self, closure: Optional[Callable[[], Any]]) -> tuple[Any, float]:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._flat.read_gradients(self._step_vector)
        return loss, _one_rate(self.inner, self.algorithm)

    def _post_early(self) -> None:
        if self._is_posted or self._behind or self._early_error is not None:
            return
        self._flat.check()
        self._twin.fetch([VALUES])
        try:
            self._post(0.0, blocking=False)
        except RedpollError as error:
            self._early_error = error  # step() says it, or goes on

    def _post(self, rate: float, blocking: bool) -> None:
        handle = self._handle
        keep = (self._flat.values, self._step_vector, self._twin, self._layout.residual, handle)
        arguments = (handle.address, self.steps, rate)
        lent = Lent((), keep, None)
        work = self._communicator.poster.post(_GOSSIP, arguments, lent, blocking, None)
        self._work, self._is_posted = (None if blocking else work), True

    def _settle(self) -> None:
        """Until nothing is in flight."""
        if self._work is not None:
            self._work.wait()
            self._work = None

    # ---- those that are left ----

    def _go_on(self, error: RedpollError, rate: float) -> None:
        """The step alone, and then with the survivors."""
        if self.on_loss == "fail" or error.status != "PEER":
            raise error
        _checked(_abi.rp_gossip_alone(self._handle.address, rate))
        self._twin.deliver([VALUES])
        self._join_survivors(error, self.steps + 1)

    def _join_survivors(self, error: RedpollError, steps: int) -> None:
        """steps: how many this rank has taken. All go on where the first of them stands."""
        self._work, self._is_posted, self._early_error = None, False, None
        while True:
            left = self._communicator.survivors()
            lost = [each for i, each in enumerate(self.members) if i not in left.members]
            self.members = [self.members[i] for i in left.members]
            log.warning(
                "Gossip: %s is lost, and ranks %s go on: %s",
                " and ".join(f"rank {each}" for each in lost),
                ", ".join(map(str, self.members)),
                error,
            )
            self._communicator = left
            first = torch.tensor([float(steps)], dtype=torch.float64)
            try:
                left.all_reduce([first], dist.ReduceOp.MAX, blocking=True)
                break
            except RedpollError as again:
                if again.status != "PEER":
                    raise
                error = again
        self._behind = int(first.item()) - steps
        self._handle = self._made()

    # ---- the mean of all ranks ----

    @contextmanager
    def consensus(self, buffers: bool = True) -> Iterator[None]:
        """Inside, the model has the mean of all ranks' parameters, the same bits on every rank;
        afterwards each its own again. Collective. Take no steps inside.

        buffers: floating-point ones are averaged too (running statistics of batch norms)."""
        self._settle()
        own = [each.clone() for each in self._buffers(buffers)]

        @torch.no_grad()
        def put_back() -> None:
            self._flat.values.copy_(self._step_vector)
            for buffer, kept in zip(self._buffers(buffers), own):
                buffer.copy_(kept)

        with torch.no_grad():
            self._step_vector.copy_(self._flat.values)
        self._average_or_go_on([self._flat.values, *self._buffers(buffers)], put_back)
        try:
            yield
        finally:
            put_back()

    @torch.no_grad()
    def average_parameters(self, buffers: bool = True) -> None:
        """The mean of all ranks becomes every rank's parameters, as at the end of training, or
        now and then between steps. Collective. What the algorithm keeps begins anew.
        RuntimeError: between a forward pass and step(), with an exchange in flight."""
        self._check_between_steps("average_parameters()")
        self._average([self._flat.values, *self._buffers(buffers)])
        self._handle = self._made()

    @torch.no_grad()
    def consensus_distance(self) -> float:
        """How far ranks are apart: the root mean square over ranks of ||x - mean|| / ||mean||.
        Collective; the same on every rank."""
        self._settle()
        own, mean = self._flat.values, self._step_vector
        mean.copy_(own)
        self._average([mean])
        sums = torch.zeros(2, dtype=torch.float64)
        for some, of_mean in chunks(own, mean):
            sums[0] += (some.double() - of_mean.double()).square().sum().cpu()
            sums[1] += of_mean.double().square().sum().cpu()
        self._communicator.all_reduce([sums], blocking=True)
        return math.sqrt(sums[0] / sums[1]) if sums[1] > 0 else 0.0

    def _buffers(self, wanted: bool) -> list[torch.Tensor]:
        return [each for each in self.model.buffers() if wanted and each.is_floating_point()]

    @torch.no_grad()
    def _average_or_go_on(
        self, tensors: list[torch.Tensor], put_back: Callable[[], None]
    ) -> None:
        """Of those that are left, where on_loss says so."""
        while True:
            try:
                self._average(tensors)
                return
            except RedpollError as error:
                put_back()
                if self.on_loss == "fail" or error.status != "PEER" or self._is_posted:
                    raise
                self._join_survivors(error, self.steps)

    def _average(self, tensors: list[torch.Tensor]) -> None:
        self._communicator.all_reduce(tensors, dist.ReduceOp.AVG, blocking=True)

    # ---- across restarts ----

    def _check_between_steps(self, what: str) -> None:
        if self._is_posted:
            raise RuntimeError(
                f"Gossip: {what} between a forward pass and step(), while parameters are on "
                "their way to neighbours: call it after step()"
            )

    def _states(self) -> list[torch.Tensor]:
        count, kind = len(self._flat), self._flat.values
        found = []
        for index in range(self.info.states):
            place = _abi.rp_gossip_state(self._handle.address, index)
            memory = (ctypes.c_char * (count * kind.element_size())).from_address(place)
            found.append(torch.frombuffer(memory, dtype=kind.dtype))
        return found

    def state_dict(self) -> dict[str, Any]:
        """This rank's: the inner optimizer's, and under "gossip" what the algorithm keeps. With
        the model's own state_dict() of the same rank training goes on bit for bit; every rank
        saves both. RuntimeError: between a forward pass and step()."""
        self._check_between_steps("state_dict()")
        residual = self._layout.residual
        own = {
            "format": _FORMAT,
            "version": _VERSION,
            "rank": self._communicator.rank,
            "world": self._communicator.world,
            "topology": self.topology,
            "algorithm": self.algorithm,
            "elements": len(self._flat),
            "step": self.steps,
            "push_weight": _abi.rp_gossip_push_weight(self._handle.address),
            "states": [each.clone() for each in self._states()] if self.steps else [],
            "residual": None if residual is None else residual.clone(),
        }
        return {**self.inner.state_dict(), "gossip": own}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of the same rank in the same world, after the model's own load_state_dict(). Local.
        ValueError: the state is of something else; nothing has changed, and the text says how
        to go on from the mean of a saved run."""
        self._check_between_steps("load_state_dict()")
        rest = dict(state_dict)
        own = rest.pop("gossip", None)
        self._check_state(own)
        self.inner.load_state_dict(rest)
        self._handle, self.steps = self._made(), own["step"]
        if self._layout.residual is not None:
            self._layout.residual.copy_(own["residual"])
        if not self.steps:
            return
        for mine, saved in zip(self._states(), own["states"]):
            mine.copy_(saved)
        _checked(_abi.rp_gossip_resume(self._handle.address, own["push_weight"]))

    def _check_state(self, own: Any) -> None:
        here = {
            "rank": self._communicator.rank,
            "world": self._communicator.world,
            "topology": self.topology,
            "algorithm": self.algorithm,
            "elements": len(self._flat),
        }
        check_state(own, "Gossip", (_FORMAT, _VERSION), here)
        saved, residual = own["residual"], self._layout.residual
        check_feedback(
            saved.numel() if saved is not None else 0,
            residual.numel() if residual is not None else 0,
            "Gossip",
        )


def _checked(code: int) -> None:
    if code < 0:
        raise RuntimeError(last_message())


def _check_plain_sgd(inner: torch.optim.Optimizer, algorithm: str) -> None:
    known = isinstance(inner, torch.optim.SGD)
    for group in inner.param_groups:
        known = known and not any(
            group.get(name) for name in ("momentum", "weight_decay", "nesterov", "maximize")
        )
    if not known:
        raise ValueError(
            f"Gossip: {algorithm} exchanges gradients, and takes torch.optim.SGD without "
            "momentum and weight decay; exact-diffusion takes any optimizer"
        )
    _one_rate(inner, algorithm)


def _one_rate(inner: torch.optim.Optimizer, algorithm: str) -> float:
    rates = {float(group["lr"]) for group in inner.param_groups}
    if len(rates) > 1:
        raise ValueError(
            f"Gossip: {algorithm} takes one learning rate, and the groups of the inner "
            f"optimizer have {' and '.join(map(str, sorted(rates)))}"
        )
    return rates.pop()


keep_untraced("redpoll")
