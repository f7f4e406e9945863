"""Runs the commands of a document, in short forms.

usage: documents_test.py REDPOLL ROOT PREPARED DOCUMENT

A command is an indented line that begins with the name of a program, up to the comment behind
it. Each is run, in the document's order and in a copy of the folder that prepare.sh has
filled, and has to end with exit code 0. Trainings get --steps 1, benchmarks --iters 1; what
else a command needs, or why it cannot run here, is a row in commands.list. A row that no
command of any document begins with is refused, so that the list stays true.

What stands inside of sentences is not run, but read: `redpoll train --steps` has to be an
option of that command, and `bench/run.sh` a file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = r"redpoll|make|sh|python3?|pip|torchrun|bfrun|cmake|ctest|cc|export|git|build/\S+"
PROGRAMS += "|mpirun|srun"
COMMAND = re.compile(rf"^ {{4,}}((?:[A-Z_]+=\S+ +)*(?:{PROGRAMS}) .*)$")
# "redpoll train: rank 2 was killed" is printed; "redpoll.torch.compress(...)" is Python.
PRINTED = re.compile(r"^redpoll( [a-z]+)?:")
FOLDERS = r"(?:bench|tools|examples|tests|include|src|docs)"
SECONDS = 240


@dataclass
class Row:
    """How commands that begin so are run."""

    document: str
    begin: str
    replace: list[tuple[str, str]]
    add: str
    prints: str
    excuse: str
    exit: str  # its exit code, where that is not 0


def commands_of(text: str) -> list[tuple[int, str]]:
    """(line, command) of a document, continued lines joined, comments cut off."""
    found, lines, at = [], text.splitlines(), 0
    while at < len(lines):
        first, match = at, COMMAND.match(lines[at])
        if match and not PRINTED.match(match[1]):
            command = re.sub(r"\s{2,}#.*$", "", match[1]).rstrip()
            while command.endswith("\\"):
                at += 1
                command = (
                    command[:-1].rstrip() + " " + re.sub(r"\s{2,}#.*$", "", lines[at]).strip()
                )
            found.append((first + 1, command))
        at += 1
    return found


def rows_of(path: Path) -> list[Row]:
    rows: list[Row] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            document, _, begin = line.rpartition(": ")
            rows.append(Row(document, begin, [], "", "", "", "0"))
            continue
        word, _, rest = line.strip().partition(" ")
        if word == "replace":
            before, arrow, after = rest.partition(" => ")
            assert arrow, f"{path}:{number}: replace BEFORE => AFTER"
            rows[-1].replace.append((before, after))
        elif word in ("add", "prints", "excuse", "exit"):
            setattr(rows[-1], word, rest)
        else:
            raise SystemExit(
                f"{path}:{number}: '{word}' is none of add, replace, prints, exit and excuse"
            )
    return rows


def row_for(rows: list[Row], document: str, command: str) -> Row | None:
    """The row with the longest beginning; those for one document before those for all."""
    fitting = [
        row for row in rows if row.document in ("", document) and command.startswith(row.begin)
    ]
    return max(fitting, key=lambda row: (bool(row.document), len(row.begin)), default=None)


def as_run(command: str, row: Row | None) -> str:
    """The command in its short form."""
    for before, after in row.replace if row else []:
        command = command.replace(before, after)
    command = command.replace(
        "redpoll train ...", "redpoll train --model mlp --data fashion-mnist"
    )
    if (
        re.match(r"^redpoll train ", command)
        and "-n " not in command
        and "--strategy" in command
    ):
        command += " -n 4"
    short = ""
    if re.match(r"^redpoll train ", command):
        short = " --steps 1 --eval-images 8"
    elif re.match(r"^redpoll bench (?!codec|link|window)", command):
        short = " --iters 1"
    elif command.startswith("redpoll data tokenize "):
        short = " --force"
    extra = f" {row.add}" if row and row.add else ""
    # What a command writes to a file comes last.
    words, arrow, file = command.partition(" >")
    return words + short + extra + arrow + file


class Reading:
    """One document, and what is wrong with it."""

    def __init__(self, redpoll: Path, root: Path, prepared: Path, document: str) -> None:
        self.redpoll, self.root, self.prepared, self.document = (
            redpoll,
            root,
            prepared,
            document,
        )
        self.text = (root / document).read_text()
        self.passed, self.failed, self.excused = 0, 0, 0

    def complain(self, line: int, what: str) -> None:
        print(f"FAILED: {self.document}:{line}: {what}")
        self.failed += 1

    def run_commands(self, rows: list[Row]) -> None:
        with tempfile.TemporaryDirectory(prefix="redpoll-documents-") as folder:
            shutil.copytree(self.prepared, folder, symlinks=True, dirs_exist_ok=True)
            environment = {
                **os.environ,
                "PATH": f"{folder}/programs:{os.environ['PATH']}",
                "HOME": folder,
            }
            # A print() of a rank is one write, beside those of others.
            environment.pop("PYTHONUNBUFFERED", None)
            for line, command in commands_of(self.text):
                row = row_for(rows, self.document, command)
                if row and row.excuse:
                    print(f"not run: {command}: {row.excuse}")
                    self.excused += 1
                elif command.startswith("export "):
                    self.export(command, environment)
                else:
                    self.run(line, command, row, folder, environment)

    def export(self, command: str, environment: dict[str, str]) -> None:
        """Takes what a shell would keep for the commands behind it."""
        script = f"{command} && env -0"
        done = subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        pairs = (entry.partition("=") for entry in done.stdout.split("\0") if entry)
        environment.update({name: value for name, _, value in pairs})
        self.passed += 1

    def run(
        self, line: int, command: str, row: Row | None, folder: str, environment: dict[str, str]
    ) -> None:
        short = as_run(command, row)
        try:
            done = subprocess.run(
                ["bash", "-c", short],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            self.complain(line, f"{short}\ndoes not end within {SECONDS} s")
            return
        output = (done.stdout + done.stderr)[-1500:]
        if done.returncode != (int(row.exit) if row else 0):
            self.complain(line, f"{short}\nends with exit code {done.returncode}:\n{output}")
        elif row and row.prints and row.prints not in done.stdout + done.stderr:
            self.complain(line, f"{short}\ndoes not print '{row.prints}':\n{output}")
        else:
            self.passed += 1

    def read_sentences(self) -> None:
        options = options_of(self.redpoll)
        for number, line in enumerate(self.text.splitlines(), 1):
            for words in re.findall(r"(?:`|^ {4,})redpoll ([a-z][^`]*)", line):
                self.read_options(number, words.split("  #")[0], options)
            for path in re.findall(rf"(?:`|sh |python3? |\()({FOLDERS}/[\w./-]+)", line):
                if (
                    "NAME" in path
                    or (self.root / path).exists()
                    or (self.root / "docs" / path).exists()
                ):
                    self.passed += 1
                else:
                    self.complain(number, f"there is no {path}")

    def read_options(self, line: int, words: str, options: dict[str, set[str]]) -> None:
        names = [name for name in options if f"{words} ".startswith(f"{name} ")]
        if not names:
            return  # redpoll run PROGRAM, and what is printed
        name = max(names, key=len)
        if name == "run":
            return  # what stands behind it may be of the program
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", words.split("&&")[0]):
            if option in options[name] or option == "--help":
                self.passed += 1
            else:
                self.complain(line, f"redpoll {name} has no option {option}")


def options_of(redpoll: Path) -> dict[str, set[str]]:
    """The options of each command, as `redpoll info --options` lists them."""
    listed = subprocess.run(
        [redpoll, "info", "--options"], capture_output=True, text=True, check=True
    )
    options: dict[str, set[str]] = {}
    for line in listed.stdout.splitlines():
        if line.startswith("## redpoll "):
            of = options.setdefault(line.removeprefix("## redpoll "), set())
        elif line.startswith("| `-"):
            of.update(re.findall(r"--[a-z][\w-]*", line.split("|")[1]))
            of.update(re.findall(r"--no-[\w-]+", line))
        elif also := re.match(r"And the options of `redpoll ([a-z ]+)`", line):
            of.update(options[also[1]])  # which stands before
    return options


def unused(rows: list[Row], root: Path) -> list[Row]:
    """Rows that no command of any document begins with."""
    used = set()
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        document = str(path.relative_to(root))
        for _, command in commands_of(path.read_text()):
            row = row_for(rows, document, command)
            used.add(id(row))
    return [row for row in rows if id(row) not in used]


def main() -> int:
    redpoll, root, prepared = (Path(word).resolve() for word in sys.argv[1:4])
    document = sys.argv[4]
    rows = rows_of(root / "tests/documents/commands.list")
    reading = Reading(redpoll, root, prepared, document)
    for row in unused(rows, root):
        reading.complain(
            0,
            f"no command begins with '{row.begin}': take the row out of commands.list",
        )
    reading.run_commands(rows)
    reading.read_sentences()
    print(
        f"{reading.passed} checks passed, {reading.failed} failed, "
        f"{reading.excused} commands not run here"
    )
    return 1 if reading.failed else 0


if __name__ == "__main__":
    sys.exit(main())
