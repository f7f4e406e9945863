"""Sums of sparse tensors, as DDP asks for with nn.Embedding(sparse=True).

How much each rank has to say is only known when all of them have come, and what is posted
meanwhile must not wait for that. So these sums have a lane of their own: a thread and a second
communicator for each group, made at its first sparse all-reduce, in which they run one after
another. Each is an all-gather of sizes, one of indices and one of values."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from ... import _abi
from . import _cuda
from ._backward import is_asked_by_reducer, raise_at_end
from ._checks import Names
from ._dtypes import NUMBER
from ._errors import Place, RedpollError, place_text, user_place
from ._request import seconds
from ._work import Work

_DIMENSIONS = 60  # at most, of a tensor that travels
_JOIN_S = 5.0


class SparseWork(Work):
    """One sparse all-reduce, complete when its thread says so."""

    def __init__(
        self, names: Names, tensor: torch.Tensor, timeout_s: Optional[float], place: Place
    ) -> None:
        super().__init__()
        self.tensor = tensor
        self._outputs = [tensor]
        self._names = names
        self._timeout_s = timeout_s
        self._place = place
        self._done = threading.Event()
        self._failure: Optional[tuple[int, str]] = None
        self._settled = _cuda.seam.future([tensor])
        self.begun = _cuda.seam.mark(tensor.device) if tensor.is_cuda else None

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        limit = seconds(timeout)
        limit = self._timeout_s if limit is None else limit
        if not self._done.wait(limit):
            raise self._error(
                _abi.RP_TIMEOUT,
                f"timed out: not complete after {limit:g} s; it goes on and may be waited for "
                "again",
            )
        if self._failure is not None:
            raise self._error(*self._failure)
        return super().wait()

    def is_completed(self) -> bool:
        return self._done.is_set()

    def exception(self) -> Optional[RedpollError]:
        return None if self._failure is None else self._error(*self._failure)

    def get_future(self) -> torch.futures.Future:
        if is_asked_by_reducer():
            raise_at_end(self)
        return self._settled.then(self._answer)

    def complete(self, failure: Optional[tuple[int, str]]) -> None:
        """Of the lane, once. failure: a status and what it says; None after success."""
        self._failure = failure
        self._done.set()
        self._settled.set_result(None)

    def _answer(self, _settled: Any) -> list[torch.Tensor]:
        if self._failure is not None:
            raise self._error(*self._failure)
        return list(self._outputs)

    def _error(self, code: int, message: str) -> RedpollError:
        return self._names.error(code, message, "all_reduce", place_text(self._place))


class SparseLane:
    """The sparse all-reduces of one group, in the order in which they were posted."""

    def __init__(self, names: Names, make: Callable[[], Optional[Callable[[], Any]]]) -> None:
        """names: of the group. make: gives what makes its second Communicator, None once nobody
        holds the first; collective, called by the lane's thread before the first sum."""
        self._names = names
        self._make = make
        self._communicator: Any = None
        self._closed = self._cancelled = False
        self._lock = threading.RLock()  # around posting and closing
        self._posted: queue.SimpleQueue[Optional[SparseWork]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="redpoll sparse", daemon=True)
        self._thread.start()

    def post(self, tensor: torch.Tensor, timeout_s: Optional[float]) -> SparseWork:
        """Never blocks. The tensor belongs to the operation until the Work is complete."""
        work = SparseWork(self._names, tensor, timeout_s, user_place())
        with self._lock:
            if self._closed:
                raise self._names.gone("all_reduce")
            self._posted.put(work)
        return work

    def set_timeout(self, timeout: timedelta) -> None:
        if self._communicator is not None:
            self._communicator.set_timeout(timeout)

    def close(self, drain_s: float) -> None:
        """What was posted ends in drain_s seconds or fails; then the thread and its
        communicator are gone."""
        with self._lock:
            self._closed = True
            self._posted.put(None)
        if threading.current_thread() is self._thread:
            return  # of a callback; the thread closes what it has
        self._thread.join(drain_s)
        if not self._thread.is_alive():
            return
        self._cancelled = True  # what it has not begun; it no longer waits for ranks either
        if self._communicator is not None:
            self._communicator.close()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while True:
            work = self._posted.get()
            if work is None:
                break
            work.complete(self._failure_of(work))
            del work  # or its tensor would live until the next one
        if self._communicator is not None:
            self._communicator.close()

    def _failure_of(self, work: SparseWork) -> Optional[tuple[int, str]]:
        try:
            make = self._make()
            if self._cancelled or make is None:
                raise self._names.gone("all_reduce")
            if self._communicator is None:
                self._communicator = make()
            _sum_in_order(self._communicator, work)
        except RedpollError as error:
            return error.code, error.message
        except Exception as error:
            return _abi.RP_STATE, f"the sparse sum failed: {error}"
        return None


def check_sparse(tensors: Sequence[torch.Tensor], op: object) -> None:
    """ValueError: not what can be summed here."""
    if len(tensors) != 1:
        raise ValueError(f"{len(tensors)} sparse tensors of this rank; one is allowed")
    if op != dist.ReduceOp.SUM:
        raise ValueError(f"sparse tensors can be summed, and {op} is another reduction")
    if tensors[0].dtype not in NUMBER:
        raise ValueError(f"sparse tensors of {tensors[0].dtype} cannot be summed")
    if tensors[0].dim() > _DIMENSIONS:
        raise ValueError(f"a sparse tensor has {tensors[0].dim()} dimensions")


def _sum_in_order(communicator: Any, work: SparseWork) -> None:
    """Behind what the poster's stream had been given, and over when it is over."""
    if work.begun is not None:
        _cuda.seam.wait_for(work.tensor.device, work.begun)
    _sum(communicator, work.tensor)
    if work.begun is not None:
        _cuda.seam.synchronize(work.tensor.device)


@torch.no_grad()
def _sum(communicator: Any, tensor: torch.Tensor) -> None:
    own = tensor.detach().cpu().coalesce()
    indices, values = own.indices(), own.values()
    counts = _counts(communicator, own)
    all_indices = _gathered(communicator, indices.t().contiguous(), counts)
    all_values = _gathered(communicator, values, counts)
    total = torch.sparse_coo_tensor(
        all_indices.t(), all_values, own.shape, check_invariants=False
    ).coalesce()
    with torch.inference_mode(tensor.is_inference()):
        tensor.copy_(total.to(tensor.device))


def _counts(communicator: Any, own: torch.Tensor) -> list[int]:
    """How many indices each rank has. RedpollError (MISMATCH): their tensors differ."""
    head = torch.zeros(4 + _DIMENSIONS, dtype=torch.int64)
    mine = [own.values().size(0), NUMBER[own.dtype], own.sparse_dim(), own.dim(), *own.shape]
    head[: len(mine)] = torch.tensor(mine)
    heads = [torch.empty_like(head) for _ in range(communicator.world)]
    communicator.all_gather(heads, head, blocking=True)
    for rank, one in enumerate(heads):
        if not torch.equal(one[1:], heads[0][1:]):
            raise RedpollError(
                _abi.RP_MISMATCH,
                f"rank 0 posted a sparse all-reduce of {_text(heads[0])}, rank {rank} one of "
                f"{_text(one)}",
            )
    return [int(one[0]) for one in heads]


def _text(head: torch.Tensor) -> str:
    _, number, sparse, dims, *shape = head.tolist()
    names = {number: str(dtype) for dtype, number in NUMBER.items()}
    return f"shape {shape[:dims]}, {sparse} of its dimensions sparse, {names[number]}"


def _gathered(communicator: Any, own: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """Everybody's rows, one rank's after the other's."""
    rows = own.new_empty((sum(counts), *own.shape[1:]))
    communicator.all_gather(list(rows.split(counts)), own, blocking=True)
    return rows
