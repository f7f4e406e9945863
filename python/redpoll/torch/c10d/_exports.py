"""Accounts in the words of other programs: Prometheus, TensorBoard, PyTorch's profiler."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Callable, Union

from ..comm import _profiling

_HELP = {
    "operations": "Collectives and point-to-point operations posted",
    "wire_bytes_sent": "Bytes sent, frames and all",
    "wire_bytes_received": "Bytes received, frames and all",
    "value_bytes_sent": "Bytes that the frames sent would have carried unencoded",
    "encode_s": "Seconds encoding",
    "decode_s": "Seconds decoding and summing",
    "wait_s": "Seconds that callers were blocked",
    "busy_s": "Seconds with an operation in flight",
    "exposed_s": "Seconds from a last bucket being ready to its result, of compress()",
    "steps": "Reductions of a whole model by compress()",
}
"""Of the counters of GroupStats, in their order."""

_MOST_SAMPLES = 1 << 20
_EVENTS = ("wire_bytes_sent", "value_bytes_sent")  # counters in a trace


def prometheus(groups: Iterable[Any]) -> str:
    """The text format of Prometheus: a counter for each of GroupStats', with the labels group
    and rank."""
    accounts = list(groups)
    lines = []
    for name, text in _HELP.items():
        stem = f"{name[:-2]}_seconds" if name.endswith("_s") else name
        metric = f"redpoll_{stem}_total"
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} counter"]
        for one in accounts:
            labels = f'group="{_escaped(one.group)}",rank="{one.rank}"'
            lines.append(f"{metric}{{{labels}}} {getattr(one, name)!r}")
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    for plain, written in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n")):
        label = label.replace(plain, written)
    return label


def scalars(groups: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """One number a key: prefix/group/counter."""
    return {
        f"{prefix}/{group}/{name}": float(getattr(one, name))
        for group, one in groups.items()
        for name in (*_HELP, "ratio")
    }


class Trace:
    """`on_trace_ready` of torch.profiler.profile(): writes the trace as its
    export_chrome_trace() does, with a counter of bytes a group in it."""

    def __init__(
        self,
        path: Union[str, os.PathLike[str]],
        collect: Callable[[], Mapping[str, Any]],
    ) -> None:
        """collect: gives the accounts."""
        self._path = Path(path)
        self._collect = collect
        self._samples: list[tuple[int, str, dict[str, float]]] = []
        self._traces = 0
        self._sample()
        _profiling.watchers.append(self._sample)

    def __call__(self, profile: Any) -> None:
        path = self._path
        if self._traces:  # a schedule with several cycles
            path = path.with_name(f"{path.stem}.{self._traces}{path.suffix}")
        self._traces += 1
        self._sample()
        profile.export_chrome_trace(str(path))
        samples, self._samples = self._samples, []
        _add_counters(path, samples)

    def close(self) -> None:
        """Count no more."""
        if self._sample in _profiling.watchers:
            _profiling.watchers.remove(self._sample)

    def _sample(self) -> None:
        """Whenever an operation ends under a profiler. Any thread."""
        now = time.time_ns()
        if len(self._samples) < _MOST_SAMPLES:
            for group, one in self._collect().items():
                values = {name: float(getattr(one, name)) for name in _EVENTS}
                self._samples.append((now, group, values))


def _add_counters(path: Path, samples: list[tuple[int, str, dict[str, float]]]) -> None:
    """Chrome's format has times in microseconds, since a base that Kineto chooses."""
    trace = json.loads(path.read_text())
    base = int(trace.get("baseTimeNanoseconds", 0))
    trace["traceEvents"] += [
        {
            "ph": "C",
            "cat": "redpoll",
            "name": f"redpoll bytes sent, group {group}",
            "pid": os.getpid(),
            "ts": (at - base) / 1000,
            "args": values,
        }
        for at, group, values in samples
    ]
    path.write_text(json.dumps(trace))
