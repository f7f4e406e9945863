"""The ranks of servers and workers: which of them live, and what those do together."""

from __future__ import annotations

import ctypes
import logging
from typing import Any, Callable, Optional, TypeVar

import torch

from .... import _abi
from ...comm._communicator import Communicator
from ...comm._dtypes import NUMBER
from ...comm._errors import RedpollError

log = logging.getLogger("redpoll")

_T = TypeVar("_T")


class Ranks:
    """Of one optimizer: which there are, and what they do together.

    Ranks are numbered as when the group was made. who: names the optimizer in errors. rank,
    world: of the group. communicator: of those that there are now. handle: a ServerHandle over
    these; first_ranks: their numbers. lost: {rank: why} of those that were left behind, as of
    the latest thing that was done together. options: what the library is told; set before
    anything is done."""

    options: _abi.rp_parameter_server_options

    def __init__(self, who: str, communicator: Communicator) -> None:
        self.who = who
        self.communicator = communicator
        self.rank, self.world = communicator.rank, communicator.world
        self.group_name, self.timeout_s = communicator.name, communicator.timeout_s
        self.first_ranks = list(range(self.world))
        self.handle: Any = None
        self.lost: dict[int, str] = {}

    def living(self) -> list[int]:
        return [rank for rank in self.first_ranks if rank not in self.lost]

    def lives_a_worker(self) -> bool:
        return any(rank >= self.options.servers for rank in self.living())

    def hear_of_lost(self) -> None:
        with self.handle.used(posts=False) as handle:
            for place, rank in enumerate(self.first_ranks):
                why = _abi.rp_parameter_server_lost(handle, place)
                if why and rank not in self.lost:
                    self.lost[rank] = why.decode()
                    log.warning("%s: rank %d is left behind: %s", self.who, rank, why.decode())

    def together(self, what: Callable[[], _T]) -> _T:
        """What all ranks do between finish() and the next step; again, by those that are left,
        when a worker dies meanwhile that is left behind. Collective."""
        if not self.options.goes_on:
            return what()
        while True:
            status, again = _abi.RP_OK, ctypes.c_int()
            caught: Optional[RedpollError] = None
            try:
                result = what()
            except RedpollError as error:
                status, caught = error.code, error
            with self.handle.used() as handle:
                code = _abi.rp_parameter_server_confirm(handle, status, ctypes.byref(again))
                try:
                    self.handle.check(code)
                except Exception as error:
                    if caught is None:
                        raise
                    raise error from caught
            if not again.value:
                return result
            self.hear_of_lost()

    def sum(self, vector: torch.Tensor) -> torch.Tensor:
        """Over the ranks that live, in place."""
        return vector.copy_(self.together(lambda: self.sum_once(vector.clone())))

    def sum_once(self, vector: torch.Tensor) -> torch.Tensor:
        segment = _abi.rp_segment(
            data=vector.data_ptr(), count=vector.numel(), dtype=NUMBER[vector.dtype]
        )
        options = _abi.rp_collective_options(reduce=_abi.REDUCTIONS["SUM"])
        request = ctypes.c_void_p()
        with self.handle.used() as handle:
            comm = _abi.rp_parameter_server_comm(handle)
            self.handle.check(
                _abi.rp_all_reduce_start(
                    comm, ctypes.byref(segment), 1, options, ctypes.byref(request)
                )
            )
            try:
                self.handle.check(_abi.rp_request_wait_for(request, -1.0))
            finally:
                _abi.rp_request_free(ctypes.byref(request))
        return vector

    def gather(self, vector: torch.Tensor) -> torch.Tensor:
        """Of each server's shard its own, on every rank; in place. Collective."""

        def gather() -> torch.Tensor:
            with self.handle.used() as handle:
                self.handle.check(_abi.rp_parameter_server_gather(handle, vector.data_ptr()))
            return vector

        return self.together(gather)
