"""Redpoll for PyTorch: importing this registers the backend "redpoll".

import redpoll.torch
torch.distributed.init_process_group("redpoll")   # or "cpu:redpoll,cuda:nccl"

What a group of processes needs is loaded with this; methods of training and compress() when
somebody names them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .._autoload import compress_by_variable
from ..errors import Error
from . import _needs  # noqa: F401  (before everything that imports PyTorch)
from ._backend import register_backend
from ._codec import Codec
from ._communicator import Communicator, communicator_of, communicators
from ._errors import RedpollError, RedpollValueError
from ._launcher import tell_launcher
from ._options import Options
from ._policy import Piece, Policy
from ._process_group import RedpollGroup
from ._rules import Rule
from ._untraced import keep_untraced
from ._work import Work
from .monitored import monitored_barrier
from .registered import empty

if TYPE_CHECKING:
    from ._buckets import gradients_of
    from ._compress import CompressState, compress, compress_state
    from ._hook import compress_hook
    from ._sharded import ShardedState
    from .async_local_sgd import AsyncLocalSGD
    from .gossip import Gossip
    from .launch import init
    from .local_sgd import DiLoCo, LocalSGD, LocalStep, NoLoCo, SlowMo, SparseLoCo
    from .parameter_server import ParameterServer, ParameterStep
    from .statistics import GroupStats, Stats, stats
    from .window import Window, WindowOperation

_LOADED_ON_NEED = {
    "_buckets": ("gradients_of",),
    "_compress": ("CompressState", "compress", "compress_state"),
    "_hook": ("compress_hook",),
    "_sharded": ("ShardedState",),
    "async_local_sgd": ("AsyncLocalSGD",),
    "gossip": ("Gossip",),
    "launch": ("init",),
    "local_sgd": ("DiLoCo", "LocalSGD", "LocalStep", "NoLoCo", "SlowMo", "SparseLoCo"),
    "parameter_server": ("ParameterServer", "ParameterStep"),
    "statistics": ("GroupStats", "Stats", "stats"),
    "window": ("Window", "WindowOperation"),
}
_HOMES = {name: home for home, names in _LOADED_ON_NEED.items() for name in names}


def __getattr__(name: str) -> Any:
    """A module of those above, or what it holds."""
    if name not in _HOMES and name not in _LOADED_ON_NEED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_HOMES.get(name, name)}", __name__)
    keep_untraced("redpoll")
    return globals().setdefault(name, getattr(module, name) if name in _HOMES else module)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LOADED_ON_NEED})


register_backend()
tell_launcher(b"w")
keep_untraced("redpoll")
compress_by_variable()

__all__ = [
    "AsyncLocalSGD",
    "Codec",
    "Communicator",
    "CompressState",
    "DiLoCo",
    "Error",
    "Gossip",
    "GroupStats",
    "LocalSGD",
    "LocalStep",
    "NoLoCo",
    "Options",
    "ParameterServer",
    "ParameterStep",
    "Piece",
    "Policy",
    "RedpollError",
    "RedpollGroup",
    "RedpollValueError",
    "Rule",
    "ShardedState",
    "SlowMo",
    "SparseLoCo",
    "Stats",
    "Window",
    "WindowOperation",
    "Work",
    "communicator_of",
    "communicators",
    "compress",
    "compress_hook",
    "compress_state",
    "empty",
    "gradients_of",
    "init",
    "keep_untraced",
    "monitored_barrier",
    "register_backend",
    "stats",
]
