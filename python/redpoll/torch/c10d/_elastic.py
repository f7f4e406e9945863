"""Groups that are made apart from PyTorch's start, and groups of those that are left.

A shrunk group has the links of the one before it, so nobody meets anew: its communicator is
made first, by those who are left, and then put behind a process group that PyTorch makes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _DistributedBackendOptions

from ..codecs._policy import policy_from_environment
from ..comm._communicator import Communicator, communicator_of
from ..comm._errors import RedpollValueError
from ..comm._shrinking import left_of
from ._backend import create_group
from ._options import Options
from ._process_group import NAME, RedpollGroup

_CPU = torch.device("cpu")
_HALF_AN_HOUR = timedelta(minutes=30)


def new_group(
    store: Any,
    rank: int,
    world_size: int,
    *,
    name: str = "group",
    timeout: timedelta = _HALF_AN_HOUR,
    options: Optional[Options] = None,
) -> RedpollGroup:
    """A process group by itself, for those who make groups again and again: of the ranks that
    meet at `store`, whatever init_process_group() was told, and without it.

    store: a torch.distributed.Store that all of them reach, with keys that no earlier group has
        used: a PrefixStore for each. None for a group of one.
    rank, world_size: of this process in it.
    name: in messages, and equal on all ranks.
    timeout: for meeting, and for operations without progress.
    options: redpoll.torch.Options; None: codecs as REDPOLL_CODEC says.

    Collective; blocks up to `timeout`. Its own methods (allreduce(), ...), torch.distributed's
    functions with group= and DistributedDataParallel(process_group=) take it; PyTorch does not
    list it, so destroy_process_group() does not know it: close it by shutdown(), or drop it.
    RedpollError: not all have come, or a rank has died. RedpollValueError: no such rank."""
    if not 0 <= rank < world_size:
        raise RedpollValueError(f"rank {rank} is not in a group of {world_size}")
    if store is None and world_size > 1:
        raise RedpollValueError(f"a group of {world_size} ranks needs a store to meet at")
    given: Any = _DistributedBackendOptions()
    given.store = dist.HashStore() if store is None else store
    given.group_rank, given.group_size = rank, world_size
    given.group_id, given.timeout = name, timeout
    policy = policy_from_environment()
    return create_group(given, options, NAME, policy, {"cpu": NAME}, None)


def shrink_group(ranks_to_exclude: Optional[Iterable[int]] = None, group: Any = None) -> Any:
    """A group of the ranks that are left, in their order, in place of `group`, which is
    destroyed; as torch.distributed.shrink_group(), in every release.

        try:
            loss.backward()
        except redpoll.torch.RedpollError as error:        # rank 3 has died
            redpoll.torch.shrink_group()
            model = DistributedDataParallel(net)           # whose groups are new, too

    ranks_to_exclude: of the group. None: those that are lost, after an operation has failed for
        that: the library knows who. Otherwise also ranks that live, which do not call this;
        when one is lost beside them, it is left out, too.
    group: None: the default one. The ranks that are left are numbered anew, and all other
        groups are destroyed. Another group: its ranks are those of the default group still.

    Collective over the ranks that are left; blocks up to the group's timeout, as others may
    compute until they hear of a death. RedpollError: no rank was lost and none is named, or one
    that lives did not come."""
    old: Any = dist.group.WORLD if group is None else group
    communicator = communicator_of(old)
    is_default = old is dist.group.WORLD
    ranks = dist.get_process_group_ranks(old)
    backend = dist.get_backend_config(old)
    left = left_of(communicator, ranks_to_exclude)
    own = _renewed_options(old, left)
    limit = timedelta(seconds=communicator.timeout_s)
    if not is_default:
        dist.destroy_process_group(old)
        made: Any = dist.new_group(
            [ranks[member] for member in left.members],
            timeout=limit,
            backend=backend,
            pg_options=own,
            use_local_synchronization=True,
        )
        return made
    store = dist.PrefixStore(left.name, old.get_group_store())
    dist.destroy_process_group()
    dist.init_process_group(
        backend,
        store=store,
        rank=left.rank,
        world_size=left.world,
        timeout=limit,
        pg_options=own,
    )
    return dist.group.WORLD


def _renewed_options(group: Any, left: Communicator) -> Any:
    """Those of a group, for the one of those that are left."""
    holder = group if isinstance(group, RedpollGroup) else group._get_backend(_CPU)
    return holder.options.renewed(left)
