"""The library's parameter server, as an object that goes with its communicator."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional

from .... import _abi
from ...comm._attached import Attached
from ...comm._communicator import Communicator


class ServerHandle(Attached):
    """An rp_parameter_server. raised: what this rank's merge has raised, from then on None."""

    def __init__(
        self,
        communicator: Communicator,
        who: str,
        segments: Any,
        options: _abi.rp_parameter_server_options,
        kept: Any,
        raised: Callable[[], Optional[BaseException]],
    ) -> None:
        def create(comm: int, out: Any) -> int:
            return int(
                _abi.rp_parameter_server_create(
                    comm, segments, len(segments), ctypes.byref(options), out
                )
            )

        def hurry(address: Any) -> None:
            text = b"it has left the group before finish()"
            _abi.rp_parameter_server_abort(address, _abi.RP_CANCELLED, text)

        self._raised = raised
        super().__init__(
            communicator,
            who,
            create,
            _abi.rp_parameter_server_destroy,
            (options, kept),
            hurry=hurry,
        )

    def abort(self, status: int, message: str) -> None:
        """All ranks fail, those that wait in it among them."""
        text = message.encode()
        self.tell(lambda address: _abi.rp_parameter_server_abort(address, status, text))

    def check(self, code: int) -> None:
        error = self._raised() if code < 0 else None
        if error is not None:
            raise error
        super().check(code)
