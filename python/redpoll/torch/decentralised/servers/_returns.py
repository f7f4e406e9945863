"""Workers that `redpoll run --restart` has started again: how they ask for their place.

A rank that was started again and rank 0 speak by keys of the process group's store, a request
for each time that a rank asks:

    the rank                          rank 0
    requests + 1 = N
    request/N: its rank, version -->  looks at `requests` now and then
              <---- invite/N          called; again; or why not
    here/N             ------------>  in time, else nobody waits for it
              <---- place/N           come to a communicator; again: ask anew
              <---- verdict/N         go: this is the world now; again: ask anew
              <---- over              in place of any of them: the run has ended

The same as src/train/return_requests.h, over a store of PyTorch's."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from .... import __version__, _abi
from ...comm._errors import RedpollError
from ...comm._launcher import say_over
from ...comm._store import wait_for_key

log = logging.getLogger("redpoll")

_LOOK_S, _FILL_S, _CALL_S, _SLICE_S = 0.2, 1.0, 2.0, 0.2


@dataclass
class ReturnRequest:
    number: int
    rank: int
    version: str


class ReturnRequests:
    """Both ends. store: the group's; number: of the optimizer among the group's; is_of_run: the
    group is that of all ranks that a launcher has started. Rank 0's methods raise nothing where
    the store fails: a run needs it no more. Those of the other end raise RuntimeError.

    is_off: nobody comes back any more, as the store has failed."""

    def __init__(self, store: Any, number: int, is_of_run: bool = False) -> None:
        self.store = dist.PrefixStore(f"redpoll/returns/{number}", store)
        self.is_off = False
        self._is_of_run = is_of_run
        self._given = self._taken = 0
        self._looked_s = -1.0

    # ---- rank 0 ----

    def is_waited_at(self) -> bool:
        """Asks the store a few times a second at most; one that does not answer ends it."""
        now = time.monotonic()
        if not self.is_off and now - self._looked_s >= _LOOK_S:
            self._looked_s = now
            try:
                self._given = self.store.add("requests", 0)
            except RuntimeError as error:
                self._turn_off(error)
        return not self.is_off and self._given > self._taken

    def take(self) -> list[ReturnRequest]:
        """All that were seen; those that were not filled in in time are left out, and those
        behind a store that fails."""
        found: list[ReturnRequest] = []
        while not self.is_off and self._taken < self._given:
            self._taken += 1
            key = f"request/{self._taken}"
            try:
                if wait_for_key(self.store, key, _FILL_S):
                    rank, version = self.store.get(key).decode().split()
                    found.append(ReturnRequest(self._taken, int(rank), version))
            except RuntimeError as error:
                self._turn_off(error)
        return found

    def _turn_off(self, error: RuntimeError) -> None:
        self.is_off = True
        log.warning("no rank can come back any more: the store failed: %s", error)

    def say(self, number: int, what: str, text: str) -> None:
        """One that cannot be told finds out by its deadline."""
        with contextlib.suppress(RuntimeError):
            self.store.set(f"{what}/{number}", text)

    def call(self, number: int) -> bool:
        """Is whoever gave the request still there?"""
        self.say(number, "invite", "called")
        try:
            return wait_for_key(self.store, f"here/{number}", _CALL_S)
        except RuntimeError as error:
            self._turn_off(error)
            return False

    def release(self, _drain_s: float) -> None:
        """The process group goes, and nobody is taken back any more."""
        with contextlib.suppress(RuntimeError):
            self.store.set("over", "over")
        if self._is_of_run:
            say_over()

    # ---- a rank that was started again ----

    def ask(self, rank: int) -> int:
        number = int(self.store.add("requests", 1))
        self.store.set(f"request/{number}", f"{rank} {__version__}")
        return number

    def answer(self, number: int) -> None:
        self.store.set(f"here/{number}", "")

    def hear(self, number: int, what: str, timeout_s: float) -> str:
        """RedpollError: CANCELLED: the run is over; TIMEOUT: nobody has answered."""
        deadline = time.monotonic() + timeout_s
        while not wait_for_key(self.store, f"{what}/{number}", _SLICE_S):
            if self.store.check(["over"]):
                raise RedpollError(_abi.RP_CANCELLED, "the run is over")
            if time.monotonic() >= deadline:
                raise RedpollError(
                    _abi.RP_TIMEOUT,
                    f"this rank was started again, and rank 0 has not taken it back in "
                    f"{timeout_s:g} s (the group's timeout): the steps of the others take "
                    "longer, or they take nobody back",
                )
        return str(self.store.get(f"{what}/{number}").decode())
