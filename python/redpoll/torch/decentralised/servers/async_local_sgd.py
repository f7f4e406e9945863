"""AsyncLocalSGD(): many local steps between two exchanges with servers, nobody waiting."""

from __future__ import annotations

import ctypes
import logging
from typing import Any, Callable, Optional, Union

import torch
import torch.distributed as dist
from torch import nn

from .... import _abi
from ....errors import last_message
from ..._untraced import keep_untraced
from ...codecs._rules import DEFAULT_MIN_SIZE, CodecLike, RulesLike
from .._momentum_watch import MomentumWatch
from .._twin import GRADIENT
from .._wrapping import check_state
from ._served import ServedOptimizer
from ._served_options import ServedOptions, whole

log = logging.getLogger("redpoll")

_FORMAT, _VERSION = "redpoll.async_local_sgd", 1
_VECTORS = ("momentum", "buffer")


class AsyncLocalSGD(ServedOptimizer):
    """LocalSGD without anybody waiting (arXiv 2401.09135): each worker trains by itself with
    `inner`; every `every` steps it gives servers what it has learnt, and goes on from what they
    have by then. Their optimizer is SGD with delayed Nesterov momentum.

        opt = redpoll.torch.AsyncLocalSGD(model, inner, every=100, servers=1, codec="q4")
        for x, y in batches:                    # each worker's own, in its own time
            opt.zero_grad(); loss(model(x), y).backward(); opt.step()
        opt.finish()                            # every rank has the servers' parameters

    A rank that only serves calls finish() at once. last: a ParameterStep, of the latest
    exchange; None before it. is_server, is_worker, workers, lost, span(): as of
    ParameterServer; steps of a span are exchanges."""

    def __init__(
        self,
        model: nn.Module,
        inner: torch.optim.Optimizer,
        every: int = 100,
        *,
        servers: Union[int, str] = "shared",
        staleness: Union[int, float, str] = "inf",
        outer_rate: float = 0.7,
        outer_momentum: Optional[float] = None,
        momentum_every: Optional[int] = None,
        codec: CodecLike = None,
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

        model: float32 parameters on the CPU or one GPU, not wrapped in
        DistributedDataParallel. inner: any optimizer of them; its state stays the worker's own.
        every: steps between two exchanges; a slow worker may have fewer than others, so that
        what it brings is not late.
        outer_rate, outer_momentum: of the servers' optimizer. None: 0.3 with up to 50 steps
        (every, of the rank that has most), beyond that the paper's 0.9; more with few steps may
        lose the training, and is logged. momentum_every: it has momentum after so many
        exchanges of any workers, by what came since; None: as many as workers.
        staleness: 0: all exchange together, which is DiLoCo; K: what a worker brings was begun
        at most K exchanges of another ago; "inf": nobody waits.
        codec: how what was learnt travels; that bears "q4".
        servers: "shared": every rank serves a shard, and works. N: ranks 0 ... N - 1 serve and
        do nothing else.
        quorum: servers take what so many workers bring together, and what comes within grace_s
        seconds more. With a staleness. 0: none.
        on_loss: when a worker dies. "fail": RedpollError, on every rank. "continue": the others
        go on; with servers of their own. A server that dies ends all.
        rules, min_size, error_feedback, seed, broadcast, group: as of ParameterServer.

        Memory beside model, gradients and inner's state: a vector of the parameters' size and
        an encoded one; of a server four of its shard, and an encoded one for each worker.

        ValueError, on every rank: what does not go together, ranks that were given different
        things (every may differ)."""
        self.every = every
        self._outer = _abi.rp_delayed_nesterov(outer_rate=outer_rate)
        self._asked, self._asked_momentum = momentum_every, outer_momentum
        self._local = 0  # inner steps since the latest exchange
        self._is_advised = False  # before the first step: the watch needs not say it again
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
        whole(self._ranks.who, "every", self.every, None, 1)
        if self._asked is not None:
            whole(self._ranks.who, "momentum_every", self._asked, None, 1)
        self._outer.delay = self._asked or self.workers
        self._set_momentum(self.every)
        one = (ctypes.c_float * 1)()  # stands for the vectors, of which there are none yet
        self._outer.momentum = self._outer.buffer = ctypes.addressof(one)
        if _abi.rp_delayed_nesterov_check(ctypes.byref(self._outer)) < 0:
            raise ValueError(f"{self._ranks.who}: {last_message()}")

    def _set_momentum(self, every: int) -> None:
        """Where none was given, one that goes with so many steps."""
        momentum = self._asked_momentum
        if momentum is None:
            momentum = _abi.rp_outer_momentum(b"delayed-nesterov", every)
        self._outer.outer_momentum = momentum
        self._watch = MomentumWatch(self._outer.outer_rate, momentum)

    def _after_agreed(self) -> None:
        most = torch.tensor([float(self.every)], dtype=torch.float64)
        self._ranks.communicator.all_reduce([most], dist.ReduceOp.MAX, blocking=True)
        self._set_momentum(int(most.item()))
        text = ctypes.create_string_buffer(512)
        _abi.rp_delayed_nesterov_advise(
            ctypes.byref(self._outer), int(most.item()), text, len(text)
        )
        self._is_advised = bool(text.value)
        if self._is_advised:
            log.warning("%s: %s", self._ranks.who, text.value.decode())

    def _more_facts(self) -> dict[str, Any]:
        momentum = self._asked_momentum
        return {
            "outer_rate": self._outer.outer_rate,
            "outer_momentum": "by every" if momentum is None else momentum,
            "delay": self._outer.delay,
        }

    def _give_merge(self, options: _abi.rp_parameter_server_options) -> Any:
        count = len(self._flat) if self.is_server else 0
        self._vectors = {name: torch.zeros(count) for name in _VECTORS}
        for name, vector in self._vectors.items():
            setattr(self._outer, name, vector.data_ptr() or None)
        options.merge = ctypes.cast(_abi.rp_delayed_nesterov_merge, _abi.Merge)
        options.context = ctypes.addressof(self._outer)
        return self._outer, self._vectors

    def _own_updates(self) -> int:
        return int(self._outer.pushes)

    # ---- steps ----

    def _after_begin(self) -> None:
        """x as it came; the gradient when it is pushed."""
        self._local = 0
        self._gradient.copy_(self._flat.values)

    def step(  # type: ignore[override]
        self, closure: Optional[Callable[[], Any]] = None
    ) -> Any:
        """The inner optimizer's step; after `every` of them the exchange, which waits for the
        servers, and for others as far as the staleness says. RedpollError names a rank that has
        died."""
        self._check_works()
        if not self._is_open:
            self._begin()
        loss = self.inner.step(closure)
        self._local += 1
        if self._local >= self.every:
            self._exchange()
        return loss

    @property
    def autocorrelation(self) -> Optional[float]:
        """The cosine of what the latest two exchanges brought; the log has a line when the
        outer momentum is too high for it. None before the second."""
        return self._watch.autocorrelation

    @torch.no_grad()
    def _exchange(self) -> None:
        self._flat.check()
        self._gradient.sub_(self._flat.values)
        self._twin.fetch([GRADIENT])
        warning = self._watch.look(self._twin.host[GRADIENT], self._local)
        if warning is not None and not self._is_advised:
            log.warning("%s: %s", self._ranks.who, warning)
        self._push(1.0)
        self._after_begin()

    def _before_end(self) -> None:
        """What was learnt since the latest exchange is brought, too."""
        if self.is_worker and self._local and self._goes_on():
            self._exchange()

    # ---- across restarts ----

    def state_dict(self) -> dict[str, Any]:
        """This rank's: the inner optimizer's, and under "async_local_sgd" what servers have
        beside parameters, on every rank. Collective: begins with finish(). With the model's
        state_dict() it goes to any number of servers; a worker goes on with its own.
        RuntimeError: within a span()."""
        own = self._own_state(_FORMAT, _VERSION)
        own["pushes"] = self._updates
        own["vectors"] = {name: self._gathered(name) for name in _VECTORS}
        return {**self.inner.state_dict(), "async_local_sgd": own}

    def _gathered(self, name: str) -> torch.Tensor:
        vector = torch.zeros(len(self._flat))
        if self.is_server:
            vector.copy_(self._vectors[name])
        return self._ranks.gather(vector)

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of this class, with any number of servers, after the model's own load_state_dict().
        Error feedback is taken up where workers are as many and this is the same. On a worker
        that was started again, before its first step, it changes nothing: it has the others'
        state. RuntimeError: steps are under way."""
        self._check_idle()
        if self._keeps_its_state():
            return
        rest = dict(state_dict)
        own = rest.pop("async_local_sgd", None)
        check_state(own, self._ranks.who, (_FORMAT, _VERSION), {})
        for name in _VECTORS:
            if own["vectors"][name].numel() != len(self._flat):
                raise ValueError(
                    f"{self._ranks.who}: the state is of {own['vectors'][name].numel()} "
                    f"parameters, and the model has {len(self._flat)}"
                )
        self._take_feedback(own)
        self.inner.load_state_dict(rest)
        self.steps, self._outer.pushes = own["step"], own["pushes"]
        self.spans, self._updates = own.get("spans", 0), own["pushes"]
        for name, vector in self._vectors.items():
            if self.is_server:
                vector.copy_(own["vectors"][name])


__all__ = ("AsyncLocalSGD",)

keep_untraced("redpoll")
