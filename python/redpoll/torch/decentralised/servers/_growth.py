"""Workers that come back: how those that live take them in, and how they get their place.

    LOST --the launcher starts it--> LOADS --request (_returns.py)--> WAITS
      ^                                                                 | invited
      |                                                                 v
      |                            JOINS: a communicator of all that live and of those that wait
      |                                                                v
      '--------- dies ---- WORKS <-- go -- CATCHES UP: parameters from rank 0, place in the run

Rank 0, a server, sees the request when it merges, and the steps under way end early; by then
who has died is known to be lost. The attempt is made beside the world as it is. Then those that
live vote over the communicator that they had: all well, and the new one is the world, with
servers made over it that begin with the parameters of before; else what was made is dropped,
and they go on as they were. What is their own they keep: the optimizer's state of servers and
workers, error feedback, running statistics. Servers that have lost all workers wait for one
(_waits.py). Every wait has a deadline."""

from __future__ import annotations

import ctypes
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Optional, Protocol

import torch
import torch.distributed as dist
from torch import nn

from .... import __version__, _abi
from ...comm._communicator import Communicator
from ...comm._errors import RedpollError, ranks_text
from ...comm._launcher import tell_launcher
from .._flat import FlatParameters
from .._wrapping import compare
from ._returns import ReturnRequest, ReturnRequests
from ._served_ranks import Ranks
from ._waits import WorkerWait
from ._worker_state import donor_of, packed, shared, take_worker_state, unpacked, worker_state

log = logging.getLogger("redpoll")

_ATTEMPTS, _PAUSE_S = 3, 1.0
_CONNECT_S = 10.0


@dataclass
class World:
    """One that is being made, or was. first_ranks: of each rank of its communicator the number
    at the beginning; back: those of them that come back."""

    epoch: int
    first_ranks: list[int]
    back: list[int]
    communicator: Any = None
    handle: Any = None

    def abort(self, why: str) -> None:
        if self.communicator is not None:
            self.communicator.abort(why)

    def close(self) -> None:
        handle, self.handle = self.handle, None
        communicator, self.communicator = self.communicator, None
        if handle is not None:
            with suppress(RedpollError):  # it went with its communicator
                handle.release(0.0)
        if communicator is not None:
            communicator.close()


class Member(Protocol):
    """What growing knows of a rank's optimizer, and tells it. facts: equal on all ranks."""

    ranks: Ranks
    flat: FlatParameters
    facts: dict[str, Any]
    inner: torch.optim.Optimizer
    model: nn.Module
    workers: int
    steps: int
    spans: int
    updates: int

    def made_over(self, communicator: Communicator, first_ranks: list[int]) -> Any:
        """A ServerHandle over these ranks."""


class Growth:
    """Of a ServedOptimizer. asked: rank 0 has ended the steps early, as somebody waits."""

    def __init__(self, store: Any, number: int, is_of_run: bool = False) -> None:
        """As of ReturnRequests."""
        self.requests = ReturnRequests(store, number, is_of_run)
        self.asked = False
        self._merges = self._pushes = self._left = 0
        self._steps = 0  # of a worker, before those of the steps under way
        self._wait: Optional[WorkerWait] = None
        self._epoch = 0
        self._requests: list[ReturnRequest] = []  # of an attempt, on rank 0
        self._pending: Optional[World] = None
        self._worlds: list[World] = []  # the latest

    def release(self, _drain_s: float) -> None:
        """The process group goes."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.close()
        while self._worlds:
            self._worlds.pop().close()

    # ---- rank 0: who waits, and what is left of a span ----

    def begin(self, member: Member, steps: int) -> None:
        self._steps += self._done(member)
        self._left, self._merges, self._pushes, self.asked = steps, 0, 0, False

    def _done(self, member: Member) -> int:
        is_synchronous = member.ranks.options.staleness == 0
        return self._merges if is_synchronous else self._pushes // member.workers

    def left(self, member: Member) -> int:
        """Steps of the span that were not done, behind its early end."""
        return max(self._left - self._done(member), 0)

    def met(self, steps: int) -> None:
        """All have ended a span together, a worker behind so many steps of its own."""
        self._steps, self._merges, self._pushes = steps, 0, 0

    def watch(self, ranks: Any, options: Any) -> Any:
        """Each merge is counted, and requests are looked at. Returns what has to be kept.
        ranks: a weak reference to them."""
        # The field's own value is a view of it, and would be what replaces it.
        merge = _abi.Merge(ctypes.cast(options.merge, ctypes.c_void_p).value or 0)
        context = options.context

        def call(_context: Any, found: Any) -> int:
            code = int(merge(context, found))
            try:
                self._merges += 1
                self._pushes += found.contents.push_count
                if self.requests.is_waited_at():
                    self.asked = True
                    _abi.rp_parameter_server_stop(ranks().handle.address)
            except Exception as error:
                log.warning("no rank comes back: %s", error)
            return code

        options.merge = _abi.Merge(call)
        return merge, options.merge

    # ---- those that live: collective over them, between spans ----

    def is_wanted(self, member: Member) -> bool:
        """Is somebody to be taken back? Where no worker is left, and steps are, one that is
        started again is waited for. RedpollError: in vain."""
        first = member.ranks.rank == 0
        told = [float(first and self.asked), float(first and self.left(member) > 0)]
        asked, has_left = member.ranks.sum(torch.tensor(told, dtype=torch.float64)).tolist()
        if member.ranks.lives_a_worker() or not has_left:
            self._wait = None
        elif not asked:
            self._wait = self._wait or WorkerWait(member.ranks)
            self._wait.until_one_asks(member.ranks, self.requests)
            return True
        return bool(asked)

    def take_back(self, member: Member) -> None:
        """Of those that wait whoever can come. RedpollError: those that live cannot go on."""
        world = member.ranks.together(lambda: self._attempt(member))
        if world is None:
            return
        self._pending = self._wait = None
        self.settle(member, world)
        for request in self._requests:
            self.requests.say(request.number, "verdict", "go")
        self._requests = []
        for rank in world.back:
            member.ranks.lost.pop(rank, None)
        log.warning(
            "%s: %s back; %s go on",
            member.ranks.who,
            f"{ranks_text(world.back)} {'is' if len(world.back) == 1 else 'are'}",
            ranks_text(world.first_ranks),
        )

    def settle(self, member: Member, world: World) -> None:
        """This is the world from here on."""
        before = member.ranks.handle
        member.ranks.handle, member.ranks.communicator = world.handle, world.communicator
        member.ranks.first_ranks = world.first_ranks
        if before is not None:
            before.release(0.0)
        while self._worlds:
            self._worlds.pop().close()
        self._worlds.append(world)

    def _attempt(self, member: Member) -> Optional[World]:
        self._give_up()
        world = self._planned(member)
        if world is None:
            return None
        why = ""
        try:
            self._build(member, world)
        except Exception as error:  # those that live go on as they were
            why = _said(error)
            world.abort(why)
        vote = member.ranks.sum_once(torch.tensor([float(bool(why))], dtype=torch.float64))
        if not vote.item():
            return world
        self._give_up()
        if member.ranks.rank == 0:
            log.warning(
                "%s: nobody has come back: %s", member.ranks.who, why or "a rank has failed"
            )
        return None

    def _give_up(self) -> None:
        """The attempt before, if there was one: who comes back asks anew."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.close()
        for request in self._requests:
            self.requests.say(request.number, "place", "again")
            self.requests.say(request.number, "verdict", "again")
        self._requests = []

    def _planned(self, member: Member) -> Optional[World]:
        """From rank 0: who comes back, and the attempt's number."""
        plan = torch.zeros(1 + member.ranks.world, dtype=torch.float64)
        if member.ranks.rank == 0:
            self._epoch += 1
            plan[0] = self._epoch
            self._requests = self._called(member)
            for request in self._requests:
                plan[1 + request.rank] = 1
        member.ranks.sum_once(plan)
        epoch, *marks = (int(each) for each in plan.tolist())
        back = [rank for rank, mark in enumerate(marks) if mark]
        if not back:
            return None
        first_ranks = sorted([*member.ranks.living(), *back])
        self._pending = world = World(epoch, first_ranks, back)
        text = json.dumps({"epoch": epoch, "first_ranks": first_ranks, "back": back})
        for request in self._requests:
            self.requests.say(request.number, "place", text)
        return world

    def _called(self, member: Member) -> list[ReturnRequest]:
        """Those that can be taken and are there; of a rank the latest."""
        found: dict[int, ReturnRequest] = {}
        for request in self.requests.take():
            why = _refusal(member, request)
            if why:
                self.requests.say(request.number, "invite", f"refused {why}")
                log.warning("%s: rank %d is %s", member.ranks.who, request.rank, why)
            elif request.rank in member.ranks.living():  # not known to be lost yet
                self.requests.say(request.number, "invite", "again")
            else:
                found[request.rank] = request
        called = []
        for request in found.values():
            if self.requests.call(request.number):
                called.append(request)
            else:
                self.requests.say(request.number, "place", "again")  # it may be slow
        return called

    # ---- what all do over the new communicator ----

    def _build(self, member: Member, world: World) -> None:
        place = world.first_ranks.index(member.ranks.rank)
        world.communicator = new = Communicator(
            dist.PrefixStore(f"world/{world.epoch}", self.requests.store),
            place,
            len(world.first_ranks),
            f"{member.ranks.group_name}, {world.epoch} times grown",
            timedelta(seconds=_CONNECT_S),
        )
        new.set_timeout(timedelta(seconds=member.ranks.timeout_s))
        first = packed(
            {"facts": member.facts, "spans": member.spans, "updates": member.updates}
        )
        self._take_first(member, world, unpacked(shared(new, 0, first)))
        donor = donor_of(member.ranks, world.first_ranks, world.back)
        steps = member.steps if donor else self._steps + self._done(member)
        own = packed(worker_state(member, steps)) if place == donor else b""
        state = shared(new, donor, own)
        new.broadcast(member.flat.values, 0, blocking=True)
        member.flat.untrained.broadcast_frozen(new)
        if member.ranks.rank in world.back:
            take_worker_state(member, unpacked(state))
        world.handle = member.made_over(new, world.first_ranks)
        new.barrier(blocking=True)

    def _take_first(self, member: Member, world: World, told: dict[str, Any]) -> None:
        if member.ranks.rank not in world.back:
            return
        compare(member.ranks.who, told["facts"], member.facts, member.ranks.rank)
        member.spans, member.updates = told["spans"], told["updates"]

    # ---- a rank that was started again ----

    def come_back(self, member: Member) -> None:
        """RedpollError: it is not taken back. ValueError: it was given other things than the
        others."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(min(_PAUSE_S, member.ranks.timeout_s))
            world = self._ask(member)
            if world is not None:
                self.settle(member, world)
                return
        raise RedpollError(
            _abi.STATUS["PEER"],
            f"rank {member.ranks.rank} was started again, and {_ATTEMPTS} attempts to meet the "
            "others have failed: they say why",
        )

    def _ask(self, member: Member) -> Optional[World]:
        """One request. None: another attempt may go well."""
        with _store_errors():
            number = self.requests.ask(member.ranks.rank)
            text = self.requests.hear(number, "invite", member.ranks.timeout_s)
        if text.startswith("refused "):
            raise RedpollError(
                _abi.RP_INVALID, f"rank {member.ranks.rank} cannot come back: it is {text[8:]}"
            )
        if text != "called":
            return None
        with _store_errors():
            self.requests.answer(number)
            text = self.requests.hear(number, "place", member.ranks.timeout_s)
        if text == "again":
            return None
        world = World(**json.loads(text))
        try:
            is_made = self._is_made(member, world)
            with _store_errors():
                verdict = self.requests.hear(number, "verdict", member.ranks.timeout_s)
        except BaseException as error:
            world.abort(f"rank {member.ranks.rank}: {_said(error)}")
            world.close()
            raise
        if is_made and verdict == "go":
            tell_launcher(b"b")
            return world
        world.close()
        return None

    def _is_made(self, member: Member, world: World) -> bool:
        """False: others have failed in it, and say so by their verdict."""
        try:
            self._build(member, world)
        except RedpollError as error:
            if error.status not in ("PEER", "TIMEOUT", "CANCELLED"):
                raise
            log.warning("%s: %s", member.ranks.who, error)
            world.close()
            return False
        return True


@contextmanager
def _store_errors() -> Iterator[None]:
    """Of a rank that comes back: RedpollError where the store fails."""
    try:
        yield
    except RedpollError:
        raise
    except RuntimeError as error:
        raise RedpollError(
            _abi.STATUS["PEER"], f"the group's store is gone, and so may be the run: {error}"
        ) from error


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _refusal(member: Member, request: ReturnRequest) -> str:
    servers, world = member.ranks.options.servers, member.ranks.world
    if not servers <= request.rank < world:
        return f"no worker: workers are ranks {servers} to {world - 1}"
    if request.version != __version__:
        return f"of redpoll {request.version}, and the run is of {__version__}"
    return ""
