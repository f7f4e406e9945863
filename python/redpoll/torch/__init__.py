"""Redpoll for PyTorch: importing this registers the backend "redpoll".

import redpoll.torch
torch.distributed.init_process_group("redpoll")   # or "cpu:redpoll,cuda:nccl"
"""

from __future__ import annotations

from .._autoload import compress_by_variable
from ..errors import Error
from . import _needs  # noqa: F401  (before everything that imports PyTorch)
from ._backend import register_backend
from ._buckets import gradients_of
from ._codec import Codec
from ._communicator import Communicator, communicator_of, communicators
from ._errors import RedpollError, RedpollValueError
from ._hook import compress_hook
from ._launcher import tell_launcher
from ._options import Options
from ._policy import Piece, Policy
from ._process_group import RedpollGroup
from ._rules import Rule
from ._sharded import ShardedState
from ._untraced import keep_untraced
from ._work import Work
from .async_local_sgd import AsyncLocalSGD
from .compress import CompressState, compress, compress_state
from .gossip import Gossip
from .launch import init
from .local_sgd import DiLoCo, LocalSGD, LocalStep, NoLoCo, SlowMo, SparseLoCo
from .monitored import monitored_barrier
from .parameter_server import ParameterServer, ParameterStep
from .registered import empty
from .statistics import GroupStats, Stats, stats
from .window import Window, WindowOperation

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
