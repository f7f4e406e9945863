"""redpoll.torch's optimizers in Accelerate and in Lightning, where these are installed."""

from __future__ import annotations

import copy
import importlib.util
import os

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ranks import free_port, run_ranks, values
from redpoll.torch import DiLoCo, Gossip, LocalSGD, ParameterServer, SlowMo

WORLD, STEPS = 2, 4
KINDS = {
    "gossip": lambda inner, model: Gossip(inner, model, topology="ring"),
    "local-sgd": lambda inner, model: LocalSGD(model, inner, every=2),
    "slowmo": lambda inner, model: SlowMo(model, inner, every=2),
    "diloco": lambda inner, model: DiLoCo(model, inner, every=2),
    "parameter-server": lambda inner, model: ParameterServer(inner, model),
}


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def batches(rank):
    generator = torch.Generator().manual_seed(rank)
    xs = torch.randn(STEPS, 8, 4, generator=generator)
    return [(x, x.sum(1, keepdim=True)) for x in xs]


def wrapped(kind, model):
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return KINDS[kind](inner, model)


def by_hand(kind, rank):
    model = net()
    opt = wrapped(kind, model)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)
    for x, y in batches(rank):
        opt.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        opt.step()
        schedule.step()
    end = getattr(opt, "finish", None)
    if end is not None:
        end()
    return flat(model)


def flat(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()]).tolist()


def needs(package):
    """Without importing it here: ranks do, and it takes seconds."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def torchrun(rank, world, port):
    place = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))


def accelerated(rank, world, port):
    from accelerate import Accelerator

    torchrun(rank, world, port)
    dist.init_process_group("redpoll")
    accelerator = Accelerator(cpu=True)
    told = {}
    for kind in KINDS:
        model = net()
        opt = accelerator.prepare(wrapped(kind, model))
        schedule = torch.optim.lr_scheduler.StepLR(opt.optimizer, 2, 0.5)
        for x, y in batches(rank):
            with accelerator.accumulate(model):
                opt.zero_grad()
                accelerator.backward(nn.functional.mse_loss(model(x), y))
                accelerator.clip_grad_norm_(model.parameters(), 1e6)
                opt.step()
                schedule.step()
        state = copy.deepcopy(opt.state_dict())
        opt.load_state_dict(state)
        told[kind] = flat(model) == by_hand(kind, rank)
    dist.destroy_process_group()
    return told


def test_accelerate():
    needs("accelerate")
    for told in values(run_ranks(accelerated, WORLD, free_port(), timeout=300)):
        assert told == dict.fromkeys(KINDS, True)


def lightning(rank, world, port, folder):
    import pytorch_lightning as pl
    from pytorch_lightning.strategies import DDPStrategy

    torchrun(rank, world, port)  # the strategy makes the process group

    class Apart(DDPStrategy):
        """Ranks as those of DDP, without its averaging of gradients."""

        def configure_ddp(self):
            pass

    class Module(pl.LightningModule):
        def __init__(self, kind):
            super().__init__()
            self.kind, self.net = kind, net()

        def training_step(self, batch, _index):
            x, y = batch
            return nn.functional.mse_loss(self.net(x), y)

        def configure_optimizers(self):
            self.opt = wrapped(self.kind, self.net)
            schedule = torch.optim.lr_scheduler.StepLR(self.opt, 2, 0.5)
            return [self.opt], [{"scheduler": schedule, "interval": "step"}]

        def train_dataloader(self):
            return torch.utils.data.DataLoader(batches(rank), batch_size=None)

    told = {}
    for kind in KINDS:
        module = Module(kind)
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=world,
            strategy=Apart(process_group_backend="redpoll"),
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            default_root_dir=folder,
        )
        trainer.fit(module)
        trainer.save_checkpoint(os.path.join(folder, f"{kind}.ckpt"))
        told[kind] = flat(module.net) == by_hand(kind, rank)
    dist.destroy_process_group()
    return told


def test_lightning(tmp_path):
    needs("pytorch_lightning")
    for told in values(run_ranks(lightning, WORLD, free_port(), str(tmp_path), timeout=300)):
        assert told == dict.fromkeys(KINDS, True)
