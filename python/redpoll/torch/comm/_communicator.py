"""One rp_comm for one process group: tensors in, Work out."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
import time
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from ... import _abi
from ...errors import check, last_message
from . import _collectives, _messages, _notifier, _owned_collectives, _registry
from ._all_reduce import all_reduce
from ._checks import Checks, Names
from ._codec import Codec
from ._errors import RedpollError, RedpollValueError
from ._exit import wait_for_threads
from ._joining import Joined, Joining
from ._life import Life
from ._neighbors import neighbor_all_reduce
from ._posting import Poster
from ._sparse import SparseLane, check_sparse
from ._store import StoreBridge
from ._work import Work

Parent = tuple["Communicator", Optional[Sequence[int]]]

_NO_DESCRIPTIONS = ("undefined", "default_pg")  # PyTorch's own
_DRAIN_S = 5.0


def communicators() -> list[Communicator]:
    """The communicators of this process that are open and held, oldest group first."""
    return _registry.open_and_held()


class Communicator:
    """The library's communicator of one process group.

    Posting takes a lock, so that any thread may post; all ranks must post in the same order.
    Tensors are dense or not, on the CPU or a GPU (those that are not dense CPU memory go
    through a dense copy); they belong to the operation until its Work is complete, also when
    the Work is dropped. Operations do not block, unless blocking=True: then they drive the
    transfer on this thread and return a completed Work. Failures raise RedpollError, on every
    rank; bad arguments raise ValueError or TypeError before anything is posted.

    rank, world: of this process in the group. name: of the group. policy: None, or what chooses
    codecs for the collectives of a script that names none (a Policy of `_policy.py`); set it
    before the first collective, on all ranks alike. is_absent: this rank was started again, the
    group goes on without it, and every operation is refused.

    It is made of parts: names (what errors say), checks (of arguments), poster (posts on the
    rp_comm, and knows its requests) and that rp_comm's life. Operations are functions of a
    communicator, each kind in a file of its own."""

    number = 0  # none yet
    closed = False

    all_reduce = all_reduce
    neighbor_all_reduce = neighbor_all_reduce
    reduce_scatter = _collectives.reduce_scatter
    all_gather = _collectives.all_gather
    reduce_scatter_segments = _owned_collectives.reduce_scatter_segments
    all_gather_segments = _owned_collectives.all_gather_segments
    broadcast = _collectives.broadcast
    reduce = _collectives.reduce
    gather = _collectives.gather
    scatter = _collectives.scatter
    all_to_all = _collectives.all_to_all
    barrier = _collectives.barrier
    send = _messages.send
    recv = _messages.recv
    recv_any = _messages.recv_any

    def __init__(
        self,
        store: Any,
        rank: int,
        world: int,
        name: str,
        timeout: timedelta,
        policy: Any = None,
        while_joining: Optional[Callable[[], None]] = None,
        parent: Optional[Parent] = None,
        priority: int = _abi.PRIORITIES["DEFAULT"],
        absence: str = "",
    ) -> None:
        """Collective: returns on all ranks or raises on all. Blocks up to `timeout`.

        store: the group's c10d Store (None for a world of one); kept until close().
        while_joining: called again and again while others are waited for; what it raises ends
        that. parent: another communicator, and which of its ranks this one has, in order,
        None for those that are left; it then shares that one's links, opens nothing, and asks
        the store nothing. priority: an rp_priority. absence: why this rank has a place in the
        group and no part in it; nobody is met then."""
        self.names = Names(rank, name)
        self.names.absence = absence
        self.name = name
        self.before: Optional[tuple[int, int]] = None
        """Of those that are left of a group: this one's rank in that, and how many it had."""
        self.served = 0  # optimizers over servers that take ranks back
        self._attached: weakref.WeakSet[Any] = weakref.WeakSet()
        self._kept: list[Any] = []  # of those
        self.objects: dict[Any, None] = {}  # of C (`_attached.py`) that are not destroyed
        self.ask_policy(policy)
        asks = store is not None and parent is None and not absence
        self._end = _End(store, StoreBridge(store, while_joining) if asks else None)
        self._lane: Optional[SparseLane] = None
        self.notifier = _notifier.acquire()
        try:
            limit_s = timeout.total_seconds()
            joining = Joining(self.names, limit_s, priority, while_joining)
            joined = self._join(joining, store, rank, world, parent)
        except BaseException:
            self.closed = True
            _notifier.release()
            raise
        self.rank, self.world, self.bind_host = joined.rank, joined.world, joined.bind_host
        self.members = list(joined.members)  # of another one: their ranks in that
        self.checks = Checks(self.names, self.world)
        life = Life(joined.address, self._end)
        self.poster = Poster(weakref.ref(self), self.names, life, self.notifier, limit_s)
        if self.is_absent:  # there is nothing to close
            life.shut()
            _notifier.release()
        else:
            self.number = self._end.number = _registry.enrol(self)

    def _join(
        self, joining: Joining, store: Any, rank: int, world: int, parent: Optional[Parent]
    ) -> Joined:
        if self.is_absent:
            return Joined(0, rank, world, None)
        if parent is None:
            return joining.over_store(store, self._end.bridge, rank, world)
        of, ranks = parent
        if ranks is None:
            return joining.of_survivors(of)
        return joining.of_ranks(of, ranks, rank, world)

    @property
    def is_absent(self) -> bool:
        return bool(self.names.absence)

    @property
    def store(self) -> Any:
        """The group's; None where there is none, or not any more."""
        return self._end.store

    @property
    def label(self) -> str:
        """What people call the group."""
        return self.names.label

    @property
    def timeout_s(self) -> float:
        """In flight, no progress for so long is a failure."""
        return self.poster.timeout_s

    @property
    def sequence(self) -> int:
        """Of the operation that was posted last; 0: none was."""
        return self.poster.sequence

    def error(
        self, code: int, message: str, operation: str, posted_at: Optional[str] = None
    ) -> RedpollError:
        """The exception for a failed operation of this group; not raised here."""
        return self.names.error(code, message, operation, posted_at)

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
            self.checks.refuse("all_reduce", str(error))
        with self.poster.lock:
            if self.closed:
                raise self.names.gone("all_reduce")
            if self._lane is None:
                self._lane = SparseLane(self.names, weakref.WeakMethod(self._second))
            work = self._lane.post(tensors[0], timeout_s)
            work.posted = self.poster.next_posted("all_reduce", timeout_s)
        if blocking:
            work.wait()
        return work

    def _second(self) -> Communicator:
        """Of the same ranks, for operations that must not wait for this one's. Collective."""
        limit = timedelta(seconds=self.timeout_s)
        everybody = (self, range(self.world))
        return Communicator(
            None,
            self.rank,
            self.world,
            f"{self.name}:sparse",
            limit,
            while_joining=self.check,
            parent=everybody,
        )

    def compare_codec(self, codec: Codec, most: int, feedback: bool) -> tuple[int, str]:
        """From how many elements on float32 all-reduces are faster with `codec` than exact, by
        trying lengths up to `most` (redpoll/codec_comparison.h), and that in words; the same on
        all ranks. _abi.RP_LOSSY_NEVER: they are not. Collective; blocks, for about a second."""
        comparison = _abi.rp_codec_comparison()
        with self.poster.lock, self.poster.entered("compare_codec") as handle:
            code = _abi.rp_codec_compare(
                handle,
                codec.reference,
                most,
                int(feedback),
                None,
                ctypes.byref(comparison),
            )
        if code < 0:
            raise self.error(code, last_message(), "compare_codec")
        room = ctypes.create_string_buffer(_abi.RP_COMPARISON_TEXT)
        text: bytes = _abi.rp_codec_comparison_text(
            ctypes.byref(comparison), codec.reference, room
        )
        return comparison.lossy_from, text.decode()

    def survivors(self) -> Communicator:
        """After an operation has failed with status "PEER": of those that are left, in their
        order; members: their ranks here. Collective over them; blocks up to the timeout, since
        others may compute until they hear of the death. RedpollError: no rank was lost, or one
        that lives did not come."""
        limit = timedelta(seconds=self.timeout_s)
        return Communicator(None, 0, 1, f"{self.name}:left", limit, parent=(self, None))

    def subset(self, ranks: Sequence[int]) -> Communicator:
        """Of these ranks of this one, in their order. Collective over them; blocks up to the
        timeout."""
        limit, place = timedelta(seconds=self.timeout_s), list(ranks).index(self.rank)
        parent = (self, ranks)
        return Communicator(None, place, len(ranks), f"{self.name}:part", limit, parent=parent)

    # ---- the group ----

    def stats(self) -> dict[str, float]:
        """The fields of rp_comm_stats, since creation. Never blocks."""
        stats = _abi.rp_comm_stats()
        with self.poster.entered("stats") as handle:
            _abi.rp_comm_get_stats(handle, ctypes.byref(stats))
        return {name: getattr(stats, name) for name, *_ in stats._fields_}

    def ask_policy(self, policy: Any) -> None:
        """What chooses codecs for it, before anybody knows what people call it."""
        self.asked_policy = policy
        self.describe("")

    def describe(self, text: str) -> None:
        """What people call the group, as PyTorch passes it on after the group is made. Decides
        whether the policy that was asked for serves it."""
        self.description = "" if text in _NO_DESCRIPTIONS else text
        self.names.label = self.description or self.name
        policy, names = self.asked_policy, [self.name, text] if text else [self.name]
        self.policy: Any = policy if policy is None or policy.serves(names) else None

    def check(self) -> None:
        """RedpollError: the group has failed, or was destroyed. Local; never blocks."""
        if self.closed:
            raise self.names.gone("check")
        with self.poster.entered("check") as handle:
            code = _abi.rp_comm_status(handle)
        if code < 0:
            raise self.error(code, last_message(), "check")

    @property
    def transport(self) -> str:
        """ "shm", "tcp", "shm+tcp", "shaped(shm)": how this rank reaches the others."""
        with self.poster.entered("transport") as handle:
            return _abi.rp_comm_transport(handle).decode()

    def set_timeout(self, timeout: timedelta) -> None:
        """From now on, no progress for so long fails what is in flight. RedpollError (INVALID):
        not above 0."""
        if not self.is_absent:
            with self.poster.entered("set_timeout") as handle:
                check(_abi.rp_comm_set_timeout(handle, timeout.total_seconds()))
        self.poster.timeout_s = timeout.total_seconds()
        lane = self._lane
        if lane is not None:
            lane.set_timeout(timeout)

    def abort(self, message: str) -> None:
        """Fail all operations of all ranks, now and later, with this message. Nothing happens
        when it is closed already."""
        if not self.closed:
            with contextlib.suppress(RedpollError), self.poster.entered("abort") as handle:
                _abi.rp_comm_abort(handle, _abi.RP_CANCELLED, message.encode())

    def close(self) -> None:
        """Local. Waits for what is in flight, five seconds at most, then leaves: threads,
        sockets and memory are gone afterwards, other ranks' operations that need this one fail
        with its name. Nothing happens when it is closed already."""
        self.leave(_DRAIN_S)

    def attach(self, user: Any, keep: bool = False) -> None:
        """Something that uses the group: its release(drain_s) is called before that goes. Held
        weakly, or, as `keep` says, until then."""
        self._attached.add(user)
        if keep:
            self._kept.append(user)

    def serve(self, memory: Any) -> None:
        """Other ranks read and write this memory until unserve(), or until the rp_comm is
        destroyed: then its release() is called, and it is let go of."""
        self._end.served[memory] = None

    def unserve(self, memory: Any) -> None:
        self._end.served.pop(memory, None)

    def leave(self, drain_s: float) -> None:
        """close(), with so many seconds for what is in flight; `_life.py` says in which
        order."""
        self.closed = True
        deadline = time.monotonic() + drain_s
        for one in [*self._attached, *list(self.objects)]:
            with contextlib.suppress(RedpollError):  # another thread has closed it
                one.release(max(deadline - time.monotonic(), 0.0))
        self._kept.clear()
        with self.poster.lock:
            lane, self._lane = self._lane, None
        if lane is not None:
            lane.close(max(deadline - time.monotonic(), 0.0))
        if self.is_absent:
            return
        self.poster.life.close(max(deadline - time.monotonic(), 0.0), self.poster.cancel)

    def close_dropped(self) -> None:
        """Of the notifier, once nobody holds the communicator."""
        threading.Thread(target=self.close, name="redpoll drop", daemon=True).start()

    def __del__(self) -> None:
        """The last reference goes: close, on another thread, as this may be in the middle of
        anything. Other ranks hear it as they hear of close()."""
        if not self.number or self.closed:
            return
        _registry.keep_dropped(self)
        self.notifier.close_later(self)

    def forget(self) -> None:
        """In a forked child: the parent's communicator is not ours to use or destroy."""
        self.poster.lock = threading.RLock()
        self._lane = None
        self.closed = True
        address = self.poster.life.forget()
        if address:
            _abi.rp_comm_forget(address)


class _End:
    """What goes with an rp_comm when the last to use it has left. It does not hold the
    communicator, or that would hold itself."""

    def __init__(self, store: Any, bridge: Optional[StoreBridge]) -> None:
        """store, bridge: kept until then."""
        self.number = 0
        self.store = store
        self.bridge = bridge
        self.served: dict[Any, None] = {}  # memory that other ranks read and write

    def __call__(self, address: int) -> None:
        _abi.rp_comm_destroy(address)
        for memory in list(self.served):
            memory.release()
        self.served.clear()
        self.store = self.bridge = None
        _registry.strike(self.number)
        _notifier.release()


def communicator_of(group: Any = None) -> Communicator:
    """The communicator of a process group (None: the default one): its backend's for CPU
    tensors, or, where that is another's, for CUDA tensors.

    RedpollValueError when neither is redpoll. Local."""
    group = group if group is not None else dist.group.WORLD
    if group is None:
        raise RedpollValueError("there is no process group: call init_process_group() first")
    found = getattr(group, "communicator", None)
    for device in ("cpu", "cuda"):
        if found is None:
            with contextlib.suppress(RuntimeError):
                backend = group._get_backend(torch.device(device))
                found = getattr(backend, "communicator", None)
    if found is None:
        raise RedpollValueError(
            f"the backend of group '{_group_text(group)}' is not redpoll: make it with "
            'init_process_group("redpoll") or new_group(backend="redpoll")'
        )
    return found


def _group_text(group: Any) -> str:
    try:
        return str(group.group_name)
    except RuntimeError:
        return repr(group)


def _close_all() -> None:
    """Before the interpreter ends."""
    for one in reversed(_registry.undestroyed()):
        one.leave(0.0)
    wait_for_threads()


def _after_fork() -> None:
    _notifier.forget()
    for one in _registry.undestroyed():
        one.forget()
    _registry.strike_all()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
