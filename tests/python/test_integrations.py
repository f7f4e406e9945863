"""redpoll.torch.integrations in the frameworks themselves, on models of a few thousand
parameters: exact is gloo bit for bit, q4 trains, a run that goes on from a checkpoint is the
uninterrupted one, and a worker that is killed is named.

Importing a framework takes seconds, so that two ranks do all of one, and each test looks at a
part of what they tell. Frameworks that are not installed are skipped by name.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ranks import free_port, run_ranks, values

WORLD, STEPS, HALF, BATCH = 2, 8, 4, 4
CODEC = {"codec": "q4", "min_size": 200}
TIMEOUT = 240


def needs(*packages):
    """Without importing them here: ranks do."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def torchrun(rank, world, ports):
    place = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", PORTS=",".join(map(str, ports)))
    next_port()
    logging.disable(logging.INFO)


def next_port():
    """Each group has a store of its own: rank 1 must not find the one before, which rank 0 is
    about to close."""
    os.environ["MASTER_PORT"], _, os.environ["PORTS"] = os.environ["PORTS"].partition(",")


def free_ports():
    ports: set[int] = set()
    while len(ports) < 4:
        ports.add(free_port())
    return tuple(ports)


def flat(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def same_everywhere(tensor):
    """Replicas that have the same bits: all of them are then what rank 0 tells."""
    rows = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, tensor)
    return all(torch.equal(row, tensor) for row in rows)


def distance(one, other):
    return ((one - other).norm() / other.norm()).item()


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))


def batches(rank):
    generator = torch.Generator().manual_seed(rank)
    xs = torch.randn(STEPS, BATCH, 16, generator=generator)
    return [(x, x[:, :4].argmax(1)) for x in xs]


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


class instead_of_gloo:
    """As REDPOLL_INSTEAD_OF=gloo python train.py, of which PyTorch's import is over."""

    def __enter__(self):
        from redpoll import _autoload

        os.environ[_autoload.INSTEAD_VARIABLE] = "gloo"
        _autoload.autoload()

    def __exit__(self, *_):
        os.environ.pop("REDPOLL_INSTEAD_OF")


# ---- Accelerate ----


def accelerated(rank, *, begin=0, end=STEPS, options=None, load=None, save=None):
    """The weights after steps of a script of Accelerate, and the backend's class."""
    from accelerate import Accelerator

    from redpoll.torch.integrations.accelerate import compress

    accelerator = Accelerator(cpu=True)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = accelerator.prepare(model, optimizer)
    if options is not None:
        compress(accelerator, model, **options)
    if load:
        accelerator.load_state(load)
    for step, (x, y) in enumerate(batches(rank)[begin:end], begin):
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        if save and step == HALF - 1:
            accelerator.save_state(save)
    told = flat(model), type(dist.group.WORLD).__name__, same_everywhere(flat(model))
    accelerator.free_memory()
    return told


def leave():
    """The group, and what Accelerate keeps of it for the life of a process."""
    from accelerate.state import AcceleratorState, GradientState

    dist.destroy_process_group()
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    gc.collect()
    next_port()


def accelerate_tells(rank, world, ports, folder):
    torchrun(rank, world, ports)
    gloo, _, _ = accelerated(rank)
    leave()
    with instead_of_gloo():
        exact, backend, _ = accelerated(rank)
        leave()
    dist.init_process_group("redpoll")
    lossy, _, same = accelerated(rank, options=CODEC, save=folder)
    resumed, _, _ = accelerated(rank, begin=HALF, options=CODEC, load=folder)
    without_state(rank, folder)
    forgetful, _, _ = accelerated(rank, begin=HALF, options=CODEC, load=folder)
    leave()
    return {
        "backend": backend,
        "exact is gloo": torch.equal(exact, gloo),
        "q4 is off by": distance(lossy, gloo),
        "replicas": same,
        "resumed": torch.equal(resumed, lossy),
        "resumed without the state": torch.equal(forgetful, lossy),
    }


def without_state(rank, folder):
    """The checkpoint as one of a run without compression."""
    dist.barrier()
    if rank == 0:
        shutil.rmtree(Path(folder) / "redpoll")
    dist.barrier()


def check(told):
    assert told["backend"] == "RedpollGroup"
    assert told["exact is gloo"]
    assert 0 < told["q4 is off by"] < 0.05, told
    assert told["replicas"] and told["resumed"], told
    assert not told["resumed without the state"], "the test would not notice a lost state"


def test_accelerate(tmp_path):
    needs("accelerate")
    folder = str(tmp_path / "saved")
    for told in values(
        run_ranks(accelerate_tells, WORLD, free_ports(), folder, timeout=TIMEOUT)
    ):
        check(told)


# ---- Trainer, and PEFT in it ----


def gpt2(adapted):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 32, "n_positions": 16, "vocab_size": 40}
    off = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **off, bos_token_id=0, eos_token_id=0))
    if not adapted:
        return model
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=8, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)
    return get_peft_model(model, lora)


def texts():
    starts = torch.randint(0, 40, (64,), generator=torch.Generator().manual_seed(3))
    rows = [(start + torch.arange(12)) % 40 for start in starts]
    return [{"input_ids": row, "labels": row} for row in rows]


def trained(folder, *, callback=None, added=None, adapted=False, resume=None, dies_in=None):
    """A script of the Trainer: its weights, its backend's class, and whether all have them."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from redpoll.torch.integrations.transformers import add_compression

    class Dies(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == dies_in and args.process_index == 1:
                killed()

    args = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=2,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        save_strategy="steps" if callback or added else "no",
        save_steps=HALF,
        report_to=[],
        disable_tqdm=True,
        seed=1,
    )
    callbacks = [callback] if callback else []
    callbacks += [Dies()] if dies_in is not None else []
    model = gpt2(adapted)
    trainer = Trainer(model=model, args=args, train_dataset=texts(), callbacks=callbacks)
    if added:
        add_compression(trainer, **added)
    trainer.train(resume_from_checkpoint=resume)
    kept = torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])
    return kept, type(dist.group.WORLD).__name__, same_everywhere(kept)


def trainer_tells(rank, world, ports, folder, adapted):
    from redpoll.torch.integrations.transformers import CompressCallback

    torchrun(rank, world, ports)
    made = functools.partial(trained, adapted=adapted)
    gloo, _, _ = made(folder)
    leave()
    with instead_of_gloo():
        exact, backend, _ = made(folder)
        leave()
    dist.init_process_group("redpoll")
    callback = CompressCallback(**CODEC)
    lossy, _, same = made(folder, callback=callback)
    names = callback.state.codecs()
    half = f"{folder}/checkpoint-{HALF}"
    resumed, _, _ = made(folder, callback=CompressCallback(**CODEC), resume=half)
    elsewhere = {**CODEC, "resume_from": half}
    moved, _, _ = made(folder + "-2", added=elsewhere, resume=half)
    without_state(rank, half)
    forgetful, _, _ = made(folder, callback=CompressCallback(**CODEC), resume=half)
    told = {
        "backend": backend,
        "exact is gloo": torch.equal(exact, gloo),
        "q4 is off by": distance(lossy, gloo),
        "replicas": same,
        "resumed": torch.equal(resumed, lossy) and torch.equal(moved, lossy),
        "resumed without the state": torch.equal(forgetful, lossy),
        "lossy": sorted(name for name, codec in names.items() if codec != "exact"),
    }
    try:
        made(folder, callback=CompressCallback(**CODEC), dies_in=HALF)
    except dist.DistBackendError as error:
        told["killed"] = str(error)
    return told


@pytest.mark.parametrize("adapted", [False, True], ids=["whole", "peft"])
def test_trainer(tmp_path, adapted):
    needs("accelerate", "transformers", *(["peft"] if adapted else []))
    place = (free_ports(), str(tmp_path / "run"), adapted)
    outcomes = run_ranks(trainer_tells, WORLD, *place, timeout=TIMEOUT)
    (told,) = values(outcomes[:1])  # rank 1 has been killed
    check(told)
    assert "rank 1" in told["killed"]
    assert told["lossy"] and all(("lora_" in name) == adapted for name in told["lossy"]), told


# ---- Lightning ----


def lightning_script(
    rank, folder, *, backend, epochs=2, callback=None, resume=None, dies=False
):
    import pytorch_lightning as pl
    from pytorch_lightning.strategies import DDPStrategy

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def training_step(self, batch, index):
            if dies and self.current_epoch == 1 and index == 2 and rank == 1:
                killed()
            x, y = batch
            return nn.functional.cross_entropy(self.net(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)

        def train_dataloader(self):
            return torch.utils.data.DataLoader(batches(rank), batch_size=None)

    module = Module()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=WORLD,
        strategy=DDPStrategy(process_group_backend=backend),
        max_epochs=epochs,
        callbacks=[callback] if callback else [],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=folder,
    )
    trainer.fit(module, ckpt_path=resume)
    return trainer, flat(module)


def lightning_tells(rank, world, ports, folder):
    torchrun(rank, world, ports)
    import pytorch_lightning  # noqa: F401  before the callback, which follows it

    from redpoll.torch.integrations.lightning import CompressCallback

    run = functools.partial(lightning_script, rank, folder)
    _, gloo = run(backend="gloo")
    dist.destroy_process_group()
    next_port()
    _, exact = run(backend="redpoll")
    backend = type(dist.group.WORLD).__name__
    _, lossy = run(backend="redpoll", callback=CompressCallback(**CODEC))
    same = same_everywhere(lossy)
    half, bare = f"{folder}/half.ckpt", f"{folder}/bare.ckpt"
    first, _ = run(backend="redpoll", callback=CompressCallback(**CODEC), epochs=1)
    first.save_checkpoint(half)
    if rank == 0:
        kept = torch.load(half, weights_only=True)
        kept["callbacks"].clear()
        torch.save(kept, bare)
    dist.barrier()
    _, resumed = run(backend="redpoll", callback=CompressCallback(**CODEC), resume=half)
    _, forgetful = run(backend="redpoll", callback=CompressCallback(**CODEC), resume=bare)
    told = {
        "backend": backend,
        "exact is gloo": torch.equal(exact, gloo),
        "q4 is off by": distance(lossy, gloo),
        "replicas": same,
        "resumed": torch.equal(resumed, lossy),
        "resumed without the state": torch.equal(forgetful, lossy),
    }
    try:
        run(backend="redpoll", callback=CompressCallback(**CODEC), dies=True)
    except dist.DistBackendError as error:
        told["killed"] = str(error)
    return told


def test_lightning(tmp_path):
    needs("pytorch_lightning")
    place = (free_ports(), str(tmp_path))
    outcomes = run_ranks(lightning_tells, WORLD, *place, timeout=TIMEOUT)
    (told,) = values(outcomes[:1])  # rank 1 has been killed
    check(told)
    assert "rank 1" in told["killed"]


# ---- DeepSpeed ----


def zero(rank, backend, stage):
    """The weights after steps of a script of DeepSpeed, and the class of its backend."""
    import deepspeed

    # It compiles one for inference when a group is made, for half a minute.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend=backend, verbose=False)
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
    }
    model = net()
    engine, *_ = deepspeed.initialize(model=model, config=config)
    for x, y in batches(rank):
        engine.backward(nn.functional.cross_entropy(engine(x), y))
        engine.step()
    with deepspeed.zero.GatheredParameters(list(model.parameters()), enabled=stage == 3):
        weights = flat(model)
    told = weights, type(dist.group.WORLD).__name__, same_everywhere(weights)
    engine.destroy()
    deepspeed.comm.destroy_process_group()
    deepspeed.comm.comm.cdb = None
    gc.collect()
    next_port()
    return told


def deepspeed_tells(rank, world, ports, stage):
    torchrun(rank, world, ports)
    os.environ["DS_ACCELERATOR"] = "cpu"
    gloo, _, _ = zero(rank, "gloo", stage)
    with instead_of_gloo():
        swapped, backend, _ = zero(rank, "gloo", stage)
    exact, _, _ = zero(rank, "redpoll", stage)
    os.environ.update(REDPOLL_CODEC="q4", REDPOLL_CODEC_MIN_SIZE="100")
    lossy, _, same = zero(rank, "redpoll", stage)
    return {
        "backend": backend,
        "exact is gloo": torch.equal(exact, gloo) and torch.equal(swapped, gloo),
        "q4 is off by": distance(lossy, gloo),
        "replicas": same,
    }


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_deepspeed(stage):
    needs("deepspeed")
    told_of_all = values(
        run_ranks(deepspeed_tells, WORLD, free_ports(), stage, timeout=TIMEOUT)
    )
    for told in told_of_all:
        assert told["backend"] == "RedpollGroup"
        assert told["exact is gloo"] and told["replicas"], told
        # Stage 3 reduces by reduce-scatter, which REDPOLL_CODEC leaves alone.
        assert (told["q4 is off by"] == 0) == (stage == 3), told
        assert told["q4 is off by"] < 0.2, told


# ---- none of them ----


def test_nothing_imports_a_framework():
    program = (
        "import sys, redpoll.torch, redpoll.torch.integrations\n"
        "redpoll.torch.compress\n"
        "names = {'accelerate', 'deepspeed', 'lightning', 'pytorch_lightning', 'ray'}\n"
        "print(sorted((names | {'transformers'}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "[]", done.stderr
