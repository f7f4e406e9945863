"""Bits of its own for each parameter, from what is measured: "auto:like=q4,every=100"."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Optional

import torch

from .. import _abi
from ..errors import check
from ._codec import Codec

_ROW = _abi.RP_BITS_MOST + 1


class AdaptiveCodec:
    """Whose error is met, and after how many steps bits are chosen anew. Immutable; equal when
    the canonical texts are."""

    __slots__ = ("like", "every", "_text")

    like: Codec
    every: int

    def __init__(self, text: str) -> None:
        """Of a text "auto:like=q4,every=100"; redpoll.Error (INVALID) names what is wrong."""
        structure = _abi.rp_adaptive_codec()
        check(_abi.rp_adaptive_codec_parse(text.encode(), ctypes.byref(structure)))
        room = ctypes.create_string_buffer(_abi.RP_ADAPTIVE_TEXT)
        self._text = _abi.rp_adaptive_codec_text(ctypes.byref(structure), room).decode()
        self.like = Codec(codec_text(structure.codec))
        self.every = structure.every

    @staticmethod
    def is_meant(text: object) -> bool:
        """Whether a codec's text is one of these."""
        return isinstance(text, str) and text.strip().partition(":")[0] == "auto"

    def with_bits(self, bits: int) -> Codec:
        """The codec of a tensor for which so many were chosen."""
        structure = _abi.rp_codec.from_buffer_copy(self.like.structure)
        structure.bits = bits
        return Codec(codec_text(structure))

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"AdaptiveCodec({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AdaptiveCodec) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def codec_text(structure: _abi.rp_codec) -> str:
    """The canonical text of a codec's structure."""
    room = ctypes.create_string_buffer(64)
    text: bytes = _abi.rp_codec_text(ctypes.byref(structure), room, len(room))
    return text.decode()


class BitChooser:
    """The bits of some parameters of one model. A step that measures ends with an all-reduce of
    what they would lose; the next step begins with the choice, which is the same on all ranks.

        each step:  settle() .. begin(), measure() each gradient, send()     (if it measures)
    """

    def __init__(self, codec: AdaptiveCodec, counts: Mapping[str, int], least: int) -> None:
        """counts: elements of each parameter that it chooses for, by name, in an order that is
        that of all ranks. least: fewest bits."""
        self.codec = codec
        self.bits: dict[str, int] = {}
        """What was chosen; nothing before the first choice."""
        self.summary: Optional[str] = None
        """The latest choice in words."""
        self._least = least
        self._counts = dict(counts)
        self._rows = {name: i for i, name in enumerate(self._counts)}
        self._lost = torch.zeros(len(self._counts), _ROW, dtype=torch.float64)
        self._work: Any = None

    def codec_of(self, name: str) -> Codec:
        """How a parameter travels now."""
        bits = self.bits.get(name)
        return self.codec.like if bits is None else self.codec.with_bits(bits)

    def chooses(self, name: str) -> bool:
        """Whether this parameter is one of them."""
        return name in self._rows

    def begin(self) -> None:
        """A step that measures."""
        self._lost.zero_()

    def measure(
        self, name: str, gradient: torch.Tensor, residual: Optional[torch.Tensor]
    ) -> None:
        """This rank's gradient is there, not summed yet. residual: float32 on the CPU."""
        values = gradient.detach().reshape(-1).to("cpu", torch.float32).contiguous()
        check(
            _abi.rp_bits_measure(
                self.codec.like.reference,
                values.data_ptr(),
                None if residual is None else residual.data_ptr(),
                values.numel(),
                self._lost[self._rows[name]].data_ptr(),
            )
        )

    def send(self, communicator: Any) -> None:
        """All of this step was measured. Does not block."""
        if self._rows:
            self._work = communicator.all_reduce([self._lost])

    def settle(self) -> bool:
        """Choose, if a step before has measured; whether other bits were chosen."""
        work, self._work = self._work, None
        if work is None:
            return False
        work.wait()
        rows = (_abi.rp_bits_choice * len(self._rows))()
        for row, (name, lost) in zip(rows, zip(self._counts, self._lost.tolist())):
            row.count = self._counts[name]
            row.lost[:] = lost
        like = self.codec.like
        check(_abi.rp_bits_choose(like.reference, self._least, rows, len(rows)))
        chosen = {name: row.bits for name, row in zip(self._counts, rows)}
        if chosen == self.bits:
            return False
        self.bits = chosen
        self.summary = self._in_words()
        return True

    def restore(self, bits: Mapping[str, int]) -> None:
        """What an earlier run had chosen; of other parameters nothing is taken."""
        known = {name: int(bits[name]) for name in self._counts if name in bits}
        wrong = {name: b for name, b in known.items() if not 1 <= b <= _abi.RP_BITS_MOST}
        if wrong:
            raise ValueError(f"bits that cannot have been chosen: {wrong}")
        if self._work is not None:
            self._work.wait()
            self._work = None
        self.bits = known if len(known) == len(self._counts) else {}

    def _in_words(self) -> str:
        like = self.codec.like
        size = {name: like.encoded_bytes(torch.float32, n) for name, n in self._counts.items()}
        chosen = sum(
            self.codec.with_bits(self.bits[name]).encoded_bytes(torch.float32, count)
            for name, count in self._counts.items()
        )
        numbers = [
            sum(1 for bits in self.bits.values() if bits == b)
            for b in range(1, _abi.RP_BITS_MOST + 1)
        ]
        return (
            f"{sum(size.values()) / max(chosen, 1):.2f} times fewer bytes than {like}; tensors "
            f"with 1 to {_abi.RP_BITS_MOST} bits: {' '.join(map(str, numbers))}"
        )
