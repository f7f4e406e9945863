"""What scripts ask about an installation."""

from __future__ import annotations

from typing import Any

__all__ = [
    "check_extension",
    "check_installed_version",
    "gpu_available",
    "num_rank_is_power_2",
]


def check_extension(*arguments: Any, **named: Any) -> None:
    """Nothing is compiled for a framework, so nothing can be missing."""


def check_installed_version(*arguments: Any, **named: Any) -> None:
    """As check_extension()."""


def gpu_available(ext_base_name: str = "torch", verbose: bool = False) -> bool:
    """PyTorch has a GPU."""
    import torch

    return torch.cuda.is_available()


def num_rank_is_power_2(num_rank: int) -> bool:
    """1, 2, 4, 8, ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0
