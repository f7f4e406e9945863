"""Window: neighbours write into slots of each other, and nobody waits who does not ask to."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Callable, Optional, Union

import torch

from ... import _abi
from ...errors import last_message
from .._untraced import keep_untraced
from ..comm._codec import Codec
from ..comm._communicator import Communicator, communicator_of
from ..comm._dtypes import NUMBER
from ..comm._errors import RedpollError
from ._twin import Twin, may_exchange

_SLICE_S = 0.25  # of a wait, so that Ctrl-C is answered
_DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64)


class WindowOperation:
    """A put, an accumulate or a get that is under way. It goes on whether or not it is waited
    for."""

    def __init__(self, window: Window, handle: ctypes.c_void_p, name: str) -> None:
        self._window, self._handle, self._name = window, handle, name

    def is_completed(self) -> bool:
        """True when wait() would not block."""
        if not self._handle:
            return True
        code: int = self._window._call(
            self._name, _abi.rp_window_test, self._handle, pends=True
        )
        return code != _abi.RP_PENDING

    def wait(self, timeout_s: Optional[float] = None) -> None:
        """Until all ranks concerned have applied it, or answered. timeout_s: None: the
        group's. RedpollError: TIMEOUT names who is missing, and it may be waited for again;
        PEER names who is gone."""
        if not self._handle:
            return

        def wait(_window: Any, slice_s: float) -> int:
            code: int = _abi.rp_window_wait(ctypes.byref(self._handle), slice_s)
            return code

        self._window._wait(self._name, wait, timeout_s)

    def __del__(self) -> None:
        if not self._handle or not self._window._is_usable():
            return  # it goes with the window
        with suppress(RedpollError), self._window._communicator.poster.entered(self._name):
            if self._window._memory.address:
                _abi.rp_window_operation_free(ctypes.byref(self._handle))


class _Memory:
    """Of a window: neighbours read and write it until it is freed, or the rp_comm is destroyed,
    whoever holds the window here. So the end of the rp_comm holds it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.twin = Twin([tensor])
        self.address = ctypes.c_void_p()

    def release(self) -> None:
        """The rp_comm has been destroyed, and nobody serves the window any more."""
        _abi.rp_window_free(ctypes.byref(self.address))


class Window:
    """A tensor of each rank and, for every in-neighbour, a slot that this one writes into
    whenever it likes, while the owner computes.

        window = redpoll.torch.Window(x, "x", sources=[left], destinations=[right],
                                      zero_slots=True, follow_p=True)
        for _ in range(100):                            # each rank in its own time
            window.accumulate(weights={right: 0.5}, self_weight=0.5)
            window.update(1.0, reset=True)              # x and p take in what has come
        z = x / window.p                                # goes to the mean of all ranks

    Pushes take their values when they are called and never wait; what a slow or stopped
    neighbour has not taken is merged. include/redpoll/window.h says what is conserved and what
    is held in memory. Weights are dicts of rank and weight; None: all neighbours, by 1.0."""

    def __init__(
        self,
        tensor: torch.Tensor,
        name: str,
        sources: Sequence[int],
        destinations: Sequence[int],
        *,
        codec: Union[str, Codec, None] = None,
        zero_slots: bool = False,
        follow_p: bool = False,
        group: Any = None,
    ) -> None:
        """Collective over the group. The window has the tensor's own memory, which updates
        write. Of a tensor on a GPU it has a twin in pinned memory: neighbours read what the
        tensor was at this rank's latest push or update.

        name: unique in the group. sources, destinations: in- and out-neighbours. codec: how
        values travel; None: exact. zero_slots: slots begin as zeros, else as copies of the
        tensor. follow_p: p goes with pushes and updates. group: a process group; None: the
        default one.

        RedpollError, on every rank: INVALID, which is a ValueError: the name is taken, or an
        argument cannot be; MISMATCH: ranks differ, or neighbours do not name each other."""
        self.name, self.tensor = name, tensor
        self.sources, self.destinations = sorted(sources), sorted(destinations)
        self._communicator: Communicator = (
            group if isinstance(group, Communicator) else communicator_of(group)
        )
        _check_tensor(tensor, name)
        self._memory = _Memory(tensor)
        self._memory.twin.fetch()
        setup = _abi.rp_window_setup(
            name=name.encode(),
            data=self._memory.twin.host[0].data_ptr(),
            count=tensor.numel(),
            dtype=NUMBER[tensor.dtype],
            sources=_ints(self.sources),
            source_count=len(self.sources),
            destinations=_ints(self.destinations),
            destination_count=len(self.destinations),
            codec=Codec.parse(codec).structure if codec is not None else _abi.rp_codec(),
            zero_slots=zero_slots,
            follow_p=follow_p,
        )
        with self._communicator.poster.entered("Window") as comm:
            place = ctypes.byref(self._memory.address)
            code = _abi.rp_window_create(comm, ctypes.byref(setup), place)
            message = last_message() if code < 0 else ""
            if code >= 0:
                self._communicator.serve(self._memory)
        if code < 0:
            raise self._communicator.error(code, message, "Window")

    def free(self) -> None:
        """Collective: waits until what this rank has pushed is applied, then for the others.
        What is still under way afterwards nobody can wait for. Again: nothing. A window that is
        not freed is served as long as its group is there, and ends with that."""
        if not self._memory.address or self._communicator.closed:
            return
        try:
            self.flush()
        finally:
            with self._communicator.poster.entered("Window.free"):
                code = _abi.rp_window_free(ctypes.byref(self._memory.address))
                message = last_message() if code < 0 else ""
            self._communicator.unserve(self._memory)
        if code < 0:
            raise self._communicator.error(code, message, "Window.free")

    # ---- pushes and gets ----

    def put(
        self,
        tensor: Optional[torch.Tensor] = None,
        weights: Optional[Mapping[int, float]] = None,
        self_weight: Optional[float] = None,
        *,
        mutex: bool = False,
    ) -> WindowOperation:
        """This rank's slot at each destination becomes weight * tensor; its version rises.
        tensor: of the window's shape; None: its own. self_weight: what the tensor, and p, are
        multiplied by afterwards, in place. mutex: not applied while a destination holds its own
        mutex for us."""
        return self._push("put", _abi.rp_window_put, tensor, weights, self_weight, mutex)

    def accumulate(
        self,
        tensor: Optional[torch.Tensor] = None,
        weights: Optional[Mapping[int, float]] = None,
        self_weight: Optional[float] = None,
        *,
        mutex: bool = False,
    ) -> WindowOperation:
        """As put(), but slots are added to, and versions stay."""
        call = _abi.rp_window_accumulate
        return self._push("accumulate", call, tensor, weights, self_weight, mutex)

    def get(
        self, weights: Optional[Mapping[int, float]] = None, *, mutex: bool = False
    ) -> WindowOperation:
        """The slots of these sources become weight * their tensors, as these are then."""
        listed, count = _neighbors(weights)
        handle = ctypes.c_void_p()
        self._call("get", _abi.rp_window_get, listed, count, mutex, ctypes.byref(handle))
        return WindowOperation(self, handle, "get")

    def _push(
        self,
        name: str,
        call: Callable[..., int],
        tensor: Optional[torch.Tensor],
        weights: Optional[Mapping[int, float]],
        self_weight: Optional[float],
        mutex: bool,
    ) -> WindowOperation:
        listed, count = _neighbors(weights)
        send = _abi.rp_window_send(
            targets=listed,
            count=count,
            scales=self_weight is not None,
            self_weight=1.0 if self_weight is None else self_weight,
            mutex=mutex,
        )
        if tensor is not None:
            _check_tensor(tensor, self.name)
            if tensor.dtype != self.tensor.dtype or tensor.shape != self.tensor.shape:
                raise ValueError(
                    f"window '{self.name}' has {tuple(self.tensor.shape)} of "
                    f"{self.tensor.dtype}; {tuple(tensor.shape)} of {tensor.dtype} were given"
                )
        twin = self._memory.twin if tensor is None else Twin([tensor])
        twin.fetch()
        source = twin.host[0]
        handle = ctypes.c_void_p()
        address = source.data_ptr() or None
        self._call(
            name, call, address, source.numel(), ctypes.byref(send), ctypes.byref(handle)
        )
        if self_weight is not None:
            twin.deliver()
        return WindowOperation(self, handle, name)

    def flush(self, timeout_s: Optional[float] = None) -> None:
        """Until all that this rank has pushed so far is applied."""
        self._wait("flush", _abi.rp_window_flush, timeout_s)

    # ---- update ----

    def update(
        self,
        self_weight: Optional[float] = None,
        weights: Optional[Mapping[int, float]] = None,
        *,
        reset: bool = False,
        mutex: bool = False,
        output: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """The tensor becomes self_weight * tensor + the sum of weights * slots, and p alike;
        without any weights the mean. Versions become zero. Local. reset: the slots that were
        added become zero. mutex: while holding the own mutexes for all sources. output: what is
        written in place of the tensor. Returns what was written."""
        listed, count = _neighbors(weights)
        mix = _abi.rp_window_mix(
            self_weight=0.0 if self_weight is None else self_weight,
            sources=listed,
            count=count,
            mean=self_weight is None,
            reset=reset,
        )
        if self_weight is None and weights is not None:
            raise ValueError("weights of sources need self_weight, too")
        if output is not None:
            _check_tensor(output, self.name)
            if output.dtype != self.tensor.dtype or output.shape != self.tensor.shape:
                raise ValueError(f"output is not as the tensor of window '{self.name}' is")
        own = self._memory.twin
        written = own if output is None else Twin([output])
        target = None if output is None else written.host[0].data_ptr() or None
        own.fetch()
        with self.mutex(self.sources, own=True) if mutex else nullcontext():
            self._call("update", _abi.rp_window_update, ctypes.byref(mix), target)
        written.deliver()
        return self.tensor if output is None else output

    # ---- looking ----

    def version(self, source: int) -> int:
        """Puts of that source and gets from it since the last update."""
        with self._entered("version") as window:
            return int(_abi.rp_window_version(window, source))

    @property
    def p(self) -> float:
        """What push-sum divides by."""
        with self._entered("p") as window:
            return float(_abi.rp_window_p(window))

    def follow_p(self, on: bool) -> None:
        """Shall p go with pushes and updates from now on?"""
        self._call("follow_p", _abi.rp_window_follow_p, on)

    def slot(self, source: int) -> torch.Tensor:
        """A copy of what a source has written."""
        copy = torch.empty_like(self.tensor)
        twin = Twin([copy])
        place = twin.host[0].data_ptr() or None
        self._call("slot", _abi.rp_window_read, source, place, None)
        twin.deliver()
        return copy

    # ---- mutexes ----

    @contextmanager
    def mutex(
        self,
        ranks: Optional[Sequence[int]] = None,
        *,
        own: bool = False,
        timeout_s: Optional[float] = None,
    ) -> Iterator[None]:
        """A block in which the others do not hold these mutexes: this rank's at `ranks`
        (None: the destinations), or with own=True its own for them."""
        listed = _ints(self.destinations if ranks is None else ranks)
        count = len(listed)

        def lock(window: Any, slice_s: float) -> int:
            code: int = _abi.rp_window_lock(window, listed, count, own, slice_s)
            return code

        self._wait("mutex", lock, timeout_s)
        try:
            yield
        finally:
            self._call("mutex", _abi.rp_window_unlock, listed, count, own)

    # ---- calls ----

    def _is_usable(self) -> bool:
        return bool(self._memory.address) and not self._communicator.closed

    @contextmanager
    def _entered(self, name: str) -> Iterator[ctypes.c_void_p]:
        with self._communicator.poster.entered(f"Window.{name}"):
            if not self._memory.address:
                raise self._communicator.error(
                    _abi.RP_STATE, f"window '{self.name}' was freed", f"Window.{name}"
                )
            yield self._memory.address

    def _call(
        self, name: str, call: Callable[..., int], *arguments: Any, pends: bool = False
    ) -> int:
        with self._entered(name) as window:
            code = call(*arguments) if pends else call(window, *arguments)
            message = last_message() if code < 0 else ""
        if code < 0:
            raise self._communicator.error(code, message, f"Window.{name}")
        return code

    def _wait(
        self, name: str, call: Callable[[Any, float], int], timeout_s: Optional[float]
    ) -> None:
        """In slices of one length: the last is no shorter, so that it does not blame whoever
        would have answered in a whole one."""
        limit = self._communicator.timeout_s if timeout_s is None else timeout_s
        slice_s = max(limit / math.ceil(max(limit, 1e-6) / _SLICE_S), 1e-6)
        begun = time.monotonic()
        while True:
            waited = time.monotonic() - begun
            with self._entered(name) as window:
                _abi.rp_window_waited(waited)
                code = call(window, slice_s)
                message = last_message() if code < 0 else ""
            if code >= 0:
                return
            if code != _abi.RP_TIMEOUT or time.monotonic() - begun > limit - slice_s / 2:
                raise self._communicator.error(code, message, f"Window.{name}")
            self._communicator.check()  # a group that has failed by a timeout says so, too


def _ints(values: Sequence[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


def _neighbors(weights: Optional[Mapping[int, float]]) -> tuple[Any, int]:
    if weights is None:
        return None, 0
    pairs = [_abi.rp_neighbor(rank, weight) for rank, weight in weights.items()]
    return (_abi.rp_neighbor * max(len(pairs), 1))(*pairs), len(pairs)


def _check_tensor(tensor: torch.Tensor, name: str) -> None:
    if not may_exchange(tensor) or not tensor.is_contiguous():
        raise ValueError(
            f"window '{name}': the tensor is not contiguous memory of the CPU or a GPU"
        )
    if tensor.dtype not in _DTYPES:
        raise ValueError(
            f"window '{name}': float32, float64, int32 and int64 are allowed; "
            f"not {tensor.dtype}"
        )


keep_untraced("redpoll")
