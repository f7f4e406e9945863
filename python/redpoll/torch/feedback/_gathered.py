"""States of all ranks in one, for checkpoints of which one rank's is saved: of Accelerate's
register_for_checkpointing(), Lightning's callbacks, and whoever has rank 0 write alone.

Every rank gets the same dict. It holds what each rank held back, so that a run of as many ranks
goes on bit for bit, and one of another world loses nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import torch

FORMAT = "redpoll.compress.all"
VERSION = 1


def gathered(
    state: Mapping[str, Any], parameters: Mapping[str, torch.Tensor], communicator: Any
) -> dict[str, Any]:
    """The states of all ranks. Collective. state: this rank's own; parameters: all that may
    have residuals. ValueError on every rank: they are not after the same step."""
    names, own = sorted(parameters), state["residuals"]
    _check_steps(_rows(torch.tensor([state["step"]]), communicator))
    held = torch.tensor([name in own for name in names], dtype=torch.uint8)
    holders = _rows(held, communicator).bool()
    states = [{**state, "rank": rank, "residuals": {}} for rank in range(communicator.world)]
    for i, name in enumerate(names):
        if not bool(holders[:, i].any()):
            continue
        rows = _rows(_floats(own.get(name), parameters[name]), communicator)
        if parameters[name].is_complex():
            rows = torch.view_as_complex(rows)
        for rank, row in enumerate(rows):
            if holders[rank, i]:
                states[rank]["residuals"][name] = row
    return {"format": FORMAT, "version": VERSION, "states": states}


def states_in(state: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The states of all ranks, of what gathered() gave; any other state alone. ValueError: it
    is of another version."""
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        return [state]
    if state.get("version") != VERSION:
        raise ValueError(
            f"the state has format version {state.get('version')}; {VERSION} is known"
        )
    states: Sequence[Mapping[str, Any]] = state["states"]
    return states


def _rows(own: torch.Tensor, communicator: Any) -> torch.Tensor:
    """One of each rank, on the CPU."""
    rows = torch.empty(communicator.world, *own.shape, dtype=own.dtype)
    communicator.all_gather(rows.view(-1), own.view(-1), blocking=True)
    return rows


def _floats(residual: Optional[torch.Tensor], parameter: torch.Tensor) -> torch.Tensor:
    """Dense, on the CPU; zeros of one that is not there."""
    if residual is None:
        dtype = torch.complex64 if parameter.is_complex() else torch.float32
        residual = torch.zeros(parameter.shape, dtype=dtype)
    dense = residual.detach().cpu().contiguous()
    return torch.view_as_real(dense) if dense.is_complex() else dense


def _check_steps(steps: torch.Tensor) -> None:
    for rank, step in enumerate(steps[:, 0].tolist()):
        if step != steps[0, 0]:
            raise ValueError(
                f"the state of all ranks is of one step; rank 0 has done {int(steps[0, 0])} "
                f"and rank {rank} {step}: call it on all ranks at the same place"
            )


class OfAll:
    """What frameworks register that save one rank's state and load it on all: its state_dict()
    is that of all ranks."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        """Collective: every rank calls it, and any of them may save it for all."""
        found: dict[str, Any] = self._state.state_dict(of="all")
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """On every rank, of a run of any world."""
        self._state.load_state_dict(state)
