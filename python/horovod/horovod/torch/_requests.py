"""Each kind of operation: what ranks must agree on, how it is posted, what comes of it.

A tensor of a GPU travels through a copy on the host: operations are posted by another thread,
which does not know the script's streams.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from redpoll.torch import Codec, RedpollError, Work

from ..common.exceptions import HorovodInternalError
from ._engine import Engine
from ._handles import Operation
from ._negotiation import JOIN, Answer, Word

Average, Sum, Adasum, Min, Max, Product = range(6)
_OPS = {
    Average: dist.ReduceOp.AVG,
    Sum: dist.ReduceOp.SUM,
    Min: dist.ReduceOp.MIN,
    Max: dist.ReduceOp.MAX,
    Product: dist.ReduceOp.PRODUCT,
}
OP_NAMES = ("Average", "Sum", "Adasum", "Min", "Max", "Product")
Tensors = Sequence[torch.Tensor]
Owns = Sequence[list[int]]


@dataclass
class Scale:
    """Of a reduction: factors before and after it."""

    op: int
    before: float = 1.0
    after: float = 1.0


@dataclass
class Compressed:
    """A codec of ours for a reduction, with what error feedback keeps for each tensor."""

    codec: Codec
    residuals: Optional[Tensors] = None


class Request:
    """One operation that this rank was asked for."""

    def __init__(self, kind: str, name: str, agreed: list[Any], own: list[int]) -> None:
        self.word = Word(kind, name, agreed, own)
        self.operation = Operation(name)

    def start(self, engine: Engine, answer: Answer) -> None:
        """Of the engine: post it, or fail the operation."""
        try:
            works, finish = self.post(engine, [own or [] for own in answer.owns])
        except Exception as error:
            self.operation.fail(_as_ours(answer.name, error))
        else:
            self.operation.post(works, finish)

    def post(self, engine: Engine, owns: Owns) -> tuple[list[Work], Callable[[], Any]]:
        raise NotImplementedError


class Reduction(Request):
    """All-reduces of one or several tensors, in place. targets: where results go; tensors:
    those, or copies of them on the host."""

    def __init__(
        self,
        name: str,
        targets: list[torch.Tensor],
        scale: Scale,
        compressed: Optional[Compressed] = None,
        is_single: bool = True,
    ) -> None:
        self._targets, self._is_single = targets, is_single
        self._scale = scale
        for each in targets:
            multiply(each, scale.before)
        self.tensors = [on_host(each.detach()) for each in targets]
        self.compressed = compressed
        codec = str(compressed.codec) if compressed is not None else ""
        shapes = [[dtype_name(each), list(each.shape)] for each in targets]
        factors = [OP_NAMES[scale.op], scale.before, scale.after]
        super().__init__("allreduce", name, [shapes, *factors, codec], [])

    @property
    def bytes(self) -> int:
        return sum(each.nbytes for each in self.tensors)

    def finish(self, world: int) -> Callable[[], Any]:
        def finished() -> Any:
            for target, tensor in zip(self._targets, self.tensors):
                if self._scale.op == Average and not tensor.is_floating_point():
                    tensor.copy_(tensor.div(world, rounding_mode="floor"))
                multiply(tensor, self._scale.after)
                if target.device != tensor.device:
                    target.detach().copy_(tensor)
            return self._targets[0] if self._is_single else self._targets

        return finished


def start_all(engine: Engine, pairs: Sequence[tuple[Answer, Any]]) -> None:
    """Post what all ranks agreed on, in order; exact all-reduces of one kind that stand side
    by side as one operation. What a codec does to values depends on how an operation is cut, so
    that a compressed one is always one request's."""
    for kind, run in groupby(pairs, lambda pair: _fusion(pair[0])):
        if kind is None:
            for answer, request in run:
                _start_one(engine, answer, request)
        else:
            for batch in _batches(list(run), engine.threshold):
                _reduce(engine, kind, batch)


def _start_one(engine: Engine, answer: Answer, request: Any) -> None:
    if answer.kind == "allreduce":
        _reduce(engine, OP_NAMES.index(answer.agreed[1]), [(answer, request)])
    elif request is None:
        return
    elif answer.kind == JOIN:
        request.operation.post([], lambda: answer.last)
    else:
        request.start(engine, answer)


def _fusion(answer: Answer) -> Optional[int]:
    """All-reduces of the same number go together; None: alone."""
    if answer.kind != "allreduce" or answer.agreed[-1]:
        return None
    shapes, op = answer.agreed[0], OP_NAMES.index(answer.agreed[1])
    floats = all(getattr(torch, dtype).is_floating_point for dtype, _ in shapes)
    return op if floats or op != Average else Sum


Pairs = list[tuple[Answer, Optional[Any]]]


def _batches(pairs: Pairs, threshold: int) -> Iterator[Pairs]:
    batch: Pairs = []
    held = 0
    for pair in pairs:
        size = _size(pair[0])
        if batch and held + size > threshold:
            yield batch
            batch, held = [], 0
        batch.append(pair)
        held += size
    if batch:
        yield batch


def _size(answer: Answer) -> int:
    return sum(
        getattr(torch, dtype).itemsize * torch.Size(shape).numel()
        for dtype, shape in answer.agreed[0]
    )


def _reduce(engine: Engine, op: int, batch: Pairs) -> None:
    tensors: list[torch.Tensor] = []
    codecs: list[Optional[Codec]] = []
    residuals: list[Optional[torch.Tensor]] = []
    ids: list[int] = []
    for answer, request in batch:
        own = request.tensors if request is not None else _zeros(answer)
        held = request.compressed if request is not None else None
        codec = Codec.parse(answer.agreed[-1]) if answer.agreed[-1] else None
        first = zlib.crc32(answer.name.encode())
        for index, each in enumerate(own):
            tensors.append(each)
            codecs.append(codec)
            residuals.append(held.residuals[index] if held and held.residuals else None)
            ids.append((first + index) % (1 << 32))
    options: dict[str, Any] = {}
    if any(codecs):
        options = {"codecs": codecs, "residuals": residuals, "ids": ids, "step": engine.steps}
    engine.steps += 1
    try:
        work = engine.data.all_reduce(tensors, _OPS[op], **options)
    except Exception as error:
        for answer, request in batch:
            if request is not None:
                request.operation.fail(_as_ours(answer.name, error))
    else:
        for _, request in batch:
            if request is not None:
                request.operation.post([work], request.finish(engine.world))


def _zeros(answer: Answer) -> list[torch.Tensor]:
    """Of a rank that has joined."""
    return [
        torch.zeros(shape, dtype=getattr(torch, dtype)) for dtype, shape in answer.agreed[0]
    ]


class Gathering(Request):
    """All-gathers along the first dimension, of which ranks may have different lengths."""

    def __init__(self, name: str, tensors: Tensors, is_single: bool = True) -> None:
        self._devices = [each.device for each in tensors]
        self._tensors = [on_host(each.detach()) for each in tensors]
        self._is_single = is_single
        agreed = [[dtype_name(each), list(each.shape[1:])] for each in tensors]
        super().__init__("allgather", name, agreed, [each.shape[0] for each in tensors])

    def post(self, engine: Engine, owns: Owns) -> tuple[list[Work], Callable[[], Any]]:
        works, results = [], []
        for index, tensor in enumerate(self._tensors):
            rows = [own[index] for own in owns]
            result = tensor.new_empty((sum(rows), *tensor.shape[1:]))
            works.append(engine.data.all_gather(list(result.split(rows)), tensor))
            results.append(result)

        def finish() -> Any:
            outputs = [each.to(device) for each, device in zip(results, self._devices)]
            return outputs[0] if self._is_single else outputs

        return works, finish


class Broadcast(Request):
    """root: a rank of the process set."""

    def __init__(self, name: str, target: torch.Tensor, root: int) -> None:
        self._target, self._root = target, root
        self._tensor = on_host(target.detach())
        agreed = [dtype_name(target), list(target.shape), f"root rank {root}"]
        super().__init__("broadcast", name, agreed, [])

    def post(self, engine: Engine, owns: Owns) -> tuple[list[Work], Callable[[], Any]]:
        def finish() -> torch.Tensor:
            if self._target.device != self._tensor.device:
                self._target.detach().copy_(self._tensor)
            return self._target

        return [engine.data.broadcast(self._tensor, self._root)], finish


class Exchange(Request):
    """All-to-all: splits[r] rows go to rank r. The result: what came, and, with_counts, how
    many rows from each."""

    def __init__(
        self, name: str, tensor: torch.Tensor, splits: list[int], with_counts: bool
    ) -> None:
        self._with_counts = with_counts
        self._device = tensor.device
        self._tensor = on_host(tensor.detach()).contiguous()
        self._splits = splits
        agreed = [dtype_name(tensor), list(tensor.shape[1:])]
        super().__init__("alltoall", name, agreed, splits)

    def post(self, engine: Engine, owns: Owns) -> tuple[list[Work], Callable[[], Any]]:
        rows = [own[engine.rank] for own in owns]
        result = self._tensor.new_empty((sum(rows), *self._tensor.shape[1:]))
        inputs = self._tensor.narrow(0, 0, sum(self._splits)).split(self._splits)
        work = engine.data.all_to_all(list(result.split(rows)), list(inputs))
        counts = torch.tensor(rows, dtype=torch.int32)

        def finish() -> Any:
            output = result.to(self._device)
            return (output, counts) if self._with_counts else output

        return [work], finish


class Scattering(Request):
    """Reduce-scatters along the first dimension: the first ranks get a row more where it does
    not divide."""

    def __init__(
        self, name: str, tensors: Tensors, scale: Scale, codec: str, is_single: bool = True
    ) -> None:
        self._devices = [each.device for each in tensors]
        self._tensors = [
            multiply(on_host(each.detach()).contiguous().clone(), scale.before)
            for each in tensors
        ]
        self._scale, self._is_single = scale, is_single
        self._codec = Codec.parse(codec) if codec else None
        shapes = [[dtype_name(each), list(each.shape)] for each in tensors]
        factors = [OP_NAMES[scale.op], scale.before, scale.after]
        super().__init__("reducescatter", name, [shapes, *factors, codec], [])

    def post(self, engine: Engine, owns: Owns) -> tuple[list[Work], Callable[[], Any]]:
        works, results = [], []
        for tensor in self._tensors:
            is_float = tensor.is_floating_point()
            op = self._scale.op if is_float or self._scale.op != Average else Sum
            rows = parts(tensor.shape[0], engine.world)
            result = tensor.new_empty((rows[engine.rank], *tensor.shape[1:]))
            inputs = list(tensor.split(rows))
            codec = self._codec if self._codec and self._codec.supports(tensor.dtype) else None
            engine.steps += 1
            works.append(
                engine.data.reduce_scatter(
                    result, inputs, _OPS[op], codec=codec, step=engine.steps
                )
            )
            results.append(result)
        return works, lambda: self._finished(results, engine.world)

    def _finished(self, results: list[torch.Tensor], world: int) -> Any:
        for result in results:
            if self._scale.op == Average and not result.is_floating_point():
                result.copy_(result.div(world, rounding_mode="floor"))
            multiply(result, self._scale.after)
        outputs = [each.to(device) for each, device in zip(results, self._devices)]
        return outputs[0] if self._is_single else outputs


class Meeting(Request):
    """What is done when all ranks have asked for it: a barrier, and the like."""

    def post(self, engine: Engine, owns: Owns) -> tuple[list[Work], Callable[[], Any]]:
        return [], lambda: None


def parts(rows: int, world: int) -> list[int]:
    """How `rows` are shared out."""
    return [rows // world + (rank < rows % world) for rank in range(world)]


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Itself, or a copy of it."""
    return tensor if tensor.device.type == "cpu" else tensor.cpu()


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).replace("torch.", "")


@torch.no_grad()
def multiply(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """In place; integers by way of float64, cut off."""
    if factor != 1.0:
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.mul_(factor)
        else:
            tensor.copy_((tensor.double() * factor).to(tensor.dtype))
    return tensor


def _as_ours(name: str, error: Exception) -> Exception:
    is_failure = isinstance(error, RedpollError) and not isinstance(error, ValueError)
    return HorovodInternalError(f"{name}: {error}") if is_failure else error
