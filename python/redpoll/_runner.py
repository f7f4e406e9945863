"""What commands that start ranks under another name have in common: bfrun, horovodrun.

Each is a file that reads its own options, hands the rest to `redpoll run`, and is started again
in the place of each rank, where it sets the variables that scripts read and becomes the script.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

_AS_RANK = "--as-rank"


def runs_as(
    main: Callable[[], None],
    program: str,
    variables: Callable[[Mapping[str, str]], dict[str, str]],
) -> None:
    """What the file is, started as a program: one rank, or else its main().

    program: the command's name, for errors. variables: what scripts read, from those of
    `redpoll run`."""
    if sys.argv[1:2] == [_AS_RANK]:
        _become(sys.argv[2:], program, variables(os.environ))
    main()


def parsed(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, package: str
) -> argparse.Namespace:
    """Options, and the `command` that remains. With --version that of the package is printed,
    and the process ends."""
    options = parser.parse_args(arguments)
    if options.command[:1] == ["--"]:  # argparse leaves it in what remains
        del options.command[0]
    if options.version:
        print(importlib.import_module(package).__version__)
        sys.exit(0)
    return options


def host_words(
    options: argparse.Namespace, ssh: Sequence[str], variables: Iterable[str]
) -> list[str]:
    """What `redpoll run` is told of hosts. ssh: options of that. variables: which go along to
    other hosts, of those that are set."""
    words = []
    if options.hosts:
        words += ["-H", options.hosts]
    if options.hostfile:
        words += ["--hostfile", options.hostfile]
    if ssh:
        words += ["--ssh", " ".join(["ssh", *ssh])]
    return words + [word for name in variables if name in os.environ for word in ("-x", name)]


def start(file: str, words: Sequence[str], command: Sequence[str]) -> None:
    """Become `redpoll run` with these words, over ranks of `file`, each of which becomes the
    command. By its file: with -m a folder of the package's name where the user stands would
    come first."""
    from .__main__ import main as be_redpoll

    child = [sys.executable, os.path.abspath(file), _AS_RANK]
    sys.argv = ["redpoll", "run", *words, "--", *child, *command]
    be_redpoll()


def _become(command: Sequence[str], program: str, variables: dict[str, str]) -> NoReturn:
    os.environ.update(variables)
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        sys.exit(f"{program}: {command[0]}: {error.strerror}")
