"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from ..common.process_sets import ProcessSet, global_process_set
from . import _gradients
from . import _posting as post
from ._requests import Scale, Sum

__all__ = ["SyncBatchNorm"]

_numbers = itertools.count()


class SyncBatchNorm(_BatchNorm):
    """As torch.nn.BatchNorm1d, 2d and 3d, with mean and variance of all ranks' batches, which
    may be of different sizes. Made on all ranks in the same order."""

    def __init__(
        self,
        *arguments: Any,
        process_set: ProcessSet = global_process_set,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._process_set = process_set
        self._name = f"sync_batch_norm.{next(_numbers)}"

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm: input has {input.dim()} dimensions; 2 or more")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if not self.training and self.track_running_stats:
            return batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        mean, variance, count = self._moments(input)
        if self.training and self.track_running_stats:
            self._follow(mean.detach(), variance.detach(), count)
        shape = [1, -1] + [1] * (input.dim() - 2)
        output = (input - mean.view(shape)) * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            output = output * self.weight.view(shape) + self.bias.view(shape)
        return output

    def _moments(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
        """Of all ranks: by two passes, since a difference of large sums would lose digits."""
        axes = [axis for axis in range(input.dim()) if axis != 1]
        own = input.new_tensor([input.numel() / input.shape[1]])
        sums = self._summed(torch.cat([input.sum(axes), own]), "mean")
        count = float(sums[-1].detach())
        mean = sums[:-1] / count
        shape = [1, -1] + [1] * (input.dim() - 2)
        squares = (input - mean.view(shape)).square().sum(axes)
        return mean, self._summed(squares, "variance") / count, count

    def _summed(self, tensor: torch.Tensor, what: str) -> torch.Tensor:
        options = post.Options(Scale(Sum), self._process_set)
        return _gradients.AllReduce.apply(options, f"{self._name}.{what}", tensor)[0]

    @torch.no_grad()
    def _follow(self, mean: torch.Tensor, variance: torch.Tensor, count: float) -> None:
        self.num_batches_tracked += 1  # type: ignore[operator, assignment]
        share = self.momentum
        if share is None:
            share = 1.0 / float(self.num_batches_tracked)  # type: ignore[arg-type]
        unbiased = variance * (count / max(count - 1.0, 1.0))
        self.running_mean.lerp_(mean, share)  # type: ignore[union-attr]
        self.running_var.lerp_(unbiased, share)  # type: ignore[union-attr]
