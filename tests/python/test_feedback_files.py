"""What save() leaves in a folder, whatever was there before and whoever dies meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from ranks import refusal, run_group, values
from test_compress import MIN_SIZE, Net, held_by, loss_of

INDEX = "redpoll-feedback.json"


def compressed():
    import redpoll.torch

    torch.manual_seed(5)
    model = DDP(Net())
    return model, redpoll.torch.compress(model, "q2", min_size=MIN_SIZE)


def go_on(rank, world, folder, steps):
    """Load what is there, train on, save; what is held back here, before and after."""
    model, state = compressed()
    before = {}
    if (folder / INDEX).exists():
        state.load(folder)
        before = held_by(state)
    for step in range(steps):
        loss_of(model, rank, step).backward()
    state.save(folder)
    return state.step, before, held_by(state)


def total(parts):
    """Sums over ranks by name."""
    return {name: sum(part[name] for part in parts) for name in parts[0]}


def saved_files(folder):
    return sorted(one.name for one in folder.rglob("*.pt"))


def test_runs_of_other_worlds_use_one_folder_one_after_the_other(tmp_path):
    last, step = None, 0
    for world in (2, 4, 1, 3):
        answers = values(run_group(go_on, world, tmp_path, 2))
        step += 2
        assert [answer[0] for answer in answers] == [step] * world
        if last is not None:
            taken = total([before for _, before, _ in answers])
            assert all(abs(taken[name] - last[name]).max() < 1e-6 for name in last)
        last = total([after for _, _, after in answers])
        assert saved_files(tmp_path) == [
            f"redpoll-rank-{rank:05d}-of-{world:05d}.pt" for rank in range(world)
        ]
        assert len(list(tmp_path.iterdir())) == 2  # the index, and the save that it names


def die_while_saving(rank, world, folder, where):
    from redpoll.torch.compression import _feedback_files as files

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def half_a_file(file, state):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"PK")
        die()

    write_index = files._write_index

    def index_and_die(*args):
        write_index(*args)
        die()

    model, state = compressed()
    state.load(folder)
    loss_of(model, rank, 9).backward()
    if where == "in a file" and rank == 1:
        files._write_state = half_a_file
    elif where == "before the index" and rank == 0:
        files._write_index = lambda *args: die()
    elif where == "behind the index" and rank == 0:
        files._write_index = index_and_die
    state.save(folder)


@pytest.mark.parametrize("where", ["in a file", "before the index", "behind the index"])
def test_a_death_in_mid_save_leaves_one_whole_save(tmp_path, where):
    answers = values(run_group(go_on, 2, tmp_path, 3))
    outcomes = run_group(die_while_saving, 2, tmp_path, where, destroy=False)
    dead = 1 if where == "in a file" else 0
    assert outcomes[dead].exitcode == -signal.SIGKILL
    assert f"rank {dead}" in outcomes[1 - dead].error
    after = values(run_group(go_on, 2, tmp_path, 0))
    old = where != "behind the index"
    assert [answer[0] for answer in after] == [3 if old else 4] * 2
    for (_, _, held), (_, taken, _) in zip(answers, after):
        assert old == all((held[name] == taken[name]).all() for name in held)
    assert len(list(tmp_path.iterdir())) == 2, "the next save removes what the dead one left"


def test_a_file_that_is_another_ranks_or_saves_is_refused(tmp_path):
    here, other = tmp_path / "here", tmp_path / "other"
    for folder in (here, other):
        values(run_group(go_on, 2, folder, 1))
    [mine], [theirs] = ([*folder.glob("redpoll-step-*")] for folder in (here, other))
    first, second = (f"redpoll-rank-{rank:05d}-of-00002.pt" for rank in range(2))

    kept = (mine / second).read_bytes()
    shutil.copy(mine / first, mine / second)
    text = values(run_group(load_error, 2, here))[1]
    assert second in text and "holds rank 0, not 1" in text
    shutil.copy(theirs / second, mine / second)
    text = values(run_group(load_error, 2, here))[1]
    assert second in text and "holds save" in text
    (mine / second).unlink()
    text = values(run_group(load_error, 2, here))[1]
    assert second in text and "is missing" in text
    (mine / second).write_bytes(kept)
    assert values(run_group(load_error, 2, here)) == ["", ""]


def load_error(rank, world, folder):
    """ "" where the load works."""
    _, state = compressed()
    try:
        state.load(folder)
    except (ValueError, FileNotFoundError) as error:
        return str(error)
    return ""


DAMAGE = {
    "no JSON": (b"{", "cannot be read"),
    "bytes": (b"\xff\xfe\x00", "cannot be read"),
    "another file": (b'{"format": "x"}', "no index"),
    "a list": (b"[]", "no index"),
}
FIELDS = {
    "version": (2, "version 2"),
    "step": (-1, "step is -1"),
    "world": (0, "world is 0"),
    "id": ("../../etc", "id is"),
}


def damaged_indexes(rank, world, folder):
    _, state = compressed()
    state.save(folder)
    whole = json.loads((folder / INDEX).read_text())
    damaged = {name: content for name, (content, _) in DAMAGE.items()}
    for field, (value, _) in FIELDS.items():
        damaged[field] = json.dumps({**whole, field: value}).encode()
    texts = {}
    for name, content in damaged.items():
        (folder / INDEX).write_bytes(content)
        texts[name] = refusal(ValueError, lambda: state.load(folder))
    (folder / INDEX).unlink()
    return texts, refusal(FileNotFoundError, lambda: state.load(folder))


def test_a_damaged_index_is_named(tmp_path):
    [(texts, missing)] = values(run_group(damaged_indexes, 1, tmp_path))
    for name, (_, wanted) in {**DAMAGE, **FIELDS}.items():
        assert INDEX in texts[name] and wanted in texts[name], name
    assert f"holds no {INDEX}" in missing
