"""Windows by name: a tensor of each rank, and slots that neighbours write into."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Callable, Optional

import torch

from redpoll.torch import Window, WindowOperation

from . import _weights
from ._context import context

log = logging.getLogger("bluefog")

_DTYPES = (torch.int32, torch.int64, torch.float32, torch.float64)
_handles = itertools.count()
_running: dict[int, tuple[str, WindowOperation]] = {}
_follows_p = False

Weights = Optional[Mapping[int, float]]


def _found(name: str, error: type[Exception] = KeyError) -> Window:
    context.check()
    window: Optional[Window] = context.windows.get(name)
    if window is None:
        raise error(f"there is no window {name!r}: win_create() makes one")
    return window


def _check(tensor: torch.Tensor, name: str) -> None:
    if tensor.dtype not in _DTYPES:
        raise ValueError(
            f"window {name}: int32, int64, float32 and float64 are allowed; not {tensor.dtype}"
        )
    if not tensor.is_contiguous():
        raise ValueError(f"window {name}: the tensor is not contiguous")


# ---- making ----


def win_create(tensor: torch.Tensor, name: str, zero_init: bool = False) -> bool:
    """A window of this tensor's own memory, for the neighbours of the graph as it is now, which
    stays as long as there are windows. Collective. zero_init: slots begin as zeros, else as
    copies of the tensor. False: the name is taken."""
    context.check()
    if name in context.windows:
        log.error("win_create: there is a window %r already", name)
        return False
    _check(tensor, name)
    with context.timeline.operation(name, "WIN_CREATE"):
        context.windows[name] = Window(
            tensor.detach(),
            name,
            context.in_neighbors(),
            context.out_neighbors(),
            zero_slots=zero_init,
            follow_p=_follows_p,
            group=context.communicator(),
        )
    return True


def win_free(name: Optional[str] = None) -> bool:
    """Collective. None: all windows. KeyError: there is none of that name."""
    context.check()
    names = sorted(context.windows) if name is None else [name]
    for each in names:
        window = _found(each)
        del context.windows[each]
        window.free()
    return True


def get_current_created_window_names() -> list[str]:
    """Sorted."""
    return sorted(context.windows)


# ---- put, accumulate, get ----


def _targets(window: Window, weights: Any, allowed: Sequence[int], what: str) -> Weights:
    if weights is None:
        return None
    found = _weights.destinations_of(weights)
    wrong = [each for each in found if each not in allowed]
    if wrong:
        raise ValueError(
            f"window {window.name}: rank {wrong[0]} is no {what} of rank {context.rank()}: "
            f"{list(allowed)}"
        )
    return found


def _push(
    kind: str, tensor: torch.Tensor, name: str, self_weight: Any, dst_weights: Any, mutex: bool
) -> WindowOperation:
    window = _found(name)
    _check(tensor, name)
    weights = _targets(window, dst_weights, window.destinations, "out-neighbour")
    own = None if self_weight is None else float(self_weight)
    with torch.no_grad():
        push = window.put if kind == "put" else window.accumulate
        return push(tensor.detach(), weights, own, mutex=mutex)


def _noted(name: str, activity: str, operation: WindowOperation) -> int:
    handle = next(_handles)
    _running[handle] = name, operation
    context.timeline.start_operation(name, activity, "COMMUNICATE")
    return handle


def put_and_forget(tensor: torch.Tensor, name: str, dst_weights: Any) -> None:
    """win_put() that nobody waits for."""
    _push("put", tensor, name, None, dst_weights, False)


def win_put_nonblocking(
    tensor: torch.Tensor,
    name: str,
    self_weight: Optional[float] = None,
    dst_weights: Any = None,
    require_mutex: bool = False,
) -> int:
    """The slot at each destination becomes weight * tensor, then the tensor is multiplied by
    self_weight in place. Values are taken at once. A handle for win_wait()."""
    push = _push("put", tensor, name, self_weight, dst_weights, require_mutex)
    return _noted(name, "WIN_PUT", push)


def win_put(
    tensor: torch.Tensor,
    name: str,
    self_weight: Optional[float] = None,
    dst_weights: Any = None,
    require_mutex: bool = False,
) -> bool:
    """As win_put_nonblocking(), until all destinations have it."""
    return win_wait(win_put_nonblocking(tensor, name, self_weight, dst_weights, require_mutex))


def win_accumulate_nonblocking(
    tensor: torch.Tensor,
    name: str,
    self_weight: Optional[float] = None,
    dst_weights: Any = None,
    require_mutex: bool = False,
) -> int:
    """As win_put_nonblocking(), but slots are added to."""
    push = _push("accumulate", tensor, name, self_weight, dst_weights, require_mutex)
    return _noted(name, "WIN_ACCUMULATE", push)


def win_accumulate(
    tensor: torch.Tensor,
    name: str,
    self_weight: Optional[float] = None,
    dst_weights: Any = None,
    require_mutex: bool = False,
) -> bool:
    """As win_accumulate_nonblocking(), until all destinations have it."""
    return win_wait(
        win_accumulate_nonblocking(tensor, name, self_weight, dst_weights, require_mutex)
    )


def win_get_nonblocking(name: str, src_weights: Any = None, require_mutex: bool = False) -> int:
    """Slots become weight * the sources' tensors as they are. A handle for win_wait()."""
    window = _found(name)
    weights = _targets(window, src_weights, window.sources, "in-neighbour")
    return _noted(name, "WIN_GET", window.get(weights, mutex=require_mutex))


def win_get(name: str, src_weights: Any = None, require_mutex: bool = False) -> bool:
    """As win_get_nonblocking(), until all have answered."""
    return win_wait(win_get_nonblocking(name, src_weights, require_mutex))


def win_wait(handle: int) -> bool:
    """Until the operation is done. False, with a warning: the handle is unknown."""
    found = _running.pop(handle, None)
    if found is None:
        log.warning("win_wait: handle %s is unknown, or was waited for already", handle)
        return False
    name, operation = found
    try:
        operation.wait()
    finally:
        context.timeline.end_operation(name)
    return True


def win_poll(handle: int) -> bool:
    """True when win_wait() would not block. ValueError: the handle is unknown."""
    found = _running.get(handle)
    if found is None:
        raise ValueError(f"handle {handle} is unknown, or was waited for already")
    return found[1].is_completed()


# ---- update ----


def win_update(
    name: str,
    self_weight: Optional[float] = None,
    neighbor_weights: Weights = None,
    reset: bool = False,
    clone: bool = False,
    require_mutex: bool = False,
) -> torch.Tensor:
    """The tensor becomes self_weight * tensor + the sum of weights * slots, in place (clone: in
    a new one); by the graph's weights, or the mean, where none are given. Local."""
    window = _found(name)
    own, weights = _mix(window, self_weight, neighbor_weights)
    output = torch.empty_like(window.tensor) if clone else None
    with _averaging(name):
        return window.update(own, weights, reset=reset, mutex=require_mutex, output=output)


@contextmanager
def _averaging(name: str) -> Iterator[None]:
    """In the timeline, where there is one."""
    if not context.timeline.is_on:
        yield
        return
    with context.timeline.context(name, "WIN_SYNC_COMPUTE_AVERAGE"):
        yield


def _mix(
    window: Window, self_weight: Any, neighbor_weights: Any
) -> tuple[Optional[float], Weights]:
    if (self_weight is None) != (neighbor_weights is None):
        raise ValueError("self_weight and neighbor_weights come together or not at all")
    if neighbor_weights is None:
        if not context.is_weighted:
            return None, None
        edges = _weights.edges(_weights.ranks(), None, None, None)
        return edges.self_weight, edges.sources
    if not isinstance(self_weight, float):
        raise ValueError(f"self_weight is {self_weight!r}; a float is wanted, as 1.0")
    if not isinstance(neighbor_weights, Mapping):
        raise ValueError(
            f"neighbor_weights are a dict of rank: weight; not {neighbor_weights!r}"
        )
    return self_weight, _targets(window, neighbor_weights, window.sources, "in-neighbour")


def win_update_then_collect(name: str, require_mutex: bool = True) -> torch.Tensor:
    """The tensor takes in all slots, which become zero: of push-sum."""
    window = _found(name)
    with _averaging(name):
        return window.update(1.0, reset=True, mutex=require_mutex)


# ---- versions, p, mutexes ----


def get_win_version(name: str) -> dict[int, int]:
    """By in-neighbour: puts and gets since the last update."""
    window = _found(name)
    return {each: window.version(each) for each in window.sources}


def win_associated_p(name: str) -> float:
    """What push-sum divides by."""
    return _found(name).p


def turn_on_win_ops_with_associated_p() -> None:
    """p goes with pushes and updates of all windows from now on."""
    _follow(True)


def turn_off_win_ops_with_associated_p() -> None:
    """p stays as it is from now on."""
    _follow(False)


def _follow(on: bool) -> None:
    global _follows_p
    _follows_p = on
    for window in context.windows.values():
        window.follow_p(on)


@contextmanager
def win_mutex(
    name: str, for_self: bool = False, ranks: Optional[Sequence[int]] = None
) -> Iterator[None]:
    """A block in which `ranks` (None: the out-neighbours) do not hold the mutexes that this
    rank shares with them: theirs for it, or with for_self its own for them."""
    with _found(name, ValueError).mutex(ranks, own=for_self):
        yield


@contextmanager
def win_lock(name: str) -> Iterator[None]:
    """An epoch of access, which needs nothing here. ValueError: there is no such window."""
    _found(name, ValueError)
    yield


neighbor_win_put: Callable[..., bool] = win_put
neighbor_win_put_nonblocking: Callable[..., int] = win_put_nonblocking
neighbor_win_accumulate: Callable[..., bool] = win_accumulate
neighbor_win_accumulate_nonblocking: Callable[..., int] = win_accumulate_nonblocking
neighbor_win_get: Callable[..., bool] = win_get
neighbor_win_get_nonblocking: Callable[..., int] = win_get_nonblocking
