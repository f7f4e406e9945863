"""Operations as spans in PyTorch's profilers: "redpoll:all_reduce", from posting to completion,
with the shapes of their tensors. One that does not block ends on the thread that notices."""

from __future__ import annotations

import logging
from typing import Any, Callable

import torch

from ._buffers import Lent

log = logging.getLogger("redpoll")

_RecordFunctionFast: Any = None
profiling: Callable[[], bool]
"""True while a profiler runs on this thread; costs next to nothing."""

try:
    from torch._C._autograd import _profiler_enabled as profiling
    from torch._C._profiler import _RecordFunctionFast
except ImportError as error:  # private names of PyTorch; nothing but spans depends on them
    log.info("no spans in profiles under PyTorch %s: %s", torch.__version__, error)

    def profiling() -> bool:
        return False


watchers: list[Callable[[], None]] = []
"""Called when a span has ended."""


class Span:
    """Begins when it is made."""

    def __init__(self, operation: str, lent: Lent) -> None:
        name = operation[:-2] if operation.endswith("_v") else operation
        tensors = [each for each in lent.keep if isinstance(each, torch.Tensor)]
        self._record = _RecordFunctionFast(f"redpoll:{name}", tensors)
        self._record.__enter__()

    def end(self) -> None:
        self._record.__exit__(None, None, None)
        for watcher in list(watchers):
            watcher()

    def ended_by(self, lent: Lent) -> Lent:
        """The same, of an operation that ends the span when it is done."""

        def finish_and_end() -> Any:
            if lent.finish is not None:
                lent.finish()
            self.end()

        return lent._replace(finish=finish_and_end)
