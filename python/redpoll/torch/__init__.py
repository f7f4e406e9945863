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
from ._untraced import keep_untraced
from .c10d._backend import register_backend
from .c10d._options import Options
from .c10d._process_group import RedpollGroup
from .c10d.monitored import monitored_barrier
from .codecs._policy import Piece, Policy
from .codecs._rules import Rule
from .comm._codec import Codec
from .comm._communicator import Communicator, communicator_of, communicators
from .comm._errors import RedpollError, RedpollValueError
from .comm._launcher import tell_launcher
from .comm._work import Work
from .comm.registered import empty

if TYPE_CHECKING:
    from .c10d._elastic import new_group, shrink_group
    from .c10d.statistics import GroupStats, Stats, stats
    from .codecs._buckets import gradients_of
    from .compression._compress import CompressState, compress, compress_state
    from .compression._hook import compress_hook
    from .decentralised.gossip import Gossip
    from .decentralised.local_sgd import DiLoCo, LocalSGD, LocalStep, NoLoCo, SlowMo, SparseLoCo
    from .decentralised.servers.async_local_sgd import AsyncLocalSGD
    from .decentralised.servers.parameter_server import ParameterServer, ParameterStep
    from .decentralised.window import Window, WindowOperation
    from .fsdp._sharded import ShardedState
    from .launch import init

_LOADED_ON_NEED = {
    "c10d._elastic": ("new_group", "shrink_group"),
    "c10d.statistics": ("GroupStats", "Stats", "stats"),
    "codecs._buckets": ("gradients_of",),
    "compression._compress": ("CompressState", "compress", "compress_state"),
    "compression._hook": ("compress_hook",),
    "decentralised.gossip": ("Gossip",),
    "decentralised.local_sgd": (
        "DiLoCo",
        "LocalSGD",
        "LocalStep",
        "NoLoCo",
        "SlowMo",
        "SparseLoCo",
    ),
    "decentralised.servers.async_local_sgd": ("AsyncLocalSGD",),
    "decentralised.servers.parameter_server": ("ParameterServer", "ParameterStep"),
    "decentralised.window": ("Window", "WindowOperation"),
    "fsdp._sharded": ("ShardedState",),
    "launch": ("init",),
}
_HOMES = {name: home for home, names in _LOADED_ON_NEED.items() for name in names}
_MODULES = tuple(
    "async_local_sgd gossip launch local_sgd parameter_server statistics window".split()
)
"""Public, under these names, wherever they are."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_HOMES.get(name, name)}", __name__)
    keep_untraced("redpoll")
    return globals().setdefault(name, getattr(module, name) if name in _HOMES else module)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


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
    "new_group",
    "register_backend",
    "shrink_group",
    "stats",
]
