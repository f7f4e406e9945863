"""ParameterServer(): ranks that keep the parameters, and workers that push gradients."""

from __future__ import annotations

import ctypes
import logging
import math
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

import torch
from torch import nn

from .. import _abi
from ..errors import last_message
from ._attached import Attached
from ._communicator import Communicator, communicator_of
from ._dtypes import NUMBER
from ._flat import FlatParameters, Layout
from ._request import SLICE_S
from ._rules import DEFAULT_MIN_SIZE, CodecLike, Rules, RulesLike
from ._shard import Kept, Shard, try_optimizer
from ._wrapping import WrappingOptimizer, agree, check_feedback, check_model, check_state

log = logging.getLogger("redpoll")

_FORMAT, _VERSION = "redpoll.parameter_server", 1
_WHO = "ParameterServer"
_NO_END = 1 << 40  # steps, until finish()


@dataclass(frozen=True)
class ParameterStep:
    """What a worker's latest push has met."""

    staleness: int  # steps: the most merges of one other worker since it had its parameters
    updates: int  # all merges since then
    wait_s: float  # the worker has waited so long for its parameters


class _Handle(Attached):
    """An rp_parameter_server."""

    def __init__(
        self,
        communicator: Communicator,
        segments: Any,
        options: _abi.rp_parameter_server_options,
        shard: Shard,
    ) -> None:
        own = weakref.ref(self)

        def abort(message: str) -> None:
            handle = own()
            if handle is not None:
                handle.abort(_abi.STATUS["INTERNAL"], message)

        def create(comm: int, out: Any) -> int:
            return int(
                _abi.rp_parameter_server_create(
                    comm, segments, len(segments), ctypes.byref(options), out
                )
            )

        self._callback = options.merge = shard.callback(abort)
        self._shard = shard
        super().__init__(communicator, _WHO, create, _abi.rp_parameter_server_destroy)

    def abort(self, status: int, message: str) -> None:
        """All ranks fail, those that wait in it among them."""
        if self.address:
            _abi.rp_parameter_server_abort(self.address, status, message.encode())

    def check(self, code: int) -> None:
        """The exception of this rank's own server, where it has raised one."""
        if code < 0 and self._has_raised():
            error, self._shard.error = self._shard.error, None
            raise error  # type: ignore[misc]
        super().check(code)

    def _has_raised(self) -> bool:
        return self._shard.error is not None

    def release(self, drain_s: float) -> None:
        if self.lock.acquire(blocking=False):
            self.lock.release()
        else:  # a thread waits in it
            self.abort(_abi.RP_CANCELLED, "it has left the group before finish()")
        super().release(drain_s)


class ParameterServer(WrappingOptimizer):
    """An optimizer whose parameters and state live on servers, a shard each. A worker's step()
    pushes its gradient and has back the parameters as they are then. No
    DistributedDataParallel.

        model = Net()
        inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
        opt = redpoll.torch.ParameterServer(inner, model, servers=1, staleness=4, codec="q4")
        for _ in opt.span(1000):                # a rank that only serves does so in here
            x, y = next(batches)                # each worker's own
            opt.zero_grad(); loss(model(x), y).backward(); opt.step()
        evaluate(model)                         # every rank has the servers' parameters

    Or without a number of steps: workers call step() as often as they like, and all ranks
    finish(), in which those that only serve do so.

    last: a ParameterStep, of the latest push; None before it. is_server, is_worker: what this
    rank is; workers: how many there are. lost: {rank: why} of workers that were left behind, as
    of the latest finish()."""

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        model: nn.Module,
        servers: Union[int, str] = "shared",
        staleness: Union[int, float, str] = 0,
        codec: CodecLike = None,
        *,
        quorum: int = 0,
        grace_s: float = 0.0,
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

        inner: any optimizer that goes element by element (SGD, Adam, AdamW, RMSprop, ...): a
        server may have a part of a tensor only. It is tried. Equal on all ranks, at most 8
        groups. Learning rates, schedules included, are the workers': they go with each push.
        model: float32 parameters on the CPU, not wrapped in DistributedDataParallel.
        servers: "shared": every rank serves a shard, and works. N: ranks 0 ... N - 1 serve and
        do nothing else.
        staleness: 0: synchronous, a step takes a gradient of every worker, and is that of
        DistributedDataParallel. K: each push is a step by itself, of a gradient at most K steps
        old. "inf": nobody waits for another.
        quorum: a step takes so many workers' gradients, and what comes within grace_s seconds
        more. With servers=1 and a staleness. 0: none.
        on_loss: when a worker dies. "fail": RedpollError, on every rank. "continue": the others
        go on; with servers of their own. A server that dies ends all.
        codec, rules, min_size, error_feedback: how gradients travel, as of compress(); None:
        exact. Parameters travel exact.
        seed: of stochastic rounding. broadcast: begin with rank 0's parameters and buffers.
        group: a process group; None: the default one.

        Memory beside model and gradients: a vector of the parameters' size, an encoded gradient
        of a worker; of a server inner's state, parameters, two gradients, an encoded push of
        each worker and parameters on their way, all of its shard.

        ValueError, on every rank: what does not go together, an optimizer that needs whole
        tensors, parameters or codecs that cannot be pushed, ranks that were given different
        things."""
        super().__init__(inner)
        self.model, self.group = model, group
        self.servers, self.staleness, self.on_loss = servers, staleness, on_loss
        self.last: Optional[ParameterStep] = None
        self.lost: dict[int, str] = {}
        self.steps = 0
        self._communicator = communicator_of(group)
        self._is_open = self._has_end = False
        self._updates = 0  # of the state that was begun with, as of the latest finish()
        problem, facts = "", {}
        try:
            check_model(model, inner, _WHO)
            self._options = self._checked_options(quorum, grace_s, seed)
            self._kept = self._checked_inner()
            self._flat = FlatParameters(model, _WHO)
            self._layout = self._checked_layout(Rules(codec, rules, min_size), error_feedback)
            facts = self._facts(str(codec), quorum, grace_s)
        except (ValueError, TypeError) as error:
            problem = str(error)
        agree(group, _WHO, facts, problem)
        self._gradient = torch.zeros_like(self._flat.values)
        if broadcast:
            for tensor in (self._flat.values, *model.buffers()):
                self._communicator.broadcast(tensor, 0, blocking=True)
        self._handle = self._made()
        self._begin_before_forward()

    # ---- making ----

    def _checked_options(
        self, quorum: int, grace_s: float, seed: int
    ) -> _abi.rp_parameter_server_options:
        if self.on_loss not in ("fail", "continue"):
            raise ValueError(
                f"{_WHO}: on_loss is {self.on_loss!r}; 'fail' and 'continue' are there"
            )
        world = self._communicator.world
        servers = _whole("servers", self.servers, "shared", 1)
        options = _abi.rp_parameter_server_options(
            servers=0 if servers is None else servers,
            quorum=_whole("quorum", quorum, None, 0),
            grace_s=grace_s,
            goes_on=self.on_loss == "continue",
            seed=_whole("seed", seed, None, 0),
        )
        staleness = "inf" if self.staleness == math.inf else self.staleness
        late = _whole("staleness", staleness, "inf", 0)
        options.staleness = _abi.RP_ANY_STALENESS if late is None else late
        if _abi.rp_parameter_server_check(ctypes.byref(options), world) < 0:
            raise ValueError(f"{_WHO}: {last_message()}")
        self.workers = world - options.servers
        self.is_server = not options.servers or self._communicator.rank < options.servers
        self.is_worker = self._communicator.rank >= options.servers
        return options

    def _checked_inner(self) -> list[Kept]:
        groups = len(self.inner.param_groups)
        if groups > _abi.RP_PUSH_NOTES:
            raise ValueError(
                f"{_WHO}: the inner optimizer has {groups} groups, and a push carries learning "
                f"rates of {_abi.RP_PUSH_NOTES}; join groups that have the same"
            )
        return try_optimizer(self.inner, _WHO)

    def _checked_layout(self, rules: Rules, error_feedback: bool) -> Layout:
        if rules.adaptive is not None:
            raise ValueError(f"{_WHO}: codec auto is of compress(); take one as q4")
        if self._flat.dtype is not torch.float32:
            raise ValueError(
                f"{_WHO}: parameters are {self._flat.dtype}; servers step float32: call "
                "model.float() first"
            )
        rules.check_names(list(self._flat.parameters))
        return Layout(self._flat, rules, error_feedback)

    def _facts(self, codec: str, quorum: int, grace_s: float) -> dict[str, Any]:
        groups = [
            {name: str(value) for name, value in group.items() if name != "params"}
            for group in self.inner.param_groups
        ]
        shapes = [(name, tuple(each.shape)) for name, each in self._flat.parameters.items()]
        return {
            "servers": self.servers,
            "staleness": str(self.staleness),
            "quorum": quorum,
            "grace_s": grace_s,
            "on_loss": self.on_loss,
            "codec": codec,
            "inner": type(self.inner).__name__,
            "groups": groups,
            "parameters": shapes,
        }

    def _made(self) -> _Handle:
        synchronous = self._options.staleness == 0
        self._shard = Shard(self.inner, self._flat, synchronous, self.workers)
        segments, place = self._layout.segments(), self._gradient.data_ptr()
        for segment in segments:
            segment.data = place
            place += segment.count * self._gradient.element_size()
        return _Handle(self._communicator, segments, self._options, self._shard)

    def _begin_before_forward(self) -> None:
        """A gradient is as old as the parameters at which it begins to be computed."""
        weak = weakref.ref(self)

        def begin(module: nn.Module, _inputs: Any) -> None:
            own = weak()
            if own is None or own._is_open or not own.is_worker:
                return
            if module.training and torch.is_grad_enabled():
                own._begin(_NO_END)

        self._hook = self.model.register_forward_pre_hook(begin)

    # ---- steps ----

    def span(self, steps: int) -> Iterator[int]:
        """So many steps of all workers: for a worker an iteration for each of its pushes, of
        which a fast one makes more where gradients may be late; a rank that only serves does so
        until the last. Collective; behind the loop all ranks are as after finish(). After a
        `break` call that."""
        _whole("steps", steps, None, 0)
        self._check_idle()
        return self._spanned(steps)

    def _check_idle(self) -> None:
        if self._is_open:
            raise RuntimeError(f"{_WHO}: steps are under way; finish() first, on all ranks")

    def _spanned(self, steps: int) -> Iterator[int]:
        self._begin(steps)
        self._has_end = True
        number = 0
        while self._goes_on():
            yield number
            number += 1
        self.finish()

    def _goes_on(self) -> bool:
        with self._handle.used(posts=False) as handle:
            return bool(_abi.rp_parameter_server_goes_on(handle))

    def _begin(self, steps: int) -> None:
        self._flat.check()
        self._shard.take_state()
        self._is_open = True
        values = self._flat.values.data_ptr()
        with self._failing(), self._handle.used() as handle:
            self._handle.check(_abi.rp_parameter_server_begin(handle, values, 0, steps))

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """What has failed is under way no more."""
        try:
            yield
        except BaseException:
            self._is_open = self._has_end = False
            raise

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Optional[Callable[[], Any]] = None, *, weight: float = 1.0
    ) -> Any:
        """Push the gradient, and have the parameters that it led to. Waits for the servers, and
        for others as far as the staleness says. closure: computes loss and gradient first.

        weight: what this gradient counts beside others' 1: for batches of unequal size this
        one's size over the mean size. RedpollError names a rank that has died."""
        if not self.is_worker:
            raise RuntimeError(
                f"{_WHO}: rank {self._communicator.rank} only serves, which it does in "
                "finish(); step() is the workers'"
            )
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._is_open:
            self._begin(_NO_END)
        self._flat.check()
        self._flat.read_gradients(self._gradient)
        if weight != 1.0:
            self._gradient.mul_(weight)
        self._push(weight)
        return loss

    def _push(self, weight: float) -> None:
        report = _abi.rp_parameter_report()
        notes = (ctypes.c_double * _abi.RP_PUSH_NOTES)()
        for i, group in enumerate(self.inner.param_groups):
            notes[i] = float(group.get("lr", 0.0))
        with self._failing(), self._handle.used(posts=False) as handle:
            self._handle.check(
                _abi.rp_parameter_server_push(handle, weight, notes, ctypes.byref(report))
            )
        self.steps += 1
        self.last = ParameterStep(report.staleness, report.updates, report.wait_s)

    # ---- the end of steps ----

    @torch.no_grad()
    def finish(self, buffers: bool = True) -> None:
        """No more steps of this rank. Waits until all have come here, a rank that only serves
        meanwhile does; then every rank has the servers' parameters. Collective over the ranks
        that live. step() may go on after it.

        buffers: floating-point ones (running statistics of batch norms) become the mean of the
        workers'."""
        if not self._is_open:
            self._begin(_NO_END)
        with self._failing():
            self._interruptibly(self._end)
        self._is_open = self._has_end = False
        self._hear_of_lost()
        self._adopt_rates()
        self._updates = self._meet_all(buffers)
        self._shard.end_span(self._updates > 0)

    def _end(self) -> None:
        with self._handle.used() as handle:
            self._handle.check(_abi.rp_parameter_server_end(handle))

    def _interruptibly(self, call: Callable[[], None]) -> None:
        """On a thread, so that Ctrl-C is answered on this one."""
        raised: list[BaseException] = []

        def run() -> None:
            try:
                with torch.no_grad():
                    call()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=run, name="redpoll-serve", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(SLICE_S)
        except BaseException:
            self._handle.abort(_abi.RP_CANCELLED, "it was interrupted")
            thread.join()
            raise
        if raised:
            raise raised[0]

    def _hear_of_lost(self) -> None:
        with self._handle.used(posts=False) as handle:
            for rank in range(self._communicator.world):
                why = _abi.rp_parameter_server_lost(handle, rank)
                if why and rank not in self.lost:
                    self.lost[rank] = why.decode()
                    log.warning("%s: rank %d is left behind: %s", _WHO, rank, why.decode())

    def _adopt_rates(self) -> None:
        """A rank that only serves runs no schedule; what it saves has the workers' rates."""
        if self.is_worker or self._shard.rates is None:
            return
        for group, rate in zip(self.inner.param_groups, self._shard.rates):
            if "lr" in group:
                group["lr"] = rate

    def _meet_all(self, buffers: bool) -> int:
        """How many updates there were; the mean of workers' buffers is put in place."""
        found = [each for each in self.model.buffers() if each.is_floating_point()]
        found = found if buffers else []
        own = float(self.is_worker)
        first = float(self._shard.updates if self._communicator.rank == 0 else 0)
        parts = [torch.tensor([first, own], dtype=torch.float64)]
        parts += [each.detach().reshape(-1).double() * own for each in found]
        total = self._sum(torch.cat(parts))
        means, start = total[2:] / total[1], 0
        for buffer in found:
            buffer.copy_(means[start : start + buffer.numel()].view(buffer.shape))
            start += buffer.numel()
        return int(total[0].item())

    def _sum(self, vector: torch.Tensor) -> torch.Tensor:
        """Over the ranks that live, in place."""
        segment = _abi.rp_segment(
            data=vector.data_ptr(), count=vector.numel(), dtype=NUMBER[vector.dtype]
        )
        options = _abi.rp_collective_options(reduce=_abi.REDUCTIONS["SUM"])
        request = ctypes.c_void_p()
        with self._handle.used() as handle:
            comm = _abi.rp_parameter_server_comm(handle)
            self._handle.check(
                _abi.rp_all_reduce_start(
                    comm, ctypes.byref(segment), 1, options, ctypes.byref(request)
                )
            )
            try:
                self._handle.check(_abi.rp_request_wait_for(request, -1.0))
            finally:
                _abi.rp_request_free(ctypes.byref(request))
        return vector

    @contextmanager
    def consensus(self, buffers: bool = True) -> Iterator[None]:
        """finish(), as other optimizers name it: inside, and afterwards, every rank's model has
        the servers' parameters. Collective."""
        self.finish(buffers)
        yield

    # ---- across restarts ----

    def state_dict(self) -> dict[str, Any]:
        """That of the inner optimizer, of whole parameters, on every rank: it goes to other
        numbers of servers, or to the inner optimizer alone; and under "parameter_server" what
        is this rank's. Collective: begins with finish(). RuntimeError: within a span()."""
        if self._has_end:
            raise RuntimeError(f"{_WHO}: state_dict() is not for the middle of a span()")
        self.finish()
        residual = self._layout.residual
        own = {
            "format": _FORMAT,
            "version": _VERSION,
            "worker": self._worker(),
            "workers": self.workers,
            "step": self.steps,
            "residual": None if residual is None else residual.clone(),
        }
        state = self.inner.state_dict()
        if self._updates:
            state = {**state, "state": self._gathered()}
        return {**state, "parameter_server": own}

    def _worker(self) -> int:
        return self._communicator.rank - self._options.servers if self.is_worker else -1

    def _gathered(self) -> dict[int, dict[str, Any]]:
        """State of all shards, by the numbers of Optimizer.state_dict()."""
        found: dict[int, dict[str, Any]] = {}
        members = list(self._members())
        for number, _, _ in members:
            found[number] = {}
        for name in sorted({name for kept in self._kept for name in kept.vectors}):
            vector = self._gathered_vector(name)
            parts = list(self._flat.parts(vector))
            for number, place, kept in members:
                if name in kept.vectors:
                    shape = list(self._flat.parameters.values())[place].shape
                    part = parts[place].view(shape).to(kept.vectors[name])
                    found[number][name] = part.clone()
        for name in sorted({name for kept in self._kept for name in kept.numbers}):
            values = self._gathered_numbers(name)
            for number, place, kept in members:
                if name in kept.numbers:
                    found[number][name] = _as_kept(values[place], kept.numbers[name])
        return found

    def _members(self) -> Iterator[tuple[int, int, Kept]]:
        """(number in the inner optimizer, place in the vector, what is kept)."""
        places = {id(each): i for i, each in enumerate(self._flat.parameters.values())}
        number = 0
        for group, kept in zip(self.inner.param_groups, self._kept):
            for parameter in group["params"]:
                place = places.get(id(parameter))
                if place is not None and parameter.numel():
                    yield number, place, kept
                number += 1

    def _gathered_vector(self, name: str) -> torch.Tensor:
        vector = torch.zeros(len(self._flat))
        starts = [0]
        for parameter in self._flat.parameters.values():
            starts.append(starts[-1] + parameter.numel())
        for piece in self._shard.pieces:
            part = self._shard.optimizer.state[piece.value].get(name)
            if part is not None:
                start = starts[piece.parameter] + piece.first
                vector.narrow(0, start, part.numel()).copy_(part)
        with self._handle.used() as handle:
            self._handle.check(_abi.rp_parameter_server_gather(handle, vector.data_ptr()))
        return vector

    def _gathered_numbers(self, name: str) -> list[float]:
        """By parameter; each from whoever has its first element."""
        values = torch.zeros(len(self._flat.parameters), dtype=torch.float64)
        for piece in self._shard.pieces:
            value = self._shard.optimizer.state[piece.value].get(name)
            if piece.first == 0 and value is not None:
                values[piece.parameter] = float(value)
        return [float(each) for each in self._sum(values)]

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of this class, of any rank and number of servers, or of the inner optimizer alone; on
        every rank alike, after the model's own load_state_dict(). Error feedback is taken up
        where workers are as many and this is the same. RuntimeError: steps are under way."""
        self._check_idle()
        rest = dict(state_dict)
        own = rest.pop("parameter_server", None)
        if own is not None:
            check_state(own, _WHO, (_FORMAT, _VERSION), {})
            self._take_feedback(own)
            self.steps = own["step"]
        self.inner.load_state_dict(rest)
        self._shard.forget()
        self._updates = 0

    def _take_feedback(self, own: dict[str, Any]) -> None:
        saved, here = own["residual"], self._layout.residual
        if (own["worker"], own["workers"]) != (self._worker(), self.workers):
            if here is not None:
                here.zero_()
            if saved is not None:
                log.info("%s: error feedback begins anew: it is of other workers", _WHO)
            return
        check_feedback(_elements(saved), _elements(here), _WHO)
        if here is not None:
            here.copy_(saved)


def _whole(name: str, value: Any, word: Optional[str], least: int) -> Optional[int]:
    """A whole number; None: `value` is the word that may stand for one."""
    if word is not None and value == word:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        other = f", or {word!r}" if word else ""
        raise ValueError(
            f"{_WHO}: {name} is {value!r}; a whole number from {least} on{other} is taken"
        )
    return value


def _as_kept(value: float, dtype: Optional[torch.dtype]) -> Any:
    return value if dtype is None else torch.tensor(value, dtype=dtype)


def _elements(residual: Optional[torch.Tensor]) -> int:
    return 0 if residual is None else residual.numel()


__all__ = ("ParameterServer", "ParameterStep")
