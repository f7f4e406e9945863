"""The place of a rank that was started again, in a group that has met without it."""

from __future__ import annotations

import ctypes
from typing import Any

from ... import _abi
from ...errors import last_message
from ._errors import RedpollError
from ._launcher import is_of_launcher, is_started_again, tell_launcher
from ._store import StoreBridge


def is_lost_place(store: Any, rank: int, world: int, name: str) -> bool:
    """Was this process started by a launcher with --restart in the place of a rank that was
    killed, and has the group met without it, so that this place in it is lost? Where the rank
    before had not come, this one comes for it. Its children have its environment, and make
    groups of their own. RedpollError: it died while the ranks were meeting; all fail."""
    if world < 2 or not is_started_again() or not is_of_launcher(rank, world):
        return False
    bridge, has_met = StoreBridge(store), ctypes.c_int(0)
    options = _abi.rp_comm_options(name=name.encode())
    code = _abi.rp_comm_replace(
        ctypes.byref(bridge.structure),
        rank,
        world,
        ctypes.byref(options),
        ctypes.byref(has_met),
    )
    if bridge.failure is not None:
        raise bridge.failure
    if code < 0:
        raise RedpollError(code, last_message())
    if not has_met.value:
        tell_launcher(b"b")
    return bool(has_met.value)


def absence_of(rank: int) -> str:
    """Why the operations of a rank with a lost place are refused."""
    return (
        f"rank {rank} was started again, and the group that it was in goes on without it; "
        "redpoll.torch.ParameterServer and AsyncLocalSGD with on_loss='continue' take it back "
        "when they are made, for their own operations and no others"
    )
