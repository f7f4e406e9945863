"""What optimizers over the library's parameter servers have in common: roles, spans of steps,
pushes, and what all ranks do behind them."""

from __future__ import annotations

import ctypes
import logging
import math
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Optional, TypeVar, Union

import torch
from torch import nn

from .. import _abi
from ..errors import last_message
from ._attached import Attached
from ._communicator import Communicator, communicator_of
from ._dtypes import NUMBER
from ._errors import RedpollError
from ._flat import FlatParameters, Layout
from ._growth import Growth
from ._launcher import is_of_launcher, may_come_back
from ._request import SLICE_S
from ._returns import AbsentCommunicator
from ._rules import CodecLike, Rules, RulesLike
from ._wrapping import WrappingOptimizer, agree, check_feedback, check_model

log = logging.getLogger("redpoll")

_T = TypeVar("_T")
_MOST = (1 << 31) - 1  # of what the library takes as an int
_NO_END = 1 << 40  # steps, until finish()


@dataclass(frozen=True)
class ParameterStep:
    """What a worker's latest push has met."""

    staleness: int  # steps: the most merges of one other worker since it had its parameters
    updates: int  # all merges since then
    wait_s: float  # the worker has waited so long for its parameters


@dataclass(frozen=True)
class ServedOptions:
    """What users of both optimizers say of servers, pushes and codecs."""

    servers: Union[int, str]
    staleness: Union[int, float, str]
    codec: CodecLike
    quorum: int
    grace_s: float
    on_loss: str
    rules: RulesLike
    min_size: int
    error_feedback: bool
    seed: int
    broadcast: bool


class ServerHandle(Attached):
    """An rp_parameter_server. raised: what this rank's merge has raised, from then on None."""

    def __init__(
        self,
        communicator: Communicator,
        who: str,
        segments: Any,
        options: _abi.rp_parameter_server_options,
        kept: Any,
        raised: Callable[[], Optional[BaseException]],
    ) -> None:
        def create(comm: int, out: Any) -> int:
            return int(
                _abi.rp_parameter_server_create(
                    comm, segments, len(segments), ctypes.byref(options), out
                )
            )

        def hurry(address: Any) -> None:
            text = b"it has left the group before finish()"
            _abi.rp_parameter_server_abort(address, _abi.RP_CANCELLED, text)

        self._raised = raised
        super().__init__(
            communicator,
            who,
            create,
            _abi.rp_parameter_server_destroy,
            (options, kept),
            hurry=hurry,
        )

    def abort(self, status: int, message: str) -> None:
        """All ranks fail, those that wait in it among them."""
        text = message.encode()
        self.tell(lambda address: _abi.rp_parameter_server_abort(address, status, text))

    def check(self, code: int) -> None:
        error = self._raised() if code < 0 else None
        if error is not None:
            raise error
        super().check(code)


class ServedOptimizer(WrappingOptimizer):
    """Parameters live on servers, a shard each; what workers push servers merge.

    Subclasses say what is pushed (step) and how it is merged (_give_merge)."""

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        model: nn.Module,
        given: ServedOptions,
        group: Any,
    ) -> None:
        super().__init__(inner)
        self.model, self.group, self._given = model, group, given
        self.servers, self.staleness = given.servers, given.staleness
        self.on_loss = given.on_loss
        self.last: Optional[ParameterStep] = None
        self.lost: dict[int, str] = {}
        self.steps = self.spans = 0
        self._who = type(self).__name__
        self._communicator = communicator_of(group)
        self._rank, self._world = self._communicator.rank, self._communicator.world
        self._group_name, self._timeout_s = (
            self._communicator.name,
            self._communicator.timeout_s,
        )
        self._first_ranks = list(range(self._world))  # of the ranks of the communicator
        self._is_open = self._has_end = self._has_ended = False
        self._is_just_back = False  # started again, and without a step yet
        self._updates = 0  # of the state that was begun with, as of the latest finish()
        problem, facts = "", {}
        try:
            check_model(model, inner, self._who)
            self._options = self._checked_options()
            self._check_more()
            self._flat = FlatParameters(model, self._who)
            self._rules = Rules(given.codec, given.rules, given.min_size)
            self._layout = self._checked_layout(self._rules, given.error_feedback)
            facts = self._facts()
            facts.update(self._more_facts())
        except (ValueError, TypeError) as error:
            problem = str(error)
        self._agreed = facts
        self._handle: Any = None
        if isinstance(self._communicator, AbsentCommunicator):
            self._come_back(problem)
        else:
            agree(group, self._who, facts, problem)
            self._after_agreed()
            self._prepare()
            if given.broadcast:
                self._communicator.broadcast(self._flat.values, 0, blocking=True)
                self._flat.untrained.broadcast(self._communicator)
            self._handle = self._made_over(self._communicator, self._first_ranks)
        self._begin_before_forward()

    # ---- what subclasses say ----

    def _check_more(self) -> None:
        """ValueError: something of theirs."""

    def _more_facts(self) -> dict[str, Any]:
        """Equal on all ranks."""
        return {}

    def _after_agreed(self) -> None:
        """What all ranks find out together, of a group that was never lost."""

    def _give_merge(self, options: _abi.rp_parameter_server_options) -> Any:
        """merge and context; what the library borrows there is kept as long as it needs."""
        raise NotImplementedError

    def _raised(self) -> Optional[BaseException]:
        return None

    def _own_updates(self) -> int:
        """Merges of this rank's server, if it is one."""
        raise NotImplementedError

    def _before_span(self) -> None: ...

    def _after_begin(self) -> None: ...

    def _before_end(self) -> None: ...

    def _after_span(self) -> None: ...

    # ---- making ----

    def _checked_options(self) -> _abi.rp_parameter_server_options:
        who, given = self._who, self._given
        if self.on_loss not in ("fail", "continue"):
            raise ValueError(
                f"{self._who}: on_loss is {self.on_loss!r}; 'fail' and 'continue' are there"
            )
        world = self._world
        servers = whole(who, "servers", self.servers, "shared", 1)
        options = _abi.rp_parameter_server_options(
            servers=0 if servers is None else servers,
            quorum=whole(who, "quorum", given.quorum, None, 0),
            grace_s=given.grace_s,
            goes_on=self._outlives(),
            seed=whole(who, "seed", given.seed, None, 0, (1 << 64) - 1),
        )
        staleness = "inf" if self.staleness == math.inf else self.staleness
        late = whole(who, "staleness", staleness, "inf", 0)
        options.staleness = _abi.RP_ANY_STALENESS if late is None else late
        if _abi.rp_parameter_server_check(ctypes.byref(options), world) < 0:
            raise ValueError(f"{self._who}: {last_message()}")
        self.workers = world - options.servers
        self.is_server = not options.servers or self._rank < options.servers
        self.is_worker = self._rank >= options.servers
        return options

    def _outlives(self) -> int:
        """2: servers go on without any worker, too, until one is back."""
        if self.on_loss == "fail":
            return 0
        has_store = communicator_of(self.group).store is not None
        is_of_run = is_of_launcher(self._rank, self._world)
        return 2 if may_come_back() and has_store and is_of_run else 1

    def _checked_layout(self, rules: Rules, error_feedback: bool) -> Layout:
        if rules.adaptive is not None:
            raise ValueError(f"{self._who}: codec auto is of compress(); take one as q4")
        if self._flat.dtype is not torch.float32:
            raise ValueError(
                f"{self._who}: parameters are {self._flat.dtype}; servers step float32: call "
                "model.float() first"
            )
        rules.check_names(list(self._flat.parameters))
        return Layout(self._flat, rules, error_feedback)

    def _facts(self) -> dict[str, Any]:
        given = self._given
        codecs = [
            (name, tuple(each.shape), str(self._rules.codec_for(name, each.shape)))
            for name, each in self._flat.parameters.items()
        ]
        return {
            "servers": self.servers,
            "staleness": str(self.staleness),
            "quorum": given.quorum,
            "grace_s": float(given.grace_s),
            "on_loss": self.on_loss,
            "seed": self._options.seed,
            "error_feedback": given.error_feedback,
            "broadcast": given.broadcast,
            "parameters": codecs,
            **self._flat.untrained.facts(given.broadcast),
        }

    def _prepare(self) -> None:
        """What a handle borrows."""
        self._gradient = torch.zeros_like(self._flat.values)
        self._kept_merge = self._give_merge(self._options)
        self._growth = self._made_growth()
        if self._growth is not None and self._rank == 0:
            own = weakref.ref(self)
            self._kept_merge = (self._kept_merge, self._growth.watch(own, self._options))

    def _made_growth(self) -> Optional[Growth]:
        """Where ranks may come back. Optimizers of a group are told apart by their order."""
        group = communicator_of(self.group)
        if not (self._options.goes_on and may_come_back()) or group.store is None:
            return None
        group.served += 1
        growth = Growth(group.store, group.served, is_of_launcher(self._rank, self._world))
        group.attach(growth)
        if self._rank == 0:
            group.attach(growth.requests, keep=True)  # it says that the run is over
        return growth

    def _come_back(self, problem: str) -> None:
        """Of a rank that was started again."""
        if problem:
            raise ValueError(problem)
        if not self.is_worker:
            raise RedpollError(
                _abi.RP_INVALID,
                f"{self._who}: rank {self._rank} was started again, and served: the run has "
                "ended with it",
            )
        self._prepare()
        if self._growth is None:
            raise RedpollError(
                _abi.RP_INVALID,
                f"{self._who}: rank {self._rank} was started again, and the others do not take "
                "it back: on_loss='continue' does, under redpoll run --on-loss continue "
                "--restart N",
            )
        self._growth.come_back(self)
        self._is_just_back = True

    def _made_over(self, communicator: Communicator, first_ranks: list[int]) -> ServerHandle:
        """first_ranks: the ranks of the communicator, by their numbers in the group."""
        segments, place = self._layout.segments(), self._gradient.data_ptr()
        for segment in segments:
            segment.data = place
            place += segment.count * self._gradient.element_size()
        weak = weakref.ref(self)

        def raised() -> Optional[BaseException]:
            own = weak()
            return own._raised() if own is not None else None

        self._options.workers = self.workers  # also where some are missing
        names = (ctypes.c_int * len(first_ranks))(*first_ranks)
        kept = (self._kept_merge, names, self._gradient, self._layout)
        made = ServerHandle(communicator, self._who, segments, self._options, kept, raised)
        _abi.rp_parameter_server_name(made.address, names)
        return made

    def _living(self) -> list[int]:
        return [rank for rank in self._first_ranks if rank not in self.lost]

    def _lives_a_worker(self) -> bool:
        return any(rank >= self._options.servers for rank in self._living())

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
        until the last. step() once in each: of AsyncLocalSGD, where an iteration is a step of
        the worker's own, `every` of them are a push. Collective; behind the loop all ranks are
        as after finish(). After a `break` call that."""
        whole(self._who, "steps", steps, None, 0, _NO_END)
        self._check_idle()
        return self._spanned(steps)

    def _check_idle(self) -> None:
        if self._is_open:
            raise RuntimeError(
                f"{self._who}: steps are under way; finish() first, on all ranks"
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
        with self._handle.used(posts=False) as handle:
            return bool(_abi.rp_parameter_server_goes_on(handle))

    def _begin(self, steps: int = _NO_END) -> None:
        self._flat.check()
        self._before_span()
        self._is_open, self._has_ended = True, False
        self._is_just_back = False
        if self._growth is not None:
            self._growth.begin(self, steps)
        values = self._flat.values.data_ptr()
        with self._failing(), self._handle.used() as handle:
            self._handle.check(_abi.rp_parameter_server_begin(handle, values, 0, steps))
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
                f"{self._who}: rank {self._rank} only serves, which it does in "
                "finish(); step() is the workers'"
            )

    def _push(self, weight: float, notes: Any = None) -> None:
        """The library refuses a push that it does not expect, and the steps are under way
        still: so that has to be said before."""
        if not self._goes_on():
            raise RuntimeError(
                f"{self._who}: all steps of the span have been taken; step() once in each of "
                "its iterations"
            )
        report = _abi.rp_parameter_report()
        with self._failing(), self._handle.used(posts=False) as handle:
            self._handle.check(
                _abi.rp_parameter_server_push(handle, weight, notes, ctypes.byref(report))
            )
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
        with self._failing():
            self._interruptibly(self._end)
        self._hear_of_lost()
        growth = self._growth
        if growth is None:
            self._has_ended = True
            return
        with self._failing():
            if not growth.is_wanted(self):
                self._has_ended = True
                return
            left = growth.left(self)
            growth.take_back(self)
        self._begin(left)

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
            self._is_open = self._has_end = self._has_ended = False
            raise
        if raised:
            raise raised[0]

    def _hear_of_lost(self) -> None:
        with self._handle.used(posts=False) as handle:
            for place, rank in enumerate(self._first_ranks):
                why = _abi.rp_parameter_server_lost(handle, place)
                if why and rank not in self.lost:
                    self.lost[rank] = why.decode()
                    log.warning("%s: rank %d is left behind: %s", self._who, rank, why.decode())

    def _meet_all(self, buffers: bool) -> int:
        """How many updates there were; the mean of workers' buffers is put in place. Where no
        worker is left they stay as they are."""
        found = [each for each in self.model.buffers() if each.is_floating_point()]
        found = found if buffers else []
        own = float(self.is_worker)  # 0 times an infinite buffer would be no number
        first = float(self._own_updates() if self._rank == 0 else 0)
        parts = [torch.tensor([first, own, own * self.steps], dtype=torch.float64)]
        parts += [
            each.detach().reshape(-1).double() if self.is_worker else _zeros(each)
            for each in found
        ]
        total = self._sum(torch.cat(parts))
        updates, workers, start = int(total[0].item()), total[1].item(), 3
        if workers:
            means = total / workers
            for buffer in found:
                buffer.copy_(means[start : start + buffer.numel()].view(buffer.shape))
                start += buffer.numel()
            if self._growth is not None:
                self._growth.met(int(means[2].item()))
        return updates

    def _together(self, what: Callable[[], _T]) -> _T:
        """What all ranks do between finish() and the next step; again, by those that are left,
        when a worker dies meanwhile that is left behind. Collective."""
        if not self._options.goes_on:
            return what()
        while True:
            status, again = _abi.RP_OK, ctypes.c_int()
            caught: Optional[RedpollError] = None
            try:
                result = what()
            except RedpollError as error:
                status, caught = error.code, error
            with self._handle.used() as handle:
                code = _abi.rp_parameter_server_confirm(handle, status, ctypes.byref(again))
                try:
                    self._handle.check(code)
                except Exception as error:
                    if caught is None:
                        raise
                    raise error from caught
            if not again.value:
                return result
            self._hear_of_lost()

    def _sum(self, vector: torch.Tensor) -> torch.Tensor:
        """Over the ranks that live, in place."""
        return vector.copy_(self._together(lambda: self._sum_once(vector.clone())))

    def _sum_once(self, vector: torch.Tensor) -> torch.Tensor:
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

    def _own_state(self, form: str, version: int) -> dict[str, Any]:
        """What is this rank's, behind finish()."""
        if self._has_end:
            raise RuntimeError(f"{self._who}: state_dict() is not for the middle of a span()")
        self.finish()
        residual = self._layout.residual
        return {
            "format": form,
            "version": version,
            "worker": self._worker(),
            "workers": self.workers,
            "step": self.steps,
            "spans": self.spans,
            "residual": None if residual is None else residual.clone(),
        }

    def _gather(self, vector: torch.Tensor) -> torch.Tensor:
        """Of each server's shard its own, on every rank; in place. Collective."""

        def gather() -> torch.Tensor:
            with self._handle.used() as handle:
                self._handle.check(_abi.rp_parameter_server_gather(handle, vector.data_ptr()))
            return vector

        return self._together(gather)

    def _worker(self) -> int:
        return self._rank - self._options.servers if self.is_worker else -1

    def _keeps_its_state(self) -> bool:
        """What is loaded is older than what a rank that has just come back has."""
        if self._is_just_back:
            log.info(
                "%s: rank %d was started again, and keeps what it has from the others: "
                "load_state_dict() changes nothing",
                self._who,
                self._rank,
            )
        return self._is_just_back

    def _take_feedback(self, own: dict[str, Any]) -> None:
        saved, here = own["residual"], self._layout.residual
        if (own["worker"], own["workers"]) != (self._worker(), self.workers):
            if here is not None:
                here.zero_()
            if saved is not None:
                log.info("%s: error feedback begins anew: it is of other workers", self._who)
            return
        check_feedback(elements(saved), elements(here), self._who)
        if here is not None:
            here.copy_(saved)


def _zeros(buffer: torch.Tensor) -> torch.Tensor:
    return torch.zeros(buffer.numel(), dtype=torch.float64)


def whole(
    who: str, name: str, value: Any, word: Optional[str], least: int, most: int = _MOST
) -> Optional[int]:
    """A whole number; None: `value` is the word that may stand for one."""
    if word is not None and value == word:
        return None
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:
        other = f", or {word!r}" if word else ""
        bounds = f"up to {most}" if is_whole and value > most else f"from {least} on"
        raise ValueError(f"{who}: {name} is {value!r}; a whole number {bounds}{other} is taken")
    return value


def elements(residual: Optional[torch.Tensor]) -> int:
    return 0 if residual is None else residual.numel()
