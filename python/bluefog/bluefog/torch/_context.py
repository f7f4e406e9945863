"""The world, its machines and its graph: what every operation asks."""

from __future__ import annotations

import atexit
import logging
import os
from typing import Any, Callable, Optional

import networkx as nx
import torch.distributed as dist

import redpoll.torch
from redpoll.torch import Communicator, Window, communicator_of

from ..common import topology_util
from ._timeline import Timeline

log = logging.getLogger("bluefog")


class Context:
    """One a process; `context` is it. ValueError from everything before init()."""

    def __init__(self) -> None:
        self.is_initialised = self.is_shut = False
        self.group: Any = None
        self.owns_world = False
        self.nodes_per_machine = 0
        self.topology: Optional[nx.DiGraph] = None
        self.is_weighted = False
        self.machine_topology: Optional[nx.DiGraph] = None
        self.is_machine_weighted = False
        self.local_group: Any = None
        self.timeline = Timeline()
        self.windows: dict[str, Window] = {}

    # ---- beginning and end ----

    def init(
        self,
        topology_fn: Optional[Callable[[int], nx.DiGraph]] = None,
        is_weighted: bool = False,
    ) -> None:
        """Join the world that this process was started in. Collective. Again: another graph."""
        if self.is_shut:
            raise RuntimeError("bluefog was shut down: start the process anew")
        if not self.is_initialised:
            self._join()
        graph = topology_fn(self.size()) if topology_fn is not None else None
        self.set_topology(graph, is_weighted)

    def _join(self) -> None:
        if not dist.is_initialized():
            redpoll.torch.init()
            self.owns_world = True
            self.group = dist.group.WORLD
        else:  # operations of the script's own group must not come between ours
            self.group = dist.new_group(backend="redpoll")
        self.nodes_per_machine = int(os.environ.get("BLUEFOG_NODES_PER_MACHINE") or 0)
        self.is_initialised = True
        self.timeline.open(self.rank())
        atexit.register(self.shutdown)

    def shutdown(self) -> None:
        """Leave. Later operations raise RuntimeError."""
        if not self.is_initialised or self.is_shut:
            return
        self.is_shut = True
        self.windows.clear()  # they go with the group
        self.timeline.close()
        if self.owns_world and dist.is_initialized():
            dist.destroy_process_group()

    def check(self) -> None:
        if self.is_shut:
            raise RuntimeError("bluefog was shut down: start the process anew")
        if not self.is_initialised:
            raise ValueError("bluefog is not initialised: call bf.init() first")

    def communicator(self) -> Communicator:
        self.check()
        return communicator_of(self.group)

    def local_communicator(self) -> Communicator:
        """Of this machine's ranks. Collective over all ranks at its first use."""
        if self.local_group is None:
            local = self.local_size()
            for first in range(0, self.size(), local):
                ranks = list(range(first, first + local))
                group = dist.new_group(ranks, backend="redpoll")
                if self.rank() in ranks:
                    self.local_group = group
        return communicator_of(self.local_group)

    # ---- places ----

    def size(self) -> int:
        return self.communicator().world

    def rank(self) -> int:
        return self.communicator().rank

    def local_size(self) -> int:
        self.check()
        return self.nodes_per_machine or int(os.environ.get("LOCAL_WORLD_SIZE") or 1)

    def local_rank(self) -> int:
        self.check()
        if self.nodes_per_machine:
            return self.rank() % self.nodes_per_machine
        return int(os.environ.get("LOCAL_RANK") or 0)

    def is_homogeneous(self) -> bool:
        """Every machine has as many ranks."""
        return self.size() % self.local_size() == 0

    def machine_size(self) -> int:
        assert self.is_homogeneous(), "machines have different numbers of ranks"
        return self.size() // self.local_size()

    def machine_rank(self) -> int:
        assert self.is_homogeneous(), "machines have different numbers of ranks"
        return self.rank() // self.local_size()

    # ---- graphs ----

    def set_topology(
        self, topology: Optional[nx.DiGraph] = None, is_weighted: bool = False
    ) -> bool:
        """The graph of operations that name no neighbours; None: ExponentialGraph. False: there
        are windows, which were made for another graph."""
        self.check()
        if topology is None:
            topology = topology_util.ExponentialGraph(self.size())
        _check_graph(topology, self.size(), "ranks")
        same = topology_util.IsTopologyEquivalent(topology, self.topology)
        if self.windows and not same:
            log.error("set_topology: there are windows of the present graph: win_free() first")
            return False
        self.topology, self.is_weighted = topology, is_weighted
        return True

    def set_machine_topology(
        self, topology: Optional[nx.DiGraph], is_weighted: bool = False
    ) -> bool:
        """The graph of machines, for hierarchical operations."""
        self.check()
        if topology is None:
            raise ValueError("set_machine_topology: topology is None; a graph is wanted")
        _check_graph(topology, self.machine_size(), "machines")
        self.machine_topology, self.is_machine_weighted = topology, is_weighted
        return True

    def in_neighbors(self) -> list[int]:
        self.check()
        return _others(self.topology, self.rank(), "predecessors")

    def out_neighbors(self) -> list[int]:
        self.check()
        return _others(self.topology, self.rank(), "successors")

    def in_machines(self) -> list[int]:
        return _others(self.machine_topology, self.machine_rank(), "predecessors")

    def out_machines(self) -> list[int]:
        return _others(self.machine_topology, self.machine_rank(), "successors")


def _check_graph(topology: Any, count: int, what: str) -> None:
    if not isinstance(topology, nx.DiGraph):
        raise TypeError(f"a topology is a networkx.DiGraph; not {type(topology).__name__}")
    if topology.number_of_nodes() != count:
        raise TypeError(
            f"the topology has {topology.number_of_nodes()} nodes, and there are {count} {what}"
        )


def _others(topology: Optional[nx.DiGraph], rank: int, way: str) -> list[int]:
    if topology is None:
        return []
    return sorted(each for each in getattr(topology, way)(rank) if each != rank)


context = Context()
