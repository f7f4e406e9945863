"""What every call is checked for before anything is posted, and how it is refused."""

from __future__ import annotations

from typing import Any, NoReturn, Optional

import torch

from ... import _abi
from ._buffers import Buffers
from ._collective_options import Tensors
from ._dtypes import moved_number, reduced_number
from ._errors import RedpollError, RedpollValueError, place_text, user_place


class Names:
    """What errors say of a group: this process's rank in it, and what people call it. Whoever
    holds this does not hold the group. name: what it was made as; label: what people call it.
    absence: why its operations are refused, where this process has a place in the group and no
    part in it."""

    __slots__ = ("absence", "label", "name", "rank")

    def __init__(self, rank: int, name: str) -> None:
        self.rank, self.name, self.label = rank, name, name
        self.absence = ""

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

    def gone(self, operation: str) -> RedpollError:
        """Of an operation of a group that is no more."""
        why = (
            f"group '{self.label}' is not usable: it was destroyed, or this process is a fork "
            "of the one that made it"
        )
        return self.error(_abi.RP_STATE, self.absence or why, operation)


class Checks:
    """Each check returns what the call needs, or raises RedpollValueError."""

    def __init__(self, names: Names, world: int) -> None:
        self._names, self._world = names, world

    def refuse(self, operation: str, message: str) -> NoReturn:
        raise self._names.error(_abi.RP_INVALID, message, operation)

    def buffers(self, operation: str) -> Buffers:
        """For the tensors of one call."""
        names = self._names
        return Buffers(lambda message: names.error(_abi.RP_INVALID, message, operation))

    def check_rank(self, operation: str, rank: int) -> None:
        if not 0 <= rank < self._world:
            self.refuse(operation, f"rank {rank} is not in a group of {self._world}")

    def check_peer(self, operation: str, rank: int, tag: int) -> None:
        self.check_rank(operation, rank)
        if not 0 <= tag < 2**31:
            self.refuse(operation, f"tag {tag}; 0 to 2^31 - 1 are allowed")

    def check_list(
        self, operation: str, tensors: Tensors, own: torch.Tensor, what: str
    ) -> None:
        """One tensor a rank, and this rank's is as long as its other side."""
        if len(tensors) != self._world:
            self.refuse(
                operation, f"{len(tensors)} {what} tensors; the group has {self._world} ranks"
            )
        self.same_dtype(operation, own, *tensors)
        rank = self._names.rank
        theirs = tensors[rank].numel()
        if theirs != own.numel():
            self.refuse(
                operation,
                f"{what} tensor {rank} (this rank's) has {theirs} elements, and the other "
                f"side {own.numel()}",
            )

    def check_flat(
        self, operation: str, flat: torch.Tensor, part: torch.Tensor, what: str
    ) -> None:
        """One tensor for all ranks: `world` times the part of one."""
        self.same_dtype(operation, part, flat)
        if flat.numel() != self._world * part.numel():
            self.refuse(
                operation,
                f"the {what} has {flat.numel()} elements; {self._world} ranks of "
                f"{part.numel()} each are {self._world * part.numel()}",
            )

    def same_dtype(self, operation: str, first: torch.Tensor, *others: torch.Tensor) -> None:
        for one in others:
            if one.dtype != first.dtype:
                self.refuse(operation, f"{one.dtype} and {first.dtype} in one call")

    def reduced(self, tensor: torch.Tensor, operation: str) -> int:
        """The number of its type in the library, for what is added."""
        try:
            return reduced_number(tensor.dtype)
        except TypeError as error:
            self.refuse(operation, str(error))

    def moved(self, tensor: torch.Tensor) -> int:
        """The same for what is moved as it is."""
        return moved_number(tensor.dtype)
