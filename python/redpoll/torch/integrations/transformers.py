"""compress() for the Trainer of Hugging Face: a callback whose state is in its checkpoints.

trainer = Trainer(model=model, args=args, train_dataset=data,
                  callbacks=[CompressCallback(codec="q4")])

or, of a trainer that is there already, add_compression(trainer, codec="q4").
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any, Optional, Union

from transformers import (
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ..compression._compress import CompressState, compress
from ..fsdp._sharded import ShardedState
from ._saved import FOLDER, load, save
from ._wrappers import Wrappers


class CompressCallback(TrainerCallback):
    """Gradients of the Trainer's model travel lossy, from the start of train() on.

    For `callbacks=` of a Trainer; add_compression() is for one that is there already.

    options: as of redpoll.torch.compress(). grad_scaler is that of the trainer's accelerator
    unless given. resume_from: the checkpoint that train(resume_from_checkpoint=...) is given,
    where that is neither True nor in the output folder nor the arguments' own.
    What a rank holds back is a file of its own in the folder `redpoll` of each checkpoint, and
    is taken up with it, by any number of ranks. In one process alone nothing travels, and
    nothing is done."""

    def __init__(
        self, *, resume_from: Optional[Union[str, os.PathLike[str]]] = None, **options: Any
    ) -> None:
        self.options = options
        self.resume_from = resume_from
        self.trainer: Optional[weakref.ref[Trainer]] = None
        """As add_compression() is told; None: models that were wrapped since are known."""
        self.state: Optional[Union[CompressState, ShardedState]] = None
        """Of compress(); None before train() begins and without other ranks."""
        self._model: Any = None
        self._wrappers = Wrappers()

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Compress what the trainer has wrapped, and take up what its checkpoint held."""
        if args.world_size == 1:
            return
        model, scaler = self._wrapped(**kwargs)
        if self.state is None or self._model is not model:
            given = {} if scaler is None else {"grad_scaler": scaler}
            self.state, self._model = compress(model, **{**given, **self.options}), model
        if state.global_step > 0:
            load(self.state, self._checkpoint(args, state) / FOLDER)

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Into the checkpoint that the trainer has just written. Collective, as it is."""
        if self.state is not None:
            save(self.state, _output(args, state) / FOLDER)

    def _wrapped(self, model: Any, optimizer: Any = None, **_kwargs: Any) -> tuple[Any, Any]:
        """What train() has wrapped the model in, which events hand over bare, and what scales
        its losses."""
        trainer = self.trainer() if self.trainer is not None else None
        if trainer is not None:
            return trainer.model_wrapped, getattr(trainer.accelerator, "scaler", None)
        return self._wrappers.outermost(model), getattr(optimizer, "scaler", None)

    def _checkpoint(self, args: TrainingArguments, state: TrainerState) -> Path:
        """That from which training goes on: the trainer tells callbacks its step alone."""
        named = self.resume_from or args.resume_from_checkpoint
        if isinstance(named, (str, os.PathLike)) and Path(named).is_dir():
            return Path(named)
        return _output(args, state)


def _output(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"


def add_compression(trainer: Trainer, **options: Any) -> CompressCallback:
    """Gradients of the model of this trainer travel lossy, from the start of train() on.

    trainer: before its train(). options: as of CompressCallback, which this gives to it and
    returns."""
    callback = CompressCallback(**options)
    callback.trainer = weakref.ref(trainer)
    trainer.add_callback(callback)
    return callback
