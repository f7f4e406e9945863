"""A process group for torchft: replicas that come and go, over Redpoll.

manager = Manager(pg=ProcessGroupRedpoll(timeout=timedelta(seconds=10)), ...)
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Optional

import torch.distributed as dist
from torchft.process_group import ProcessGroupWrapper

from ..c10d._elastic import new_group
from ..c10d._options import Options

_MINUTE = timedelta(seconds=60)


class ProcessGroupRedpoll(ProcessGroupWrapper):
    """As torchft's ProcessGroupGloo: made anew, of the replicas that are there, each time that
    configure() is called, and what fails in between fails with the rank that was lost."""

    def __init__(
        self,
        timeout: timedelta = _MINUTE,
        pg: Optional[dist.ProcessGroup] = None,
        *,
        options: Optional[Options] = None,
    ) -> None:
        """timeout: for meeting, and for operations without progress. pg: a group that is there,
        for a start. options: redpoll.torch.Options of each group that is made; codecs of that
        have no error feedback, as replicas come and go."""
        super().__init__(timeout, pg)
        self._own_options = options

    def _create_pg(self, store: Any, rank: int, world_size: int) -> dist.ProcessGroup:
        return new_group(
            store,
            rank,
            world_size,
            name="torchft",
            timeout=self._timeout,
            options=self._own_options,
        )

    def getBackendName(self) -> str:
        return "torchft-redpoll"

    def shutdown(self) -> None:
        """The group that there is goes; others hear of it. configure() makes another."""
        group: Any = getattr(self, "_pg", None)
        self._pg = None
        if group is not None:
            group.shutdown()
