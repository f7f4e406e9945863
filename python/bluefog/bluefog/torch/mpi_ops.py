"""Operations on tensors, matched among ranks in the order of their calls."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional, TypeVar, cast

import torch
import torch.distributed as dist

from redpoll.torch import Communicator, Work

from . import _weights
from ._context import context
from ._handles import begin, check_marker, marker, posted, synchronize
from ._weights import Destinations
from ._windows import (  # noqa: F401  they are of this module, too
    get_current_created_window_names,
    get_win_version,
    neighbor_win_accumulate,
    neighbor_win_accumulate_nonblocking,
    neighbor_win_get,
    neighbor_win_get_nonblocking,
    neighbor_win_put,
    neighbor_win_put_nonblocking,
    turn_off_win_ops_with_associated_p,
    turn_on_win_ops_with_associated_p,
    win_accumulate,
    win_accumulate_nonblocking,
    win_associated_p,
    win_create,
    win_free,
    win_get,
    win_get_nonblocking,
    win_lock,
    win_mutex,
    win_poll,
    win_put,
    win_put_nonblocking,
    win_update,
    win_update_then_collect,
    win_wait,
)

_F = TypeVar("_F", bound=Callable[..., Any])

_FLOATS = (torch.float16, torch.float32, torch.float64)
_SUMMED = (torch.int32, torch.int64, *_FLOATS)
_MOVED = (torch.uint8, torch.int8, torch.int16, *_SUMMED)
_DTYPES = list(_MOVED)
_MOST_DIMS = 13  # that a header holds
_gathers = itertools.count()
_pairs = itertools.count()
_skips_negotiation = False

init, shutdown = context.init, context.shutdown
size, rank, local_size, local_rank = (
    context.size,
    context.rank,
    context.local_size,
    context.local_rank,
)
machine_size, machine_rank = context.machine_size, context.machine_rank
set_topology, set_machine_topology = context.set_topology, context.set_machine_topology
in_neighbor_ranks, out_neighbor_ranks = context.in_neighbors, context.out_neighbors
in_neighbor_machine_ranks = context.in_machines
out_neighbor_machine_ranks = context.out_machines


def is_homogeneous() -> bool:
    """Every machine has as many ranks."""
    return context.is_homogeneous()


def nccl_built() -> bool:
    """False: tensors are on the CPU."""
    return False


def mpi_threads_supported() -> bool:
    """True: any thread may call."""
    return True


def unified_mpi_window_model_supported() -> bool:
    """True: a window has its tensor's own memory, which updates write."""
    return True


def load_topology() -> Any:
    """The graph of ranks."""
    context.check()
    return context.topology


def load_machine_topology() -> Any:
    """The graph of machines; None at first."""
    context.check()
    return context.machine_topology


def is_topo_weighted() -> bool:
    """The weights of the graph's edges count."""
    return context.is_weighted


def is_machine_topo_weighted() -> bool:
    """The weights of the machines' graph count."""
    return context.is_machine_weighted


def suspend() -> None:
    """For notebooks; nothing needs to be suspended here."""


def resume() -> None:
    """For notebooks; nothing was suspended."""


def set_skip_negotiate_stage(value: bool) -> None:
    """True: ranks that do not take part in an operation need not call it (pair_gossip)."""
    global _skips_negotiation
    _skips_negotiation = bool(value)


def get_skip_negotiate_stage() -> bool:
    return _skips_negotiation


def _check(tensor: torch.Tensor, allowed: Sequence[torch.dtype], operation: str) -> None:
    if tensor.dtype not in allowed:
        names = ", ".join(str(each).replace("torch.", "") for each in allowed)
        raise ValueError(f"{operation}: a tensor is {tensor.dtype}; {names} are allowed")
    if not tensor.is_contiguous():
        raise ValueError(f"{operation}: a tensor is not contiguous; call contiguous() first")


def barrier() -> None:
    """Until all ranks have come."""
    context.communicator().barrier(blocking=True)


# ---- of all ranks ----


def allreduce(
    tensor: torch.Tensor,
    average: bool = True,
    is_hierarchical_local: bool = False,
    name: Optional[str] = None,
) -> torch.Tensor:
    """The mean over ranks, or the sum; is_hierarchical_local: over this machine's."""
    return synchronize(allreduce_nonblocking(tensor, average, is_hierarchical_local, name))


def allreduce_nonblocking(
    tensor: torch.Tensor,
    average: bool = True,
    is_hierarchical_local: bool = False,
    name: Optional[str] = None,
) -> int:
    output = tensor.detach().clone()
    return _allreduce(tensor, output, average, is_hierarchical_local, name)


def allreduce_(
    tensor: torch.Tensor,
    average: bool = True,
    is_hierarchical_local: bool = False,
    name: Optional[str] = None,
) -> torch.Tensor:
    """In place."""
    return synchronize(allreduce_nonblocking_(tensor, average, is_hierarchical_local, name))


def allreduce_nonblocking_(
    tensor: torch.Tensor,
    average: bool = True,
    is_hierarchical_local: bool = False,
    name: Optional[str] = None,
) -> int:
    return _allreduce(tensor, tensor, average, is_hierarchical_local, name)


def _allreduce(
    tensor: torch.Tensor, output: torch.Tensor, average: bool, local: bool, name: Optional[str]
) -> int:
    full = begin("allreduce", name)
    _check(tensor, _SUMMED, full)
    assert not average or tensor.is_floating_point(), "integers have no average: average=False"
    group = context.local_communicator() if local else context.communicator()
    work, check = start_all_reduce(group, [output.detach()], average, full)

    def finish() -> torch.Tensor:
        check()
        return output

    return posted(full, [work], finish)


def start_all_reduce(
    group: Communicator, tensors: list[torch.Tensor], average: bool, name: str
) -> tuple[Work, Callable[[], None]]:
    """In place. Once the work is done, what is returned with it raises if ranks differ."""
    op = dist.ReduceOp.AVG if average else dist.ReduceOp.SUM
    sent = marker(name, tensors)
    found = sent.clone()
    work = group.all_reduce([*tensors, found], op)
    return work, lambda: check_marker(name, sent, found, 1 if average else group.world)


def broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> torch.Tensor:
    """root_rank's tensor."""
    return synchronize(broadcast_nonblocking(tensor, root_rank, name))


def broadcast_nonblocking(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None
) -> int:
    return broadcast_nonblocking_(tensor.detach().clone(), root_rank, name)


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None
) -> torch.Tensor:
    """In place."""
    return synchronize(broadcast_nonblocking_(tensor, root_rank, name))


def broadcast_nonblocking_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None
) -> int:
    full = begin("broadcast", name)
    work = context.communicator().broadcast(tensor.detach(), root_rank)
    return posted(full, [work], lambda: tensor)


def allgather(tensor: torch.Tensor, name: Optional[str] = None) -> torch.Tensor:
    """Everybody's, in the order of ranks, along the first dimension, which may differ."""
    return synchronize(allgather_nonblocking(tensor, name))


def allgather_nonblocking(tensor: torch.Tensor, name: Optional[str] = None) -> int:
    full = begin("allgather", name)
    _check(tensor, _MOVED, full)
    group = context.communicator()
    own = _header(tensor, full)
    headers = torch.empty(group.world, own.numel(), dtype=own.dtype)
    group.all_gather(headers, own, blocking=True)
    outputs = [_room(each, tensor, full) for each in headers]
    work = group.all_gather(outputs, tensor.detach())
    return posted(full, [work], lambda: torch.cat(outputs))


def _header(tensor: torch.Tensor, operation: str) -> torch.Tensor:
    """Type and shape, for who gets the tensor."""
    if not tensor.dim():
        raise ValueError(f"{operation}: a tensor has no dimension; view(1) has one")
    if tensor.dim() > _MOST_DIMS:
        raise ValueError(f"{operation}: {tensor.dim()} dimensions; {_MOST_DIMS} are allowed")
    numbers = [_DTYPES.index(tensor.dtype), tensor.dim(), *tensor.shape]
    return torch.tensor(numbers + [0] * (_MOST_DIMS + 2 - len(numbers)))


def _room(header: torch.Tensor, own: torch.Tensor, operation: str) -> torch.Tensor:
    """For a tensor that comes. ValueError: it does not go with ours."""
    numbers = header.tolist()
    dtype, shape = _DTYPES[numbers[0]], numbers[2 : 2 + numbers[1]]
    if dtype != own.dtype or shape[1:] != list(own.shape[1:]):
        raise ValueError(
            f"{operation}: one rank has {tuple(shape)} of {dtype} and another "
            f"{tuple(own.shape)} of {own.dtype}; only the first dimension may differ"
        )
    return torch.empty(shape, dtype=dtype)


# ---- of neighbours ----

_NEWER = {  # what 0.2 and the wheel of 0.3 called them
    "neighbor_weights": "src_weights",
    "send_neighbors": "dst_weights",
    "neighbor_machine_weights": "src_machine_weights",
    "send_neighbor_machines": "dst_machine_weights",
}


def _knows_older_names(function: _F) -> _F:
    """TypeError for an argument's older name says what it is called now."""

    @functools.wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        for name in _NEWER.keys() & named.keys():
            raise TypeError(
                f"{function.__name__}() has no argument {name!r}: it is called "
                f"{_NEWER[name]!r} now"
            )
        return function(*arguments, **named)

    return cast(_F, checked)


@_knows_older_names
def neighbor_allreduce(
    tensor: torch.Tensor,
    *,
    self_weight: Optional[float] = None,
    src_weights: Optional[Mapping[int, float]] = None,
    dst_weights: Optional[Destinations] = None,
    enable_topo_check: bool = True,
    name: Optional[str] = None,
) -> torch.Tensor:
    """self_weight * own + the sum over sources of src_weights * (their dst_weights * theirs).

    No weights: the graph's, or equal ones. src_weights alone: of in-neighbours; those left out
    count 0. dst_weights, a dict or a list: the neighbours of this call, whatever the graph;
    enable_topo_check has all ranks compare these first."""
    return synchronize(
        neighbor_allreduce_nonblocking(
            tensor,
            self_weight=self_weight,
            src_weights=src_weights,
            dst_weights=dst_weights,
            enable_topo_check=enable_topo_check,
            name=name,
        )
    )


@_knows_older_names
def neighbor_allreduce_nonblocking(
    tensor: torch.Tensor,
    *,
    self_weight: Optional[float] = None,
    src_weights: Optional[Mapping[int, float]] = None,
    dst_weights: Optional[Destinations] = None,
    enable_topo_check: bool = True,
    name: Optional[str] = None,
) -> int:
    full = begin("neighbor.allreduce", name)
    _check(tensor, _FLOATS, full)
    edges = _weights.edges(_weights.ranks(), self_weight, src_weights, dst_weights)
    if dst_weights is not None and enable_topo_check:
        _weights.check_both_ends(edges.sources, edges.destinations)
    output = torch.empty_like(tensor, requires_grad=False)
    work, check = start_exchange([tensor.detach()], [output], edges, full)

    def finish() -> torch.Tensor:
        check()
        return output

    return posted(full, [work], finish)


def start_exchange(
    tensors: list[torch.Tensor],
    outputs: list[torch.Tensor],
    edges: _weights.Edges,
    name: str,
) -> tuple[Work, Callable[[], None]]:
    """As start_all_reduce(), of neighbours."""
    sent = marker(name, tensors)
    # The third number is the sum of all weights, those of senders included.
    sent_with_one = torch.cat([sent, torch.ones(1, dtype=sent.dtype)])
    found = torch.empty_like(sent_with_one)
    work = context.communicator().neighbor_all_reduce(
        [*tensors, sent_with_one],
        edges.self_weight,
        edges.sources,
        edges.destinations,
        outputs=[*outputs, found],
    )
    return work, lambda: check_marker(name, sent, found[:2], found[2])


def neighbor_allgather(
    tensor: torch.Tensor,
    *,
    src_ranks: Optional[Sequence[int]] = None,
    dst_ranks: Optional[Sequence[int]] = None,
    enable_topo_check: bool = True,
    name: Optional[str] = None,
) -> torch.Tensor:
    """The in-neighbours', rising, or in the order of src_ranks, along the first dimension,
    which may differ."""
    return synchronize(
        neighbor_allgather_nonblocking(
            tensor,
            src_ranks=src_ranks,
            dst_ranks=dst_ranks,
            enable_topo_check=enable_topo_check,
            name=name,
        )
    )


def neighbor_allgather_nonblocking(
    tensor: torch.Tensor,
    *,
    src_ranks: Optional[Sequence[int]] = None,
    dst_ranks: Optional[Sequence[int]] = None,
    enable_topo_check: bool = True,
    name: Optional[str] = None,
) -> int:
    full = begin("neighbor.allgather", name)
    _check(tensor, _MOVED, full)
    if (src_ranks is None) != (dst_ranks is None):
        raise ValueError(f"{full}: src_ranks and dst_ranks come together or not at all")
    if src_ranks is None or dst_ranks is None:
        sources, targets = context.in_neighbors(), context.out_neighbors()
    else:
        sources, targets = [int(each) for each in src_ranks], [int(each) for each in dst_ranks]
        if enable_topo_check:
            _weights.check_both_ends(sources, targets)
    tag = _tag(name, _gathers, 0)
    works, outputs = _swap(tensor, sources, targets, tag, full)
    empty = tensor.new_empty((0, *tensor.shape[1:]))
    return posted(full, works, lambda: torch.cat(outputs) if outputs else empty)


def _tag(name: Optional[str], numbers: itertools.count[int], space: int) -> int:
    """By name where there is one, else by the order of calls."""
    number = next(numbers) if name is None else zlib.crc32(name.encode())
    return space << 29 | (name is not None) << 28 | number % (1 << 28)


def _swap(
    tensor: torch.Tensor, sources: Sequence[int], targets: Sequence[int], tag: int, name: str
) -> tuple[list[Work], list[torch.Tensor]]:
    """Send to some and receive from others, shapes first. What is sent is a copy."""
    group = context.communicator()
    header, copy = _header(tensor, name), tensor.detach().clone()
    headers = [torch.empty_like(header) for _ in sources]
    works = [group.recv(into, each, tag) for into, each in zip(headers, sources)]
    sends = [group.send(header, each, tag) for each in targets]
    for work in (*works, *sends):
        work.wait()
    outputs = [_room(each, tensor, name) for each in headers]
    works = [group.recv(into, each, tag) for into, each in zip(outputs, sources)]
    return works + [group.send(copy, each, tag) for each in targets], outputs


def pair_gossip(
    tensor: torch.Tensor,
    target_rank: int,
    self_weight: Optional[float] = None,
    pair_weight: Optional[float] = None,
    name: Optional[str] = None,
) -> torch.Tensor:
    """The mean of two ranks' tensors, or their weighted sum; both name each other."""
    handle = pair_gossip_nonblocking(tensor, target_rank, self_weight, pair_weight, name)
    return synchronize(handle)


def pair_gossip_nonblocking(
    tensor: torch.Tensor,
    target_rank: int,
    self_weight: Optional[float] = None,
    pair_weight: Optional[float] = None,
    name: Optional[str] = None,
) -> int:
    full = begin("pair.gossip", name)
    if not _skips_negotiation:
        raise ValueError("pair_gossip is of two ranks: set_skip_negotiate_stage(True) first")
    if (self_weight is None) != (pair_weight is None):
        raise ValueError("pair_gossip: self_weight and pair_weight come together or not at all")
    _check(tensor, _FLOATS, full)
    own = 0.5 if self_weight is None else self_weight
    other = 0.5 if pair_weight is None else pair_weight
    flat = tensor.detach().reshape(-1)
    works, (theirs,) = _swap(flat, [target_rank], [target_rank], _tag(name, _pairs, 1), full)
    mine, kind = flat.clone(), torch.promote_types(tensor.dtype, torch.float32)

    def mixed() -> torch.Tensor:
        if len(theirs) != len(mine):
            raise ValueError(f"{full}: {len(mine)} elements here, and {len(theirs)} there")
        found = mine.to(kind) * own + theirs.to(kind) * other
        return found.to(tensor.dtype).view(tensor.shape)

    return posted(full, works, mixed)


# ---- of machines ----


@_knows_older_names
def hierarchical_neighbor_allreduce(
    tensor: torch.Tensor,
    *,
    self_weight: Optional[float] = None,
    src_machine_weights: Optional[Mapping[int, float]] = None,
    dst_machine_weights: Optional[Destinations] = None,
    enable_topo_check: bool = False,
    name: Optional[str] = None,
) -> torch.Tensor:
    """neighbor_allreduce of the machines' means; all ranks of a machine get the same."""
    return synchronize(
        hierarchical_neighbor_allreduce_nonblocking(
            tensor,
            self_weight=self_weight,
            src_machine_weights=src_machine_weights,
            dst_machine_weights=dst_machine_weights,
            enable_topo_check=enable_topo_check,
            name=name,
        )
    )


@_knows_older_names
def hierarchical_neighbor_allreduce_nonblocking(
    tensor: torch.Tensor,
    *,
    self_weight: Optional[float] = None,
    src_machine_weights: Optional[Mapping[int, float]] = None,
    dst_machine_weights: Optional[Destinations] = None,
    enable_topo_check: bool = False,
    name: Optional[str] = None,
) -> int:
    """The broadcast within the machine is what is left to wait for."""
    full = begin("hierarchical.neighbor.allreduce", name)
    _check(tensor, _FLOATS, full)
    given = (self_weight, src_machine_weights, dst_machine_weights)
    if any(each is None for each in given) and any(each is not None for each in given):
        raise ValueError(f"{full}: give all three weights, or none")
    if self_weight is None and context.machine_topology is None:
        raise RuntimeError(f"{full}: there is no graph of machines: set_machine_topology()")
    assert context.local_size() > 1, "a machine has one rank: use neighbor_allreduce"
    edges = _machine_edges(_weights.machines(), *given)
    if dst_machine_weights is not None and enable_topo_check:
        _weights.check_both_ends(edges.sources, edges.destinations)
    local, output = context.local_communicator(), tensor.detach().clone()
    local.all_reduce([output], dist.ReduceOp.AVG, blocking=True)
    if context.local_rank() != 0:  # the first of a machine speaks for it
        edges = _weights.Edges(1.0, {}, {})
    mean = torch.empty_like(output)
    work, check = start_exchange([output], [mean], edges, full)
    work.wait()
    check()
    return posted(full, [local.broadcast(mean, 0)], lambda: mean)


def _machine_edges(
    side: _weights.Side,
    self_weight: Optional[float],
    sources: Optional[Mapping[int, float]],
    destinations: Optional[Destinations],
) -> _weights.Edges:
    """As edges of the machines' first ranks."""
    edges = _weights.edges(side, self_weight, sources, destinations)
    first = context.local_size()
    return _weights.Edges(
        edges.self_weight,
        {machine * first: weight for machine, weight in edges.sources.items()},
        {machine * first: weight for machine, weight in edges.destinations.items()},
    )


# ---- timeline ----


def timeline_start_activity(tensor_name: str, activity_name: str) -> bool:
    """False when there is no timeline (BLUEFOG_TIMELINE)."""
    return context.timeline.start(tensor_name, activity_name)


def timeline_end_activity(tensor_name: str) -> bool:
    """Of the activity that began last."""
    return context.timeline.end(tensor_name)


def timeline_context(tensor_name: str, activity_name: str) -> Any:
    """An activity as a `with` block."""
    return context.timeline.context(tensor_name, activity_name)
