"""Which collectives of a script that cannot be edited travel with a codec.

Every communicator has one policy, or None: everything exact. The collectives' entry points ask
it before each all-reduce; a call that names codecs itself (the hook of `compress`) does not
ask.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist

from ..comm._codec import Codec
from ._rules import parse_codec

log = logging.getLogger("redpoll")

CODEC_VARIABLE = "REDPOLL_CODEC"
MIN_SIZE_VARIABLE = "REDPOLL_CODEC_MIN_SIZE"
GROUPS_VARIABLE = "REDPOLL_CODEC_GROUPS"
DEFAULT_MIN_SIZE = 10_000
CODECS = (
    "fp32, bf16, fp16, q1 ... q8, v1 ... v8, topk, randk, sign, "
    "or options as in q4:bucket=1024,rounding=stochastic"
)

_LEAVES_EXACT = (
    "codec {codec} is for all-reduces; reduce-scatters, by which FSDP and ZeRO-3 average "
    "gradients, travel exact: redpoll.torch.compress(model) compresses those of FSDP"
)
_AVERAGING = (dist.ReduceOp.SUM, dist.ReduceOp.AVG)


class Piece(NamedTuple):
    """A run of consecutive elements that no quantisation bucket leaves."""

    numel: int
    codec: Optional[Codec]  # None: exact
    residual: Optional[torch.Tensor] = None
    """Error feedback, in units of the mean; float32, of as many elements."""


class Policy:
    """What a policy answers. All ranks must get the same answers in the same order."""

    seed: int = 0  # of stochastic rounding
    algorithm: Optional[str] = None  # of what `pieces` makes lossy; None: chosen

    def __init__(self) -> None:
        self._steps = itertools.count()

    def serves(self, names: Sequence[str]) -> bool:
        """Whether a group of these names is to ask at all: its description and PyTorch's
        name."""
        return True

    def next_step(self) -> int:
        """The number of this call, which keys stochastic rounding. Any thread."""
        return next(self._steps)

    def codec_for(
        self, operation: str, dtype: torch.dtype, count: int, op: object
    ) -> Codec | None:
        """How `count` elements of one tensor travel; None: exact.

        operation: "all_reduce", "reduce_scatter", "all_gather"; op: a ReduceOp, None where the
        operation has none."""
        raise NotImplementedError

    def pieces_of(self, tensor: torch.Tensor, op: object) -> Sequence[Piece] | None:
        """pieces() of a tensor that is all-reduced, for policies that know tensors."""
        return self.pieces("all_reduce", tensor.dtype, tensor.numel(), op)

    def pieces(
        self, operation: str, dtype: torch.dtype, count: int, op: object
    ) -> Sequence[Piece] | None:
        """The same, cut where borders between tensors are known: pieces that add up to `count`.
        None: all exact."""
        codec = self.codec_for(operation, dtype, count, op)
        return None if codec is None else [Piece(count, codec)]


def all_reduce(
    communicator: Any, policy: Policy, tensors: Sequence[torch.Tensor], op: object, **call: Any
) -> Any:
    """communicator.all_reduce(tensors, op, **call), with the codecs that `policy` chooses. The
    Work's outputs are the tensors, however they were cut."""
    chosen = [policy.pieces_of(one, op) for one in tensors]
    if not any(chosen):
        return communicator.all_reduce(tensors, op, **call)
    parts: list[torch.Tensor] = []
    codecs: list[Codec | None] = []
    residuals: list[torch.Tensor | None] = []
    for tensor, pieces in zip(tensors, chosen):
        each = [Piece(tensor.numel(), None)] if pieces is None else pieces
        parts.extend([tensor] if pieces is None else _cut(tensor, pieces))
        codecs.extend([piece.codec for piece in each])
        residuals.extend([piece.residual for piece in each])
    if any(one is not None for one in residuals):
        op = _divided_first(tensors, op, communicator.world)
        call["residuals"] = residuals
    work = communicator.all_reduce(
        parts,
        op,
        codecs=codecs,
        seed=policy.seed,
        step=policy.next_step(),
        algorithm=policy.algorithm,
        **call,
    )
    work.set_outputs(tensors)
    return work


def _divided_first(tensors: Sequence[torch.Tensor], op: object, world: int) -> object:
    """A mean whose residuals are all of the mean, a sender's as an owner's: the sum of what is
    divided already. The reduction that is left."""
    if op != dist.ReduceOp.AVG:
        return op
    for tensor in tensors:
        tensor.div_(world)
    return dist.ReduceOp.SUM


def _cut(tensor: torch.Tensor, pieces: Sequence[Piece]) -> list[torch.Tensor]:
    if len(pieces) == 1:
        return [tensor]
    if not tensor.is_contiguous():
        raise ValueError(
            "a tensor whose pieces travel differently must be contiguous: pass its contiguous()"
        )
    return list(tensor.view(-1).split([piece.numel for piece in pieces]))


class Groups:
    """Globs of group names, separated by commas; those behind "!" leave groups out. A group is
    meant when no glob leaves it out and one fits, or there are only globs that leave out."""

    def __init__(self, text: str = "") -> None:
        globs = [glob.strip() for glob in text.split(",") if glob.strip()]
        self._out = [glob[1:].strip() for glob in globs if glob.startswith("!")]
        self._in = [glob for glob in globs if not glob.startswith("!")]
        if not all(self._out):
            raise ValueError("'!' without a name")
        self.text = ",".join(globs)

    def mean(self, names: Sequence[str]) -> bool:
        """Whether a group that has all of these names is meant."""
        fits = [any(fnmatchcase(name, glob) for name in names) for glob in self._in]
        leaves_out = any(fnmatchcase(name, glob) for name in names for glob in self._out)
        return (any(fits) or not self._in) and not leaves_out


class CodecPolicy(Policy):
    """SUM and AVG all-reduces of at least `min_size` floats travel with `codec`.

    Without error feedback: a residual belongs to a tensor, and an all-reduce of a flat buffer
    does not say which tensors it holds; one kept by call order or by size would be added to
    another tensor's values as soon as buckets are rebuilt. For the same reason borders between
    tensors inside one buffer are not known, and a quantisation bucket may cross them."""

    def __init__(
        self, codec: Codec, min_size: int = DEFAULT_MIN_SIZE, groups: str = ""
    ) -> None:
        """groups: as of Groups; empty: all. ValueError: it cannot be read."""
        super().__init__()
        self.codec = codec
        self.min_size = min_size
        self.groups = Groups(groups)
        self._said: set[object] = set()

    def serves(self, names: Sequence[str]) -> bool:
        return self.groups.mean(names)

    def codec_for(
        self, operation: str, dtype: torch.dtype, count: int, op: object
    ) -> Codec | None:
        if count < self.min_size or not dtype.is_floating_point:
            return None
        if not any(op == one for one in _AVERAGING):
            return None
        if operation == "reduce_scatter":
            self._say_once(operation, _LEAVES_EXACT.format(codec=self.codec))
        if operation != "all_reduce":
            return None
        if not self.codec.supports(dtype):
            self._say_once(
                dtype,
                f"codec {self.codec} does not take elements of {dtype}; they travel exact",
            )
            return None
        return None if self.codec.is_exact(dtype) else self.codec

    def _say_once(self, of: object, text: str) -> None:
        if of not in self._said:
            self._said.add(of)
            log.warning("%s", text)

    def __repr__(self) -> str:
        groups = f", groups={self.groups.text!r}" if self.groups.text else ""
        return f"CodecPolicy({str(self.codec)!r}, min_size={self.min_size}{groups})"


def policy_from_environment(environment: Mapping[str, str] | None = None) -> Policy | None:
    """The policy that REDPOLL_CODEC asks for; None when it is not set, empty or exact.

    ValueError names the variable and what it takes. Read once for each process group, at its
    creation."""
    environment = os.environ if environment is None else environment
    text = environment.get(CODEC_VARIABLE, "").strip()
    min_size = _min_size(environment)
    if not text:
        return None
    try:
        codec = parse_codec(text)
    except ValueError as error:
        raise ValueError(
            f"{CODEC_VARIABLE}={text!r} is no codec: {error}. Codecs are {CODECS}"
        ) from None
    if codec is None or codec.is_exact(torch.float32):
        return None
    groups = environment.get(GROUPS_VARIABLE, "")
    try:
        return CodecPolicy(codec, min_size, groups)
    except ValueError as error:
        raise ValueError(
            f"{GROUPS_VARIABLE}={groups!r}: {error}; names of groups are wanted, as in "
            "'mesh_dp,default_pg' or '!mesh_tp'"
        ) from None


def _min_size(environment: Mapping[str, str]) -> int:
    text = environment.get(MIN_SIZE_VARIABLE, "").strip()
    if not text:
        return DEFAULT_MIN_SIZE
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise ValueError(
            f"{MIN_SIZE_VARIABLE}={text!r}: a number of elements, 0 or more, is wanted"
        )
    return value
