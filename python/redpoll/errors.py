"""Failures of the C library as Python exceptions."""

from __future__ import annotations

from . import _abi


class Error(RuntimeError):
    """The library refused or failed.

    status: its name in <redpoll/status.h> ("TIMEOUT", "PEER", "MISMATCH", "INVALID", ...);
    code: its number, below 0; message: one line that says what to do."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = status_name(code)
        self.message = message


def status_name(code: int) -> str:
    """ "TIMEOUT" of -4; "OK" of 0."""
    return _abi.rp_status_name(code).decode()


def last_message() -> str:
    """The text of the latest failed call of this thread."""
    text = _abi.rp_last_error().contents.message
    return text.decode("utf-8", "replace")


def check(code: int) -> None:
    """Raise what the call that returned `code` on this thread recorded; nothing for 0."""
    if code < 0:
        raise Error(code, last_message())
