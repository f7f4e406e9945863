"""The interface of BlueFog for PyTorch, on Redpoll.

import bluefog.torch as bf
bf.init()
x = bf.neighbor_allreduce(x)
"""

from __future__ import annotations

from typing import Any

from ._handles import poll, synchronize, wait
from ._windows import REFUSED as _REFUSED
from .mpi_ops import (
    allgather,
    allgather_nonblocking,
    allreduce,
    allreduce_,
    allreduce_nonblocking,
    allreduce_nonblocking_,
    barrier,
    broadcast,
    broadcast_,
    broadcast_nonblocking,
    broadcast_nonblocking_,
    get_current_created_window_names,
    get_skip_negotiate_stage,
    hierarchical_neighbor_allreduce,
    hierarchical_neighbor_allreduce_nonblocking,
    in_neighbor_machine_ranks,
    in_neighbor_ranks,
    init,
    is_homogeneous,
    load_machine_topology,
    load_topology,
    local_rank,
    local_size,
    machine_rank,
    machine_size,
    mpi_threads_supported,
    nccl_built,
    neighbor_allgather,
    neighbor_allgather_nonblocking,
    neighbor_allreduce,
    neighbor_allreduce_nonblocking,
    out_neighbor_machine_ranks,
    out_neighbor_ranks,
    pair_gossip_nonblocking,
    rank,
    resume,
    set_machine_topology,
    set_skip_negotiate_stage,
    set_topology,
    shutdown,
    size,
    suspend,
    timeline_context,
    timeline_end_activity,
    timeline_start_activity,
    unified_mpi_window_model_supported,
)
from .optimizers import (
    CommunicationType,
    DistributedAdaptThenCombineOptimizer,
    DistributedAdaptWithCombineOptimizer,
    DistributedAllreduceOptimizer,
    DistributedGradientAllreduceOptimizer,
    DistributedHierarchicalNeighborAllreduceOptimizer,
    DistributedNeighborAllreduceOptimizer,
    DistributedWinPutOptimizer,
)
from .topology_util import InferDestinationFromSourceRanks, InferSourceFromDestinationRanks
from .utility import allreduce_parameters, broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "CommunicationType",
    "DistributedAdaptThenCombineOptimizer",
    "DistributedAdaptWithCombineOptimizer",
    "DistributedAllreduceOptimizer",
    "DistributedGradientAllreduceOptimizer",
    "DistributedHierarchicalNeighborAllreduceOptimizer",
    "DistributedNeighborAllreduceOptimizer",
    "DistributedWinPutOptimizer",
    "InferDestinationFromSourceRanks",
    "InferSourceFromDestinationRanks",
    "allgather",
    "allgather_nonblocking",
    "allreduce",
    "allreduce_",
    "allreduce_nonblocking",
    "allreduce_nonblocking_",
    "allreduce_parameters",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_nonblocking",
    "broadcast_nonblocking_",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "get_current_created_window_names",
    "get_skip_negotiate_stage",
    "hierarchical_neighbor_allreduce",
    "hierarchical_neighbor_allreduce_nonblocking",
    "in_neighbor_machine_ranks",
    "in_neighbor_ranks",
    "init",
    "is_homogeneous",
    "load_machine_topology",
    "load_topology",
    "local_rank",
    "local_size",
    "machine_rank",
    "machine_size",
    "mpi_threads_supported",
    "nccl_built",
    "neighbor_allgather",
    "neighbor_allgather_nonblocking",
    "neighbor_allreduce",
    "neighbor_allreduce_nonblocking",
    "out_neighbor_machine_ranks",
    "out_neighbor_ranks",
    "pair_gossip_nonblocking",
    "poll",
    "rank",
    "resume",
    "set_machine_topology",
    "set_skip_negotiate_stage",
    "set_topology",
    "shutdown",
    "size",
    "suspend",
    "synchronize",
    "timeline_context",
    "timeline_end_activity",
    "timeline_start_activity",
    "unified_mpi_window_model_supported",
    "wait",
]


def __getattr__(name: str) -> Any:
    """Windows, which are refused when they are called."""
    if name in _REFUSED and name != "win_lock":
        return _REFUSED[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
