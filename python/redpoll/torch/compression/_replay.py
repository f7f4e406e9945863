"""The first step after a restart, in the buckets of the run that was interrupted.

Which rank quantises the sum of an element follows from the bucket the element lies in, so a
step in other buckets has other (equally good) bits. DDP starts every process with provisional
buckets and rebuilds them after the first step. So the first step after a restart waits until
all of its provisional buckets are there, and sends their gradients in the saved ones: one step
without overlap, and the restarted run has the bits of the uninterrupted one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

import torch

from ..comm import _cuda


class Replay:
    """The gradients of one step, collected in one layout of buckets and sent in another."""

    def __init__(self, layout: Sequence[Sequence[str]]) -> None:
        self._layout = [list(names) for names in layout]
        self._gradients: dict[str, torch.Tensor] = {}
        self._settled: list[tuple[torch.futures.Future, torch.Tensor]] = []
        self._flats: list[torch.Tensor] = []
        self._errors: list[BaseException] = []
        self._done_so_far = itertools.count(1)  # without a lock: a finalizer may come between

    @staticmethod
    def fits(layout: Sequence[Sequence[str]], names: Iterable[str]) -> bool:
        """Whether the layout holds each of the parameters once and nothing else."""
        return sorted(name for bucket in layout for name in bucket) == sorted(names)

    def collect(
        self, buffer: torch.Tensor, gradients: Mapping[str, torch.Tensor]
    ) -> torch.futures.Future:
        """Keep a bucket's gradients, flat views of `buffer` or a sparse one that is alone in
        it; a future of it."""
        self._gradients.update(gradients)
        settled = _cuda.seam.future([buffer])
        self._settled.append((settled, buffer))
        return settled.then(lambda _: self._answer(buffer))

    def _answer(self, buffer: torch.Tensor) -> torch.Tensor:
        if self._errors:
            raise self._errors[0]
        return buffer

    def send(self, post: Callable[[list[str], torch.Tensor, bool, bool], Any]) -> None:
        """post(names, buffer, is_first, is_last) each bucket of the layout; gradients get the
        results and the collected futures complete when all of its futures have."""
        self._flats = [
            _joined([self._gradients[name] for name in names]) for names in self._layout
        ]
        last = len(self._layout)
        for index, (names, flat) in enumerate(zip(self._layout, self._flats)):
            post(names, flat, index == 0, index == last - 1).then(self._done)

    def _done(self, future: torch.futures.Future) -> None:
        try:
            future.value()
        except Exception as error:
            self._errors.append(error)
        if next(self._done_so_far) < len(self._layout):
            return
        self._copy_back()
        for settled, buffer in self._settled:
            settled.set_result(buffer)  # streams go on behind what was copied into it

    def _copy_back(self) -> None:
        for names, flat in zip(self._layout, self._flats):
            if flat.is_sparse:
                continue  # summed in its place
            _cuda.seam.note_use(flat)
            each = flat.split([self._gradients[name].numel() for name in names])
            for name, values in zip(names, each):
                self._gradients[name].copy_(values)


def _joined(gradients: list[torch.Tensor]) -> torch.Tensor:
    """One behind the other; a sparse one travels alone."""
    is_sparse = len(gradients) == 1 and gradients[0].is_sparse
    return gradients[0] if is_sparse else torch.cat(gradients)
