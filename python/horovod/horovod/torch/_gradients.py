"""Operations through which gradients flow: the backward pass is another operation.

Gradients of allgather and broadcast are means over ranks, those of the sums of allreduce and
reducescatter sums, as in Horovod.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from . import _posting as post
from ._handles import synchronize
from ._requests import Average, Scale, Sum

_Function = torch.autograd.Function


class AllReduce(_Function):
    @staticmethod
    def forward(ctx: Any, options: post.Options, name: Optional[str], *tensors: Any) -> Any:
        ctx.options, ctx.name = options, name
        outputs = synchronize(post.all_reduce(list(tensors), options, name))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        name = None if ctx.name is None else f"{ctx.name}.grad"
        exact = post.Options(ctx.options.scale, ctx.options.process_set)
        found = synchronize(post.all_reduce(_dense(gradients), exact, name))
        return (None, None, *found)


class AllGather(_Function):
    @staticmethod
    def forward(ctx: Any, process_set: Any, name: Optional[str], *tensors: Any) -> Any:
        ctx.process_set = process_set
        ctx.rows = [each.shape[0] if each.dim() else 0 for each in tensors]
        return tuple(synchronize(post.all_gather(list(tensors), process_set, name)))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        options = post.Options(Scale(Average), ctx.process_set)
        means = synchronize(post.all_reduce(_dense(gradients), options, None))
        counts = torch.tensor([ctx.rows])
        rows = synchronize(post.all_gather([counts], ctx.process_set, None))[0]
        firsts = rows[: ctx.process_set.rank()].sum(0).tolist()
        parts = [m.narrow(0, f, n) for m, f, n in zip(means, firsts, ctx.rows)]
        return (None, None, *parts)


class Broadcast(_Function):
    @staticmethod
    def forward(
        ctx: Any, process_set: Any, name: Optional[str], root: int, tensor: torch.Tensor
    ) -> Any:
        ctx.process_set, ctx.root = process_set, root
        return synchronize(post.broadcast(tensor.detach().clone(), root, process_set, name))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        options = post.Options(Scale(Average), ctx.process_set)
        (mean,) = synchronize(post.all_reduce(_dense(gradients), options, None))
        own = ctx.process_set.ranks[ctx.process_set.rank()]
        return None, None, None, mean if own == ctx.root else mean * 0


class AllToAll(_Function):
    @staticmethod
    def forward(
        ctx: Any, process_set: Any, name: Optional[str], splits: Any, tensor: torch.Tensor
    ) -> Any:
        ctx.process_set, ctx.rows = process_set, tensor.shape[0]
        handle = post.all_to_all(tensor, splits, process_set, name)
        output, counts = synchronize(handle)
        ctx.counts = counts
        ctx.mark_non_differentiable(counts)
        return output, counts

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = _dense(gradients[:1])
        handle = post.all_to_all(gradient, ctx.counts, ctx.process_set, None)
        found = synchronize(handle)[0]
        if found.shape[0] < ctx.rows:  # rows that were sent nowhere
            rest = found.new_zeros((ctx.rows - found.shape[0], *found.shape[1:]))
            found = torch.cat([found, rest])
        return None, None, None, found


class ReduceScatter(_Function):
    @staticmethod
    def forward(ctx: Any, options: post.Options, name: Optional[str], *tensors: Any) -> Any:
        ctx.options = options
        return tuple(synchronize(post.reduce_scatter(list(tensors), options, name)))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        scale, process_set = ctx.options.scale, ctx.options.process_set
        factor = scale.before * scale.after
        if scale.op == Sum:
            factor *= process_set.size()
        scaled = [each * factor for each in gradients]
        return (None, None, *synchronize(post.all_gather(scaled, process_set, None)))


def _dense(gradients: Any) -> list[torch.Tensor]:
    return [each.contiguous() for each in gradients]
