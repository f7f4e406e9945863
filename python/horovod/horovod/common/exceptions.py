"""What operations raise."""

from __future__ import annotations

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "HorovodVersionMismatchError"]


class HorovodInternalError(RuntimeError):
    """An operation failed: ranks asked for different things, or one was lost. The text says
    which; hvd.elastic.run goes on after the second."""


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts have come or gone. Never raised here: no rank joins a job that runs.

    skip_sync: what remains need not be made equal first."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("hosts were updated")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """Never raised here: nothing is compiled against PyTorch."""
