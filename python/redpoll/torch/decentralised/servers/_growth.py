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
from typing import Any, Optional

import torch
import torch.distributed as dist

from .... import __version__, _abi
from ...comm._communicator import Communicator
from ...comm._errors import RedpollError, ranks_text
from ...comm._launcher import tell_launcher
from .._wrapping import compare
from ._returns import ReturnRequest, ReturnRequests
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

    def begin(self, opt: Any, steps: int) -> None:
        self._steps += self._done(opt)
        self._left, self._merges, self._pushes, self.asked = steps, 0, 0, False

    def _done(self, opt: Any) -> int:
        is_synchronous = opt._options.staleness == 0
        return self._merges if is_synchronous else self._pushes // opt.workers

    def left(self, opt: Any) -> int:
        """Steps of the span that were not done, behind its early end."""
        return max(self._left - self._done(opt), 0)

    def met(self, steps: int) -> None:
        """All have ended a span together, a worker behind so many steps of its own."""
        self._steps, self._merges, self._pushes = steps, 0, 0

    def watch(self, opt: Any, options: Any) -> Any:
        """Each merge is counted, and requests are looked at. Returns what has to be kept."""
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
                    _abi.rp_parameter_server_stop(opt()._handle.address)
            except Exception as error:
                log.warning("no rank comes back: %s", error)
            return code

        options.merge = _abi.Merge(call)
        return merge, options.merge

    # ---- those that live: collective over them, between spans ----

    def is_wanted(self, opt: Any) -> bool:
        """Is somebody to be taken back? Where no worker is left, and steps are, one that is
        started again is waited for. RedpollError: in vain."""
        first = opt._rank == 0
        told = [float(first and self.asked), float(first and self.left(opt) > 0)]
        asked, has_left = opt._sum(torch.tensor(told, dtype=torch.float64)).tolist()
        if opt._lives_a_worker() or not has_left:
            self._wait = None
        elif not asked:
            self._wait = self._wait or WorkerWait(opt)
            self._wait.until_one_asks(opt, self.requests)
            return True
        return bool(asked)

    def take_back(self, opt: Any) -> None:
        """Of those that wait whoever can come. RedpollError: those that live cannot go on."""
        world = opt._together(lambda: self._attempt(opt))
        if world is None:
            return
        self._pending = self._wait = None
        self.settle(opt, world)
        for request in self._requests:
            self.requests.say(request.number, "verdict", "go")
        self._requests = []
        for rank in world.back:
            opt.lost.pop(rank, None)
        log.warning(
            "%s: %s back; %s go on",
            opt._who,
            f"{ranks_text(world.back)} {'is' if len(world.back) == 1 else 'are'}",
            ranks_text(world.first_ranks),
        )

    def settle(self, opt: Any, world: World) -> None:
        """This is the world from here on."""
        before = opt._handle
        opt._handle, opt._communicator = world.handle, world.communicator
        opt._first_ranks = world.first_ranks
        if before is not None:
            before.release(0.0)
        while self._worlds:
            self._worlds.pop().close()
        self._worlds.append(world)

    def _attempt(self, opt: Any) -> Optional[World]:
        self._give_up()
        world = self._planned(opt)
        if world is None:
            return None
        why = ""
        try:
            self._build(opt, world)
        except Exception as error:  # those that live go on as they were
            why = _said(error)
            world.abort(why)
        vote = opt._sum_once(torch.tensor([float(bool(why))], dtype=torch.float64))
        if not vote.item():
            return world
        self._give_up()
        if opt._rank == 0:
            log.warning("%s: nobody has come back: %s", opt._who, why or "a rank has failed")
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

    def _planned(self, opt: Any) -> Optional[World]:
        """From rank 0: who comes back, and the attempt's number."""
        plan = torch.zeros(1 + opt._world, dtype=torch.float64)
        if opt._rank == 0:
            self._epoch += 1
            plan[0] = self._epoch
            self._requests = self._called(opt)
            for request in self._requests:
                plan[1 + request.rank] = 1
        opt._sum_once(plan)
        epoch, *marks = (int(each) for each in plan.tolist())
        back = [rank for rank, mark in enumerate(marks) if mark]
        if not back:
            return None
        first_ranks = sorted([*opt._living(), *back])
        self._pending = world = World(epoch, first_ranks, back)
        text = json.dumps({"epoch": epoch, "first_ranks": first_ranks, "back": back})
        for request in self._requests:
            self.requests.say(request.number, "place", text)
        return world

    def _called(self, opt: Any) -> list[ReturnRequest]:
        """Those that can be taken and are there; of a rank the latest."""
        found: dict[int, ReturnRequest] = {}
        for request in self.requests.take():
            why = _refusal(opt, request)
            if why:
                self.requests.say(request.number, "invite", f"refused {why}")
                log.warning("%s: rank %d is %s", opt._who, request.rank, why)
            elif request.rank in opt._living():  # not known to be lost yet
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

    def _build(self, opt: Any, world: World) -> None:
        place = world.first_ranks.index(opt._rank)
        world.communicator = new = Communicator(
            dist.PrefixStore(f"world/{world.epoch}", self.requests.store),
            place,
            len(world.first_ranks),
            f"{opt._group_name}, {world.epoch} times grown",
            timedelta(seconds=_CONNECT_S),
        )
        new.set_timeout(timedelta(seconds=opt._timeout_s))
        first = packed({"facts": opt._agreed, "spans": opt.spans, "updates": opt._updates})
        self._take_first(opt, world, unpacked(shared(new, 0, first)))
        donor = donor_of(opt, world.first_ranks, world.back)
        steps = opt.steps if donor else self._steps + self._done(opt)
        own = packed(worker_state(opt, steps)) if place == donor else b""
        state = shared(new, donor, own)
        new.broadcast(opt._flat.values, 0, blocking=True)
        opt._flat.untrained.broadcast_frozen(new)
        if opt._rank in world.back:
            take_worker_state(opt, unpacked(state))
        world.handle = opt._made_over(new, world.first_ranks)
        new.barrier(blocking=True)

    def _take_first(self, opt: Any, world: World, told: dict[str, Any]) -> None:
        if opt._rank not in world.back:
            return
        compare(opt._who, told["facts"], opt._agreed, opt._rank)
        opt.spans, opt._updates = told["spans"], told["updates"]

    # ---- a rank that was started again ----

    def come_back(self, opt: Any) -> None:
        """RedpollError: it is not taken back. ValueError: it was given other things than the
        others."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(min(_PAUSE_S, opt._timeout_s))
            world = self._ask(opt)
            if world is not None:
                self.settle(opt, world)
                return
        raise RedpollError(
            _abi.STATUS["PEER"],
            f"rank {opt._rank} was started again, and {_ATTEMPTS} attempts to meet the others "
            "have failed: they say why",
        )

    def _ask(self, opt: Any) -> Optional[World]:
        """One request. None: another attempt may go well."""
        with _store_errors():
            number = self.requests.ask(opt._rank)
            text = self.requests.hear(number, "invite", opt._timeout_s)
        if text.startswith("refused "):
            raise RedpollError(
                _abi.RP_INVALID, f"rank {opt._rank} cannot come back: it is {text[8:]}"
            )
        if text != "called":
            return None
        with _store_errors():
            self.requests.answer(number)
            text = self.requests.hear(number, "place", opt._timeout_s)
        if text == "again":
            return None
        world = World(**json.loads(text))
        try:
            is_made = self._is_made(opt, world)
            with _store_errors():
                verdict = self.requests.hear(number, "verdict", opt._timeout_s)
        except BaseException as error:
            world.abort(f"rank {opt._rank}: {_said(error)}")
            world.close()
            raise
        if is_made and verdict == "go":
            tell_launcher(b"b")
            return world
        world.close()
        return None

    def _is_made(self, opt: Any, world: World) -> bool:
        """False: others have failed in it, and say so by their verdict."""
        try:
            self._build(opt, world)
        except RedpollError as error:
            if error.status not in ("PEER", "TIMEOUT", "CANCELLED"):
                raise
            log.warning("%s: %s", opt._who, error)
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


def _refusal(opt: Any, request: ReturnRequest) -> str:
    if not opt._options.servers <= request.rank < opt._world:
        return f"no worker: workers are ranks {opt._options.servers} to {opt._world - 1}"
    if request.version != __version__:
        return f"of redpoll {request.version}, and the run is of {__version__}"
    return ""
