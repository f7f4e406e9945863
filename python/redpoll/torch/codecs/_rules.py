"""How each parameter travels: the first rule that fits name, size and dimensions decides."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Union

import torch

from ..comm._codec import Codec
from ._adaptive import AdaptiveCodec

DEFAULT_MIN_SIZE = 10_000
_EXACT_NAMES = ("exact", "fp32", "none", "")

CodecLike = Union[str, Codec, None]


def parse_codec(codec: CodecLike) -> Codec | None:
    """A codec from its text; None for None, "exact" and "fp32", which all mean exact.

    ValueError says what is wrong with the text."""
    if codec is None or (isinstance(codec, str) and codec.strip() in _EXACT_NAMES):
        return None
    if AdaptiveCodec.is_meant(codec):
        raise ValueError(
            f"codec {codec!r}: auto chooses for all parameters of a model, and is for codec= "
            "of a DistributedDataParallel alone; rules, FSDP and single calls take one as q4"
        )
    if isinstance(codec, str):
        with _as_value_error(codec):
            return Codec.parse(codec)
    if not isinstance(codec, Codec):
        raise TypeError(f"a codec is text such as 'q4:bucket=512', or None; not {codec!r}")
    return codec


@contextmanager
def _as_value_error(text: str) -> Iterator[None]:
    """What the library says of a text."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        named = "" if str(error).startswith("codec '") else f"codec {text!r}: "
        raise ValueError(f"{named}{error}") from None


@dataclass(frozen=True)
class Rule:
    """Parameters whose name fits the glob `name` and whose size and number of dimensions lie
    within the limits (both ends included) travel with `codec`; None: exact."""

    codec: CodecLike
    name: str = "*"
    min_size: int = 0  # elements
    max_size: int | None = None
    min_dim: int = 0
    max_dim: int | None = None

    def fits(self, name: str, shape: torch.Size) -> bool:
        """Whether this rule decides for a parameter."""
        size, dim = shape.numel(), len(shape)
        return (
            fnmatchcase(name, self.name)
            and self.min_size <= size
            and (self.max_size is None or size <= self.max_size)
            and self.min_dim <= dim
            and (self.max_dim is None or dim <= self.max_dim)
        )


RulesLike = Union[Mapping[str, CodecLike], Iterable[Union[Rule, tuple[str, CodecLike]]], None]


class Rules:
    """The user's rules, then the default: tensors of one dimension and those of fewer than
    `min_size` elements exact, all others with `codec`."""

    def __init__(
        self, codec: CodecLike, rules: RulesLike = None, min_size: int = DEFAULT_MIN_SIZE
    ) -> None:
        if not isinstance(min_size, int) or min_size < 0:
            raise ValueError(f"min_size is {min_size!r}; a number of elements is wanted")
        self.adaptive: AdaptiveCodec | None = None
        """What chooses the bits of those that no rule fits; `codec` is then its `like`."""
        if isinstance(codec, str) and AdaptiveCodec.is_meant(codec):
            with _as_value_error(codec):
                self.adaptive = AdaptiveCodec(codec.strip())
            self.codec: Codec | None = self.adaptive.like
        else:
            self.codec = parse_codec(codec)
        self.min_size = min_size
        self._rules = [(rule, parse_codec(rule.codec)) for rule in _as_rules(rules)]

    def codec_for(self, name: str, shape: torch.Size) -> Codec | None:
        """The codec of a parameter; None: exact."""
        for rule, codec in self._rules:
            if rule.fits(name, shape):
                return codec
        return self.codec if self._is_large(shape) else None

    def is_adaptive(self, name: str, shape: torch.Size) -> bool:
        """Whether `adaptive` chooses the bits of a parameter."""
        ruled = any(rule.fits(name, shape) for rule, _ in self._rules)
        return self.adaptive is not None and not ruled and self._is_large(shape)

    def _is_large(self, shape: torch.Size) -> bool:
        return len(shape) > 1 and shape.numel() >= self.min_size

    def replaced(self, codec: CodecLike, rules: RulesLike, min_size: int | None) -> Rules:
        """Rules with another codec; rules and min_size None: these here stay."""
        kept = [rule for rule, _ in self._rules] if rules is None else rules
        return Rules(codec, kept, self.min_size if min_size is None else min_size)

    @property
    def is_exact(self) -> bool:
        """Whatever the parameter."""
        return not self.codecs()

    def codecs(self) -> list[Codec]:
        """Every lossy codec that is named."""
        named = [self.codec, *(codec for _, codec in self._rules)]
        return [codec for codec in named if codec is not None]

    def check_names(self, names: Sequence[str]) -> None:
        """ValueError for a rule whose glob fits no parameter: most often a typing error, which
        would otherwise quietly change how a tensor travels."""
        for rule, _ in self._rules:
            if not any(fnmatchcase(name, rule.name) for name in names):
                close = difflib.get_close_matches(rule.name, names, n=3, cutoff=0.3)
                raise ValueError(
                    f"rule {rule.name!r} fits no parameter; there are "
                    f"{', '.join(close or list(names)[:3])}{' ...' if len(names) > 3 else ''}"
                )


def _as_rules(rules: RulesLike) -> list[Rule]:
    if rules is None:
        return []
    items = rules.items() if isinstance(rules, Mapping) else rules
    return [_as_rule(item) for item in items]


def _as_rule(item: object) -> Rule:
    if isinstance(item, Rule):
        return item
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
        return Rule(name=item[0], codec=item[1])
    raise TypeError(f"a rule is a Rule or a pair (glob of names, codec); not {item!r}")
