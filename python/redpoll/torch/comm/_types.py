"""Names of the arguments that several modules take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional, Union

import torch

from ._codec import Codec

Tensors = Sequence[torch.Tensor]

Codecs = Union[None, Codec, Sequence[tuple[int, Optional[Codec]]]]
"""How one tensor travels: exact, with one codec, or in pieces of (count, codec)."""
