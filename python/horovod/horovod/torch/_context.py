"""The world, its hosts and its process sets: what every operation asks."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Optional, Union

import torch
import torch.distributed as dist

import redpoll.torch
from redpoll.torch import Communicator, RedpollError, communicator_of

from ..common.exceptions import HorovodInternalError
from ..common.process_sets import ProcessSet, global_process_set
from ._engine import Engine
from ._handles import forget_all
from ._requests import Meeting, start_all
from ._timeline import Timeline

log = logging.getLogger("horovod")

_FUSION_BYTES = 128 << 20
_STALL_S = 60.0
_LIMIT = timedelta(days=1)  # of an operation: ranks may compute as long as they like


class Context:
    """One a process; `context` is it. ValueError from everything before init()."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self._root: Optional[Communicator] = None  # makes others, and carries nothing else
        self._owns_world = False
        self._engines: dict[int, Engine] = {}
        self._sets: dict[int, ProcessSet] = {}
        self._made = 0
        self._places: list[list[int]] = []  # of each rank: host, local rank
        self._lock = threading.Lock()
        self._is_registered = False

    # ---- beginning and end ----

    def init(self, comm: Optional[Sequence[int]] = None, process_sets: Any = None) -> None:
        """Join the world that this process was started in. Collective. Again: nothing happens.

        comm: None, or all ranks. process_sets: ProcessSets to be made at once, "dynamic" or
        None."""
        if self.is_initialized():
            return
        if comm is not None and not isinstance(comm, (list, tuple)):
            raise ValueError("hvd.init: there is no MPI underneath; comm is a list of ranks")
        sets = [] if process_sets in (None, "dynamic") else list(process_sets)
        self._join()
        world = self._joined().world
        if comm and sorted(comm) != list(range(world)):
            raise ValueError(
                f"hvd.init: comm has ranks {list(comm)} of {world}; start so many ranks as are "
                "wanted, or use hvd.add_process_set()"
            )
        self._begin(self._own_place())
        for each in sets:
            self.add_process_set(each)

    def _join(self) -> None:
        if self._root is not None:  # after shutdown()
            return
        if not dist.is_initialized():
            redpoll.torch.init()
            self._owns_world = True
            self._root = communicator_of()
        else:  # operations of the script's own group must not come between ours
            self._root = communicator_of(dist.new_group(backend="redpoll"))
        if not self._is_registered:
            atexit.register(self._leave)
            self._is_registered = True

    def _begin(self, place: list[int]) -> None:
        """The engine of all ranks. place: of this rank: host (below 0: to be found), local
        rank."""
        root = self._joined()
        global_process_set.begin(0, list(range(root.world)), root.rank)
        self._sets = {0: global_process_set}
        control = self._communicator("control", list(range(root.world)))
        places = torch.empty(root.world * 2, dtype=torch.int64)
        control.all_gather(places, torch.tensor(place), blocking=True)
        self._places = _with_hosts(places.view(-1, 2).tolist())
        self.timeline.start_by_variable(root.rank)
        self._engines = {0: self._engine(control, list(range(root.world)))}
        self._made += 1

    def _own_place(self) -> list[int]:
        return [-1, int(os.environ.get("LOCAL_RANK") or 0)]

    def _communicator(self, purpose: str, ranks: list[int]) -> Communicator:
        root = self._joined()
        return Communicator(
            None,
            ranks.index(root.rank),
            len(ranks),
            f"horovod:{self._made}:{purpose}",
            _LIMIT,
            while_joining=root.check,
            parent=(root, ranks),
        )

    def _engine(self, control: Communicator, ranks: list[int]) -> Engine:
        data = self._communicator("data", ranks)
        threshold = _number("HOROVOD_FUSION_THRESHOLD", _FUSION_BYTES)
        stall_s = _number("HOROVOD_STALL_CHECK_TIME_SECONDS", _STALL_S)
        if os.environ.get("HOROVOD_STALL_CHECK_DISABLE") == "1":
            stall_s = 0.0
        return Engine(control, data, self.timeline, start_all, int(threshold), stall_s)

    def shutdown(self, abort: bool = False) -> None:
        """Leave; init() may follow. What is in flight fails. Local."""
        for engine in self._engines.values():
            engine.close(abort)
        for each in self._sets.values():
            each.end()
        self._engines, self._sets = {}, {}
        self.timeline.stop()

    def _leave(self) -> None:
        """Before the interpreter ends."""
        self.shutdown()
        if self._owns_world and dist.is_initialized():
            dist.destroy_process_group()

    def is_initialized(self) -> bool:
        return bool(self._engines)

    def _joined(self) -> Communicator:
        if self._root is None:
            raise ValueError("horovod is not initialized: call hvd.init() first")
        return self._root

    def check(self) -> None:
        if not self._engines:
            raise ValueError("horovod is not initialized: call hvd.init() first")

    # ---- those that are left ----

    def go_on(self) -> bool:
        """After an operation has failed: the world of the ranks that are left, in their order.
        False: all are. Collective over them."""
        root = self._joined()
        lost = _is_lost(root)
        if not lost:
            return False
        place = self._places[root.rank]
        self.shutdown(abort=True)
        forget_all()
        try:
            self._root = root.survivors()
        except RedpollError as error:
            raise RuntimeError(f"the ranks that are left did not meet: {error}") from error
        log.warning("going on with %d of %d ranks", self._root.world, root.world)
        self._begin([place[0], -1])
        return True

    # ---- process sets ----

    def engine_of(self, process_set: ProcessSet) -> Engine:
        """ValueError: not initialized, no such set, or this rank is not in it."""
        self.check()
        engine = self._engines.get(process_set.process_set_id or 0)
        if engine is None or process_set.process_set_id is None:
            process_set.rank()  # says what is wrong
            raise ValueError(f"{process_set} was removed, or is of an earlier hvd.init()")
        return engine

    def add_process_set(self, process_set: Union[ProcessSet, Iterable[int]]) -> ProcessSet:
        """Collective over all ranks, in the same order. ValueError: there is one of these
        ranks, or ranks are out of range."""
        self.check()
        if not isinstance(process_set, ProcessSet):
            process_set = ProcessSet(process_set)
        with self._lock:
            root = self._joined()
            everybody = list(range(root.world))
            ranks = process_set.ranks if process_set.ranks is not None else everybody
            self._check_set(ranks, root.world)
            self._agree(f"add_process_set.{self._made}", ranks)
            number = self._made
            if root.rank in ranks:
                control = self._communicator("control", ranks)
                self._engines[number] = self._engine(control, ranks)
            self._made = number + 1
            self._sets[number] = process_set
            process_set.begin(number, ranks, root.rank)
        return process_set

    def _check_set(self, ranks: list[int], world: int) -> None:
        if not ranks or ranks[-1] >= world:
            raise ValueError(f"ranks of the process set are {ranks}; there are {world} ranks")
        known = [each.process_set_id for each in self._sets.values() if each.ranks == ranks]
        if known:
            raise ValueError(f"process set {known[0]} has ranks {ranks} already")

    def _agree(self, name: str, ranks: list[int]) -> None:
        request = Meeting("process_set", name, [f"process set {ranks}"], [])
        self._engines[0].submit(request).wait()

    def remove_process_set(self, process_set: ProcessSet) -> bool:
        """Collective over all ranks. False: there is none such, or it is that of all ranks."""
        self.check()
        number = process_set.process_set_id
        if not number or self._sets.get(number) is not process_set:
            return False
        self._agree(f"remove_process_set.{number}", process_set.ranks or [])
        with self._lock:
            engine = self._engines.pop(number, None)
            del self._sets[number]
            process_set.end()
        if engine is not None:
            engine.close()
        return True

    # ---- places ----

    def size(self) -> int:
        self.check()
        return self._joined().world

    def rank(self) -> int:
        self.check()
        return self._joined().rank

    def _place(self) -> list[int]:
        return self._places[self.rank()]

    def local_rank(self) -> int:
        return self._place()[1]

    def local_size(self) -> int:
        host = self._place()[0]
        return sum(each[0] == host for each in self._places)

    def cross_rank(self) -> int:
        rank, local = self.rank(), self.local_rank()
        return sum(each[1] == local for each in self._places[:rank])

    def cross_size(self) -> int:
        local = self.local_rank()
        return sum(each[1] == local for each in self._places)

    def is_homogeneous(self) -> bool:
        """Every host has as many ranks."""
        self.check()
        hosts = [each[0] for each in self._places]
        return len({hosts.count(host) for host in hosts}) == 1


def _with_hosts(places: list[list[int]]) -> list[list[int]]:
    """Host and local rank of each rank. A host's number: how many ranks before had the same
    local rank. Where hosts are known, local ranks are counted anew."""
    found: list[list[int]] = []
    for host, local in places:
        if host < 0:
            host = sum(each[1] == local for each in found)
        else:
            local = sum(each[0] == host for each in found)
        found.append([host, local])
    return found


def _is_lost(root: Communicator) -> bool:
    """A rank is gone. All that are left ask, or will: it is their barrier."""
    try:
        root.barrier(blocking=True)
    except RedpollError as error:
        if error.status == "PEER":
            return True
        raise HorovodInternalError(str(error)) from error
    return False


def _number(name: str, default: float) -> float:
    text = os.environ.get(name, "").strip()
    with contextlib.suppress(ValueError):
        return float(text) if text else default
    raise ValueError(f"{name}={text!r} is no number")


context = Context()
