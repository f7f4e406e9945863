"""The same training as a plain script and in frameworks, each with what
redpoll.torch.integrations has for it. A function of KINDS trains for some steps in the group
that is there, and returns the seconds of a step: the median between two forward passes.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import redpoll.torch

CODEC = {"codec": "q4"}


class Timed(nn.Module):
    """A module that notes when its forward pass begins; its answer is the loss, as the Trainer
    wants it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.begun: list[float] = []

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor):
        self.begun.append(time.perf_counter())
        logits = self.module(inputs)
        return {"loss": cross_entropy(logits.flatten(0, -2), labels.flatten())}

    def step_seconds(self) -> float:
        times = self.begun[2:]  # the first passes make buckets
        return statistics.median(b - a for a, b in zip(times, times[1:]))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def plain(timed: Timed, batch: tuple, steps: int) -> None:
    model = DistributedDataParallel(timed)
    redpoll.torch.compress(model, **CODEC)
    optimizer = sgd(model)
    for _ in range(steps):
        optimizer.zero_grad()
        model(*batch)["loss"].backward()
        optimizer.step()


def accelerate(timed: Timed, batch: tuple, steps: int) -> None:
    from accelerate import Accelerator

    from redpoll.torch.integrations.accelerate import compress

    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(timed, sgd(timed))
    compress(accelerator, model, **CODEC)
    for _ in range(steps):
        optimizer.zero_grad()
        accelerator.backward(model(*batch)["loss"])
        optimizer.step()
    accelerator.free_memory()


def trainer(timed: Timed, batch: tuple, steps: int) -> None:
    from transformers import Trainer, TrainingArguments

    from redpoll.torch.integrations.transformers import CompressCallback

    rows = [{"inputs": x, "labels": y} for x, y in zip(*batch)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            use_cpu=True,
            max_steps=steps,
            per_device_train_batch_size=len(rows),
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            max_grad_norm=0,
            ddp_find_unused_parameters=False,
        )
        data = rows * (steps * dist.get_world_size())
        Trainer(
            timed,
            arguments,
            train_dataset=data,
            optimizers=(sgd(timed), None),
            callbacks=[CompressCallback(**CODEC)],
        ).train()


def lightning(timed: Timed, batch: tuple, steps: int) -> None:
    import pytorch_lightning as pl
    from pytorch_lightning.strategies import DDPStrategy

    from redpoll.torch.integrations.lightning import CompressCallback

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.timed = timed

        def training_step(self, given, index):
            return self.timed(*given)["loss"]

        def configure_optimizers(self):
            return sgd(self.timed)

    pl.Trainer(
        accelerator="cpu",
        devices=dist.get_world_size(),
        strategy=DDPStrategy(process_group_backend="redpoll"),
        max_steps=steps,
        callbacks=[CompressCallback(**CODEC)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    ).fit(Module(), torch.utils.data.DataLoader([batch] * steps, batch_size=None))


KINDS = {
    "plain": plain,
    "plain again": plain,  # what of the others' differences is the machine's
    "accelerate": accelerate,
    "trainer": trainer,
    "lightning": lightning,
}


def step_seconds(kind: str, module: nn.Module, batch: tuple, steps: int) -> float:
    timed = Timed(copy.deepcopy(module))
    KINDS[kind](timed, batch, steps)
    return timed.step_seconds()
