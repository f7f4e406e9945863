"""Runs rows with two builds in turns, and says which of them are down."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from dataclasses import dataclass, field
from enum import Enum
from math import comb
from pathlib import Path
from statistics import median
from typing import Callable, Optional

from compare_rows import BadRow, Row, Rows

LOSS = 0.05
SKIPPED = 77
TURNS = ("old", "new", "new", "old")


@dataclass
class Build:
    folder: Path
    redpoll: str = "src/cli/redpoll"

    def words(self, here: Build, work: Path) -> dict[str, str]:
        return {
            "redpoll": str(self.folder / self.redpoll),
            "bench": str(self.folder / "bench"),
            "here": str(here.folder),
            "work": str(work),
        }


@dataclass
class Sample:
    value: float
    yardstick: float

    @property
    def share(self) -> float:
        return self.value / self.yardstick


class Kind(Enum):
    COMPARED = "compared"
    NEW = "not in REF"
    IDLE = "does not run here"  # with neither build
    FAILED = "fails"  # with the tree at hand


@dataclass
class Result:
    """Samples by turn; old[i] and new[i] are neighbours in time."""

    row: Row
    old: list[Sample] = field(default_factory=list)
    new: list[Sample] = field(default_factory=list)
    kind: Kind = Kind.COMPARED
    why: str = ""
    is_down: bool = False
    suspected: Optional[float] = None  # the ratio for which it was looked at again

    @property
    def ratios(self) -> list[float]:
        return [b.share / a.share for a, b in zip(self.old, self.new)]

    def runs(self, turn: str) -> bool:
        return self.kind is Kind.COMPARED or (self.kind is Kind.NEW and turn == "new")

    def becomes(self, kind: Kind, why: object) -> None:
        if self.kind is not Kind.FAILED:
            self.kind, self.why = kind, str(why)


# ---- what a spread says ----


def interval(values: list[float]) -> tuple[float, float]:
    """Of the median, by the order of the values alone: 95 % where there are six or more."""
    ordered, count = sorted(values), len(values)
    rank = 0
    while rank + 1 < (count + 1) // 2 and tail(count, rank + 1) <= 0.025:
        rank += 1
    return ordered[rank], ordered[count - 1 - rank]


def tail(count: int, most: int) -> float:
    """That at most `most` of `count` fair coins show heads."""
    return sum(comb(count, k) for k in range(most + 1)) / float(2**count)


def seems_down(ratios: list[float]) -> bool:
    return bool(ratios) and median(ratios) < 1 - LOSS


def is_down(ratios: list[float]) -> bool:
    """More than LOSS, and by a spread that does not reach what it was before."""
    return seems_down(ratios) and interval(ratios)[1] < 1


# ---- running ----


class CannotRun(Exception):
    def __init__(self, why: str, skipped: bool = False) -> None:
        super().__init__(why)
        self.skipped = skipped


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it prints nothing"


def run(command: str, words: dict[str, str], prefix: str, timeout_s: float) -> str:
    for name, value in words.items():
        command = command.replace("{" + name + "}", shlex.quote(value))
    with subprocess.Popen(
        [*shlex.split(prefix), "sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
        start_new_session=True,
    ) as running:
        try:
            output, errors = running.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise CannotRun(f"not done after {timeout_s:g} s") from None
        finally:
            end_all(running)
    if running.returncode:
        raise CannotRun(last_line(output + errors), running.returncode == SKIPPED)
    return output


def end_all(running: subprocess.Popen[str]) -> None:
    """The ranks that a command has started, too: none outlives it."""
    try:
        os.killpg(running.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


@dataclass
class Bench:
    rows: Rows
    builds: dict[str, Build]
    work: Path
    prefix: str = ""
    timeout_s: float = 120
    say: Callable[[str], None] = print

    def output(self, command: str, turn: str) -> str:
        words = self.builds[turn].words(self.builds["new"], self.work)
        return run(command, words, self.prefix, self.timeout_s)

    def yardsticks(self, group: list[Row]) -> dict[str, float]:
        """Of a round: measured by the tree at hand, the same for both."""
        found = {}
        for name in {row.yardstick for row in group} & set(self.rows.yardsticks):
            stick = self.rows.yardsticks[name]
            found[name] = stick.number.read(self.output(stick.command, "new"))
        return found

    def sample(self, row: Row, output: str, sticks: dict[str, float]) -> Sample:
        own = self.rows.own_yardstick(row)
        return Sample(
            row.number.read(output), own.read(output) if own else sticks[row.yardstick]
        )

    def first_look(self, group: list[Row]) -> list[Result]:
        """Warms up, and finds out what either build has."""
        results = [Result(row) for row in group]
        faults = {}
        for turn in ("new", "old"):
            try:
                output = self.output(group[0].command, turn)
            except CannotRun as why:
                faults[turn] = why
                continue
            for result in results:
                self.check_number(result, output, turn)
        for result in results:
            self.judge_faults(result, faults)
        return results

    def check_number(self, result: Result, output: str, turn: str) -> None:
        try:
            self.sample(result.row, output, dict.fromkeys(self.rows.yardsticks, 1.0))
        except BadRow as why:
            result.becomes(Kind.FAILED if turn == "new" else Kind.NEW, why)

    @staticmethod
    def judge_faults(result: Result, faults: dict[str, CannotRun]) -> None:
        if "new" in faults and (faults["new"].skipped or "old" in faults):
            result.becomes(Kind.IDLE, faults["new"])
        elif "new" in faults:
            result.becomes(Kind.FAILED, faults["new"])
        elif "old" in faults:
            result.becomes(Kind.NEW, faults["old"])

    def rounds(self, results: list[Result], count: int) -> None:
        """Old, new, new, old: what drifts meets both alike. Without REF the new alone."""
        group = [result.row for result in results]
        if not any(result.runs("new") for result in results):
            return
        for _ in range(count):
            sticks = self.yardsticks(group)
            for turn in TURNS:
                live = [result for result in results if result.runs(turn)]
                if not live:
                    continue
                output = self.output(group[0].command, turn)
                for result in live:
                    samples = result.old if turn == "old" else result.new
                    samples.append(self.sample(result.row, output, sticks))

    def again(self, result: Result, count: int) -> None:
        """A row that seems down is not called so before a second, longer look says the same."""
        if not seems_down(result.ratios):
            return
        self.say(f"  {result.row.name}: {median(result.ratios):.3f}; once more, longer")
        second = Result(result.row)
        self.rounds([second], 2 * count)
        result.suspected = median(result.ratios)
        result.is_down = is_down(second.ratios)
        result.old, result.new = second.old, second.new

    def measure(self, group: list[Row], count: int) -> list[Result]:
        """Rows of one command."""
        results = self.first_look(group)
        try:
            self.rounds(results, count)
            for result in results:
                self.again(result, count)
        except (CannotRun, BadRow) as why:
            for result in results:
                result.becomes(Kind.FAILED, f"ran, and then not: {why}")
        return results


def groups(rows: list[Row]) -> list[list[Row]]:
    """Rows of the same command are read from the same runs."""
    by_command: dict[str, list[Row]] = {}
    for row in rows:
        by_command.setdefault(row.command, []).append(row)
    return list(by_command.values())
