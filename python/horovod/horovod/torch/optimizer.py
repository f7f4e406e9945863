"""DistributedOptimizer: gradients are reduced while the backward pass goes on."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Callable, Optional

import torch

from ..common.process_sets import ProcessSet, global_process_set
from . import _posting as post
from ._handles import synchronize as wait_for
from ._requests import Average, Scale, Sum
from .compression import CodecCompressor, Compression
from .mpi_ops import sparse_allreduce_async

__all__ = ["DistributedOptimizer"]

_PENDING = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
    "optimizer.synchronize(): gradients are being reduced"
)
_TOO_MANY = (
    "Gradients were computed more than backward_passes_per_step times before a call of "
    "step(): increase backward_passes_per_step to accumulate gradients locally"
)
_TWICE = (
    "optimizer.step() called without optimizer.skip_synchronize() context after "
    "optimizer.synchronize(): gradients are reduced twice"
)


class _Bundle:
    """Parameters whose gradients travel as one operation; mostly one. missing: of this step,
    those whose gradient is not final."""

    def __init__(self, name: str, parameters: Sequence[torch.nn.Parameter]) -> None:
        self.name, self.parameters = name, list(parameters)
        self.missing = set(self.parameters)
        self.residuals: dict[int, torch.Tensor] = {}  # by place; of error feedback


class _Distributed:
    """What every wrapped optimizer has besides its own class's."""

    param_groups: list[dict[str, Any]]

    def _begin(self, bundles: list[_Bundle], reducer: Callable[[_Bundle], Any]) -> None:
        self._bundles, self._reducer = bundles, reducer
        self._of = {each: bundle for bundle in bundles for each in bundle.parameters}
        self._handles: dict[_Bundle, Any] = {}
        self._is_synchronized, self._synchronizes = False, True
        self._hooks: list[Any] = []
        for each in self._of:
            if each.requires_grad:
                if each.grad is None:
                    each.grad = torch.zeros_like(each)
                self._hooks.append(each.register_post_accumulate_grad_hook(self._accumulated))

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From the next step on."""
        if passes < 1:
            raise ValueError(f"backward_passes_per_step is {passes}; 1 or more are wanted")
        self.backward_passes_per_step = passes
        self._left = dict.fromkeys(self._of, passes)

    def _accumulated(self, parameter: torch.Tensor) -> None:
        """Of autograd: a gradient has come."""
        bundle = self._of[parameter]  # type: ignore[index]
        if self._left[parameter] <= 0:  # type: ignore[index]
            raise AssertionError(_TOO_MANY)
        self._left[parameter] -= 1  # type: ignore[index]
        if not self._left[parameter]:  # type: ignore[index]
            bundle.missing.discard(parameter)  # type: ignore[arg-type]
            if not bundle.missing:
                self._handles[bundle] = self._reducer(bundle)

    def synchronize(self) -> None:
        """Until all gradients are reduced. Those that this rank has not computed count as
        zeros: another rank may have."""
        for bundle in self._bundles:
            wanted = any(
                each.requires_grad or each.grad is not None for each in bundle.parameters
            )
            if bundle not in self._handles and wanted:
                self._handles[bundle] = self._reducer(bundle)
        handles, self._handles = self._handles, {}
        for bundle, finish in handles.items():
            for parameter, gradient in zip(bundle.parameters, finish()):
                if gradient is not parameter.grad:
                    parameter.grad = gradient
        self._again()
        self._is_synchronized = True

    def _again(self) -> None:
        for bundle in self._bundles:
            bundle.missing = set(bundle.parameters)
        self._left = dict.fromkeys(self._of, self.backward_passes_per_step)

    def forget_gradients(self) -> None:
        """After a failure: what is in flight is no more."""
        self._handles.clear()
        self._is_synchronized = False
        self._again()

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside, step() does not reduce: synchronize() was called."""
        self._synchronizes = False
        try:
            yield
        finally:
            self._synchronizes = True

    def step(self, closure: Any = None) -> Any:
        if self._synchronizes:
            if self._is_synchronized:
                warnings.warn(_TWICE, stacklevel=2)
            self.synchronize()
        self._is_synchronized = False
        return super().step(closure)  # type: ignore[misc]

    def zero_grad(self, *arguments: Any, **named: Any) -> None:
        """AssertionError: gradients are being reduced."""
        if self._handles:
            raise AssertionError(_PENDING)
        super().zero_grad(*arguments, **named)  # type: ignore[misc]

    def compression_state_dict(self) -> dict[str, torch.Tensor]:
        """Redpoll's: what error feedback holds on this rank, by parameter, for checkpoints."""
        return {
            f"{bundle.name}.{place}": each
            for bundle in self._bundles
            for place, each in bundle.residuals.items()
        }

    def load_compression_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """What compression_state_dict() gave on this rank."""
        for bundle in self._bundles:
            for place, parameter in enumerate(bundle.parameters):
                found = state.get(f"{bundle.name}.{place}")
                if found is not None:
                    bundle.residuals[place] = found.reshape(parameter.shape).clone()


class _Reducer:
    """How a bundle's gradients are reduced."""

    def __init__(
        self, scale: Scale, compression: Any, sparse_as_dense: bool, process_set: ProcessSet
    ) -> None:
        self.scale, self.compression = scale, compression
        self.sparse_as_dense, self.process_set = sparse_as_dense, process_set

    def __call__(self, bundle: _Bundle) -> Callable[[], list[torch.Tensor]]:
        """Begin; what is returned waits for the gradients."""
        gradients = [self._gradient(each) for each in bundle.parameters]
        if any(each.is_sparse for each in gradients):
            return self._sparse(bundle, gradients)
        pairs = [self.compression.compress(each) for each in gradients]
        tensors = [each for each, _ in pairs]
        residuals = self._residuals(bundle, tensors)
        options = post.Options(self.scale, self.process_set, self.compression, residuals)
        handle = post.all_reduce(tensors, options, bundle.name, in_place=True)

        def finish() -> list[torch.Tensor]:
            found = wait_for(handle)
            return [
                self.compression.decompress(each, ctx) for each, (_, ctx) in zip(found, pairs)
            ]

        return finish

    def _gradient(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        elif parameter.grad.is_sparse and self.sparse_as_dense:
            parameter.grad = parameter.grad.to_dense()
        return parameter.grad

    def _residuals(
        self, bundle: _Bundle, tensors: list[torch.Tensor]
    ) -> Optional[list[torch.Tensor]]:
        compression = self.compression
        if not isinstance(compression, CodecCompressor):
            return None
        if not all(compression.codec_for(each) for each in tensors):
            return None
        for place, each in enumerate(tensors):
            if place not in bundle.residuals:
                shape, host = each.shape, torch.device("cpu")
                bundle.residuals[place] = torch.zeros(shape, dtype=torch.float32, device=host)
        return [bundle.residuals[place] for place in range(len(tensors))]

    def _sparse(
        self, bundle: _Bundle, gradients: list[torch.Tensor]
    ) -> Callable[[], list[torch.Tensor]]:
        handles = []
        for place, each in enumerate(gradients):
            own = each if each.is_sparse else each.to_sparse(1)
            own = own * self.scale.before if self.scale.before != 1.0 else own
            name = f"{bundle.name}.{place}"
            handles.append(sparse_allreduce_async(own, name, self.scale.op, self.process_set))
        after = self.scale.after
        return lambda: [each() * after if after != 1.0 else each() for each in handles]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Iterable[tuple[str, torch.nn.Parameter]]] = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """An optimizer of the same class, state included, whose step() uses gradients of all ranks.

    named_parameters: names that are the same on all ranks, all different, for every parameter
    of the optimizer; None: numbers. compression: hvd.Compression.none, fp16, q4, q8 or
    codec("..."). backward_passes_per_step: gradients of so many backward passes are added
    before they travel. op: hvd.Average or hvd.Sum. gradient_predivide_factor: a mean divides
    by it before the sum and by the rest afterwards. num_groups, groups: so many operations of
    several parameters each; or groups, a number or lists of parameters that travel together.
    sparse_as_dense: sparse gradients travel dense. ValueError: what is wrong of these."""
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is for op=hvd.Average")
    scale = post.find_scale(None, op)
    if scale.op not in (Average, Sum):
        raise ValueError("DistributedOptimizer: op is hvd.Average or hvd.Sum")
    if gradient_predivide_factor != 1.0:
        factor = gradient_predivide_factor
        scale = Scale(Sum, 1.0 / factor, factor / process_set.size())
    named = _named(optimizer, named_parameters)
    if num_groups:
        warnings.warn("num_groups: use groups", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    bundles = _bundles(named, groups)
    reducer = _Reducer(scale, compression, sparse_as_dense, process_set)
    own = type(optimizer)
    wrapped: Any = object.__new__(type(own.__name__, (_Distributed, own), {}))
    vars(wrapped).update(
        {name: each for name, each in vars(optimizer).items() if name != "step"}
    )
    wrapped._begin(bundles, reducer)
    wrapped.set_backward_passes_per_step(backward_passes_per_step)
    return wrapped


def _named(
    optimizer: torch.optim.Optimizer, named_parameters: Any
) -> list[tuple[str, torch.nn.Parameter]]:
    own = [each for group in optimizer.param_groups for each in group["params"]]
    if named_parameters is None:
        return [(f"gradient.{index}", each) for index, each in enumerate(own)]
    named = list(named_parameters)
    if any(not isinstance(each, tuple) for each in named):
        raise ValueError(
            "named_parameters are tuples (name, parameter), as of model.named_parameters()"
        )
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"named_parameters has these names twice: {', '.join(twice)}")
    known = {id(each) for _, each in named}
    unnamed = sum(id(each) not in known for each in own)
    if unnamed:
        raise ValueError(f"named_parameters lacks {unnamed} parameters that the optimizer has")
    mine = {id(each) for each in own}
    return [(f"gradient.{name}", each) for name, each in named if id(each) in mine]


def _bundles(named: list[tuple[str, torch.nn.Parameter]], groups: Any) -> list[_Bundle]:
    if groups is None or groups == 0:
        return [_Bundle(name, [each]) for name, each in named]
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError(f"groups is {groups}; a number of 0 or more is wanted")
        live = [each for _, each in named if each.requires_grad]
        size = -(-len(live) // groups)
        groups = [live[first : first + size] for first in range(0, len(live), max(size, 1))]
    if not isinstance(groups, (list, tuple)) or not all(
        isinstance(each, (list, tuple)) for each in groups
    ):
        raise ValueError("groups is a number, or a list of lists of parameters")
    names = {id(each): name for name, each in named}
    members = [each for group in groups for each in group]
    if any(id(each) not in names for each in members):
        raise ValueError("groups has parameters that the optimizer has not")
    if len({id(each) for each in members}) != len(members):
        raise ValueError("groups has a parameter twice")
    taken = {id(each) for each in members}
    whole = [
        _Bundle(f"group.{index}.{names[id(kind[0])]}", kind)
        for index, group in enumerate(groups)
        for kind in _by_dtype(group)
    ]
    return whole + [_Bundle(name, [each]) for name, each in named if id(each) not in taken]


def _by_dtype(group: Sequence[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
    found: dict[torch.dtype, list[torch.nn.Parameter]] = {}
    for each in group:
        found.setdefault(each.dtype, []).append(each)
    return list(found.values())
