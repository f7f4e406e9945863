"""Registers the backend and makes process groups of it."""

from __future__ import annotations

import sys
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as _C10dBackend
from torch._C._distributed_c10d import _DistributedBackendOptions

from ._communicator import Communicator
from ._policy import policy_from_environment
from ._process_group import NAME, MixedGroup, RedpollGroup

PolicyFactory = Callable[[], Optional[Any]]


def register_backend(
    name: str = NAME, policy_factory: PolicyFactory = policy_from_environment
) -> None:
    """Make `init_process_group(name)` a Redpoll group. Nothing is opened.

    policy_factory: called once for each group, at its creation; what it raises comes out of
    init_process_group(). Registering a name again changes nothing."""
    if name.upper() in dist.Backend._plugins:
        return

    def create(options: Any, backend_options: Any = None) -> RedpollGroup:
        others = _device_map(sys._getframe(1), name)
        return create_group(options, backend_options, name, policy_factory, others)

    # PyTorch takes the last device for the one to work on; without a GPU it is the CPU.
    devices = ["cpu", "cuda"] if torch.cuda.device_count() else ["cpu"]
    dist.Backend.register_backend(name, create, extended_api=True, devices=devices)


def create_group(
    options: Any,
    backend_options: Any,
    name: str,
    policy_factory: PolicyFactory,
    others: dict[str, str],
) -> RedpollGroup:
    """What PyTorch calls for each group (extended API). Collective.

    others: names of the backends of other devices. The group that is returned takes the place
    of the one that PyTorch has begun, so that those are made here too."""
    policy = policy_factory()
    if backend_options is None:
        # A class of Backend from 2.6 on, of ProcessGroup before.
        owner: Any = _C10dBackend if hasattr(_C10dBackend, "Options") else dist.ProcessGroup
        kind = owner.Options
        backend_options = kind(name, options.timeout)
    rest = {device: _other(options, device, other) for device, other in others.items()}
    communicator = Communicator(
        options.store,
        options.group_rank,
        options.group_size,
        str(options.group_id),
        options.timeout,
        policy,
    )
    arguments = (communicator, options.store, name, backend_options)
    return MixedGroup(*arguments, others=rest) if rest else RedpollGroup(*arguments)


def _device_map(caller: Any, name: str) -> dict[str, str]:
    """The devices that were asked for with another backend than ours.

    PyTorch does not hand the map to creators, but it is a local variable of the function that
    calls them, in all releases from 2.1 on. Where it is not, everything is ours."""
    config = caller.f_locals.get("backend_config")
    if config is None:
        return {}
    each = config.get_device_backend_map().items()
    return {device: str(other) for device, other in each if str(other) != name}


def _other(options: Any, device: str, name: str) -> tuple[Any, Any]:
    """(kind, backend) of another backend: the one that PyTorch has made already, or made as
    PyTorch would."""
    kind = dist.Backend.backend_type_map.get(name, dist.ProcessGroup.BackendType.CUSTOM)
    try:
        return kind, options.process_group._get_backend(torch.device(device))
    except RuntimeError:
        pass  # its turn comes after ours
    store = dist.PrefixStore(f"{device}/", options.store.underlying_store)
    rank, world, timeout = options.group_rank, options.group_size, options.timeout
    plugin = dist.Backend._plugins.get(name.upper())
    if plugin is None:
        known = ", ".join(sorted(dist.Backend.backend_list))
        raise ValueError(
            f"'{device}:{name}': this PyTorch has no backend '{name}'; it has {known}"
        )
    if not plugin.extended_api:
        return kind, plugin.creator_fn(store, rank, world, timeout)
    own = _DistributedBackendOptions()
    own.store, own.group_rank, own.group_size, own.timeout = store, rank, world, timeout
    own.group_id = options.group_id
    own.global_ranks_in_group = options.global_ranks_in_group
    return kind, plugin.creator_fn(own, None)
