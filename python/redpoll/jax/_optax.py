"""A transformation of gradients for optax: the mean over all ranks, with few bits."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from ..numpy._codec import CodecLike
from ._world import Feedback, World

__all__ = ["Transformation", "averaged"]


class Transformation(NamedTuple):
    """As optax.GradientTransformation, for whoever has no optax."""

    init: Callable[[Any], Any]
    update: Callable[..., Any]


def averaged(
    world: World, codec: CodecLike = None, *, min_size: int = 1024, seed: int = 0
) -> Transformation:
    """optax.chain(redpoll.jax.averaged(world, "q4"), optax.adam(1e-3)): updates become their
    mean over all ranks.

    codec: None for exact; else of leaves of two dimensions or more and min_size elements or
    more, with error feedback, which is this part's state: a rank's own, and to be saved by each
    rank with its checkpoint. seed: of stochastic rounding."""

    def init(params: Any) -> Feedback:
        return world.feedback(params, codec, min_size)

    def update(updates: Any, state: Feedback, params: Any = None) -> tuple[Any, Feedback]:
        return world.reduced_with(
            updates, state, "mean", codec=codec, min_size=min_size, seed=seed
        )

    return Transformation(init, update)
