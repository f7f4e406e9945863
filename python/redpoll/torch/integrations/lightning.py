"""compress() for Lightning: a callback whose state is in the trainer's checkpoints.

Trainer(strategy=DDPStrategy(process_group_backend="redpoll"),
        callbacks=[CompressCallback(codec="q4")])
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Mapping
from typing import Any, Optional, Union

from ..comm._errors import RedpollError
from ..compression._compress import CompressState, compress
from ..fsdp._sharded import ShardedState

_NAMES = ("lightning.pytorch", "pytorch_lightning")  # one framework under two names
_logger = logging.getLogger("redpoll")


def _framework() -> Any:
    """That which the script has imported, or the first that is installed."""
    for name in _NAMES:
        if name in sys.modules:
            return sys.modules[name]
    try:
        return importlib.import_module(_NAMES[0])
    except ModuleNotFoundError:
        return importlib.import_module(_NAMES[1])


_Callback: Any = _framework().Callback


class CompressCallback(_Callback):
    """Gradients of the trainer's DDP or FSDP model travel lossy, from the start of fit() on.

    options: as of redpoll.torch.compress(). grad_scaler is that of the trainer's precision
    plugin unless given. What error feedback holds back on all ranks is in every checkpoint
    (as many copies of the residuals as there are ranks, in the memory of every one while it
    is saved); fit(ckpt_path=...) takes it up, with any number of ranks. With one device
    nothing travels, and nothing is done."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.state: Optional[Union[CompressState, ShardedState]] = None
        """Of compress(); None before fit() begins and without other ranks."""
        self._model: Any = None
        self._loaded: Optional[Mapping[str, Any]] = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Compress what the strategy has wrapped, and take up what a checkpoint held."""
        model = trainer.strategy.model
        if trainer.world_size == 1:
            return
        if self.state is None or self._model is not model:
            self.state, self._model = compress(model, **self._options_for(trainer)), model
        if self._loaded:
            self.state.load_state_dict(dict(self._loaded))
        self._loaded = None

    def _options_for(self, trainer: Any) -> dict[str, Any]:
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        return self.options if scaler is None else {"grad_scaler": scaler, **self.options}

    def state_dict(self) -> dict[str, Any]:
        """The state of all ranks. Collective, as saving a checkpoint is. Where ranks cannot be
        asked any more, as in a checkpoint that is written because training failed, it is empty
        and a warning says why."""
        if self.state is None:
            return dict(self._loaded or {})
        try:
            return self.state.state_dict(of="all")
        except RedpollError as error:
            _logger.warning("the checkpoint lacks what error feedback holds back: %s", error)
            return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Kept until on_train_start(): the model is wrapped by then."""
        self._loaded = state_dict
