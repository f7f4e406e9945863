"""ParameterServer(): ranks that keep the parameters, and workers that push gradients."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Iterator
from typing import Any, Callable, Optional, Union

import torch
from torch import nn

from .... import _abi
from ..._untraced import keep_untraced
from ...codecs._rules import DEFAULT_MIN_SIZE, CodecLike, RulesLike
from .._wrapping import check_state
from ._served import ServedOptimizer
from ._served_options import ServedOptions
from ._served_spans import ParameterStep
from ._shard import Kept, Shard, try_optimizer

_FORMAT, _VERSION = "redpoll.parameter_server", 1


class ParameterServer(ServedOptimizer):
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
    of the latest finish(), and have not come back. spans: how many spans of steps have ended;
    steps: pushes of this worker: a worker that was started again has them from the others."""

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
        model: float32 parameters on the CPU or one GPU, not wrapped in
        DistributedDataParallel. What servers step lies with the host.
        servers: "shared": every rank serves a shard, and works. N: ranks 0 ... N - 1 serve and
        do nothing else.
        staleness: 0: synchronous, a step takes a gradient of every worker, and is that of
        DistributedDataParallel. K: each push is a step by itself, of a gradient at most K steps
        old. "inf": nobody waits for another.
        quorum: a step takes so many workers' gradients, and what comes within grace_s seconds
        more. With a staleness. 0: none.
        on_loss: when a worker dies. "fail": RedpollError, on every rank. "continue": the others
        go on; with servers of their own. A server that dies ends all, and so does the last
        worker, unless `redpoll run --restart` starts it again.
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
        super().__init__(
            inner,
            model,
            ServedOptions(
                servers,
                staleness,
                codec,
                quorum,
                grace_s,
                on_loss,
                rules,
                min_size,
                error_feedback,
                seed,
                broadcast,
            ),
            group,
        )

    # ---- what servers do ----

    def _check_more(self) -> None:
        groups = len(self.inner.param_groups)
        if groups > _abi.RP_PUSH_NOTES:
            raise ValueError(
                f"{self._ranks.who}: the inner optimizer has {groups} groups, and a push "
                f"carries learning rates of {_abi.RP_PUSH_NOTES}; join groups that have the "
                "same"
            )
        self._kept = try_optimizer(self.inner, self._ranks.who)

    def _more_facts(self) -> dict[str, Any]:
        groups = [
            {name: str(value) for name, value in group.items() if name != "params"}
            for group in self.inner.param_groups
        ]
        return {"inner": type(self.inner).__name__, "groups": groups}

    def _give_merge(self, options: _abi.rp_parameter_server_options) -> Any:
        synchronous = options.staleness == 0
        self._shard = Shard(self.inner, self._flat, self._kept, synchronous, self.workers)
        weak = weakref.ref(self._ranks)

        def abort(message: str) -> None:
            ranks = weak()
            if ranks is not None:
                ranks.handle.abort(_abi.STATUS["INTERNAL"], message)

        options.merge = merge = self._shard.callback(abort)
        return self._shard, merge

    def _raised(self) -> Optional[BaseException]:
        error, self._shard.error = self._shard.error, None
        return error

    def _own_updates(self) -> int:
        return self._shard.updates

    def _before_span(self) -> None:
        self._shard.take_state()

    def _after_span(self) -> None:
        self._adopt_rates()
        self._shard.end_span(self._updates > 0)

    def _adopt_rates(self) -> None:
        """A rank that only serves runs no schedule; what it saves has the workers' rates."""
        if self.is_worker or self._shard.rates is None:
            return
        for group, rate in zip(self.inner.param_groups, self._shard.rates):
            if "lr" in group:
                group["lr"] = rate

    # ---- steps ----

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Optional[Callable[[], Any]] = None, *, weight: float = 1.0
    ) -> Any:
        """Push the gradient, and have the parameters that it led to. Waits for the servers, and
        for others as far as the staleness says. closure: computes loss and gradient first.

        weight: what this gradient counts beside others' 1: for batches of unequal size this
        one's size over the mean size. RedpollError names a rank that has died."""
        self._check_works()
        if not 0 <= weight < math.inf:
            raise ValueError(f"{self._ranks.who}: a weight of {weight}; 0 or more, and finite")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._is_open:
            self._begin()
        self._flat.check()
        self._flat.read_gradients(self._gradient)
        if weight != 1.0:
            self._gradient.mul_(weight)
        notes = (ctypes.c_double * _abi.RP_PUSH_NOTES)()
        for i, group in enumerate(self.inner.param_groups):
            notes[i] = float(group.get("lr", 0.0))
        self._push(weight, notes)
        return loss

    # ---- across restarts ----

    def state_dict(self) -> dict[str, Any]:
        """That of the inner optimizer, of whole parameters, on every rank: it goes to other
        numbers of servers, or to the inner optimizer alone; and under "parameter_server" what
        is this rank's. Collective: begins with finish(). RuntimeError: within a span()."""
        own = self._own_state(_FORMAT, _VERSION)
        state = self.inner.state_dict()
        if self._updates:
            state = {**state, "state": self._gathered()}
        return {**state, "parameter_server": own}

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
        return self._ranks.gather(vector)

    def _gathered_numbers(self, name: str) -> list[float]:
        """By parameter; each from whoever has its first element."""
        values = torch.zeros(len(self._flat.parameters), dtype=torch.float64)
        for piece in self._shard.pieces:
            value = self._shard.optimizer.state[piece.value].get(name)
            if piece.first == 0 and value is not None:
                values[piece.parameter] = float(value)
        return [float(each) for each in self._ranks.sum(values)]

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of this class, of any rank and number of servers, or of the inner optimizer alone; on
        every rank alike, after the model's own load_state_dict(). Error feedback is taken up
        where workers are as many and this is the same. On a worker that was started again,
        before its first step, it changes nothing: it has the others' state. RuntimeError: steps
        are under way."""
        self._check_idle()
        if self._keeps_its_state():
            return
        rest = dict(state_dict)
        own = rest.pop("parameter_server", None)
        if own is not None:
            check_state(own, self._ranks.who, (_FORMAT, _VERSION), {})
            self._take_feedback(own)
            self.steps, self.spans = own["step"], own.get("spans", 0)
        self.inner.load_state_dict(rest)
        self._shard.forget()
        self._updates = 0


def _as_kept(value: float, kind: Union[torch.dtype, type]) -> Any:
    return kind(value) if isinstance(kind, type) else torch.tensor(value, dtype=kind)


__all__ = ("ParameterServer", "ParameterStep")

keep_untraced("redpoll")
