"""How an rp_comm is made: over a group's store, of another one's ranks, of those that are left
when a rank has died; or not at all, in a group that goes on without this rank."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional

from ... import _abi
from ...errors import last_message
from . import _cuda, _registry
from ._checks import Names
from ._errors import RedpollError
from ._request import SLICE_S
from ._store import JoinError, StoreBridge, bind_host, name_disagreement


class Joined(NamedTuple):
    """address: of the rp_comm; 0: none. members: where it is of another one's ranks, those, in
    its order."""

    address: int
    rank: int
    world: int
    bind_host: Optional[str]
    members: Sequence[int] = ()


@dataclass(frozen=True)
class Joining:
    """What one is asked for with. while_waiting: called again and again while others are waited
    for; what it raises ends that."""

    names: Names
    timeout_s: float
    priority: int
    while_waiting: Optional[Callable[[], None]]

    def over_store(
        self, store: Any, bridge: Optional[StoreBridge], rank: int, world: int
    ) -> Joined:
        """store, bridge: None for a world of one. Collective."""
        host = self._find_host(store, rank, world)
        options = self._options(connect_timeout_s=self.timeout_s)
        options.transport = _from_environment("REDPOLL_TRANSPORT")
        options.link = _from_environment("REDPOLL_LINK")
        options.bind_host = host.encode() if host else None
        options.memory = _cuda.most_memory()
        handle = ctypes.c_void_p()
        code = _abi.rp_comm_create(
            ctypes.byref(bridge.structure) if bridge else None,
            rank,
            world,
            ctypes.byref(options),
            ctypes.byref(handle),
        )
        if code < 0:
            self._raise_creation(code, last_message(), store, bridge, world)
        return Joined(handle.value or 0, rank, world, host)

    def of_ranks(self, parent: Any, ranks: Sequence[int], rank: int, world: int) -> Joined:
        """parent: a communicator, whose links it shares; ranks: of that, in order. Collective
        over them."""
        handle, request = ctypes.c_void_p(), ctypes.c_void_p()
        options = self._options()
        with parent.poster.entered("new_group") as address:
            code = _abi.rp_comm_group_start(
                address,
                (ctypes.c_int * len(ranks))(*ranks),
                len(ranks),
                ctypes.byref(options),
                ctypes.byref(handle),
                ctypes.byref(request),
            )
        if code < 0:
            raise self._error(code, last_message())
        try:
            self._meet(request)
        except BaseException:
            _abi.rp_comm_destroy(handle)  # and the request, wherever it is
            raise
        return Joined(handle.value or 0, rank, world, parent.bind_host, ranks)

    def of_survivors(self, parent: Any) -> Joined:
        """Its rank and world follow from who is left. Collective over those."""
        handle, places = ctypes.c_void_p(), (ctypes.c_int * parent.world)(*[-1] * parent.world)
        options = self._options(connect_timeout_s=self.timeout_s)
        with parent.poster.entered("survivors") as address:
            code = _abi.rp_comm_survivors(
                address, ctypes.byref(options), places, ctypes.byref(handle)
            )
        if code < 0:
            raise parent.error(code, last_message(), "survivors")
        members = [place for place in places if place >= 0]
        rank = self.names.rank = members.index(parent.rank)
        return Joined(handle.value or 0, rank, len(members), parent.bind_host, members)

    def _options(self, **more: Any) -> _abi.rp_comm_options:
        return _abi.rp_comm_options(
            name=self.names.name.encode(),
            timeout_s=self.timeout_s,
            strict_timeout=1,
            progress_thread=1,
            priority=self.priority,
            **more,
        )

    def _meet(self, request: ctypes.c_void_p) -> None:
        """Until the other members are there; Ctrl-C is answered meanwhile."""
        code = _abi.RP_PENDING
        while code == _abi.RP_PENDING:
            code = _abi.rp_request_wait_for(request, SLICE_S)
            if self.while_waiting is not None:
                self.while_waiting()
        message = last_message()
        _abi.rp_request_free(ctypes.byref(request))
        if code < 0:
            raise self._error(code, f"making group '{self.names.name}': {message}")

    def _find_host(self, store: Any, rank: int, world: int) -> Optional[str]:
        name, check = self.names.name, self.while_waiting
        try:
            return bind_host(store, rank, world, name, self.timeout_s, check)
        except Exception as error:
            if isinstance(error, RedpollError):
                raise
            if isinstance(error, JoinError):
                raise self._error(error.code, str(error)) from None
            raise self._error(_abi.RP_IO, f"the group's store failed: {error}") from error

    def _raise_creation(
        self, code: int, message: str, store: Any, bridge: Optional[StoreBridge], world: int
    ) -> None:
        cause = bridge.failure if bridge else None
        if cause is not None and not isinstance(cause, Exception):
            raise cause  # Ctrl-C
        if isinstance(cause, RedpollError):
            raise cause
        if code == _abi.RP_TIMEOUT and store is not None:
            with contextlib.suppress(RuntimeError):
                wrong = name_disagreement(store, world)
                code, message = (_abi.RP_MISMATCH, wrong) if wrong else (code, message)
        if cause is not None:
            message = f"the group's store failed: {cause}"
        raise self._error(code, message) from cause

    def _error(self, code: int, message: str) -> RedpollError:
        others = _registry.open_and_held()
        earlier = [text for one in others if (text := one.poster.earlier_failure())]
        return self.names.error(code, "; ".join([message, *earlier]), "init_process_group")


def _from_environment(variable: str) -> Optional[bytes]:
    return os.environ.get(variable, "").encode() or None
