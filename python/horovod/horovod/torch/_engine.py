"""The thread that agrees with other ranks about what comes next, and posts it.

There is one for each process set. It asks in rounds (`_negotiation.py`), over a communicator of
its own, and posts on a second one what all have asked for. A rank takes part in a round when it
has something to say or waits for others; one that does neither is not needed, since nothing
could be agreed without it.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Callable, Optional, Protocol

import torch

from redpoll.torch import Communicator, RedpollError

from ..common.exceptions import HorovodInternalError
from ._handles import Operation
from ._negotiation import JOIN, Answer, Table, Word
from ._timeline import Timeline

log = logging.getLogger("horovod")

_SLOT = 1024  # bytes of a round, for each rank, unless one has more to say
_HEADER = 4
_PAUSE_S = 0.001  # between rounds in which nobody has said anything
_LEAVE_S = 5.0


class Request(Protocol):
    """What a rank has been asked for (`_requests.py`)."""

    word: Word
    operation: Operation

    def start(self, engine: Engine, answer: Answer) -> None: ...


Start = Callable[["Engine", Sequence[tuple[Answer, Any]]], None]


class Engine:
    """Of the ranks of two communicators, which nobody else uses."""

    def __init__(
        self,
        control: Communicator,
        data: Communicator,
        timeline: Timeline,
        start: Start,
        threshold: int,
        stall_s: float,
    ) -> None:
        """start: posts what all ranks have agreed on. threshold: all-reduces of up to so many
        bytes travel together. stall_s: what some ranks have asked for and others have not is
        named after so long; 0: never."""
        self.control, self.data = control, data
        self.rank, self.world = data.rank, data.world
        self.threshold = threshold
        self.steps = 0  # operations that were posted, the same on all ranks
        self._unnamed: dict[str, int] = {}  # by kind: how many
        self._timeline = timeline
        self._post = start
        self._stall_s = stall_s
        self._table = Table(self.world)
        self._changed = threading.Condition()
        self._fresh: list[Request] = []
        self._asked: dict[str, Request] = {}  # and not answered
        self._latest: dict[str, Operation] = {}  # by name
        self._join: Optional[Request] = None
        self._failure: Optional[HorovodInternalError] = None
        self._closing = self._is_quiet = False
        self._since: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="horovod", daemon=True)
        self._thread.start()

    # ---- from the script's threads ----

    def full_name(self, kind: str, name: Optional[str]) -> str:
        """Of an operation. Those without a name are matched in the order of their calls."""
        if name is not None:
            return f"{kind}.{name}"
        with self._changed:
            number = self._unnamed[kind] = self._unnamed.get(kind, 0) + 1
        return f"{kind}.noname.{number}"

    def submit(self, request: Request) -> Operation:
        """Never blocks. ValueError: an operation of this name is in flight."""
        name = request.word.name
        with self._changed:
            if self._failure is not None:
                raise HorovodInternalError(str(self._failure))
            if self._closing:
                raise HorovodInternalError("horovod was shut down: call hvd.init() again")
            before = self._latest.get(name)
            if before is not None and not before.is_done():
                raise ValueError(
                    f"{name} is in flight: synchronize() it first, or give this one another "
                    "name"
                )
            self._latest[name] = request.operation
            self._fresh.append(request)
            self._timeline.begin(name, f"NEGOTIATE_{request.word.kind.upper()}")
            self._changed.notify_all()
        return request.operation

    def close(self, abort: bool = False) -> None:
        """What waits for others fails; then the thread and both communicators are gone. abort:
        do not wait for what is in flight."""
        with self._changed:
            self._closing = True
            waits = bool(self._asked or self._fresh or self._join)
            self._changed.notify_all()
        if waits or abort:
            self.control.abort(f"rank {self.rank} called hvd.shutdown()")
        self._thread.join(_LEAVE_S)
        self._fail_all(HorovodInternalError("horovod was shut down"))
        self.control.close()
        self.data.close()

    # ---- the thread ----

    def _run(self) -> None:
        try:
            while (fresh := self._next()) is not None:
                self._round(fresh)
        except RedpollError as error:
            self._fail_all(HorovodInternalError(str(error)))
        except BaseException as error:  # of ours: those who wait must hear of it
            self._fail_all(HorovodInternalError(f"horovod's thread ended: {error!r}"))

    def _next(self) -> Optional[list[Request]]:
        """What to say in the next round; None: the end."""
        with self._changed:
            while not (self._fresh or self._asked or self._join or self._closing):
                self._changed.wait()
            if self._is_quiet and not self._fresh and not self._closing:
                self._changed.wait(_PAUSE_S)
            if self._closing:
                return None
            fresh, self._fresh = self._fresh, []
            for request in fresh:
                if request.word.kind == JOIN:
                    self._join = request
                else:
                    self._asked[request.word.name] = request
            return fresh

    def _round(self, fresh: Sequence[Request]) -> None:
        parts = self._exchange(self._table.encode([each.word for each in fresh]))
        self._is_quiet = all(part == b"[]" for part in parts)
        self._timeline.mark("CYCLE_START")
        pairs = [(answer, self._taken(answer)) for answer in self._table.take(parts)]
        self._start(pairs)
        self._name_stalled()

    def _exchange(self, own: bytes) -> list[bytes]:
        """Everybody's bytes, by rank."""
        if self.world == 1:
            return [own]
        head = len(own).to_bytes(_HEADER, "little")
        slot = (head + own)[:_SLOT].ljust(_SLOT, b"\0")
        slots = torch.empty(self.world * _SLOT, dtype=torch.uint8)
        self.control.all_gather(slots, _tensor(slot), blocking=True)
        text = _bytes(slots)
        rows = [text[first : first + _SLOT] for first in range(0, len(text), _SLOT)]
        counts = [int.from_bytes(row[:_HEADER], "little") for row in rows]
        if max(counts) <= _SLOT - _HEADER:
            return [row[_HEADER : _HEADER + n] for row, n in zip(rows, counts)]
        outputs = [torch.empty(n, dtype=torch.uint8) for n in counts]
        self.control.all_gather(outputs, _tensor(own), blocking=True)
        return [_bytes(each) for each in outputs]

    def _taken(self, answer: Answer) -> Optional[Request]:
        """The request that is answered; None: this rank has joined, and has none."""
        self._since.pop(answer.name, None)
        if answer.name:
            request = self._asked.pop(answer.name, None)
        else:
            request, self._join = self._join, None
        return request

    def _start(self, pairs: Sequence[tuple[Answer, Optional[Request]]]) -> None:
        for answer, request in pairs:
            if request is not None:
                self._timeline.end(request.word.name)
            if answer.error and request is not None:
                request.operation.fail(HorovodInternalError(answer.error))
        good = [pair for pair in pairs if not pair[0].error]
        for answer, request in good:
            if request is not None and answer.name:
                self._timeline.begin(answer.name, answer.kind.upper())
        self._post(self, good)
        for answer, request in good:
            if request is not None and answer.name:
                self._timeline.end_when_done(answer.name, request.operation)

    def _name_stalled(self) -> None:
        if not self._stall_s or not self._asked:
            return
        now = time.monotonic()
        for name, missing in self._table.waiting().items():
            since = self._since.setdefault(name, now)
            if now - since > self._stall_s:
                self._since[name] = now
                log.warning(
                    "%s has waited for %.0f s: ranks %s have not called it",
                    name,
                    now - since,
                    ", ".join(map(str, missing)),
                )

    def _fail_all(self, error: HorovodInternalError) -> None:
        with self._changed:
            self._failure = self._failure or error
            waiting = [*self._fresh, *self._asked.values()]
            waiting += [self._join] if self._join is not None else []
            self._fresh, self._asked, self._join = [], {}, None
        for request in waiting:
            request.operation.fail(HorovodInternalError(f"{request.operation.name}: {error}"))


def _tensor(text: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else _EMPTY


def _bytes(tensor: torch.Tensor) -> bytes:
    return ctypes.string_at(tensor.data_ptr(), tensor.numel())


_EMPTY: Any = torch.empty(0, dtype=torch.uint8)
