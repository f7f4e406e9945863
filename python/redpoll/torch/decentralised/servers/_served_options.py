"""What users say of servers and workers, checked."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any, Optional, Union

from .... import _abi
from ....errors import last_message
from ...codecs._rules import CodecLike, RulesLike

_MOST = (1 << 31) - 1  # of what the library takes as an int


@dataclass(frozen=True)
class ServedOptions:
    """What users of both optimizers say of servers, pushes and codecs."""

    servers: Union[int, str]
    staleness: Union[int, float, str]
    codec: CodecLike
    quorum: int
    grace_s: float
    on_loss: str
    rules: RulesLike
    min_size: int
    error_feedback: bool
    seed: int
    broadcast: bool


def library_options(
    given: ServedOptions, who: str, world: int, outlives: int
) -> _abi.rp_parameter_server_options:
    """As the library takes them. outlives: goes_on of these. ValueError: they cannot be, or not
    together."""
    servers = whole(who, "servers", given.servers, "shared", 1)
    options = _abi.rp_parameter_server_options(
        servers=0 if servers is None else servers,
        quorum=whole(who, "quorum", given.quorum, None, 0),
        grace_s=given.grace_s,
        goes_on=outlives,
        seed=whole(who, "seed", given.seed, None, 0, (1 << 64) - 1),
    )
    staleness = "inf" if given.staleness == math.inf else given.staleness
    late = whole(who, "staleness", staleness, "inf", 0)
    options.staleness = _abi.RP_ANY_STALENESS if late is None else late
    if _abi.rp_parameter_server_check(ctypes.byref(options), world) < 0:
        raise ValueError(f"{who}: {last_message()}")
    return options


def whole(
    who: str, name: str, value: Any, word: Optional[str], least: int, most: int = _MOST
) -> Optional[int]:
    """A whole number; None: `value` is the word that may stand for one."""
    if word is not None and value == word:
        return None
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:
        other = f", or {word!r}" if word else ""
        bounds = f"up to {most}" if is_whole and value > most else f"from {least} on"
        raise ValueError(f"{who}: {name} is {value!r}; a whole number {bounds}{other} is taken")
    return value
