"""What can be said about one process group when it is made."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Optional

import torch.distributed as dist
from torch._C._distributed_c10d import Backend as _C10dBackend

# A class of Backend from 2.6 on, of ProcessGroup before.
_Base: Any = (_C10dBackend if hasattr(_C10dBackend, "Options") else dist.ProcessGroup).Options


class Options(_Base):  # type: ignore[misc]
    """`pg_options` of init_process_group() and new_group(), for this group alone.

    devices: which backend serves which device, as in the backend's name: for releases of
        PyTorch that do not hand that on; an error asks for it there."""

    def __init__(
        self,
        *,
        devices: Optional[str] = None,
        backend: str = "redpoll",
        timeout: timedelta = timedelta(minutes=30),
    ) -> None:
        super().__init__(backend, timeout)
        self.devices = devices
