"""The rows of bench/rows.txt: what is run, and which number is read from what it prints."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

JSON_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"


class BadRow(Exception):
    """A row that cannot be read, or output without its number."""


@dataclass(frozen=True)
class Term:
    """`json KEY`, `line PATTERN`, or a constant."""

    text: str
    pattern: str
    constant: Optional[float]

    @staticmethod
    def parse(text: str) -> Term:
        how, _, what = text.partition(" ")
        if how == "json" and what:
            return Term(text, f'"{re.escape(what)}":\\s*({JSON_NUMBER})', None)
        if how == "line" and what and re.compile(what).groups == 1:
            return Term(text, what, None)
        if re.fullmatch(JSON_NUMBER, text):
            return Term(text, "", float(text))
        raise BadRow(f"'{text}' is not json KEY, line PATTERN with one group, or a number")

    def read(self, output: str) -> float:
        """The last such number of the output."""
        if self.constant is not None:
            return self.constant
        found = re.findall(self.pattern, output, re.MULTILINE)
        if not found:
            raise BadRow(f"no '{self.text}' in what it prints")
        value = float(found[-1])
        if value <= 0:
            raise BadRow(f"'{self.text}' is {value:g}")
        return value


@dataclass(frozen=True)
class Number:
    """A term, or one over another."""

    terms: tuple[Term, ...]

    @staticmethod
    def parse(text: str) -> Number:
        terms = tuple(Term.parse(part.strip()) for part in text.split(" / "))
        if len(terms) > 2:
            raise BadRow(f"'{text}' has more than one ' / '")
        return Number(terms)

    def read(self, output: str) -> float:
        values = [term.read(output) for term in self.terms]
        return values[0] / values[1] if len(values) > 1 else values[0]


@dataclass(frozen=True)
class Row:
    name: str
    unit: str
    number: Number
    yardstick: str  # a name of `yardsticks`, or a number of the same output
    command: str


@dataclass
class Rows:
    rows: list[Row]
    yardsticks: dict[str, Row]

    def own_yardstick(self, row: Row) -> Optional[Number]:
        """The yardstick in the row's own output; None: it is one of `yardsticks`."""
        return None if row.yardstick in self.yardsticks else Number.parse(row.yardstick)


def read_row(line: str) -> Row:
    fields = [field.strip() for field in line.split(" | ", 4)]
    if len(fields) != 5 or not all(fields):
        raise BadRow("a row is NAME | UNIT | NUMBER | YARDSTICK | COMMAND")
    name, unit, number, yardstick, command = fields
    return Row(name, unit, Number.parse(number), yardstick, command)


def read_rows(path: Path) -> Rows:
    """Lines of `yardstick NAME | ...` are what rows may name as theirs; `#` begins a remark."""
    table = Rows([], {})
    for at, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            row = read_row(line)
            if row.name.startswith("yardstick "):
                table.yardsticks[row.name.partition(" ")[2]] = row
                continue
            table.own_yardstick(row)
        except (BadRow, ValueError, re.error) as why:
            raise BadRow(f"{path}:{at}: {why}") from None
        if any(row.name == other.name for other in table.rows):
            raise BadRow(f"{path}:{at}: there are two rows '{row.name}'")
        table.rows.append(row)
    return table


def programs(rows: Rows) -> list[str]:
    """The targets that the commands need."""
    commands = [row.command for row in [*rows.rows, *rows.yardsticks.values()]]
    names = {name for text in commands for name in re.findall(r"\{bench\}/(\w+)", text)}
    return ["redpoll_command", *sorted(names)]
