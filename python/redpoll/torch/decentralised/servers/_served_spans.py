"""Steps in spans: how they begin, a worker's pushes, and what all ranks do behind them."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch
from torch import nn

from .... import _abi
from ...comm._request import SLICE_S
from .._flat import FlatParameters
from .._twin import VALUES, Twin
from .._wrapping import WrappingOptimizer
from ._growth import Growth, Member
from ._served_options import whole
from ._served_ranks import Ranks

_NO_END = 1 << 40  # steps, until finish()


@dataclass(frozen=True)
class ParameterStep:
    """What a worker's latest push has met."""

    staleness: int  # steps: the most merges of one other worker since it had its parameters
    updates: int  # all merges since then
    wait_s: float  # the worker has waited so long for its parameters


class ServedSpans(WrappingOptimizer):
    """steps: pushes of this worker. spans: how many spans of steps have ended. last: of the
    latest push."""

    model: nn.Module
    is_worker: bool
    steps: int
    spans: int
    last: Optional[ParameterStep]
    _ranks: Ranks
    _flat: FlatParameters
    _twin: Twin  # of parameters and gradient
    _growth: Optional[Growth]
    _updates: int  # of the state that was begun with, as of the latest finish()
    _is_just_back: bool  # started again, and without a step yet
    _is_open = _has_end = _has_ended = False

    @property
    def lost(self) -> dict[int, str]:
        """{rank: why} of those that were left behind, as of the latest thing that was done
        together. Ranks are numbered as when the group was made."""
        return self._ranks.lost

    # ---- what subclasses say ----

    def _own_updates(self) -> int:
        """Merges of this rank's server, if it is one."""
        raise NotImplementedError

    def _member(self) -> Member:
        """This, for those that shrink and grow with it."""
        raise NotImplementedError

    def _before_span(self) -> None: ...

    def _after_begin(self) -> None: ...

    def _before_end(self) -> None: ...

    def _after_span(self) -> None: ...

    # ---- steps ----

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

    def span(self, steps: int) -> Iterator[int]:
        """So many steps of all workers: for a worker an iteration for each of its pushes, of
        which a fast one makes more where gradients may be late; a rank that only serves does so
        until the last. step() once in each: of AsyncLocalSGD, where an iteration is a step of
        the worker's own, `every` of them are a push. Collective; behind the loop all ranks are
        as after finish(). After a `break` call that."""
        whole(self._ranks.who, "steps", steps, None, 0, _NO_END)
        self._check_idle()
        return self._spanned(steps)

    def _check_idle(self) -> None:
        if self._is_open:
            raise RuntimeError(
                f"{self._ranks.who}: steps are under way; finish() first, on all ranks"
            )

    def _spanned(self, steps: int) -> Iterator[int]:
        self._begin(steps)
        self._has_end = True
        number = 0
        while self._goes_on():
            yield number
            number += 1
        self.finish()

    def _goes_on(self) -> bool:
        with self._ranks.handle.used(posts=False) as handle:
            return bool(_abi.rp_parameter_server_goes_on(handle))

    def _begin(self, steps: int = _NO_END) -> None:
        self._flat.check()
        self._before_span()
        self._is_open, self._has_ended = True, False
        self._is_just_back = False
        if self._growth is not None:
            self._growth.begin(self._member(), steps)
        self._twin.fetch([VALUES])
        values = self._twin.host[VALUES].data_ptr()
        with self._failing(), self._ranks.handle.used() as handle:
            self._ranks.handle.check(_abi.rp_parameter_server_begin(handle, values, 0, steps))
        self._twin.deliver([VALUES])
        self._after_begin()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """What has failed is under way no more. An interrupt that comes as the library returns
        is no failure of its."""
        try:
            yield
        except Exception:
            self._is_open = self._has_end = self._has_ended = False
            raise

    def _check_works(self) -> None:
        if not self.is_worker:
            raise RuntimeError(
                f"{self._ranks.who}: rank {self._ranks.rank} only serves, which it does in "
                "finish(); step() is the workers'"
            )

    def _push(self, weight: float, notes: Any = None) -> None:
        """The library refuses a push that it does not expect, and the steps are under way
        still: so that has to be said before."""
        if not self._goes_on():
            raise RuntimeError(
                f"{self._ranks.who}: all steps of the span have been taken; step() once in "
                "each of its iterations"
            )
        report = _abi.rp_parameter_report()
        self._twin.fetch()
        with self._failing(), self._ranks.handle.used(posts=False) as handle:
            self._ranks.handle.check(
                _abi.rp_parameter_server_push(handle, weight, notes, ctypes.byref(report))
            )
        self._twin.deliver([VALUES])
        self.steps += 1
        self.last = ParameterStep(report.staleness, report.updates, report.wait_s)
        if self._growth is not None and not self._goes_on():
            self._settle()

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
        while not self._has_ended:
            self._before_end()
            if not self._has_ended:  # the last push may have done so
                self._settle()
        self._is_open = self._has_end = self._has_ended = False
        updates = self._meet_all(buffers)
        self.spans += updates != self._updates
        self._updates = updates
        self._after_span()

    def _settle(self) -> None:
        """No more steps of this rank, until all have come here; where a rank waits to be taken
        back, or is waited for, they take it back, and go on. Collective."""
        self._twin.fetch([VALUES])
        with self._failing():
            self._interruptibly(self._end)
        self._twin.deliver([VALUES])
        self._ranks.hear_of_lost()
        growth = self._growth
        if growth is None:
            self._has_ended = True
            return
        member = self._member()
        with self._failing():
            if not growth.is_wanted(member):
                self._has_ended = True
                return
            left = growth.left(member)
            growth.take_back(member)
        self._begin(left)

    def _end(self) -> None:
        with self._ranks.handle.used() as handle:
            self._ranks.handle.check(_abi.rp_parameter_server_end(handle))

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
            self._ranks.handle.abort(_abi.RP_CANCELLED, "it was interrupted")
            thread.join()
            self._is_open = self._has_end = self._has_ended = False
            raise
        if raised:
            raise raised[0]

    def _meet_all(self, buffers: bool) -> int:
        """How many updates there were; the mean of workers' buffers is put in place. Where no
        worker is left they stay as they are."""
        found = [each for each in self.model.buffers() if each.is_floating_point()]
        found = found if buffers else []
        own = float(self.is_worker)  # 0 times an infinite buffer would be no number
        first = float(self._own_updates() if self._ranks.rank == 0 else 0)
        parts = [torch.tensor([first, own, own * self.steps], dtype=torch.float64)]
        parts += [
            each.detach().reshape(-1).double().cpu() if self.is_worker else _zeros(each)
            for each in found
        ]
        total = self._ranks.sum(torch.cat(parts))
        updates, workers, start = int(total[0].item()), total[1].item(), 3
        if workers:
            means = total / workers
            for buffer in found:
                buffer.copy_(means[start : start + buffer.numel()].view(buffer.shape))
                start += buffer.numel()
            if self._growth is not None:
                self._growth.met(int(means[2].item()))
        return updates

    @contextmanager
    def consensus(self, buffers: bool = True) -> Iterator[None]:
        """finish(), as other optimizers name it: inside, and afterwards, every rank's model has
        the servers' parameters. Collective."""
        self.finish(buffers)
        yield


def _zeros(buffer: torch.Tensor) -> torch.Tensor:
    return torch.zeros(buffer.numel(), dtype=torch.float64)
