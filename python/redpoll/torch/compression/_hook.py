# The communication hook that DDP calls. No `from __future__ import annotations` here: DDP
# compares the annotations of a hook with types, and would refuse their texts.
"""DDP's side of compress()."""

import torch
import torch.distributed as dist

from ._reducer import BucketReducer


def compress_hook(
    state: BucketReducer, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Average one bucket of gradients over the ranks, as the CompressState `state` says."""
    return state.reduce_bucket(bucket)
