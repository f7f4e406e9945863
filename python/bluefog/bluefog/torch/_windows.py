"""Windows: every name, refused until the library has them."""

from __future__ import annotations

from typing import Any, Callable, NoReturn


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*_arguments: Any, **_options: Any) -> NoReturn:
        raise NotImplementedError(
            f"bf.{name}: windows are not supported on Redpoll yet. "
            "neighbor_allreduce_nonblocking averages under the computation; "
            "redpoll.torch.Gossip(..., algorithm='push-sum') is push-sum over directed graphs"
        )

    refuse.__name__ = name
    refuse.__doc__ = "NotImplementedError: Redpoll has no windows yet."
    return refuse


_MOVES = ("win_put", "win_get", "win_accumulate")
_NAMES = (
    "win_create",
    "win_free",
    *_MOVES,
    *(f"{each}_nonblocking" for each in _MOVES),
    *(f"neighbor_{each}" for each in _MOVES),
    *(f"neighbor_{each}_nonblocking" for each in _MOVES),
    "win_wait",
    "win_poll",
    "win_update",
    "win_update_then_collect",
    "win_mutex",
    "win_lock",
    "get_win_version",
    "win_associated_p",
    "turn_on_win_ops_with_associated_p",
    "turn_off_win_ops_with_associated_p",
)

REFUSED: dict[str, Callable[..., NoReturn]] = {name: _refused(name) for name in _NAMES}
