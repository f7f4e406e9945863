"""A server's part of the parameters, stepped by a copy of the inner optimizer."""

from __future__ import annotations

import copy
import ctypes
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

import torch

from .... import _abi
from .._flat import FlatParameters

_ROWS, _CUT = 2, 3  # of what an optimizer is tried on
_RATE = 0.01


@dataclass
class Piece:
    """What a shard has of a parameter."""

    parameter: int  # in the flat vector's order
    group: int
    first: int  # element of the parameter
    value: torch.Tensor  # the shard's memory


@dataclass
class Kept:
    """What an optimizer keeps of a parameter, as it was found by trying."""

    vectors: dict[str, torch.dtype]  # as the parameter, element by element
    numbers: dict[str, Union[torch.dtype, type]]  # a type: a number of Python's


def remade(inner: torch.optim.Optimizer, groups: list[list[torch.Tensor]]) -> Any:
    """Another optimizer like `inner`, without state, of other tensors."""
    other = object.__new__(type(inner))
    other.__dict__.update(inner.__dict__)
    other.__dict__.pop("step", None)  # a learning rate schedule counts inner's
    other.param_groups = [
        {**copy.deepcopy(_without_tensors(group)), "params": tensors}
        for group, tensors in zip(inner.param_groups, groups)
    ]
    other.state = defaultdict(dict)
    return other


def _without_tensors(group: dict[str, Any]) -> dict[str, Any]:
    """Of a copy: a schedule of another thread may be at it."""
    return {name: value for name, value in dict(group).items() if name != "params"}


# ---- which optimizers can be cut ----


def try_optimizer(inner: torch.optim.Optimizer, who: str) -> list[Kept]:
    """What it keeps, by group. ValueError: a part of a tensor is not stepped as the whole."""
    return [_tried(inner, i, who) for i in range(len(inner.param_groups))]


def _tried(inner: torch.optim.Optimizer, group: int, who: str) -> Kept:
    name = type(inner).__name__
    refusal = (
        f"{who}: {name} cannot step a part of a tensor as it steps the whole, and servers cut "
        "tensors into shards; take an optimizer that goes element by element, as SGD, Adam or "
        "AdamW"
    )
    try:
        whole, cut, kept = _both(inner, group)
    except Exception as error:
        raise ValueError(f"{refusal} ({type(error).__name__}: {error})") from error
    if not torch.allclose(whole, cut, rtol=1e-4, atol=1e-7) or kept is None:
        raise ValueError(refusal)
    return kept


def _both(
    inner: torch.optim.Optimizer, group: int
) -> tuple[torch.Tensor, torch.Tensor, Optional[Kept]]:
    """Three steps of a matrix as one and in two parts."""
    start = torch.linspace(-1, 2, 2 * _ROWS * _CUT)
    whole = start.clone().view(_ROWS, -1)
    parts = [start[:_CUT].clone(), start[_CUT:].clone()]
    one, two = _of_group(inner, group, [whole]), _of_group(inner, group, parts)
    before = copy.deepcopy(_without_tensors(one.param_groups[group]))
    for step in range(3):
        gradient = torch.linspace(3, -0.5, start.numel()) * (step + 1) ** 2
        whole.grad = gradient.clone().view_as(whole)
        parts[0].grad, parts[1].grad = gradient[:_CUT].clone(), gradient[_CUT:].clone()
        one.step()
        two.step()
    if torch.equal(whole.flatten(), start):
        return start, start + 1, None  # it steps other tensors than its groups'
    if str(before) != str(_without_tensors(one.param_groups[group])):
        return start, start + 1, None  # it counts in its group, which each push sets anew
    return whole.flatten(), torch.cat(parts), _kept(one.state[whole], whole)


def _of_group(
    inner: torch.optim.Optimizer, group: int, tensors: list[torch.Tensor]
) -> torch.optim.Optimizer:
    empty: list[list[torch.Tensor]] = [[] for _ in inner.param_groups]
    empty[group] = tensors
    other: torch.optim.Optimizer = remade(inner, empty)
    if "lr" in other.param_groups[group]:
        other.param_groups[group]["lr"] = _RATE  # it may begin with 0
    members = inner.param_groups[group]["params"]
    like = max(members, key=torch.Tensor.dim, default=None)
    state = inner.state.get(like, {}) if like is not None else {}
    for tensor in tensors:
        for name, value in state.items():
            other.state[tensor][name] = _resized(name, value, like, tensor)
    return other


def _resized(name: str, value: Any, like: Any, tensor: torch.Tensor) -> Any:
    """Of a parameter without dimensions all state looks like it: but for PyTorch's counters."""
    is_like = torch.is_tensor(value) and value.shape == like.shape
    if is_like and (value.dim() > 0 or name != "step"):
        return torch.full_like(tensor, value.flatten()[0].item() if value.numel() else 0.0)
    return copy.deepcopy(value)


def _kept(state: dict[str, Any], tensor: torch.Tensor) -> Optional[Kept]:
    kept = Kept({}, {})
    for name, value in state.items():
        if torch.is_tensor(value) and value.shape == tensor.shape:
            kept.vectors[name] = value.dtype
        elif torch.is_tensor(value) and value.dim() == 0:
            kept.numbers[name] = value.dtype
        elif isinstance(value, (int, float)):
            kept.numbers[name] = type(value)
        elif value is not None:
            return None
    return kept


# ---- the shard ----


class Shard:
    """Steps what the library merges. On ranks that serve; the others never call step().

    error: what a step has raised. updates: merges so far. rates: learning rates of the latest,
    by group; None before it."""

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        flat: FlatParameters,
        kept: list[Kept],
        synchronous: bool,
        workers: int,
    ) -> None:
        self._inner, self._flat, self._kept = inner, flat, kept
        self._synchronous, self._workers = synchronous, workers
        self._optimizer: Any = None
        self._place: tuple[int, ...] = ()
        self._whole: dict[Any, Any] = {}  # state of whole parameters, to be cut
        self.pieces: list[Piece] = []
        self.error: Optional[BaseException] = None
        self.updates = 0
        self.rates: Optional[list[float]] = None
        self.first = 0

    def take_state(self) -> None:
        """What inner has of state is this server's to cut from here on."""
        if self._inner.state:
            self._whole, self._inner.state = self._inner.state, defaultdict(dict)

    def end_span(self, has_merged: bool) -> None:
        """What was taken is inner's again, or of yesterday."""
        if not has_merged and self._whole:
            self._inner.state = self._whole  # type: ignore[assignment]
        self._whole = {}

    def forget(self) -> None:
        """Inner has been given another state."""
        self._optimizer, self._place, self._whole, self.pieces = None, (), {}, []
        self.updates, self.rates = 0, None

    @property
    def optimizer(self) -> Any:
        return self._optimizer

    def callback(self, abort: Callable[[str], None]) -> Any:
        """For C. abort: says to all why this server cannot go on."""

        def call(_context: Any, merge: Any) -> int:
            try:
                with torch.no_grad():
                    self._step(merge.contents)
                return _abi.RP_OK
            except BaseException as error:
                self.error = error
                abort(f"{type(error).__name__}: {error}")
                return _abi.STATUS["INTERNAL"]

        return _abi.Merge(call)

    def _step(self, merge: _abi.rp_parameter_merge) -> None:
        self._lay_out(merge)
        self.updates += 1
        if not merge.weight > 0:
            return  # gradients of no samples
        torch.div(self._sum, merge.weight, out=self._gradient)
        self.rates = self._rates(merge)
        # A round of single pushes goes as far as one step of all.
        scale = 1.0 if self._synchronous else merge.weight / self._workers
        for i, group in enumerate(self._optimizer.param_groups):
            now = _without_tensors(self._inner.param_groups[i])
            group.update(now)
            if "lr" in now:
                group["lr"] = self.rates[i] * scale
        self._optimizer.step()

    def _rates(self, merge: _abi.rp_parameter_merge) -> list[float]:
        pushes = [merge.pushes[i] for i in range(merge.push_count)]
        rates = []
        for group in range(len(self._inner.param_groups)):
            given = [one.notes[group] for one in pushes]
            if len(set(given)) > 1:
                total = sum(one.weight * rate for one, rate in zip(pushes, given))
                given = [total / merge.weight]
            rates.append(given[0])
        return rates

    # ---- where it lies ----

    def _lay_out(self, merge: _abi.rp_parameter_merge) -> None:
        place = (merge.first, merge.count, merge.values or 0, merge.gradient or 0)
        if place == self._place:
            return
        was = self.pieces if place[:2] == self._place[:2] else []
        values, self._sum = _memory(merge.values, merge.count), _memory(*place[3:], place[1])
        self._gradient = torch.zeros(merge.count)
        self.first = merge.first
        self.pieces = self._cut(values)
        groups: list[list[torch.Tensor]] = [[] for _ in self._inner.param_groups]
        for piece in self.pieces:
            groups[piece.group].append(piece.value)
        before, self._optimizer = self._optimizer, remade(self._inner, groups)
        for old, new in zip(was, self.pieces):  # the same part, in other memory
            self._optimizer.state[new.value] = before.state[old.value]
        self._cut_state()
        self._place = place

    def _cut(self, values: torch.Tensor) -> list[Piece]:
        group_of = {
            id(each): i
            for i, group in enumerate(self._inner.param_groups)
            for each in group["params"]
        }
        pieces, start, end = [], 0, self.first + values.numel()
        for i, parameter in enumerate(self._flat.parameters.values()):
            low = max(start, self.first)
            high = min(start + parameter.numel(), end)
            if low < high and id(parameter) in group_of:
                value = values[low - self.first : high - self.first]
                value.grad = self._gradient[low - self.first : high - self.first]
                pieces.append(Piece(i, group_of[id(parameter)], low - start, value))
            start += parameter.numel()
        return pieces

    def _cut_state(self) -> None:
        whole, self._whole = self._whole, {}
        parameters = list(self._flat.parameters.values())
        for piece in self.pieces:
            parameter = parameters[piece.parameter]
            for name, value in whole.get(parameter, {}).items():
                if name in self._kept[piece.group].vectors:
                    count = piece.value.numel()
                    part = value.reshape(-1)[piece.first : piece.first + count].to(
                        "cpu", copy=True
                    )
                    self._optimizer.state[piece.value][name] = part
                else:
                    self._optimizer.state[piece.value][name] = copy.deepcopy(value)


def _memory(address: Optional[int], count: int) -> torch.Tensor:
    if not address or not count:
        return torch.zeros(0)
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)
