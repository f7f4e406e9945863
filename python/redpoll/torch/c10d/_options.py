"""What can be said about one process group when it is made."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Optional

import torch
from torch._C._distributed_c10d import Backend as _C10dBackend

from ... import _abi
from .._help import Unset, plainly_shown
from ..codecs._policy import DEFAULT_MIN_SIZE, CodecPolicy
from ..codecs._rules import CodecLike, parse_codec

_Base: Any = _C10dBackend.Options
_UNSET: Any = Unset("<as the variables say>")


def _parse_priority(text: Optional[str]) -> int:
    if text is None:
        return _abi.PRIORITIES["DEFAULT"]
    if text not in ("bulk", "normal", "urgent"):
        raise ValueError(f'priority is {text!r}; "bulk", "normal" and "urgent" are allowed')
    return _abi.PRIORITIES[text.upper()]


class Options(_Base):  # type: ignore[misc]
    """`pg_options` of init_process_group() and new_group(), for this group alone.

    codec: of SUM and AVG all-reduces of float tensors of at least codec_min_size elements, in
        place of what REDPOLL_CODEC and REDPOLL_CODEC_GROUPS say; None or "exact": exact.
        Without error feedback; not asked by a model under compress(). ValueError: no codec.
    priority: "urgent" for operations that the computation waits for (tensor and pipeline
        parallelism), "bulk" for those beside it (gradients), "normal": whose go first where
        those of several groups wait for one rank or link. None: the default group's, which is
        "normal" where nothing is said. Results do not depend on it. ValueError: none of these.
    devices: which backend serves which device, as in the backend's name: for releases of
        PyTorch that do not hand that on; an error asks for it there."""

    @plainly_shown
    def __init__(
        self,
        *,
        codec: CodecLike = _UNSET,
        codec_min_size: int = DEFAULT_MIN_SIZE,
        priority: Optional[str] = None,
        devices: Optional[str] = None,
        backend: str = "redpoll",
        timeout: timedelta = timedelta(minutes=30),
    ) -> None:
        super().__init__(backend, timeout)
        self.devices = devices
        self.priority = _parse_priority(priority)
        self.names_codec = codec is not _UNSET
        self._codec = parse_codec(codec) if self.names_codec else None
        self._codec_min_size = codec_min_size
        self.adopted: Any = None
        """A Communicator that is there already, for the one group that is made with these."""

    def renewed(self, adopted: Any) -> Options:
        """The same for another group, over that communicator."""
        own = Options(devices=self.devices, backend=self.backend, timeout=self._timeout)
        for name in ("priority", "names_codec", "_codec", "_codec_min_size"):
            setattr(own, name, getattr(self, name))
        own.adopted = adopted
        return own

    def policy(self) -> Optional[CodecPolicy]:
        """What a group does that these options name a codec for."""
        if self._codec is None or self._codec.is_exact(torch.float32):
            return None
        return CodecPolicy(self._codec, self._codec_min_size)
