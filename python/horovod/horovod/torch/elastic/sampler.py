"""Which samples are left of an epoch, for the ranks that there are now."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Any

from torch.utils.data import Sampler

from .._context import context

__all__ = ["ElasticSampler"]


class ElasticSampler(Sampler):
    """As DistributedSampler; knows besides which samples were used, and shares out the others
    anew when ranks were lost. Give it to the TorchState, call record_batch() after each batch
    and set_epoch() after each epoch.

    The last ranks begin again at the front where samples do not divide."""

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_indices: set[int] = set()
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Another epoch begins: no sample was used."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Batch `batch_idx` of so many samples was used."""
        self.record_indices(self.get_indices(batch_idx, batch_size))

    def record_indices(self, indices: Any) -> None:
        self.processed_indices.update(indices)

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Of a batch of this rank."""
        return self.indices[batch_idx * batch_size : (batch_idx + 1) * batch_size]

    def reset(self) -> None:
        """Share out what is left among the ranks that there are."""
        self.num_replicas, self.rank = context.size(), context.rank()
        every = range(len(self.dataset))
        self.remaining_indices = [each for each in every if each not in self.processed_indices]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self.indices = self._own()

    def _own(self) -> list[int]:
        order = self.remaining_indices.copy()
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        while order and len(order) < self.total_size:
            order += order[: self.total_size - len(order)]
        return order[self.rank :: self.num_replicas]

    def state_dict(self) -> dict[str, Any]:
        """Of this rank; load_state_dict() takes it, or that of all ranks together."""
        return {"epoch": self.epoch, "processed_indices": sorted(self.processed_indices)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def __iter__(self) -> Iterator[int]:
        self.indices = self._own()
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
