"""Redpoll for JAX on CPUs: collectives inside jit, compressed gradients, DiLoCo and gossip.

import redpoll.jax
world = redpoll.jax.join()                      # ranks of redpoll run, torchrun, mpirun, srun
optimizer = optax.chain(redpoll.jax.averaged(world, "q4"), optax.adam(1e-3))
"""

from __future__ import annotations

from ..numpy import Codec
from . import _needs  # noqa: F401  (before everything that imports jax)
from ._methods import DiLoCo, Gossip
from ._optax import Transformation, averaged
from ._world import Feedback, World, join

__all__ = [
    "Codec",
    "DiLoCo",
    "Feedback",
    "Gossip",
    "Transformation",
    "World",
    "averaged",
    "join",
]
