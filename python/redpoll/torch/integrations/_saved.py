"""What error feedback holds back, in a folder of a framework's checkpoint."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
import torch.distributed as dist

from ..compression._compress import CompressState
from ..fsdp._sharded import ShardedState

FOLDER = "redpoll"
_STATE = "redpoll-sharded.pt"
_logger = logging.getLogger("redpoll")


def save(state: CompressState | ShardedState, folder: Path) -> None:
    """Into `folder`, which is made. Collective; OSError as of CompressState.save()."""
    if isinstance(state, CompressState):
        state.save(folder)
    elif dist.get_rank() == 0:  # a counter, the same on every rank
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(state.state_dict(), folder / _STATE)


def load(state: CompressState | ShardedState, folder: Path) -> bool:
    """Continue from `folder`; False, and a warning, where no rank finds it: the checkpoint is
    of a run without compression. Collective. FileNotFoundError: only some ranks find it."""
    if isinstance(state, ShardedState):
        found = (folder / _STATE).is_file()
    else:
        found = _anybody_sees(folder, state)
    if not found:
        _logger.warning(
            "%s is not there: the checkpoint is of a run without compress(), and error "
            "feedback begins with nothing held back",
            folder,
        )
    elif isinstance(state, ShardedState):
        state.load_state_dict(torch.load(folder / _STATE, weights_only=True))
    else:
        state.load(folder)
    return found


def _anybody_sees(folder: Path, state: CompressState) -> bool:
    """Or one rank would go on without what the others have."""
    seen = torch.tensor([int(folder.is_dir())])
    state.communicator.all_reduce(seen, dist.ReduceOp.MAX, blocking=True)
    return bool(seen.item())
