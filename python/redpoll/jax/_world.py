"""The ranks, and what jitted functions call among them."""

from __future__ import annotations

import ctypes
import itertools
import weakref
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import jax
import jax.numpy as jnp
import numpy as np

from .. import _abi
from ..errors import check
from ..numpy._codec import Codec, CodecLike, as_codec
from ..numpy._communicator import Communicator, shares
from . import _compiled, _needs, _plan

_LINEAR = ("sum", "mean")


class Feedback(NamedTuple):
    """What error feedback keeps, as a part of a training state: donate it, save it."""

    residuals: Any  # float32, by leaf; empty ones where leaves travel exact
    step: Any  # of stochastic rounding


def join(*, name: str = "jax", timeout_s: float = 600.0) -> World:
    """The world that this process was started in, as redpoll.numpy.join(). Collective.

    RuntimeError: redpoll.jax was imported after jax's first use, too late to have it run
    functions in the order in which they are called."""
    if _needs.IS_LATE:
        raise RuntimeError(
            "import redpoll.jax before anything is computed with jax: from then on it runs "
            "functions at once, and not in the same order on all ranks"
        )
    _compiled.register()
    return World(name, timeout_s)


class World(Communicator):
    """join() makes one. The operations below are for jitted functions: they trace to one call
    that XLA makes by itself on the CPU, without Python. Arrays of numpy go by those of
    redpoll.numpy, which it has as well, under their names there.

    All ranks run the same jitted functions in the same order. Within one, XLA is free to
    reorder operations that do not depend on each other: have one take `after` what the other
    gave, or pass several arrays as one pytree. What is called in different orders all the same
    fails by name. An error is raised by jax when its result is looked at."""

    def __init__(self, name: str, timeout_s: float) -> None:
        options = _abi.rp_comm_options(name=name.encode(), timeout_s=timeout_s)
        options.progress_thread = 1
        handle = ctypes.c_void_p()
        check(_abi.rp_comm_join(ctypes.byref(options), ctypes.byref(handle)))
        super().__init__(handle.value or 0, name)
        self._plans: dict[str, _plan.Plan] = {}
        self._keys = itertools.count()
        self._attached: weakref.WeakSet[Any] = weakref.WeakSet()

    def attach(self, user: Any) -> None:
        """Its release() is called before the world closes."""
        self._attached.add(user)

    def close(self) -> None:
        """As of Communicator; what was jitted with it fails from then on."""
        for plan in getattr(self, "_plans", {}).values():
            plan.comm = None
        for user in list(getattr(self, "_attached", ())):
            user.release()
        super().close()

    # ---- of pytrees ----

    def psum(self, tree: Any, *, after: Any = None) -> Any:
        """The sum over ranks of each leaf; gradients flow."""
        return self.reduced(tree, "sum", after=after)

    def pmean(self, tree: Any, *, after: Any = None) -> Any:
        """The mean over ranks of each leaf; gradients flow."""
        return self.reduced(tree, "mean", after=after)

    def reduced(
        self,
        tree: Any,
        op: str = "mean",
        *,
        codec: CodecLike = None,
        min_size: int = 1024,
        after: Any = None,
    ) -> Any:
        """All leaves as one all-reduce, the same bits on all ranks; gradients of sums and means
        flow, exact ones.

        op: as of redpoll.numpy. codec: for leaves of two dimensions or more and min_size
        elements or more, without error feedback. after: an array, or tree, that comes first."""
        leaves, shape = jax.tree.flatten(tree)
        if not leaves:
            return tree
        codecs = [_codec_for(each, as_codec(codec), min_size) for each in leaves]
        call = self._call("all_reduce", leaves, op, codecs, False)
        order = _order(after)

        @jax.custom_vjp
        def reduce(*arrays: Any) -> Any:
            return tuple(call(*arrays, jnp.uint32(0), *order))

        def forward(*arrays: Any) -> Any:
            return reduce(*arrays), None

        def backward(_kept: Any, given: Any) -> Any:
            if op not in _LINEAR:
                raise TypeError(f"reduced: {op} has no gradient; sum and mean have")
            return tuple(
                self._call("all_reduce", given, op, [None] * len(given), False)(
                    *given, jnp.uint32(0)
                )
            )

        reduce.defvjp(forward, backward)
        return jax.tree.unflatten(shape, reduce(*leaves))

    def feedback(self, tree: Any, codec: CodecLike, min_size: int = 1024) -> Feedback:
        """For reduced_with(): nothing is held back yet."""
        chosen = as_codec(codec)
        empty = jnp.zeros(0, jnp.float32)
        residuals = jax.tree.map(
            lambda leaf: (
                empty
                if _codec_for(leaf, chosen, min_size) is None
                else jnp.zeros(leaf.shape, jnp.float32)
            ),
            tree,
        )
        return Feedback(residuals, jnp.uint32(0))

    def reduced_with(
        self,
        tree: Any,
        state: Feedback,
        op: str = "mean",
        *,
        codec: CodecLike,
        min_size: int = 1024,
        seed: int = 0,
        after: Any = None,
    ) -> tuple[Any, Feedback]:
        """As reduced(), with error feedback: what the codec loses is kept in the state, and
        goes out with the next call. codec, min_size: as feedback() was given them."""
        if op not in _LINEAR:
            raise ValueError(f"reduced_with: op is {op!r}; sum and mean have error feedback")
        leaves, shape = jax.tree.flatten(tree)
        residuals = shape.flatten_up_to(state.residuals)
        codecs = [_codec_for(each, as_codec(codec), min_size) for each in leaves]
        wanted = [0 if one is None else each.size for one, each in zip(codecs, leaves)]
        if [each.size for each in residuals] != wanted:
            raise ValueError("the state is of another tree, codec or min_size: feedback() anew")
        call = self._call("all_reduce", leaves, op, codecs, True, seed)
        found = call(*leaves, *residuals, state.step, *_order(after))
        count = len(leaves)
        kept = jax.tree.unflatten(shape, found[count:])
        means = jax.tree.unflatten(shape, found[:count])
        return means, Feedback(kept, state.step + jnp.uint32(1))

    # ---- of arrays ----

    def gathered(self, array: Any, *, after: Any = None) -> Any:
        """Everybody's rows, as many of each; the gradient goes back to whose they are."""
        array = jnp.asarray(array)
        rows = (self.world * array.shape[0], *array.shape[1:]) if array.ndim else (self.world,)
        call = self._call(
            "all_gather", [array], "sum", [None], False, result=rows, elements=array.size
        )
        order = _order(after)

        @jax.custom_vjp
        def gather(one: Any) -> Any:
            return call(one, jnp.uint32(0), *order)[0]

        gather.defvjp(
            lambda one: (gather(one), None),
            lambda _kept, given: (self.scattered(given).reshape(array.shape),),
        )
        return gather(array)

    def scattered(self, array: Any, op: str = "sum", *, after: Any = None) -> Any:
        """This rank's rows of the reduction. ValueError: rows do not divide by the ranks."""
        array = jnp.asarray(array)
        if not array.ndim or array.shape[0] % self.world:
            raise ValueError(
                f"scattered: {array.shape} has no rows that divide by {self.world} ranks"
            )
        shape = (shares(array.shape[0], self.world)[0], *array.shape[1:])
        call = self._call(
            "reduce_scatter",
            [array],
            op,
            [None],
            False,
            result=shape,
            elements=array.size // self.world,
        )
        order = _order(after)

        @jax.custom_vjp
        def scatter(one: Any) -> Any:
            return call(one, jnp.uint32(0), *order)[0]

        def backward(_kept: Any, given: Any) -> Any:
            if op not in _LINEAR:
                raise TypeError(f"scattered: {op} has no gradient; sum and mean have")
            whole = self.gathered(given)
            return (whole / self.world if op == "mean" else whole,)

        scatter.defvjp(lambda one: (scatter(one), None), backward)
        return scatter(array)

    def broadcasted(self, tree: Any, root: int = 0) -> Any:
        """Rank `root`'s leaves, one after another."""
        self._check_rank(root, "broadcasted")
        leaves, shape = jax.tree.flatten(tree)
        found: list[Any] = []
        for leaf in map(jnp.asarray, leaves):
            call = self._call(
                "broadcast", [leaf], "sum", [None], False, elements=leaf.size, root=root
            )
            found.append(call(leaf, jnp.uint32(0), *_order(found[-1:]))[0])
        return jax.tree.unflatten(shape, found)

    # ---- inside ----

    def _call(
        self,
        kind: str,
        operands: Sequence[Any],
        op: str,
        codecs: Sequence[Optional[Codec]],
        feedback: bool,
        seed: int = 0,
        *,
        result: Optional[tuple[int, ...]] = None,
        elements: int = 0,
        root: int = 0,
    ) -> Any:
        """What XLA calls. The key of one in a function that is traced: the number of this
        trace, the same on all ranks that trace the same functions. What is called at once
        needs none, and shares its plan."""
        self.check_open()
        arrays = [jax.ShapeDtypeStruct(jnp.shape(o), jnp.result_type(o)) for o in operands]
        is_traced = any(isinstance(each, jax.core.Tracer) for each in operands)
        number = next(self._keys) if is_traced else 0
        parts = [(each.shape, str(each.dtype)) for each in arrays]
        text = f"{kind} {op} {root} {seed} {feedback} {parts} {codecs} {number}"
        plan = self._plans.get(text)
        if plan is None:
            key = zlib.crc32(text.encode()) | 1 << 32
            plan = self._plans[text] = _plan.make(
                self.address, kind, arrays, op, codecs, feedback, seed, key, root, elements
            )
        outputs = list(arrays)
        if result is not None:
            outputs = [jax.ShapeDtypeStruct(result, arrays[0].dtype)]
        aliases = {i: i for i in range(len(arrays))} if result is None else {}
        if feedback:
            outputs += [
                jax.ShapeDtypeStruct((0,) if one is None else a.shape, jnp.float32)
                for one, a in zip(codecs, arrays)
            ]
            aliases = {i: i for i in range(len(outputs))}
        call = jax.ffi.ffi_call(
            _compiled.NAME, outputs, has_side_effect=True, input_output_aliases=aliases
        )
        return lambda *given: call(*given, plan=np.int64(plan.address))


def _codec_for(leaf: Any, codec: Optional[Codec], min_size: int) -> Optional[Codec]:
    """None: exact."""
    if codec is None or jnp.ndim(leaf) < 2 or jnp.size(leaf) < min_size:
        return None
    return codec if codec.supports(jnp.result_type(leaf)) else None


def _order(after: Any) -> list[Any]:
    """An operand that has to be there first."""
    leaves = jax.tree.leaves(after)
    return [jnp.ravel(jnp.asarray(each))[:1] for each in leaves]
