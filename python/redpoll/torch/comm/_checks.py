"""What every call is checked for before anything is posted, and how it is refused."""

from __future__ import annotations

from typing import Any, NoReturn, Optional

import torch

from ... import _abi
from ._buffers import Buffers
from ._dtypes import moved_number, reduced_number
from ._errors import RedpollError, RedpollValueError, place_text, user_place
from ._types import Tensors


class Names:
    """What errors say of a group: this process's rank in it, and what people call it. Whoever
    holds this does not hold the group."""

    __slots__ = ("label", "rank")

    def __init__(self, rank: int, label: str) -> None:
        self.rank, self.label = rank, label

    def error(
        self, code: int, message: str, operation: str, posted_at: Optional[str] = None
    ) -> RedpollError:
        """The exception for a failed operation of this group; not raised here."""
        posted_at = place_text(user_place()) if posted_at is None else posted_at
        where: dict[str, Any] = {
            "rank": self.rank,
            "group": self.label,
            "operation": operation,
            "posted_at": posted_at,
        }
        if code == _abi.RP_INVALID:
            return RedpollValueError(message, **where)
        return RedpollError(code, message, **where)


class Checks:
    """Each check returns what the call needs, or raises RedpollValueError."""

    rank: int
    world: int
    name: str
    names: Names

    @property
    def label(self) -> str:
        """What people call the group."""
        return self.names.label

    def error(
        self, code: int, message: str, operation: str, posted_at: Optional[str] = None
    ) -> RedpollError:
        """The exception for a failed operation of this group; not raised here."""
        return self.names.error(code, message, operation, posted_at)

    def _gone(self, name: str) -> NoReturn:
        raise gone(self.names, name)

    def _buffers(self, operation: str) -> Buffers:
        return Buffers(lambda message: self.error(_abi.RP_INVALID, message, operation))

    def _refuse(self, operation: str, message: str) -> NoReturn:
        raise self.error(_abi.RP_INVALID, message, operation)

    def _check_rank(self, operation: str, rank: int) -> None:
        if not 0 <= rank < self.world:
            self._refuse(operation, f"rank {rank} is not in a group of {self.world}")

    def _check_peer(self, operation: str, rank: int, tag: int) -> None:
        self._check_rank(operation, rank)
        if not 0 <= tag < 2**31:
            self._refuse(operation, f"tag {tag}; 0 to 2^31 - 1 are allowed")

    def _check_list(
        self, operation: str, tensors: Tensors, own: torch.Tensor, what: str
    ) -> None:
        """One tensor a rank, and this rank's is as long as its other side."""
        if len(tensors) != self.world:
            self._refuse(
                operation, f"{len(tensors)} {what} tensors; the group has {self.world} ranks"
            )
        self._same_dtype(operation, own, *tensors)
        theirs = tensors[self.rank].numel()
        if theirs != own.numel():
            self._refuse(
                operation,
                f"{what} tensor {self.rank} (this rank's) has {theirs} elements, and the other "
                f"side {own.numel()}",
            )

    def _check_flat(
        self, operation: str, flat: torch.Tensor, part: torch.Tensor, what: str
    ) -> None:
        """One tensor for all ranks: `world` times the part of one."""
        self._same_dtype(operation, part, flat)
        if flat.numel() != self.world * part.numel():
            self._refuse(
                operation,
                f"the {what} has {flat.numel()} elements; {self.world} ranks of "
                f"{part.numel()} each are {self.world * part.numel()}",
            )

    def _same_dtype(self, operation: str, first: torch.Tensor, *others: torch.Tensor) -> None:
        for one in others:
            if one.dtype != first.dtype:
                self._refuse(operation, f"{one.dtype} and {first.dtype} in one call")

    def _reduced(self, tensor: torch.Tensor, operation: str) -> int:
        """The number of its type in the library, for what is added."""
        try:
            return reduced_number(tensor.dtype)
        except TypeError as error:
            self._refuse(operation, str(error))

    def _moved(self, tensor: torch.Tensor) -> int:
        """The same for what is moved as it is."""
        return moved_number(tensor.dtype)


def gone(names: Names, operation: str) -> RedpollError:
    """Of an operation of a group that is no more."""
    return names.error(
        _abi.RP_STATE,
        f"group '{names.label}' is not usable: it was destroyed, or this process is a fork of "
        "the one that made it",
        operation,
    )
