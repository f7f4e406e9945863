"""Which devices a group serves itself, and the backends that serve the others.

A group of ours takes the place of the one that PyTorch has begun, so what was asked for beside
us ("cpu:redpoll,cuda:nccl") is found out and made here. PyTorch does not hand the map to
backends. Where it cannot be found, that is an error: a guess would send all CUDA tensors
through the CPU, and nobody would know."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _DistributedBackendOptions

DeviceMap = dict[str, str]
"""Backend's name by device type."""

_SHARED = ("group_rank", "group_size", "timeout", "group_id", "global_ranks_in_group")
_NEWER = ("process_group", "split_from", "enable_reconfigure")  # where the release has them


def device_map(caller: Any, name: str, written: Optional[str]) -> DeviceMap:
    """The map of the group that is being made; `name`, our backend, is in it.

    caller: the frame that calls the creator. PyTorch's function has had the map there, as
    `backend_config`, in all releases from 2.1 on, and the text it comes from as `backend`.
    written: what the user's options say, which goes first. ValueError: that cannot be meant.
    RuntimeError: nothing says it."""
    if written is not None:
        return _parsed(written, name)
    config = caller.f_locals.get("backend_config")
    if hasattr(config, "get_device_backend_map"):
        return {device: str(one) for device, one in config.get_device_backend_map().items()}
    if isinstance(caller.f_locals.get("backend"), str):
        return _parsed(caller.f_locals["backend"], name)
    raise RuntimeError(
        f"PyTorch {torch.__version__} does not say which devices this group is for, and CUDA "
        "tensors must not go through the CPU unasked. Write it: "
        f"pg_options=redpoll.torch.Options(devices='cpu:{name},cuda:nccl'), or "
        f"devices='{name}' for all devices"
    )


def _parsed(text: str, name: str) -> DeviceMap:
    if text.strip() == name:
        return dict.fromkeys(dist.Backend.backend_capability[name], name)
    found: DeviceMap = {}
    for pair in text.split(","):
        device, colon, backend = (part.strip() for part in pair.partition(":"))
        if not (device and colon and backend):
            raise ValueError(
                f"devices={text!r}: {pair.strip()!r} is no device:backend, as in "
                f"'cpu:{name},cuda:nccl'"
            )
        if device in found:
            raise ValueError(f"devices={text!r} names {device} twice")
        found[device] = backend
    if name not in found.values():
        raise ValueError(f"devices={text!r} gives no device to {name}, as 'cpu:{name}' does")
    return found


def begun_group(options: Any, caller: Any) -> Any:
    """The group that PyTorch has begun and ours replaces: backends whose turn came before ours
    are in it. None where there is none."""
    begun = getattr(options, "process_group", None)  # given by newer releases
    begun = caller.f_locals.get("pg") if begun is None else begun
    return begun if isinstance(begun, dist.ProcessGroup) else None


def made_already(begun: Any, device: str) -> Any:
    """The backend that a begun group has for a device; None: its turn comes after ours."""
    try:
        return None if begun is None else begun._get_backend(torch.device(device))
    except RuntimeError:
        return None


def make_backend(options: Any, device: str, name: str, own_options: Any = None) -> Any:
    """The backend `name` for a device, made as PyTorch would.

    options: as the creator was given them. own_options: of that backend, if the user gave
    any. ValueError: PyTorch has no such backend."""
    store = dist.PrefixStore(f"{device}/", options.store.underlying_store)
    register = getattr(dist.Backend, "_ensure_backend_registered", None)  # from 2.15 on
    if register is not None:
        register(name)
    plugin = dist.Backend._plugins.get(name.upper())
    if plugin is None:
        return _built_in(options, store, device, name, own_options)
    if not plugin.extended_api:
        return plugin.creator_fn(store, options.group_rank, options.group_size, options.timeout)
    return plugin.creator_fn(_with_store(options, store), own_options)


def kind_of(name: str) -> Any:
    """What PyTorch numbers a backend as."""
    return dist.Backend.backend_type_map.get(name, dist.ProcessGroup.BackendType.CUSTOM)


def _with_store(options: Any, store: Any) -> Any:
    """Options for a creator: those given, but for the store."""
    own = _DistributedBackendOptions()
    own.store = store
    for field in (*_SHARED, *_NEWER):
        if hasattr(own, field) and hasattr(options, field):
            setattr(own, field, getattr(options, field))
    return own


def split_options(
    options: Any, store: Any, name: str, ranks: Sequence[int], timeout: timedelta
) -> Any:
    """Options for a group of some ranks of the group that was made with `options`."""
    own: Any = _DistributedBackendOptions()
    own.store, own.group_id, own.timeout = store, name, timeout
    own.group_rank, own.group_size = list(ranks).index(options.group_rank), len(ranks)
    everybody = options.global_ranks_in_group or range(options.group_size)
    own.global_ranks_in_group = [everybody[rank] for rank in ranks]
    return own


def _built_in(options: Any, store: Any, device: str, name: str, own_options: Any) -> Any:
    """Of releases in which PyTorch's own backends are no plugins."""
    made: Any
    arguments = (store, options.group_rank, options.group_size)
    if name == "nccl" and dist.is_nccl_available():
        made = dist.ProcessGroupNCCL(*arguments, _nccl_options(options, own_options))
    elif name == "gloo" and dist.is_gloo_available():
        made = dist.ProcessGroupGloo(*arguments, timeout=options.timeout)
    elif name == "ucc" and dist.is_ucc_available():
        return dist.ProcessGroupUCC(*arguments, timeout=options.timeout)
    else:
        raise ValueError(_unknown(device, name))
    made._set_sequence_number_for_group()
    return made


def _nccl_options(options: Any, own_options: Any) -> Any:
    chosen = dist.ProcessGroupNCCL.Options() if own_options is None else own_options
    chosen._timeout = options.timeout
    chosen.group_name = options.group_id
    chosen.global_ranks_in_group = options.global_ranks_in_group
    return chosen


def _unknown(device: str, name: str) -> str:
    there = {one.lower() for one in dist.Backend._plugins}
    there.update(
        one for one in ("gloo", "nccl", "ucc") if getattr(dist, f"is_{one}_available")()
    )
    return (
        f"'{device}:{name}': this PyTorch has no backend '{name}'; it has "
        f"{', '.join(sorted(there))}"
    )
