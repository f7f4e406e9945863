"""What optimizers over the library's parameter servers have in common: how they are made, and
what of them goes across restarts. Their steps are _served_spans.py."""

from __future__ import annotations

import ctypes
import logging
import weakref
from typing import Any, Optional

import torch
from torch import nn

from .... import _abi
from ...codecs._rules import Rules
from ...comm._communicator import Communicator, communicator_of
from ...comm._errors import RedpollError
from ...comm._launcher import is_of_launcher, may_come_back
from .._flat import FlatParameters, Layout
from .._twin import GRADIENT, Twin
from .._wrapping import agree, check_feedback, check_model
from ._growth import Growth, Member
from ._served_options import ServedOptions, library_options
from ._served_ranks import Ranks
from ._served_spans import ServedSpans
from ._server_handle import ServerHandle

log = logging.getLogger("redpoll")


class ServedOptimizer(ServedSpans):
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
        self.last = None
        self.steps = self.spans = 0
        self._ranks = Ranks(type(self).__name__, communicator_of(group))
        self._is_just_back, self._updates = False, 0
        problem, facts = "", {}
        try:
            check_model(model, inner, self._ranks.who)
            self._ranks.options = self._checked_options()
            self._check_more()
            self._flat = FlatParameters(model, self._ranks.who)
            self._rules = Rules(given.codec, given.rules, given.min_size)
            self._layout = self._checked_layout(self._rules, given.error_feedback)
            facts = self._facts()
            facts.update(self._more_facts())
        except (ValueError, TypeError) as error:
            problem = str(error)
        self._agreed = facts
        self._ranks.handle = None
        if self._ranks.communicator.is_absent:
            self._come_back(problem)
        else:
            agree(group, self._ranks.who, facts, problem)
            self._after_agreed()
            self._prepare()
            if given.broadcast:
                self._ranks.communicator.broadcast(self._flat.values, 0, blocking=True)
                self._flat.untrained.broadcast(self._ranks.communicator)
            self._ranks.handle = self._made_over(
                self._ranks.communicator, self._ranks.first_ranks
            )
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

    # ---- making ----

    def _checked_options(self) -> _abi.rp_parameter_server_options:
        if self.on_loss not in ("fail", "continue"):
            raise ValueError(
                f"{self._ranks.who}: on_loss is {self.on_loss!r}; 'fail' and 'continue' are "
                "there"
            )
        options = library_options(
            self._given, self._ranks.who, self._ranks.world, self._outlives()
        )
        self.workers = self._ranks.world - options.servers
        self.is_server = not options.servers or self._ranks.rank < options.servers
        self.is_worker = self._ranks.rank >= options.servers
        return options

    def _outlives(self) -> int:
        """2: servers go on without any worker, too, until one is back."""
        if self.on_loss == "fail":
            return 0
        has_store = communicator_of(self.group).store is not None
        is_of_run = is_of_launcher(self._ranks.rank, self._ranks.world)
        return 2 if may_come_back() and has_store and is_of_run else 1

    def _checked_layout(self, rules: Rules, error_feedback: bool) -> Layout:
        if rules.adaptive is not None:
            raise ValueError(f"{self._ranks.who}: codec auto is of compress(); take one as q4")
        if self._flat.dtype is not torch.float32:
            raise ValueError(
                f"{self._ranks.who}: parameters are {self._flat.dtype}; servers step float32: "
                "call model.float() first"
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
            "seed": self._ranks.options.seed,
            "error_feedback": given.error_feedback,
            "broadcast": given.broadcast,
            "parameters": codecs,
            **self._flat.untrained.facts(given.broadcast),
        }

    def _prepare(self) -> None:
        """What a handle borrows."""
        self._gradient = torch.zeros_like(self._flat.values)
        self._twin = Twin([self._flat.values, self._gradient])
        self._kept_merge = self._give_merge(self._ranks.options)
        self._growth = self._made_growth()
        if self._growth is not None and self._ranks.rank == 0:
            watched = self._growth.watch(weakref.ref(self._ranks), self._ranks.options)
            self._kept_merge = (self._kept_merge, watched)

    def _made_growth(self) -> Optional[Growth]:
        """Where ranks may come back. Optimizers of a group are told apart by their order."""
        group = communicator_of(self.group)
        if not (self._ranks.options.goes_on and may_come_back()) or group.store is None:
            return None
        group.served += 1
        growth = Growth(
            group.store, group.served, is_of_launcher(self._ranks.rank, self._ranks.world)
        )
        group.attach(growth)
        if self._ranks.rank == 0:
            group.attach(growth.requests, keep=True)  # it says that the run is over
        return growth

    def _come_back(self, problem: str) -> None:
        """Of a rank that was started again."""
        if problem:
            raise ValueError(problem)
        if not self.is_worker:
            raise RedpollError(
                _abi.RP_INVALID,
                f"{self._ranks.who}: rank {self._ranks.rank} was started again, and served: "
                "the run has ended with it",
            )
        self._prepare()
        if self._growth is None:
            raise RedpollError(
                _abi.RP_INVALID,
                f"{self._ranks.who}: rank {self._ranks.rank} was started again, and the others "
                "do not take it back: on_loss='continue' does, under redpoll run --on-loss "
                "continue --restart N",
            )
        self._growth.come_back(self._member())
        self._is_just_back = True

    def _made_over(self, communicator: Communicator, first_ranks: list[int]) -> ServerHandle:
        """first_ranks: the ranks of the communicator, by their numbers in the group."""
        segments, place = self._layout.segments(), self._twin.host[GRADIENT].data_ptr()
        for segment in segments:
            segment.data = place
            place += segment.count * self._gradient.element_size()
        weak = weakref.ref(self)

        def raised() -> Optional[BaseException]:
            own = weak()
            return own._raised() if own is not None else None

        self._ranks.options.workers = self.workers  # also where some are missing
        names = (ctypes.c_int * len(first_ranks))(*first_ranks)
        kept = (self._kept_merge, names, self._twin, self._layout)
        made = ServerHandle(
            communicator, self._ranks.who, segments, self._ranks.options, kept, raised
        )
        _abi.rp_parameter_server_name(made.address, names)
        return made

    def _member(self) -> Member:
        return _Growing(self)

    # ---- across restarts ----

    def _own_state(self, form: str, version: int) -> dict[str, Any]:
        """What is this rank's, behind finish()."""
        if self._has_end:
            raise RuntimeError(
                f"{self._ranks.who}: state_dict() is not for the middle of a span()"
            )
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

    def _worker(self) -> int:
        return self._ranks.rank - self._ranks.options.servers if self.is_worker else -1

    def _keeps_its_state(self) -> bool:
        """What is loaded is older than what a rank that has just come back has."""
        if self._is_just_back:
            log.info(
                "%s: rank %d was started again, and keeps what it has from the others: "
                "load_state_dict() changes nothing",
                self._ranks.who,
                self._ranks.rank,
            )
        return self._is_just_back

    def _take_feedback(self, own: dict[str, Any]) -> None:
        saved, here = own["residual"], self._layout.residual
        if (own["worker"], own["workers"]) != (self._worker(), self.workers):
            if here is not None:
                here.zero_()
            if saved is not None:
                log.info(
                    "%s: error feedback begins anew: it is of other workers", self._ranks.who
                )
            return
        check_feedback(elements(saved), elements(here), self._ranks.who)
        if here is not None:
            here.copy_(saved)


class _Growing:
    """A Member, for the time of a call."""

    def __init__(self, own: ServedOptimizer) -> None:
        self._own = own
        self.ranks, self.flat, self.facts = own._ranks, own._flat, own._agreed
        self.inner, self.model, self.workers = own.inner, own.model, own.workers
        self.made_over = own._made_over

    @property
    def steps(self) -> int:
        return self._own.steps

    @steps.setter
    def steps(self, steps: int) -> None:
        self._own.steps = steps

    @property
    def spans(self) -> int:
        return self._own.spans

    @spans.setter
    def spans(self, spans: int) -> None:
        self._own.spans = spans

    @property
    def updates(self) -> int:
        return self._own._updates

    @updates.setter
    def updates(self, updates: int) -> None:
        self._own._updates = updates


def elements(residual: Optional[torch.Tensor]) -> int:
    return 0 if residual is None else residual.numel()
