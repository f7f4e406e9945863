"""What help() shows of a call: its values, and not how they are made."""

from __future__ import annotations

import inspect
from typing import Any, Callable, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Unset:
    """The default of an argument for which it matters whether it was given. Shown as what it
    stands for."""

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def __repr__(self) -> str:
        return self._shown


def plainly_shown(function: F) -> F:
    """Have help() show a signature that fits a screen: types are in the text, and, for
    programs, still in the annotations."""
    known = inspect.signature(function)
    names = [one.replace(annotation=one.empty) for one in known.parameters.values()]
    short = known.replace(parameters=names, return_annotation=known.empty)
    function.__signature__ = short  # type: ignore[attr-defined]
    return function
