"""Messages from one rank to another: functions of a communicator, which has them as methods."""

from __future__ import annotations

import torch

from ._posting import Operator, operation_named
from ._work import Work

_SEND, _RECV = operation_named("send"), operation_named("recv")
_RECV_ANY = operation_named("recv_any")


def send(communicator: Operator, tensor: torch.Tensor, peer: int, tag: int = 0) -> Work:
    """To group rank `peer`; received in order by those of its receives with this tag."""
    communicator.checks.check_peer("send", peer, tag)
    buffers = communicator.checks.buffers("send")
    dense = buffers.read(tensor)
    place = (dense.data_ptr(), dense.numel(), communicator.checks.moved(dense))
    arguments = (*place, peer, tag, buffers.options(None))
    return communicator.poster.post(_SEND, arguments, buffers.lent([tensor]), False, None)


def recv(communicator: Operator, tensor: torch.Tensor, peer: int, tag: int = 0) -> Work:
    """From group rank `peer`, what it sent with this tag: as many elements of this
    dtype."""
    communicator.checks.check_peer("recv", peer, tag)
    buffers = communicator.checks.buffers("recv")
    dense = buffers.written(tensor)
    place = (dense.data_ptr(), dense.numel(), communicator.checks.moved(dense))
    arguments = (*place, peer, tag, buffers.options(None))
    return communicator.poster.post(_RECV, arguments, buffers.lent([tensor]), False, None)


def recv_any(communicator: Operator, tensor: torch.Tensor, tag: int = 0) -> Work:
    """From whoever sends with this tag first; Work.source_rank() tells who it was."""
    communicator.checks.check_peer("recv_any", 0, tag)
    buffers = communicator.checks.buffers("recv_any")
    dense = buffers.written(tensor)
    place = (dense.data_ptr(), dense.numel(), communicator.checks.moved(dense))
    arguments = (*place, tag, buffers.options(None))
    return communicator.poster.post(_RECV_ANY, arguments, buffers.lent([tensor]), False, None)
