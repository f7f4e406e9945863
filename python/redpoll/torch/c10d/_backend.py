"""Registers the backend and makes process groups of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from ..codecs._policy import policy_from_environment
from ..comm._absent import absence_of, is_lost_place
from ..comm._communicator import Communicator, Parent, communicator_of
from ..comm._errors import RedpollValueError
from ._device_map import (
    DeviceMap,
    begun_group,
    device_map,
    kind_of,
    made_already,
    make_backend,
    split_options,
)
from ._options import Options
from ._process_group import NAME, MixedGroup, RedpollGroup

PolicyFactory = Callable[[], Optional[Any]]


def register_backend(name: str = NAME, policy_factory: Optional[PolicyFactory] = None) -> None:
    """Make `init_process_group(name)` a Redpoll group. Nothing is opened.

    policy_factory: makes the Policy of each group, at its creation; what it raises comes out of
    init_process_group(). None: as REDPOLL_CODEC says. Registering a name again changes
    nothing."""
    make_policy = policy_factory or policy_from_environment
    if name.upper() in dist.Backend._plugins:
        return

    def create(options: Any, backend_options: Any = None) -> RedpollGroup:
        caller = sys._getframe(1)
        written = getattr(backend_options, "devices", None)
        devices = device_map(caller, name, written)
        begun = begun_group(options, caller)
        policy = make_policy()
        return create_group(options, backend_options, name, policy, devices, begun)

    # PyTorch takes the last device for the one to work on; without a GPU it is the CPU.
    devices = ["cpu", "cuda"] if torch.cuda.device_count() else ["cpu"]
    dist.Backend.register_backend(name, create, extended_api=True, devices=devices)


def _parent_of(options: Any) -> Optional[Parent]:
    """The default group's communicator, whose links a group of some of its ranks shares, and
    those ranks; None: this is the default group, or that one is not ours."""
    ranks = list(options.global_ranks_in_group or ())
    if not ranks or dist.group.WORLD is None:
        return None
    try:
        parent = communicator_of(dist.group.WORLD)
    except RedpollValueError:
        return None
    return None if parent.closed else (parent, ranks)


def _watch_for_summary(communicator: Communicator) -> None:
    from . import _summary  # nobody else needs it

    if _summary.is_asked():
        _summary.watch(communicator)


def create_group(
    options: Any,
    backend_options: Any,
    name: str,
    policy: Any,
    devices: DeviceMap,
    begun: Any,
) -> RedpollGroup:
    """What PyTorch calls for each group (extended API). Collective.

    The group that is returned takes the place of `begun`, so that the backends of other devices
    are made here too. backend_options: ours, or those of another backend of the map."""
    theirs, own_options = None, backend_options
    if not isinstance(own_options, Options):
        theirs, own_options = own_options, Options(backend=name, timeout=options.timeout)
    if own_options.names_codec:
        policy = own_options.policy()
    others = {
        device: made_already(begun, device) or make_backend(options, device, other, theirs)
        for device, other in devices.items()
        if other != name
    }
    parent = _parent_of(options)
    place = (options.store, options.group_rank, options.group_size, str(options.group_id))
    communicator: Communicator
    if own_options.adopted is not None:
        communicator, own_options.adopted = own_options.adopted, None
        communicator.ask_policy(policy)
    elif parent is None and is_lost_place(*place):
        absence = absence_of(options.group_rank)
        communicator = Communicator(*place, options.timeout, policy, absence=absence)
    else:
        communicator = Communicator(
            *place, options.timeout, policy, parent=parent, priority=own_options.priority
        )

    if os.environ.get("REDPOLL_SUMMARY"):
        _watch_for_summary(communicator)

    def split(
        store: Any, group: str, ranks: Sequence[int], limit: timedelta, opts: Any, kept: Any
    ) -> RedpollGroup:
        of_split = split_options(options, store, group, ranks, limit)
        chosen = {device: devices[device] for device in kept}
        given = own_options if opts is None else opts
        return create_group(of_split, given, name, communicator.asked_policy, chosen, None)

    own = [device for device, other in devices.items() if other == name]
    ranks = options.global_ranks_in_group or ()
    arguments = (communicator, options.store, name, own_options, own, split, ranks)
    if not others:
        return RedpollGroup(*arguments)
    kinds = {device: (kind_of(devices[device]), others[device]) for device in others}
    return MixedGroup(*arguments, others=kinds)
