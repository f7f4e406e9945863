"""What a framework wraps a model in, where it hands over the bare model alone."""

from __future__ import annotations

import weakref
from typing import Any, Callable

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

_PARALLEL = (DistributedDataParallel, FullyShardedDataParallel)
_COMPILED = "_orig_mod"  # under which torch.compile() keeps a model


class Wrappers:
    """Notes what data parallelism and torch.compile() wrap, from here on, until nobody holds
    this. Models live no longer for it."""

    def __init__(self) -> None:
        self._outer: weakref.WeakKeyDictionary[nn.Module, weakref.ref[nn.Module]]
        noted = self._outer = weakref.WeakKeyDictionary()

        def note(parent: nn.Module, name: str, child: Any) -> None:
            wraps = isinstance(parent, _PARALLEL) or name == _COMPILED
            if wraps and isinstance(child, nn.Module):
                noted[child] = weakref.ref(parent)

        hook: Callable[..., Any] = note
        handle = register_module_module_registration_hook(hook)
        weakref.finalize(self, handle.remove)

    def outermost(self, model: nn.Module) -> nn.Module:
        """What `model` was wrapped in last; itself where nothing wraps it."""
        passed = {model}
        while True:
            outer = self._outer[model]() if model in self._outer else None
            if outer is None or outer in passed:
                return model
            passed.add(outer)
            model = outer
