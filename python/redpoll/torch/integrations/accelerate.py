"""compress() for Accelerate: the state is in what accelerator.save_state() writes.

dist.init_process_group("redpoll")                     # or REDPOLL_INSTEAD_OF=gloo, and no line
accelerator = Accelerator(cpu=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
compress(accelerator, model, codec="q4")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from accelerate import Accelerator

from ..compression import _compress
from ..compression._compress import CompressState
from ..fsdp._sharded import ShardedState
from ._saved import FOLDER, load, save

_models: WeakKeyDictionary[Accelerator, int] = WeakKeyDictionary()
"""How many of an accelerator's are compressed: each has a folder of its own."""


def compress(
    accelerator: Accelerator, model: torch.nn.Module, **options: Any
) -> CompressState | ShardedState:
    """redpoll.torch.compress(), kept in the accelerator's checkpoints.

    accelerator: save_state() writes what every rank holds back into a folder `redpoll` of the
        checkpoint (`redpoll-1` of a second model, in the order of these calls), and
        load_state() reads it, of a run of any number of ranks. All ranks call both, as
        Accelerate wants it.
    model: as accelerator.prepare() returned it.
    options: as of redpoll.torch.compress(). grad_scaler is the accelerator's own unless given.

    Collective in effect, as compress(). Returns the state. Errors are those of compress(); a
    checkpoint without the folder is loaded with a warning."""
    distributed = torch.nn.parallel.DistributedDataParallel
    if isinstance(getattr(model, "_orig_mod", model), distributed):
        options.setdefault("grad_scaler", getattr(accelerator, "scaler", None))
    state = _compress.compress(model, **options)
    number = _models.get(accelerator, 0)
    _models[accelerator] = number + 1
    name = f"{FOLDER}-{number}" if number else FOLDER

    def save_state(models: object, weights: object, folder: str) -> None:
        save(state, Path(folder) / name)

    def load_state(models: object, folder: str) -> None:
        load(state, Path(folder) / name)

    accelerator.register_save_state_pre_hook(save_state)
    accelerator.register_load_state_pre_hook(load_state)
    return state
