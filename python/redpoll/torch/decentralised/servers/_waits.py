"""Servers whose workers have all been lost wait for those that the launcher starts again.

Rank 0 looks a few times a second whether one asks for its place (_returns.py), and what the
launcher says of those that are lost (_launcher.py); and tells the other servers each time, so
that all know of a server that dies meanwhile, and end alike. The same as
src/train/training_waits.c."""

from __future__ import annotations

import logging
import time

import torch

from .... import _abi
from ...comm._errors import ranks_text
from ...comm._launcher import fates
from ._returns import ReturnRequests
from ._served_ranks import Ranks

log = logging.getLogger("redpoll")

_LOOK_S = 0.2
_FATE_S = 10.0  # within which the launcher says what becomes of a rank
_WAIT, _COME, _NOBODY, _TOO_LATE = range(4)


class WorkerWait:
    """From the loss of the last worker until one is back: also where one that came was lost
    again on the way."""

    def __init__(self, ranks: Ranks) -> None:
        """ranks: of an optimizer, all workers of which are lost."""
        self._workers = range(ranks.options.servers, ranks.world)
        now = time.monotonic()
        self._deadline, self._fates_by = now + ranks.timeout_s, now + _FATE_S
        self._is_told = False

    def until_one_asks(self, ranks: Ranks, requests: ReturnRequests) -> None:
        """RedpollError: PEER: none is started again; TIMEOUT: none has asked for its place in
        the group's timeout. Collective over the servers, and the same on all."""
        word = _WAIT
        while word == _WAIT:
            own = self._look(ranks, requests) if ranks.rank == 0 else 0
            word = int(ranks.sum_once(torch.tensor([own], dtype=torch.float64)).item())
            if word == _WAIT:
                time.sleep(_LOOK_S)
        if word != _COME:
            raise self._failure(ranks, word)

    def _look(self, ranks: Ranks, requests: ReturnRequests) -> int:
        if requests.is_waited_at():
            return _COME
        said = {} if requests.is_off else fates(self._workers)
        again = [rank for rank, fate in said.items() if fate == "again"]
        if again and not self._is_told:
            self._is_told = True
            are = "is" if len(again) == 1 else "are"
            log.warning(
                "%s: no worker is left; waiting for %s, which %s started again",
                ranks.who,
                ranks_text(again),
                are,
            )
        now = time.monotonic()
        if now >= self._deadline:
            return _TOO_LATE
        is_open = len(said) < len(self._workers) and now < self._fates_by
        return _WAIT if again or (is_open and not requests.is_off) else _NOBODY

    def _failure(self, ranks: Ranks, word: int) -> Exception:
        why = next(reversed(ranks.lost.values()), "all are lost")
        status, text = "PEER", f"no worker is left: {why}"
        if word == _TOO_LATE:
            status = "TIMEOUT"
            text = (
                f"timed out: no worker is left ({why}), and none that was started again has "
                f"asked for its place in {ranks.timeout_s:g} s (the group's timeout)"
            )
        error: Exception = ranks.communicator.error(_abi.STATUS[status], text, ranks.who)
        return error
