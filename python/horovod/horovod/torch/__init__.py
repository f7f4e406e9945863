"""The interface of Horovod for PyTorch, on Redpoll.

import horovod.torch as hvd
hvd.init()
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
"""

from __future__ import annotations

from redpoll.torch import keep_untraced

from ..common.exceptions import HostsUpdatedInterrupt
from ..common.util import check_extension, check_installed_version, gpu_available
from . import elastic, mpi_ops
from .compression import CodecCompressor, Compression
from .functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from .mpi_ops import *  # noqa: F403
from .optimizer import DistributedOptimizer
from .sync_batch_norm import SyncBatchNorm

keep_untraced("horovod")

__all__ = [
    "CodecCompressor",
    "Compression",
    "DistributedOptimizer",
    "HostsUpdatedInterrupt",
    "SyncBatchNorm",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "check_extension",
    "check_installed_version",
    "elastic",
    "gpu_available",
]
__all__ += mpi_ops.__all__
