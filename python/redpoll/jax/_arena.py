"""A pytree of parameters beside one vector that the library reads and writes."""

from __future__ import annotations

from typing import Any, Optional

import jax
import jax.numpy as jnp
import numpy as np

from .. import _abi
from ..numpy._codec import Codec, CodecLike, as_codec, number_of


class Arena:
    """Leaves one behind another, all of float32 or all of float64."""

    def __init__(self, tree: Any, codec: CodecLike, min_size: int, who: str) -> None:
        leaves, self._shape = jax.tree.flatten(tree)
        if not leaves:
            raise ValueError(f"{who}: the tree of parameters has no leaves")
        dtypes = {np.dtype(jnp.result_type(each)) for each in leaves}
        if len(dtypes) > 1 or not dtypes <= {np.dtype("float32"), np.dtype("float64")}:
            found = ", ".join(sorted(map(str, dtypes)))
            raise ValueError(f"{who}: parameters are {found}; all float32 or all float64 go")
        self.dtype = dtypes.pop()
        self.number = number_of(self.dtype, who)
        self._shapes = [jnp.shape(each) for each in leaves]
        self._sizes = [int(np.prod(each)) for each in self._shapes]
        self._firsts = np.concatenate([[0], np.cumsum(self._sizes)]).tolist()
        self.values = np.zeros(self._firsts[-1], self.dtype)
        self.residual = np.zeros(self._firsts[-1], np.float32)
        self._codecs = [
            self._codec_for(i, as_codec(codec), min_size, who) for i in range(len(leaves))
        ]
        self.write(tree)

    def _codec_for(
        self, i: int, codec: Optional[Codec], min_size: int, who: str
    ) -> Optional[Codec]:
        if codec is None or len(self._shapes[i]) < 2 or self._sizes[i] < min_size:
            return None
        if not codec.supports(self.dtype):
            raise ValueError(f"{who}: codec {codec} does not take {self.dtype}")
        return codec

    def segments(self, feedback: bool = True, first: int = 0) -> Any:
        """Of rp_segment, one a leaf, numbered from `first`."""
        found = (_abi.rp_segment * len(self._sizes))()
        for i, (one, codec) in enumerate(zip(found, self._codecs)):
            begin = self._firsts[i]
            one.data = self.values.ctypes.data + begin * self.dtype.itemsize
            one.count, one.dtype, one.tensor = self._sizes[i], self.number, first + i
            if codec is not None:
                one.codec = codec.structure
                if feedback:
                    one.residual = self.residual.ctypes.data + 4 * begin
        return found

    def write(self, tree: Any, into: Any = None) -> None:
        """A tree's leaves into the vector, or another like it. ValueError: another tree."""
        leaves = self._shape.flatten_up_to(tree)
        vector = self.values if into is None else into
        for i, leaf in enumerate(leaves):
            if jnp.shape(leaf) != self._shapes[i]:
                raise ValueError(f"leaf {i} is {jnp.shape(leaf)}, and was {self._shapes[i]}")
            part = vector[self._firsts[i] : self._firsts[i + 1]]
            part[:] = np.asarray(leaf).reshape(-1)

    def read(self) -> Any:
        """The vector as a tree of new arrays."""
        parts = [
            jnp.array(self.values[self._firsts[i] : self._firsts[i + 1]].reshape(shape))
            for i, shape in enumerate(self._shapes)
        ]
        return jax.tree.unflatten(self._shape, parts)
