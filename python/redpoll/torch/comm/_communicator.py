"""One rp_comm for one process group: tensors in, Work out."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from ... import _abi
from ...errors import check, last_message
from . import _notifier
from ._checks import Names
from ._codec import Codec
from ._collectives import Collectives
from ._errors import RedpollError, RedpollValueError, place_text
from ._exit import wait_for_threads
from ._life import Life
from ._request import SLICE_S
from ._sparse import SparseLane, check_sparse
from ._store import JoinError, StoreBridge, bind_host, name_disagreement
from ._work import Work

Parent = tuple["Communicator", Optional[Sequence[int]]]

_NO_DESCRIPTIONS = ("undefined", "default_pg")  # PyTorch's own
_DRAIN_S = 5.0

_live: weakref.WeakValueDictionary[int, Communicator] = weakref.WeakValueDictionary()
"""By number: open, or not destroyed yet."""
_dropped: dict[int, Communicator] = {}  # those that nobody holds, until they are destroyed
_numbers = itertools.count(1)


def communicators() -> list[Communicator]:
    """The communicators of this process that are open and held, oldest group first."""
    return [one for one in _held() if not one.closed and one.number not in _dropped]


def _held() -> list[Communicator]:
    found = [reference() for reference in _live.valuerefs()]
    return [one for one in found if one is not None]


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

    number = 0  # none yet
    closed = False

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
    ) -> None:
        """Collective: returns on all ranks or raises on all. Blocks up to `timeout`.

        store: the group's c10d Store (None for a world of one); kept until close().
        while_joining: called again and again while others are waited for; what it raises ends
        that. parent: another communicator, and which of its ranks this one has, in order,
        None for those that are left; it then shares that one's links, opens nothing, and asks
        the store nothing. priority: an rp_priority."""
        super().__init__()
        self.names = Names(rank, name)
        self.rank = rank
        self.world = world
        self.members: list[int] = []  # of survivors(): ranks of the other one
        self.served = 0  # optimizers over servers that take ranks back
        self.name = name
        self._attached: weakref.WeakSet[Any] = weakref.WeakSet()
        self._kept: list[Any] = []  # of those
        self.objects: dict[Any, None] = {}  # of C (`_attached.py`) that are not destroyed
        self.asked_policy = policy
        self._priority = priority
        self.describe("")
        self.timeout_s = timeout.total_seconds()
        asks = store is not None and parent is None
        self._end = _End(store, StoreBridge(store, while_joining) if asks else None)
        self._lane: Optional[SparseLane] = None
        self.notifier = _notifier.acquire()
        try:
            if parent is None:
                address = self._create(store, while_joining)
            else:
                of, ranks = parent
                if ranks is None:
                    address = self._create_of_survivors(of)
                else:
                    address = self._create_of(of, ranks, while_joining)
            self._life = Life(address, self._end)
        except BaseException:
            self.closed = True
            _notifier.release()
            raise
        self.number = self._end.number = next(_numbers)
        _live[self.number] = self

    @property
    def store(self) -> Any:
        """The group's; None where there is none, or not any more."""
        return self._end.store

    def _create(self, store: Any, check: Optional[Callable[[], None]]) -> int:
        def from_environment(variable: str) -> Optional[bytes]:
            return os.environ.get(variable, "").encode() or None

        self.bind_host = host = self._find_host(store, check)
        options = _abi.rp_comm_options(
            name=self.name.encode(),
            transport=from_environment("REDPOLL_TRANSPORT"),
            link=from_environment("REDPOLL_LINK"),
            bind_host=host.encode() if host else None,
            connect_timeout_s=self.timeout_s,
            timeout_s=self.timeout_s,
            strict_timeout=1,
            progress_thread=1,
            priority=self._priority,
        )
        handle = ctypes.c_void_p()
        bridge = self._end.bridge
        code = _abi.rp_comm_create(
            ctypes.byref(bridge.structure) if bridge else None,
            self.rank,
            self.world,
            ctypes.byref(options),
            ctypes.byref(handle),
        )
        if code < 0:
            self._raise_creation(code, last_message())
        return handle.value or 0

    def _create_of(
        self, parent: Communicator, ranks: Sequence[int], check: Optional[Callable[[], None]]
    ) -> int:
        self.bind_host = parent.bind_host
        options = _abi.rp_comm_options(
            name=self.name.encode(),
            timeout_s=self.timeout_s,
            strict_timeout=1,
            progress_thread=1,
            priority=self._priority,
        )
        handle, request = ctypes.c_void_p(), ctypes.c_void_p()
        with parent._entered("new_group") as address:
            code = _abi.rp_comm_group_start(
                address,
                (ctypes.c_int * len(ranks))(*ranks),
                len(ranks),
                ctypes.byref(options),
                ctypes.byref(handle),
                ctypes.byref(request),
            )
        if code < 0:
            raise self._joining_error(code, last_message())
        try:
            self._meet(request, check)
        except BaseException:
            _abi.rp_comm_destroy(handle)  # and the request, wherever it is
            raise
        return handle.value or 0

    def _create_of_survivors(self, parent: Communicator) -> int:
        """This one's rank and world follow from who is left."""
        self.bind_host = parent.bind_host
        options = _abi.rp_comm_options(
            name=self.name.encode(),
            timeout_s=self.timeout_s,
            connect_timeout_s=self.timeout_s,
            strict_timeout=1,
            progress_thread=1,
            priority=self._priority,
        )
        handle, places = ctypes.c_void_p(), (ctypes.c_int * parent.world)(*[-1] * parent.world)
        with parent._entered("survivors") as address:
            code = _abi.rp_comm_survivors(
                address, ctypes.byref(options), places, ctypes.byref(handle)
            )
        if code < 0:
            raise parent.error(code, last_message(), "survivors")
        self.members = [place for place in places if place >= 0]
        self.rank, self.world = self.members.index(parent.rank), len(self.members)
        self.names.rank = self.rank
        return handle.value or 0

    def _meet(self, request: ctypes.c_void_p, check: Optional[Callable[[], None]]) -> None:
        """Until the other members are there; Ctrl-C is answered meanwhile."""
        code = _abi.RP_PENDING
        while code == _abi.RP_PENDING:
            code = _abi.rp_request_wait_for(request, SLICE_S)
            if check is not None:
                check()
        message = last_message()
        _abi.rp_request_free(ctypes.byref(request))
        if code < 0:
            raise self._joining_error(code, f"making group '{self.name}': {message}")

    def _find_host(self, store: Any, check: Optional[Callable[[], None]]) -> Optional[str]:
        try:
            return bind_host(store, self.rank, self.world, self.name, self.timeout_s, check)
        except Exception as error:
            if isinstance(error, RedpollError):
                raise
            if isinstance(error, JoinError):
                raise self._joining_error(error.code, str(error)) from None
            message = f"the group's store failed: {error}"
            raise self._joining_error(_abi.RP_IO, message) from error

    def _raise_creation(self, code: int, message: str) -> None:
        cause = self._end.bridge.failure if self._end.bridge else None
        if cause is not None and not isinstance(cause, Exception):
            raise cause  # Ctrl-C
        if isinstance(cause, RedpollError):
            raise cause
        if code == _abi.RP_TIMEOUT and self._end.store is not None:
            with contextlib.suppress(RuntimeError):
                wrong = name_disagreement(self._end.store, self.world)
                code, message = (_abi.RP_MISMATCH, wrong) if wrong else (code, message)
        if cause is not None:
            message = f"the group's store failed: {cause}"
        raise self._joining_error(code, message) from cause

    def _joining_error(self, code: int, message: str) -> RedpollError:
        earlier = [text for one in communicators() if (text := one.earlier_failure())]
        return self.error(code, "; ".join([message, *earlier]), "init_process_group")

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
            if self.closed:
                self._gone("all_reduce")
            if self._lane is None:
                self._lane = SparseLane(self.names, weakref.WeakMethod(self._second))
            work = self._lane.post(tensors[0], timeout_s)
            work.posted = self._next_posted("all_reduce", timeout_s)
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
        with self._lock, self._entered("compare_codec") as handle:
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

    # ---- the group ----

    def stats(self) -> dict[str, float]:
        """The fields of rp_comm_stats, since creation. Never blocks."""
        stats = _abi.rp_comm_stats()
        with self._entered("stats") as handle:
            _abi.rp_comm_get_stats(handle, ctypes.byref(stats))
        return {name: getattr(stats, name) for name, *_ in stats._fields_}

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
            self._gone("check")
        with self._entered("check") as handle:
            code = _abi.rp_comm_status(handle)
        if code < 0:
            raise self.error(code, last_message(), "check")

    @property
    def transport(self) -> str:
        """ "shm", "tcp", "shm+tcp", "shaped(shm)": how this rank reaches the others."""
        with self._entered("transport") as handle:
            return _abi.rp_comm_transport(handle).decode()

    def set_timeout(self, timeout: timedelta) -> None:
        """From now on, no progress for so long fails what is in flight. RedpollError (INVALID):
        not above 0."""
        with self._entered("set_timeout") as handle:
            check(_abi.rp_comm_set_timeout(handle, timeout.total_seconds()))
        self.timeout_s = timeout.total_seconds()
        lane = self._lane
        if lane is not None:
            lane.set_timeout(timeout)

    def abort(self, message: str) -> None:
        """Fail all operations of all ranks, now and later, with this message. Nothing happens
        when it is closed already."""
        if not self.closed:
            with contextlib.suppress(RedpollError), self._entered("abort") as handle:
                _abi.rp_comm_abort(handle, _abi.RP_CANCELLED, message.encode())

    def close(self) -> None:
        """Local. Waits for what is in flight, five seconds at most, then leaves: threads,
        sockets and memory are gone afterwards, other ranks' operations that need this one fail
        with its name. Nothing happens when it is closed already."""
        self._leave(_DRAIN_S)

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

    def _leave(self, drain_s: float) -> None:
        """`_life.py` says in which order."""
        self.closed = True
        deadline = time.monotonic() + drain_s
        for one in [*self._attached, *list(self.objects)]:
            with contextlib.suppress(RedpollError):  # another thread has closed it
                one.release(max(deadline - time.monotonic(), 0.0))
        self._kept.clear()
        with self._lock:
            lane, self._lane = self._lane, None
        if lane is not None:
            lane.close(max(deadline - time.monotonic(), 0.0))
        self._life.close(max(deadline - time.monotonic(), 0.0), self._cancel)

    def _cancel(self, address: int) -> None:
        reason = f"group '{self.name}' was destroyed"
        running = next((one for one in self._life.requests() if not one.done), None)
        if running is not None:
            where = place_text(running.place)
            reason += f" with {running.operation} (posted at {where}) in flight"
        _abi.rp_comm_abort(address, _abi.RP_CANCELLED, reason.encode())

    def close_dropped(self) -> None:
        """Of the notifier, once nobody holds the communicator."""
        threading.Thread(target=self.close, name="redpoll drop", daemon=True).start()

    def __del__(self) -> None:
        """The last reference goes: close, on another thread, as this may be in the middle of
        anything. Other ranks hear it as they hear of close()."""
        if not self.number or self.closed:
            return
        _dropped[self.number] = self
        self.notifier.close_later(self)

    @contextlib.contextmanager
    def _entered(self, name: str) -> Iterator[int]:
        handle = self._life.enter() or self._gone(name)
        try:
            yield handle
        finally:
            self._life.leave()

    def _forget(self) -> None:
        """In a forked child: the parent's communicator is not ours to use or destroy."""
        self._lock = threading.RLock()
        self._lane = None
        self.closed = True
        address = self._life.forget()
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
        _live.pop(self.number, None)
        _dropped.pop(self.number, None)
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


def _undestroyed() -> list[Communicator]:
    """In the order in which they were made."""
    found = {one.number: one for one in (*_held(), *list(_dropped.values()))}
    return [found[number] for number in sorted(found)]


def _close_all() -> None:
    """Before the interpreter ends."""
    for one in reversed(_undestroyed()):
        one._leave(0.0)
    wait_for_threads()


def _after_fork() -> None:
    _notifier.forget()
    for one in _undestroyed():
        one._forget()
    _live.clear()
    _dropped.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
