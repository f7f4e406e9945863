"""A level of bits for each parameter, from what is measured: "auto:like=q4,every=100"; and
whether lossy is faster at all: "auto"."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import torch

from ... import _abi
from ...errors import check
from ..comm import _cuda
from ..comm._codec import Codec

_LEVELS_A_BIT = (_abi.RP_LEVELS - 1) // 8


class AdaptiveCodec:
    """Whose error is met, after how many steps bits are chosen anew, and whether that is to be
    done only where it is faster than exact. Immutable; equal when the canonical texts are."""

    __slots__ = ("like", "every", "fastest", "_text")

    like: Codec
    every: int
    fastest: bool

    def __init__(self, text: str) -> None:
        """Of "auto:like=q4,every=100" or "auto"; redpoll.Error (INVALID) says what is wrong."""
        structure = _abi.rp_adaptive_codec()
        check(_abi.rp_adaptive_codec_parse(text.encode(), ctypes.byref(structure)))
        room = ctypes.create_string_buffer(_abi.RP_ADAPTIVE_TEXT)
        self._text = _abi.rp_adaptive_codec_text(ctypes.byref(structure), room).decode()
        self.like = Codec(codec_text(structure.codec))
        self.every = structure.every
        self.fastest = bool(structure.fastest)

    @staticmethod
    def is_meant(text: object) -> bool:
        """Whether a codec's text is one of these."""
        return isinstance(text, str) and text.strip().partition(":")[0] == "auto"

    def at_level(self, level: int) -> Codec:
        """The codec of a tensor for which this level was chosen; of level 0, the one that is
        like it."""
        structure = _abi.rp_codec()
        check(_abi.rp_level_codec(self.like.reference, level, ctypes.byref(structure)))
        return Codec(codec_text(structure))

    @property
    def typical(self) -> Codec:
        """What stands for all that may be chosen when times are compared."""
        structure = _abi.rp_codec()
        check(_abi.rp_level_like(self.like.reference, ctypes.byref(structure)))
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


class CodecTrial:
    """Buckets travel lossy where all-reduces are faster so, and where whole steps are: what
    travels under the backward pass costs no time, and what encodes takes cores from it. In the
    first lossy step all-reduces are timed; it and six more go exact, then seven lossy; in the
    next one all ranks settle for the way whose steps were shorter.

        each lossy step:  begin(), ask() if it asks, goes_exact?
    """

    def __init__(self, lossy_from: Optional[int] = None) -> None:
        """lossy_from: what was settled before."""
        self.lossy_from = lossy_from
        """Elements from which on a bucket travels lossy; None: not settled yet."""
        self.goes_exact = False
        """This step, whatever its buckets."""
        self.asks = False
        """This step does."""
        self.is_first_lossy = False
        """This step, of the trial's."""
        self._found = 0
        self._steps = _abi.rp_step_trial()

    @property
    def threshold(self) -> int:
        """Settled, or found so far."""
        return self._found if self.lossy_from is None else self.lossy_from

    def begin(self, now_s: float) -> None:
        """A step begins that is to be lossy."""
        self.goes_exact = self.asks = self.is_first_lossy = False
        if self.lossy_from is not None:
            return
        way = _abi.rp_step_trial_begin(ctypes.byref(self._steps), now_s)
        self.goes_exact = way == _abi.RP_TRIAL_EXACT
        self.is_first_lossy = self._steps.steps == _abi.RP_TRIAL_STEPS + 2
        self.asks = self._steps.steps == 1 or way == _abi.RP_TRIAL_OVER

    def ask(self, communicator: Any, codec: Codec, most: int, feedback: bool) -> str:
        """Find out what is faster, and say so in words. Collective, as long as nothing else
        travels. most: elements of the longest bucket, as far as it is known."""
        if self._steps.steps > 1:
            return self._settle(communicator, most)
        self._found, text = communicator.compare_codec(codec, most, feedback)
        if self._found == _abi.RP_LOSSY_NEVER:
            self.lossy_from = self._found
        return str(text)

    def _settle(self, communicator: Any, most: int) -> str:
        if self._found > most:
            self.lossy_from = _abi.RP_LOSSY_NEVER
            return "fp32: no bucket is as long as those that are faster lossy"
        seconds = torch.zeros(2, dtype=torch.float64)
        check(_abi.rp_step_trial_times(ctypes.byref(self._steps), seconds.data_ptr()))
        communicator.all_reduce([seconds], torch.distributed.ReduceOp.MAX, blocking=True)
        gains = bool(_abi.rp_step_trial_gains(seconds.data_ptr()))
        self.lossy_from = self._found if gains else _abi.RP_LOSSY_NEVER
        exact_ms, lossy_ms = (seconds * 1e3).tolist()
        return (
            f"{'lossy' if gains else 'fp32'}: steps take {exact_ms:.3g} ms with fp32 and "
            f"{lossy_ms:.3g} ms lossy"
        )


class BitChooser:
    """The levels of some parameters of a model. A step that measures ends with an all-reduce of
    what they would lose; the next step begins with the choice, which is the same on all ranks.

        each step:  settle() .. begin(), measure() each gradient, send()     (if it measures)
    """

    def __init__(self, codec: AdaptiveCodec, names: Sequence[str]) -> None:
        """names: of the parameters that it chooses for, in an order that is that of all
        ranks."""
        self.codec = codec
        self.levels: dict[str, int] = {}
        """What was chosen; nothing before the first choice."""
        self.summary: Optional[str] = None
        """The latest choice in words."""
        self.trial = CodecTrial() if codec.fastest else None
        """Which buckets are faster lossy; None: all are to be."""
        self._rows = {name: i for i, name in enumerate(names)}
        self._measured = torch.zeros(len(self._rows), _abi.RP_MEASURED, dtype=torch.float64)
        self._work: Any = None

    def codec_of(self, name: str) -> Codec:
        """How a parameter travels now."""
        return self.codec.at_level(self.levels.get(name, 0))

    def chooses(self, name: str) -> bool:
        """Whether this parameter is one of them."""
        return name in self._rows

    def begin(self) -> None:
        """A step that measures."""
        self._measured.zero_()

    def measure(
        self, name: str, gradient: torch.Tensor, residual: Optional[torch.Tensor]
    ) -> None:
        """This rank's gradient is there, not summed yet. residual: float32."""
        values = gradient.detach().reshape(-1).to("cpu", torch.float32).contiguous()
        held = None if residual is None else _cuda.on_host(residual)
        check(
            _abi.rp_levels_measure(
                self.codec.like.reference,
                values.data_ptr(),
                None if held is None else held.data_ptr(),
                values.numel(),
                self._measured[self._rows[name]].data_ptr(),
            )
        )

    def send(self, communicator: Any) -> None:
        """All of this step was measured. Does not block."""
        if self._rows:
            self._work = communicator.all_reduce([self._measured])

    def settle(self) -> bool:
        """Choose, if a step before has measured; whether other levels were chosen."""
        work, self._work = self._work, None
        if work is None:
            return False
        work.wait()
        if not self._measured[:, _abi.RP_LEVELS].any():
            return False  # all of it went exact
        rows = (_abi.rp_level_choice * len(self._rows))()
        for row, measured in zip(rows, self._measured.tolist()):
            row.measured[:] = measured
        check(_abi.rp_levels_choose(self.codec.like.reference, rows, len(rows)))
        chosen = {name: row.level for name, row in zip(self._rows, rows)}
        if chosen == self.levels:
            return False
        self.levels = chosen
        self.summary = self._in_words()
        return True

    def restore(self, levels: Mapping[str, int], lossy_from: Optional[int] = None) -> None:
        """What an earlier run had chosen; of other parameters nothing is taken. lossy_from: of
        one in the same world."""
        known = {name: int(levels[name]) for name in self._rows if name in levels}
        wrong = {name: n for name, n in known.items() if not 0 <= n < _abi.RP_LEVELS}
        if wrong:
            raise ValueError(f"levels that cannot have been chosen: {wrong}")
        if self._work is not None:
            self._work.wait()
            self._work = None
        if self.trial is not None:
            self.trial = CodecTrial(lossy_from)
        self.levels = known if len(known) == len(self._rows) else {}

    def _in_words(self) -> str:
        like, chosen, tensors = 0.0, 0.0, [0] * 9
        for level, measured in zip(self.levels.values(), self._measured.tolist()):
            if not measured[_abi.RP_LEVELS]:
                continue  # it travels exact
            like += measured[_abi.RP_LEVELS]
            chosen += measured[_abi.RP_LEVELS + level]
            tensors[-(-level // _LEVELS_A_BIT)] += 1
        kept = f"; {tensors[0]} as it is" if tensors[0] else ""
        return (
            f"{like / max(chosen, 1):.2f} times fewer bytes than {self.codec.like}; tensors "
            f"at v1 to v8: {' '.join(map(str, tensors[1:]))}{kept}"
        )
