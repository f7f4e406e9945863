"""The Work that collectives return."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Optional

import torch
from torch._C._distributed_c10d import Work as _C10dWork

from . import _cuda
from ._backward import is_asked_by_reducer, raise_at_end
from ._errors import RedpollError
from ._request import Request, seconds

_KINDS = {
    "broadcast": 0,
    "all_reduce": 1,
    "reduce": 3,
    "all_gather": 4,
    "all_gather_v": 4,
    "all_gather_segments": 4,
    "gather": 7,
    "scatter": 8,
    "reduce_scatter": 9,
    "reduce_scatter_v": 9,
    "reduce_scatter_segments": 9,
    "all_to_all": 11,
    "send": 12,
    "recv": 13,
    "recv_any": 14,
    "barrier": 15,
}
_OTHER_KIND = 100
"""c10d's OpType, which releases number alike and not all of them show to Python."""


class Posted(NamedTuple):
    """Of an operation, when it was posted."""

    operation: str
    sequence: int
    limit_s: float  # its own timeout, or the group's


_NOTHING = Posted("", 0, 0.0)

# In all releases C++ has only its own half of a Work that Python code gives to it, as the join
# context of DDP does, and would wait for that for ever. So a Work that is dropped before
# anybody has waited stays for a while, without its tensors unless they are small.
_dropped: collections.deque[Work] = collections.deque(maxlen=16)
_SMALL_BYTES = 1 << 16


class Work(_C10dWork):
    """An operation that is complete; PendingWork: one that was posted. As PyTorch's, with all
    of its methods answering.

    Dropping it is fine: the operation runs to its end, and its tensors live until then."""

    _requests: Sequence[Request] = ()
    _outputs: Sequence[torch.Tensor] = ()
    posted: Posted = _NOTHING

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Block until it is complete and outputs hold their values; True.

        Drives the transfer on this thread. timeout: None or 0 for that of the operation or the
        group; RedpollError (TIMEOUT) when it is over, and the operation goes on. Raises
        RedpollError when the operation failed, on every rank. Any thread, any number of
        times."""
        return True

    def is_completed(self) -> bool:
        """True when wait() would not block. Drives a little; never blocks."""
        return True

    def is_success(self) -> bool:
        """True when it is complete and did not fail."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Optional[RedpollError]:
        """What wait() would raise; None after success, or while it runs."""
        return None

    def result(self) -> list[torch.Tensor]:
        """The output tensors; waits for them."""
        self.wait()
        return list(self._outputs)

    def get_future(self) -> torch.futures.Future:
        """A future of the list of output tensors. Completed by a thread of Redpoll's or by
        whoever waits first; its callbacks run there.

        After a failure its wait() and value() raise RuntimeError with the RedpollError's text:
        the errors of PyTorch's futures are those of C++ and have no type of their own. wait()
        and exception() of the Work give the RedpollError itself, as does the backward pass of
        DistributedDataParallel."""
        done = _cuda.seam.future(self._outputs)
        done.set_result(list(self._outputs))
        return done

    def set_outputs(self, tensors: Sequence[torch.Tensor]) -> None:
        """Other tensors as result() and the future's value, where those that the operation was
        given are parts of them. Before anybody asks for either."""
        self._outputs = tensors

    def synchronize(self) -> None:
        """Outputs are in place when wait() returns; nothing is left to do."""

    def source_rank(self) -> int:
        """The group rank that sent what a receive got; -1 before that, and of anything else."""
        return -1

    def lighten(self) -> None:
        """Nobody asks for its result any more: let go of tensors that are not small."""
        if sum(one.nbytes for one in self._outputs) > _SMALL_BYTES:
            self._outputs = ()

    @property
    def timeout(self) -> timedelta:
        """The operation's own, or the group's when it was posted."""
        return timedelta(seconds=self.posted.limit_s)

    def _source_rank(self) -> int:
        return self.source_rank()

    def _get_sequence_number(self) -> int:
        """Which operation of its group it is on this rank, counted from 1: the group's
        `_get_sequence_number_for_group()` right after. Of several, as the coalescing manager
        joins them, the last one's; 0 of none."""
        return self.posted.sequence

    def _get_op_type(self) -> int:
        return _KINDS.get(self.posted.operation, _OTHER_KIND)


class PendingWork(Work):
    """Complete when all of its requests are."""

    _taken = False  # somebody waits, or has what he waits for

    def __init__(
        self,
        requests: Sequence[Request],
        outputs: Sequence[torch.Tensor],
        posted: Posted = _NOTHING,
    ) -> None:
        _C10dWork.__init__(self)  # super() would cost more than the rest
        self._requests = requests
        self._outputs = outputs
        self.posted = posted

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        self._taken = True
        limit = None if timeout is None else seconds(timeout)
        for request in self._requests:
            request.wait(limit)
        return True

    def is_completed(self) -> bool:
        return all(request.test() for request in self._requests)

    def exception(self) -> Optional[RedpollError]:
        for request in self._requests:
            error = request.error()
            if error is not None:
                return error
        return None

    def get_future(self) -> torch.futures.Future:
        self._taken = True
        if is_asked_by_reducer():
            raise_at_end(self)
        if len(self._requests) == 1:
            return self._requests[0].future()
        outputs = list(self._outputs)
        parts = torch.futures.collect_all([one.future() for one in self._requests])
        return parts.then(lambda each: [one.value() for one in each.value()] and outputs)

    def set_outputs(self, tensors: Sequence[torch.Tensor]) -> None:
        super().set_outputs(tensors)
        for request in self._requests:
            request.outputs = tensors

    def source_rank(self) -> int:
        return self._requests[0].source if len(self._requests) == 1 else -1

    def __del__(self) -> None:
        """May run inside any code, whatever lock that holds: takes none."""
        for request in self._requests:
            if not request.done:
                request.abandon()
        if not self._taken:
            self.lighten()  # dropped, and yet to be there: C++ may hold it
            _dropped.append(self)

    def lighten(self) -> None:
        super().lighten()
        if not self._outputs:
            for request in self._requests:
                request.outputs = ()


def completed(outputs: Sequence[torch.Tensor]) -> Work:
    """A Work of what is done already."""
    work = Work()
    work._outputs = outputs
    return work


def joined(works: Sequence[Work]) -> Work:
    """One Work for several: complete when all are, with all their outputs."""
    requests: list[Request] = []
    outputs: list[Any] = []
    for work in works:
        requests.extend(work._requests)
        outputs.extend(work._outputs)
        if isinstance(work, PendingWork):
            work._taken = True
    whole = PendingWork(requests, outputs) if requests else completed(outputs)
    if works:
        whole.posted = works[-1].posted
    return whole
