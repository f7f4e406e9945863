"""Error feedback on disk: one save of all ranks, whole or not at all.

    FOLDER/redpoll-feedback.json                                      which save counts
    FOLDER/redpoll-step-1000-5f1c09a2/redpoll-rank-00000-of-00002.pt  what rank 0 holds back
    FOLDER/redpoll-step-1000-5f1c09a2/redpoll-rank-00001-of-00002.pt

A save writes a folder of its own beside the one that counts:

    write own file --> all ranks tell --all wrote--> rank 0 renames the index over the old one
                            |                             |
                            | a rank could not            +--> older saves are removed
                            +--> new files are removed, the earlier save counts

so a process that dies at any point leaves one complete save; what it had written of another is
removed by the next save. Every file holds its rank, world, step and the save's id, and the
index the last three: a file under another rank's name, or of another save, is found out.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

import torch

INDEX = "redpoll-feedback.json"
_FORMAT = "redpoll.feedback"
_VERSION = 1
_TELLING = 512  # bytes in which a rank tells the others how its part went
_SAVE_NAME = re.compile(r"redpoll-step-\d+-[0-9a-f]{8}")


def save(folder: Path, state: Mapping[str, Any], communicator: Any) -> Path:
    """Write this rank's `state` (of state_dict()); collective over the communicator's ranks.
    Returns the file. OSError on every rank, naming the one that could not write."""
    rank, world = communicator.rank, communicator.world
    id = _agreed_id(communicator)
    home = folder / f"redpoll-step-{state['step']}-{id}"
    file = home / _file_name(rank, world)
    index = {
        "format": _FORMAT,
        "version": _VERSION,
        "step": state["step"],
        "world": world,
        "id": id,
    }
    replaced = _saves(folder, home)  # listed before anybody can begin a later one
    wrong = _attempt(lambda: _write_state(file, {**state, "save": id}), file)
    _check_all(communicator, wrong, file)
    wrong = _attempt(lambda: _write_index(folder, index), folder / INDEX) if rank == 0 else ""
    _check_all(communicator, wrong, file)
    if not _counts(folder, id):  # this host's folder is not rank 0's
        _write_index(folder, index)
    for old in replaced:
        shutil.rmtree(old, ignore_errors=True)
    return file


def load(folder: Path, rank: int, world: int) -> list[Mapping[str, Any]]:
    """The states that rank `rank` of `world` takes over (at least one, for the step), from the
    save that counts. FileNotFoundError: nothing was saved, or a file is gone. ValueError: a
    file is damaged, or is not what its name says."""
    index = _read_index(folder)
    home = folder / f"redpoll-step-{index['step']}-{index['id']}"
    wanted: Iterable[int] = range(rank, index["world"], world) or [0]
    return [_read_state(home, one, index) for one in wanted]


def _file_name(rank: int, world: int) -> str:
    return f"redpoll-rank-{rank:05d}-of-{world:05d}.pt"


# ---- all ranks together ----


def _agreed_id(communicator: Any) -> str:
    """A name for this save that no other one has: rank 0's."""
    drawn = torch.frombuffer(bytearray(secrets.token_bytes(4)), dtype=torch.uint8).clone()
    communicator.broadcast(drawn, 0).wait()
    return bytes(drawn.tolist()).hex()


def _check_all(communicator: Any, wrong: str, file: Path) -> None:
    """OSError on every rank, and `file` removed, when a rank's `wrong` is not empty. An error
    of the exchange itself removes nothing: rank 0 may have renamed the index."""
    first = _first_wrong(communicator, wrong)
    if first:
        _forget(file)
        raise OSError(f"{first}; the earlier save, if there is one, still counts")


def _first_wrong(communicator: Any, wrong: str) -> str:
    """The first rank's `wrong` that is not empty, with its rank; "" without. Collective."""
    mine = torch.zeros(_TELLING, dtype=torch.uint8)
    text = bytearray(wrong.encode("utf-8")[:_TELLING])
    if text:
        mine[: len(text)] = torch.frombuffer(text, dtype=torch.uint8)
    everybodys = torch.empty(communicator.world * _TELLING, dtype=torch.uint8)
    communicator.all_gather(everybodys, mine).wait()
    for rank, told in enumerate(everybodys.view(communicator.world, _TELLING)):
        if told[0]:
            return f"rank {rank} " + bytes(told[told != 0].tolist()).decode("utf-8", "replace")
    return ""


# ---- files ----


def _attempt(write: Any, path: Path) -> str:
    """What went wrong while writing `path`; "" when nothing did."""
    try:
        write()
    except (OSError, RuntimeError) as error:  # PyTorch's says neither where nor why
        return f"cannot write {path} ({_room(path)}): {error}"
    return ""


def _room(path: Path) -> str:
    for folder in path.parents:
        try:
            return f"{shutil.disk_usage(folder).free} bytes free"
        except OSError:
            continue
    return "no such folder"


def _write_state(file: Path, state: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "wb") as stream:
        torch.save(state, stream)
        stream.flush()
        os.fsync(stream.fileno())


def _write_index(folder: Path, index: Mapping[str, Any]) -> None:
    part = folder / f"{INDEX}.{index['id']}"
    try:
        with open(part, "w", encoding="utf-8") as stream:
            json.dump(index, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, folder / INDEX)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _forget(file: Path) -> None:
    """Remove what a failed save has written here, and its folder with the last of its files."""
    try:
        file.unlink(missing_ok=True)
        file.parent.rmdir()
    except OSError:
        pass


def _saves(folder: Path, new: Path) -> list[Path]:
    """Those that lie there beside the new one, whole or not."""
    if not folder.is_dir():
        return []
    found = [one for one in folder.iterdir() if _SAVE_NAME.fullmatch(one.name)]
    return [one for one in found if one != new]


def _counts(folder: Path, id: str) -> bool:
    return (folder / INDEX).exists() and _read_index(folder)["id"] == id


def _read_index(folder: Path) -> Mapping[str, Any]:
    file = folder / INDEX
    try:
        index = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{folder} holds no {INDEX}; it is the folder that save() was given on every rank"
        ) from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    if not isinstance(index, dict) or index.get("format") != _FORMAT:
        raise ValueError(f"{file} is no index of a save of error feedback")
    if index.get("version") != _VERSION:
        raise ValueError(f"{file} has version {index.get('version')}; {_VERSION} is known")
    wrong = _index_error(index)
    if wrong:
        raise ValueError(f"{file} is damaged: {wrong}")
    return index


def _index_error(index: Mapping[str, Any]) -> Optional[str]:
    step, world, id = (index.get(key) for key in ("step", "world", "id"))
    if not isinstance(step, int) or step < 0:
        return f"step is {step!r}"
    if not isinstance(world, int) or not 1 <= world < 1 << 20:
        return f"world is {world!r}"
    if not isinstance(id, str) or not re.fullmatch("[0-9a-f]{8}", id):
        return f"id is {id!r}"
    return None


def _read_state(home: Path, rank: int, index: Mapping[str, Any]) -> Mapping[str, Any]:
    """A rank's state, mapped, so that only what is taken over is read."""
    file = home / _file_name(rank, index["world"])
    try:
        state = torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{file} is missing; every rank must see the files of all {index['world']} ranks"
        ) from None
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    wanted = {**index, "rank": rank, "save": index["id"]}
    for key in ("rank", "world", "step", "save"):
        found = state.get(key) if isinstance(state, Mapping) else None
        if found != wanted[key]:
            raise ValueError(
                f"{file} holds {key} {found!r}, not {wanted[key]!r}: it was copied or renamed"
            )
    return state
