"""The command: `redpoll` as pip installs it, and `python -m redpoll`.

The program itself, written in C, lies beside the library, at `_lib/redpoll`; this hands over to
it, so that signals and exit codes are its own.
"""

from __future__ import annotations

import os
import sys

from ._library import place_of

_MISSING = """\
redpoll: this package was built without the command, for want of the libraries that it needs.
redpoll: Debian and Ubuntu have them as pkg-config libyaml-dev libcjson-dev zlib1g-dev
redpoll: libpcre2-dev libutf8proc-dev, and libdnnl-dev for fast training. Install them, and
redpoll: then Redpoll again, with pip's --force-reinstall --no-cache-dir. Where wheels are, it
redpoll: is in redpoll-command: pip install 'redpoll[command]'. torchrun and mpirun start ranks
redpoll: without it."""


def main() -> None:
    """Does not return."""
    command = place_of("redpoll")
    if not command.exists():
        sys.exit(_MISSING)
    sys.stdout.flush()
    os.execv(command, ["redpoll", *sys.argv[1:]])


if __name__ == "__main__":
    main()
