"""The door through C++, for those who watch what a group does.

What Python calls on a RedpollGroup is our method, and C++ knows nothing of it: that is the fast
door. PyTorch's watchers stand behind the other one: hooks of a group, its NaN check and flight
recorder, modes of dispatch as CommDebugMode, and TORCH_DISTRIBUTED_DEBUG=DETAIL. While somebody
watches, operations go through a plain ProcessGroup, with the same DeviceBackend behind it, and
come back to our methods there. The Work that these made is what the caller gets: C++ gives back
its own half of it, which knows little."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Sequence
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

_plain: Any = dist.ProcessGroup
HAS_HOOKS = hasattr(_plain, "register_pre_hook")
"""True where groups have hooks."""

modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
"""How many modes of dispatch are active on this thread."""

_RECORDER_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_made = threading.local()  # the Work that a backend's method has made last


class Watch:
    """Of one group: who watches it, and the plain group that they watch."""

    def __init__(self, rank: int, world: int, backend: Any, devices: Sequence[str]) -> None:
        self.is_on = False  # whatever the modes
        self._arguments = (rank, world, backend, tuple(devices))
        self._hooks: set[tuple[str, int]] = set()
        self._always = False
        self._kept: Any = None
        self._names: dict[str, str] = {}
        self._group: Any = None

    @property
    def group(self) -> Any:
        """The plain group."""
        if self._group is None:
            rank, world, backend, devices = self._arguments
            custom = dist.ProcessGroup.BackendType.CUSTOM
            self._group = _plain(rank, world)
            for device in devices:
                self._group._register_backend(torch.device(device), custom, backend)
            self._group._set_default_backend(custom)
            for method, text in self._names.items():
                getattr(self._group, method)(text)
        return self._group

    def call(self, method: str, text: str) -> None:
        """What the group is called: _set_group_name or _set_group_desc."""
        self._names[method] = text
        if self._group is not None:
            getattr(self._group, method)(text)

    def follow_variables(self, ranks: Sequence[int]) -> None:
        """Once the group has its name and description. ranks: of its members, in the world."""
        if self._always or not HAS_HOOKS:
            return
        if os.environ.get("TORCH_DIST_NAN_CHECK", "0") == "1":
            distributed_c10d.NanCheckHook.attach(self.group)
            self._always = True
        if _records():
            self._kept = distributed_c10d.FlightRecorderHook.attach(self.group, list(ranks))
            self._always = True
        if dist.get_debug_level() == dist.DebugLevel.DETAIL:
            self._always = True
        self.is_on = self._always or bool(self._hooks)

    def register(self, when: str, hook_id: int, hook: Callable[[Any], None]) -> None:
        getattr(self.group, f"register_{when}_hook")(hook_id, hook)
        self._hooks.add((when, hook_id))
        self.is_on = True

    def unregister(self, when: str, hook_id: int) -> None:
        getattr(self.group, f"unregister_{when}_hook")(hook_id)
        self._hooks.discard((when, hook_id))
        self.is_on = self._always or bool(self._hooks)

    def through(self, name: str, arguments: Any, options: Any) -> Any:
        """The operation, by way of C++."""
        before, _made.work = getattr(_made, "work", None), None
        try:
            theirs = getattr(self.group, name)(*arguments, **options)
            return theirs if _made.work is None else _made.work
        finally:
            _made.work = before


def _records() -> bool:
    """Somebody has asked for the flight recorder; by default it is on, and nobody has."""
    text = next((os.environ[one] for one in _RECORDER_VARIABLES if os.environ.get(one)), "0")
    return text.isdigit() and int(text) > 0


def _holds_sparse(arguments: Any) -> bool:
    """C++ has no operation for such tensors on the CPU."""
    first = arguments[0] if arguments else None
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    return isinstance(first, torch.Tensor) and first.is_sparse


def remembered(method: Callable[..., Any]) -> Callable[..., Any]:
    """A backend's method, whose Work through() gives to its caller."""

    @functools.wraps(method)
    def operation(self: Any, *arguments: Any, **options: Any) -> Any:
        work = method(self, *arguments, **options)
        _made.work = work
        return work

    return operation


def watched(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A group's method, which goes through C++ while somebody watches."""

    @functools.wraps(method)
    def operation(self: Any, *arguments: Any, **options: Any) -> Any:
        if (modes() or self.watch.is_on) and not _holds_sparse(arguments):
            return self._note(self.watch.through(name, arguments, options))
        return method(self, *arguments, **options)

    operation.__name__ = operation.__qualname__ = name
    return operation
