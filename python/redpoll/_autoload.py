"""What PyTorch runs by itself where this package is installed: its entry points.

`torch.distributed.backends` (PyTorch 2.15) is asked when somebody names the backend "redpoll",
`torch.backends` (2.5) at every `import torch`: so the latter imports nothing, and changes
nothing unless a variable asks for it, or the release does not know the former. Scripts then say
init_process_group("redpoll") without importing anything, or nothing of Redpoll at all:

    REDPOLL_INSTEAD_OF=gloo python train.py      the script says "gloo"
    REDPOLL_COMPRESS=q4 python train.py          every DistributedDataParallel compresses
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable

INSTEAD_VARIABLE = "REDPOLL_INSTEAD_OF"
COMPRESS_VARIABLE = "REDPOLL_COMPRESS"
_REPLACED = ("gloo", "nccl", "ucc", "mpi")
_NAME = "redpoll"
_CALLS = {"init_process_group": 0, "new_group": 2}  # where their backend stands
_DONE = "_redpoll_done"  # an attribute of what has been wrapped


def register() -> None:
    """Entry point of `torch.distributed.backends`."""
    import redpoll.torch  # noqa: F401  registers it


def autoload() -> None:
    """Entry point of `torch.backends`, at the end of `import torch`."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not hasattr(c10d, "Backend"):
        return  # a PyTorch without torch.distributed
    finds_us = hasattr(c10d.Backend, "_ensure_backend_registered")
    if os.environ.get(INSTEAD_VARIABLE) or not finds_us:
        for name, position in _CALLS.items():
            _wrap_call(c10d, name, position)
    compress_by_variable()


def compress_by_variable() -> None:
    """Have every DistributedDataParallel of Redpoll's groups compressed, if REDPOLL_COMPRESS
    names a codec. Again: nothing changes."""
    if not os.environ.get(COMPRESS_VARIABLE, "").strip():
        return
    module: Any = sys.modules.get("torch.nn.parallel.distributed")
    if module is None:
        return
    model_class = module.DistributedDataParallel
    real = model_class.__init__
    if hasattr(real, _DONE):
        return

    @functools.wraps(real)
    def made(self: Any, *arguments: Any, **options: Any) -> None:
        real(self, *arguments, **options)
        _compress(self)

    setattr(made, _DONE, True)
    model_class.__init__ = made


def _compress(model: Any) -> None:
    import redpoll.torch
    from redpoll.torch.comm._errors import RedpollValueError

    codec = os.environ.get(COMPRESS_VARIABLE, "").strip()
    try:
        redpoll.torch.communicator_of(model.process_group)
    except RedpollValueError:
        return  # another backend's, and so none of our business
    try:
        redpoll.torch.compress(model, codec=codec)
    except ValueError as error:
        raise ValueError(f"{COMPRESS_VARIABLE}={codec!r}: {error}") from None


def _wrap_call(c10d: Any, name: str, position: int) -> None:
    """In every module of PyTorch that has it: most import it by name."""
    real = getattr(c10d, name)
    if hasattr(real, _DONE):
        return

    @functools.wraps(real)
    def call(*arguments: Any, **options: Any) -> Any:
        if len(arguments) > position:
            given = arguments[position]
            chosen = _chosen(c10d, given, name)
            arguments = (*arguments[:position], chosen, *arguments[position + 1 :])
        else:
            options["backend"] = _chosen(c10d, options.get("backend"), name)
        return real(*arguments, **options)

    setattr(call, _DONE, True)
    _replace_everywhere(name, real, call)


def _replace_everywhere(name: str, real: Callable[..., Any], call: Callable[..., Any]) -> None:
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("torch.") and vars(module).get(name) is real:
            setattr(module, name, call)


def _chosen(c10d: Any, given: Any, call: str) -> Any:
    """The backend, with ours in place of those that are replaced."""
    replaced = _replaced()
    if given is None:
        if call == "init_process_group" and replaced:
            _take_defaults(c10d, replaced)
        return None
    text = str(given)
    pairs = [pair.rpartition(":") for pair in text.split(",")]
    names = [_NAME if name.strip().lower() in replaced else name for _, _, name in pairs]
    chosen = ",".join(
        f"{device}{colon}{name}" for (device, colon, _), name in zip(pairs, names)
    )
    if any(name.strip().lower() == _NAME for name in names):
        register()
    return given if chosen == text else chosen


def _take_defaults(c10d: Any, replaced: tuple[str, ...]) -> None:
    """PyTorch chooses a backend by the device where nobody names one."""
    register()
    defaults = c10d.Backend.default_device_backend_map
    for device, backend in list(defaults.items()):
        if backend in replaced:
            defaults[device] = _NAME


def _replaced() -> tuple[str, ...]:
    """ValueError: the variable names what is no backend of PyTorch."""
    text = os.environ.get(INSTEAD_VARIABLE, "")
    names = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    for name in names:
        if name not in _REPLACED:
            raise ValueError(
                f"{INSTEAD_VARIABLE}={text!r}: {', '.join(_REPLACED[:-1])} and {_REPLACED[-1]} "
                f"can be replaced, not {name!r}"
            )
    return names
