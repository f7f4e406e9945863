"""One rp_comm for one process group: tensors in, Work out."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Optional

import torch
import torch.distributed as dist

from .. import _abi
from ..errors import check, last_message
from . import _notifier
from ._collectives import Collectives
from ._errors import RedpollError, RedpollValueError
from ._sparse import SparseLane, check_sparse
from ._store import StoreBridge, bind_host
from ._work import Work

_DRAIN_S = 5.0
_CANCEL_S = 1.0

_live: weakref.WeakSet[Communicator] = weakref.WeakSet()
_live_lock = threading.Lock()
_made = 0


def communicators() -> list[Communicator]:
    """The communicators of this process that are open, oldest group first."""
    with _live_lock:
        return sorted(_live, key=lambda one: one.number)


class Communicator(Collectives):
    """The library's communicator of one process group.

    Posting takes a lock, so that any thread may post; all ranks must post in the same order.
    Tensors are dense or not, on the CPU or a GPU (those that are not dense CPU memory go
    through a dense copy); they belong to the operation until its Work is complete, also when
    the Work is dropped. Operations do not block, unless blocking=True: then they drive the
    transfer on this thread and return a completed Work. Failures raise RedpollError, on every
    rank; bad arguments raise ValueError or TypeError before anything is posted.

    rank, world: of this process in the group. name: of the group. policy: None, or what chooses
    codecs for the collectives of a script that names none (a Policy of `_policy.py`); set it
    before the first collective, on all ranks alike."""

    def __init__(
        self,
        store: Any,
        rank: int,
        world: int,
        name: str,
        timeout: timedelta,
        policy: Any = None,
    ) -> None:
        """Collective: returns on all ranks or raises on all. Blocks up to `timeout`.

        store: the group's c10d Store (None for a world of one); kept until close()."""
        super().__init__()
        self.rank = rank
        self.world = world
        self.name = name
        self.policy = policy
        self.timeout_s = timeout.total_seconds()
        self.closed = False
        self.store = store
        self._bridge = StoreBridge(store) if store is not None else None
        self._lane: Optional[SparseLane] = None
        self._create(store)
        global _made
        with _live_lock:
            _made += 1
            self.number = _made
            _live.add(self)

    def _create(self, store: Any) -> None:
        def from_environment(variable: str) -> Optional[bytes]:
            return os.environ.get(variable, "").encode() or None

        host = bind_host(store)
        options = _abi.rp_comm_options(
            name=self.name.encode(),
            transport=from_environment("REDPOLL_TRANSPORT"),
            link=from_environment("REDPOLL_LINK"),
            bind_host=host.encode() if host else None,
            connect_timeout_s=self.timeout_s,
            timeout_s=self.timeout_s,
            strict_timeout=1,
            progress_thread=1,
        )
        handle = ctypes.c_void_p()
        bridge = self._bridge
        code = _abi.rp_comm_create(
            ctypes.byref(bridge.structure) if bridge else None,
            self.rank,
            self.world,
            ctypes.byref(options),
            ctypes.byref(handle),
        )
        if code < 0:
            self.closed = True
            self._raise_creation(code, last_message())
        self._handle = handle.value or 0

    def _raise_creation(self, code: int, message: str) -> None:
        cause = self._bridge.failure if self._bridge else None
        if cause is not None and not isinstance(cause, Exception):
            raise cause  # Ctrl-C
        if cause is not None:
            message = f"the group's store failed: {cause}"
        raise self.error(code, message, "init_process_group") from cause

    # ---- sparse tensors ----

    def all_reduce_sparse(
        self,
        tensors: Sequence[torch.Tensor],
        op: object = dist.ReduceOp.SUM,
        *,
        blocking: bool = False,
        timeout_s: Optional[float] = None,
    ) -> Work:
        """Sum one COO tensor over all ranks, in place: coalesced, with the indices of all.

        tensors: a list of one, of any dtype that can be added; its shape, dtype and number of
        sparse dimensions are equal on all ranks. op: SUM. Exact, whatever the policy. Runs
        beside the other operations, in order with the other sparse ones."""
        try:
            check_sparse(tensors, op)
        except ValueError as error:
            self._refuse("all_reduce", str(error))
        with self._lock:
            if not self._handle:
                self._gone("all_reduce")
            if self._lane is None:
                self._lane = SparseLane(self, self._second)
            lane = self._lane
        work = lane.post(tensors[0], timeout_s)
        if blocking:
            work.wait()
        return work

    def _second(self) -> Communicator:
        """Of the same ranks, for operations that must not wait for this one's. Collective."""
        store = dist.PrefixStore("sparse/", self.store) if self.store is not None else None
        limit = timedelta(seconds=self.timeout_s)
        return Communicator(store, self.rank, self.world, f"{self.name}:sparse", limit)

    # ---- the group ----

    def stats(self) -> dict[str, float]:
        """The fields of rp_comm_stats, since creation. Never blocks."""
        stats = _abi.rp_comm_stats()
        with self._lock:
            _abi.rp_comm_get_stats(self._handle or self._gone("stats"), ctypes.byref(stats))
        return {name: getattr(stats, name) for name, *_ in stats._fields_}

    @property
    def transport(self) -> str:
        """ "shm", "tcp", "shm+tcp", "shaped(shm)": how this rank reaches the others."""
        return _abi.rp_comm_transport(self._handle or self._gone("transport")).decode()

    def set_timeout(self, timeout: timedelta) -> None:
        """From now on, no progress for so long fails what is in flight. RedpollError (INVALID):
        not above 0."""
        with self._lock:
            handle = self._handle or self._gone("set_timeout")
            check(_abi.rp_comm_set_timeout(handle, timeout.total_seconds()))
            self.timeout_s = timeout.total_seconds()
            lane = self._lane
        if lane is not None:
            lane.set_timeout(timeout)

    def abort(self, message: str) -> None:
        """Fail all operations of all ranks, now and later, with this message."""
        with self._lock:
            if self._handle:
                _abi.rp_comm_abort(self._handle, _abi.RP_CANCELLED, message.encode())

    def close(self) -> None:
        """Local. Waits for what is in flight, five seconds at most, then leaves: threads,
        sockets and memory are gone afterwards, other ranks' operations that need this one fail
        with its name. Nothing happens when it is closed already."""
        self._leave(_DRAIN_S)

    def _leave(self, drain_s: float) -> None:
        with self._lock:
            handle, self._handle = self._handle, 0
            lane, self._lane = self._lane, None
            self.closed = True
        if lane is not None:
            lane.close(drain_s)
        if not handle:
            return
        reason = f"group '{self.name}' was destroyed"
        self._drain(drain_s)
        if self._inside():  # other threads wait in the library: out with them
            _abi.rp_comm_abort(handle, _abi.RP_CANCELLED, reason.encode())
            self._drain(_CANCEL_S)
        _abi.rp_comm_destroy(handle)
        for request in list(self._requests):
            request.cancel(reason)
        self._bridge = self.store = None
        with _live_lock:
            _live.discard(self)
            last = not _live
        if last:
            _notifier.stop()

    def _drain(self, limit_s: float) -> None:
        """Until what is in flight is done and no thread blocks, so many seconds at most."""
        deadline = time.monotonic() + limit_s
        for request in list(self._requests):
            try:
                request.wait(max(deadline - time.monotonic(), 0.0))
            except RedpollError:
                break  # one has failed, or is late: the rest will not do better
        while self._inside() and time.monotonic() < deadline:
            time.sleep(0.001)

    def _inside(self) -> bool:
        """Whether a thread waits in the library now."""
        return bool(self._blocked) or any(each.waited_for for each in list(self._requests))

    def _forget(self) -> None:
        """In a forked child: the parent's communicator is not ours to use or destroy."""
        self._lock = threading.Lock()
        handle, self._handle = self._handle, 0
        self._lane = None
        self.closed = True
        for request in self._requests:
            request.forget()
        self._requests, self._blocked = set(), []
        if handle:
            _abi.rp_comm_forget(handle)


def communicator_of(group: Any = None) -> Communicator:
    """The communicator of a process group (None: the default one) for CPU tensors.

    RedpollValueError when the group's CPU backend is not redpoll. Local."""
    group = group if group is not None else dist.group.WORLD
    if group is None:
        raise RedpollValueError("there is no process group: call init_process_group() first")
    found = getattr(group, "communicator", None)
    if found is None:
        try:
            found = getattr(group._get_backend(torch.device("cpu")), "communicator", None)
        except RuntimeError:
            pass
    if found is None:
        raise RedpollValueError(
            f"the CPU backend of group '{_group_text(group)}' is not redpoll: make it with "
            'init_process_group("redpoll") or new_group(backend="redpoll")'
        )
    return found


def _group_text(group: Any) -> str:
    try:
        return str(group.group_name)
    except RuntimeError:
        return repr(group)


def _close_all() -> None:
    for one in reversed(communicators()):
        one._leave(0.0)


def _after_fork() -> None:
    global _live_lock
    _live_lock = threading.Lock()
    _notifier.forget()
    for one in list(_live):
        one._forget()
    _live.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
