"""Redpoll for numpy: collectives of arrays, exact or with a codec, without PyTorch.

import redpoll.numpy
world = redpoll.numpy.join()                    # ranks of redpoll run, torchrun, mpirun, srun
mean = world.all_reduce(array, op="mean", codec="q4")
"""

from __future__ import annotations

from . import _needs  # noqa: F401  (before everything that imports numpy)
from ._codec import Codec
from ._communicator import Communicator, join
from ._request import Request

__all__ = ["Codec", "Communicator", "Request", "join"]
