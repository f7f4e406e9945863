"""Which world was this process started in? The library says (redpoll/place.h); its rules are
those of docs/launching.md.

torchrun and `redpoll run` set everything that init_process_group() reads. mpirun and srun
say who a process is, but not where rank 0 is; init() finds that out:

    import redpoll.torch
    redpoll.torch.init()            # instead of dist.init_process_group("redpoll")
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from .. import _abi
from ..errors import last_message
from ._untraced import keep_untraced

__all__ = ["Place", "find_place", "init"]

_OWN = _abi.PlaceGet()  # this process's environment, and what started it
_JOB_KEY = "redpoll/job"
_LIMIT = timedelta(minutes=1)


@dataclass(frozen=True)
class Place:
    """What the environment says. `port` 0: a world of one, which needs no store."""

    found_by: str
    rank: int = 0
    world: int = 1
    local_rank: int = 0  # among the ranks of this host, as far as is known
    local_world: int = 1
    one_host: bool = False  # it is known that all ranks are on this host
    host: str = "127.0.0.1"
    port: int = 0
    job: str = ""  # not empty: `port` follows from it, and another job may have taken it


def init(
    backend: str = "redpoll", *, timeout: timedelta | None = None, **options: Any
) -> Place:
    """init_process_group() in the world that this process was started in.

    Afterwards the default process group exists, and RANK, WORLD_SIZE, LOCAL_RANK,
    LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set as torchrun sets them, for code that
    reads them. Collective over all ranks; blocks until everybody has arrived or `timeout` has
    passed. Where torchrun serves a store it is used; no second port is opened.

    timeout: of the group; None: PyTorch's default. options: passed to init_process_group().
    ValueError names a variable that is missing or wrong, or the job that holds the port;
    RuntimeError a store that cannot be served or reached."""
    place = _found(_OWN)
    if timeout is not None:
        options["timeout"] = timeout
    if not place.port:
        _set_variables(place, "127.0.0.1", _free_port())
        dist.init_process_group(
            backend, store=dist.HashStore(), rank=0, world_size=1, **options
        )
        return place
    _set_variables(place, place.host, place.port)
    if place.job:
        options.update(
            store=_claimed_store(place, timeout or _LIMIT),
            rank=place.rank,
            world_size=place.world,
        )
    dist.init_process_group(backend, **options)
    return place


def _set_variables(place: Place, host: str, port: int) -> None:
    os.environ.update(
        RANK=str(place.rank),
        WORLD_SIZE=str(place.world),
        LOCAL_RANK=str(place.local_rank),
        LOCAL_WORLD_SIZE=str(place.local_world),
        MASTER_ADDR=host,
        MASTER_PORT=str(port),
    )


def _free_port() -> int:
    """Nobody listens there now: a world of one has no store, but what reads the variables may
    want to open one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _claimed_store(place: Place, timeout: timedelta) -> dist.Store:
    """A store at a port that may be another job's: rank 0 writes down whose it is."""
    try:
        store = dist.TCPStore(
            place.host,
            place.port,
            world_size=place.world,
            is_master=place.rank == 0,
            timeout=timeout,
            wait_for_workers=False,
        )
    except RuntimeError as error:
        does = "serve" if place.rank == 0 else "reach"
        raise RuntimeError(
            f"rank {place.rank} cannot {does} the store at {place.host}:{place.port}, a port "
            f"that follows from {place.job}; MASTER_PORT sets another, on all ranks: {error}"
        ) from error
    if place.rank == 0:
        store.set(_JOB_KEY, place.job)
    owner = store.get(_JOB_KEY).decode()
    if owner != place.job:
        raise ValueError(
            f"the store at {place.host}:{place.port} is that of another job ({owner}); "
            "MASTER_PORT sets another port, on all ranks"
        )
    return store


def find_place(environment: Mapping[str, str], launcher: int = 0) -> Place:
    """Read the launchers' variables, in order of trust; nothing is opened. Pure.

    launcher: its process id, which the ranks of one host share; 0: not known. ValueError names
    the variable that is missing or wrong."""
    texts = {
        name.encode(errors="surrogateescape"): ctypes.create_string_buffer(
            value.encode(errors="surrogateescape")
        )
        for name, value in environment.items()
    }

    def get(_context: Any, name: bytes) -> int | None:
        return ctypes.addressof(texts[name]) if name in texts else None

    return _found(_abi.PlaceGet(get), launcher)


def _found(get: Any, launcher: int = 0) -> Place:
    """By rp_place_find()."""
    place = _abi.rp_place()
    if _abi.rp_place_find(get, None, launcher, ctypes.byref(place)) < 0:
        raise ValueError(last_message())
    return Place(
        place.found_by.decode(),
        place.rank,
        place.world,
        place.local_rank,
        place.local_world,
        bool(place.one_host),
        place.host.decode() or "127.0.0.1",
        place.port,
        place.job.decode(errors="surrogateescape"),
    )


keep_untraced("redpoll")
