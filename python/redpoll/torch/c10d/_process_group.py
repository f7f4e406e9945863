"""The process group that PyTorch holds, and the device backend behind it.

PyTorch has two doors for a backend written in Python. A subclass of ProcessGroup is there in
all releases, and what Python code calls on it is our method, which returns our
Work. A subclass of c10d's Backend reaches Python from 2.15 on; alone it would not do, as what
it returns comes back to Python as a C++ object that knows only wait() and get_future()
(is_completed() is never true, source_rank() raises). So a group is always `RedpollGroup`, and
holds a `DeviceBackend` where the release can, for those who look a group's backend up by
device.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as _C10dBackend

from ... import _abi
from ..comm._communicator import Communicator
from ..comm._shrinking import left_of
from ..comm.registered import staging
from ._operations import INTERNAL, Operations
from ._watched import Watch, remembered, watched
from .monitored import monitored_barrier

NAME = "redpoll"

Split = Callable[[Any, str, Sequence[int], timedelta, Any, Sequence[str]], "RedpollGroup"]

HAS_DEVICE_BACKENDS = hasattr(_C10dBackend, "all_gather_single")
"""True where C++ calls methods of a Python subclass of Backend."""


class HostMemory:
    """Buffers of FSDP2, under set_allocate_memory_from_process_group_for_comm(True). It asks
    what _get_backend() returns."""

    def supports_tensor_alloc(self, device: Any) -> bool:
        return torch.device(device).type == "cpu"

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: Any) -> torch.Tensor:
        """A buffer that ranks of this host read in place; of any content."""
        return staging(size, dtype)


class DeviceBackend(Operations, HostMemory, _C10dBackend):
    """The group's backend for a device, where PyTorch asks for one."""

    def __init__(self, communicator: Communicator, name: str, options: Any) -> None:
        _C10dBackend.__init__(self, communicator.rank, communicator.world)
        self.communicator = communicator
        self._name = name
        self._own_options = options

    def getBackendName(self) -> str:
        return self._name

    def name(self) -> str:
        return self._name

    def getBackendOptions(self) -> Any:
        return self._own_options

    @property
    def options(self) -> Any:
        return self._own_options

    @property
    def supports_splitting(self) -> bool:
        return True

    supports_shrinking = True

    def shrink(
        self, ranks_to_exclude: Sequence[int], shrink_flags: int = 0, opts_override: Any = None
    ) -> DeviceBackend:
        """Of torch.distributed.shrink_group(), which makes a plain group around what this
        returns. redpoll.torch.shrink_group() says the rest."""
        own = self.communicator
        left = left_of(own, ranks_to_exclude)
        expected = [rank for rank in range(own.world) if rank not in ranks_to_exclude]
        if left.members != expected:
            left.close()
            own.checks.refuse(
                "shrink_group",
                f"ranks {left.members} are left, and {expected} were to be; "
                "redpoll.torch.shrink_group() takes whoever is left",
            )
        left.ask_policy(own.asked_policy)
        return DeviceBackend(left, self._name, opts_override or self._own_options)

    def set_timeout(self, timeout: timedelta) -> None:
        self.communicator.set_timeout(timeout)

    setTimeout = set_timeout

    def shutdown(self) -> None:
        self.communicator.close()

    def abort(self) -> None:
        self.communicator.abort("the process group was aborted")
        self.communicator.close()


OPERATIONS = [
    name
    for name, each in vars(Operations).items()
    if callable(each) and not name.startswith("__") and name not in INTERNAL
]
"""Methods that PyTorch calls."""

_NOT_WATCHED = ("_get_sequence_number_for_group", "_start_coalescing", "_end_coalescing")
_WATCHED = [name for name in OPERATIONS if hasattr(dist.ProcessGroup, name)]
_WATCHED = [name for name in _WATCHED if name not in _NOT_WATCHED and HAS_DEVICE_BACKENDS]

for _name in _WATCHED:
    setattr(DeviceBackend, _name, remembered(getattr(Operations, _name)))

for _name, _found in vars(_C10dBackend).items():
    # What PyTorch may ask of a backend. Its own property would ask C++, which asks the Python
    # object, and so on without end: each must have an answer here.
    if isinstance(_found, property) and "supports_" in _name:
        if _name not in {**vars(HostMemory), **vars(DeviceBackend)}:
            setattr(DeviceBackend, _name, False)


class _WithoutDeviceBackends(Operations, HostMemory):
    """What a group of an older release answers itself, as it cannot hold a DeviceBackend."""

    communicator: Communicator
    _devices: Sequence[str]
    _others: dict[str, Any]
    _group_name = ""
    _group_desc = "undefined"
    bound_device_id: Optional[torch.device] = None

    @property
    def group_name(self) -> str:
        return self._group_name

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    def getGroupName(self) -> str:
        return self._group_name

    setGroupName = _set_group_name

    supports_splitting = False  # asked of the CUDA backend, which is this group

    @property
    def group_desc(self) -> str:
        return self._group_desc

    def _set_group_desc(self, text: str) -> None:
        self._group_desc = text

    def getGroupDesc(self) -> str:
        return self._group_desc

    setGroupDesc = _set_group_desc

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(each) for each in (*self._devices, *self._others)]

    def _get_backend(self, device: torch.device) -> Any:
        return self._others.get(torch.device(device).type, self)

    get_backend = _get_backend


_Table = Operations if HAS_DEVICE_BACKENDS else _WithoutDeviceBackends


class RedpollGroup(_Table, dist.ProcessGroup):  # type: ignore[misc, valid-type]
    """A process group whose operations are Redpoll's; `communicator` is what it is made of."""

    _others: dict[str, Any] = {}

    def __init__(
        self,
        communicator: Communicator,
        store: Any,
        name: str,
        options: Any,
        devices: Sequence[str],
        split: Split,
        ranks: Sequence[int] = (),
    ) -> None:
        """devices: types of those that are served here. split: makes a group of some of these
        ranks: store, name, ranks, timeout, options or None, devices. ranks: of the members in
        the world; empty: all."""
        self._ranks = list(ranks)
        dist.ProcessGroup.__init__(self, communicator.rank, communicator.world)
        self.communicator = communicator
        self._store = store
        self._name = name
        self._own_options = options
        self._devices = tuple(devices)
        self._split = split
        if HAS_DEVICE_BACKENDS:
            custom = dist.ProcessGroup.BackendType.CUSTOM
            own = DeviceBackend(communicator, name, options)
            self.watch = Watch(communicator.rank, communicator.world, own, devices)
            for device in devices:
                self._register_backend(torch.device(device), custom, own)
            self._set_default_backend(custom)
        self._take_name()

    def _take_name(self) -> None:
        set_name: Any = self._set_group_name  # its argument's type differs among releases
        set_name(self.communicator.name)
        if HAS_DEVICE_BACKENDS:
            self.watch.call("_set_group_name", self.communicator.name)

    def _set_group_desc(self, text: str) -> None:
        super()._set_group_desc(text)
        self.communicator.describe(text)
        if HAS_DEVICE_BACKENDS:
            self.watch.call("_set_group_desc", text)
            self.watch.follow_variables(self._ranks or range(self.communicator.world))

    def register_pre_hook(self, hook_id: int, hook: Callable[[Any], None]) -> None:
        """Called before each operation of this group; as of other backends."""
        self.watch.register("pre", hook_id, hook)

    def unregister_pre_hook(self, hook_id: int) -> None:
        self.watch.unregister("pre", hook_id)

    def register_post_hook(self, hook_id: int, hook: Callable[[Any], None]) -> None:
        """The same, after it has been posted."""
        self.watch.register("post", hook_id, hook)

    def unregister_post_hook(self, hook_id: int) -> None:
        self.watch.unregister("post", hook_id)

    def rank(self) -> int:
        return self.communicator.rank

    def size(self) -> int:
        return self.communicator.world

    getRank, getSize = rank, size

    def name(self) -> str:
        return self._name

    getBackendName = _get_backend_name = name

    def get_group_store(self) -> Any:
        return self._store

    @property
    def options(self) -> Any:
        return self._own_options

    def _has_hooks(self) -> bool:
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        """For operations posted from now on."""
        self.communicator.set_timeout(timeout)

    def monitored_barrier(
        self, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False
    ) -> None:
        """What dist.monitored_barrier() calls, where the release lets it reach us."""
        monitored_barrier(self, timeout, wait_all_ranks)

    def split_group(
        self,
        new_ranks: Sequence[int],
        timeout: Optional[timedelta] = None,
        opts: Any = None,
        group_name: Optional[str] = None,
        group_desc: Optional[str] = None,
        device_types: Any = None,
    ) -> Optional[RedpollGroup]:
        """A group of these ranks of this one, in their order; None where this one is not among
        them. Collective over them.

        device_types: serve these alone; None: all that this group serves, each with a backend
        of the same name."""
        own = self.communicator
        if own.rank not in new_ranks:
            return None
        earlier = own.poster.earlier_failure()
        if earlier:
            raise own.error(_abi.RP_STATE, earlier, "split_group")
        name = group_name or f"{own.name}:{'-'.join(map(str, new_ranks))}"
        store = dist.PrefixStore("split/", dist.PrefixStore(f"{name}/", self._store))
        limit = timeout or timedelta(seconds=own.timeout_s)
        group = self._split(store, name, list(new_ranks), limit, opts, self._kept(device_types))
        if group_desc is not None:
            group._set_group_desc(group_desc)
        return group

    splitGroup = split_group

    def _kept(self, device_types: Any) -> list[str]:
        """The devices of a split."""
        every = [*self._devices, *self._others]
        if device_types is None:
            return every
        kept = [torch.device(each).type for each in device_types]
        if not set(kept) & set(self._devices):
            raise self._refused(
                "split_group",
                f"a split for {' and '.join(kept)} leaves out {' and '.join(self._devices)}, "
                f"which {self._name} serves: use new_group() with the other backend's name",
            )
        return [each for each in every if each in kept]

    def shutdown(self) -> None:
        """What is in flight ends, in five seconds at most; then nothing is left of the
        group."""
        self.communicator.close()

    def abort(self) -> None:
        self.communicator.abort("the process group was aborted")
        self.communicator.close()


for _name in _WATCHED:
    setattr(RedpollGroup, _name, watched(getattr(Operations, _name), _name))


class MixedGroup(RedpollGroup):
    """A group of which other devices have other backends, as in "cpu:redpoll,cuda:nccl"."""

    def __init__(self, *arguments: Any, others: dict[str, tuple[Any, Any]]) -> None:
        """others: kind and backend for each other device type."""
        super().__init__(*arguments)
        self._others = {device: backend for device, (_, backend) in others.items()}
        for device, (kind, backend) in others.items():
            self._register_backend(torch.device(device), kind, backend)
        self._take_name()  # of each backend, in newer releases

    def _get_backend(self, device: torch.device) -> Any:
        """C++ keeps one backend of a kind, and all that it does not know are of one kind."""
        other = self._others.get(torch.device(device).type)
        return super()._get_backend(device) if other is None else other

    get_backend = _get_backend

    def set_timeout(self, timeout: timedelta) -> None:
        super().set_timeout(timeout)
        self._tell_others(("set_timeout", "_set_default_timeout"), timeout)

    def shutdown(self) -> None:
        super().shutdown()
        self._tell_others(("shutdown", "_shutdown"))

    def abort(self) -> None:
        super().abort()
        self._tell_others(("abort", "_abort"))

    def _tell_others(self, names: Sequence[str], *arguments: Any) -> None:
        """names: of one method, in newer and older releases; some backends had none."""
        for backend in self._others.values():
            found = (getattr(backend, name, None) for name in names)
            method = next((each for each in found if each is not None), None)
            if method is not None:
                method(*arguments)


def _device_of(arguments: Sequence[Any]) -> str:
    """The device type of the first tensor among arguments; of a barrier's options; "cpu"."""
    for each in arguments:
        while isinstance(each, (list, tuple)) and each:
            each = each[0]
        if isinstance(each, torch.Tensor):
            return each.device.type
        device = each if isinstance(each, torch.device) else getattr(each, "device", None)
        if device is not None:
            return device.type
    return "cpu"


def _routed(name: str) -> Any:
    own = getattr(RedpollGroup, name)

    @functools.wraps(own)
    def operation(self: MixedGroup, *arguments: Any, **options: Any) -> Any:
        other = self._others.get(_device_of((*arguments, *options.values())))
        if other is None:
            return own(self, *arguments, **options)
        return getattr(other, name)(*arguments, **options)

    return operation


for _name in OPERATIONS:
    setattr(MixedGroup, _name, _routed(_name))
