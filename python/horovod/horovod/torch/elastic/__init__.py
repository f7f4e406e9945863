"""Training that goes on without ranks that were lost (`horovodrun --min-np`)."""

from __future__ import annotations

import functools
from typing import Any, Callable

from ...common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from .._context import context
from .sampler import ElasticSampler
from .state import ObjectState, State, TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates func(state, ...): the state is made equal on all ranks, then func runs. When a
    rank is lost, those that are left go back to the last commit and call func again, with
    hvd.size() and hvd.rank() as they are now. Any other failure ends it.

    No rank joins later: Redpoll takes none into a job that runs."""

    @functools.wraps(func)
    def going_on(state: State, *arguments: Any, **named: Any) -> Any:
        syncs = True
        while True:
            try:
                if syncs:
                    state.sync()
                return func(state, *arguments, **named)
            except HorovodInternalError:
                syncs = True
                if not context.go_on():
                    raise
                state.restore()
            except HostsUpdatedInterrupt as interrupt:
                syncs = not interrupt.skip_sync
            state.on_reset()

    return going_on
