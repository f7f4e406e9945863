"""bfrun -np 4 python train.py: start ranks by `redpoll run`, with the variables that scripts of
BlueFog read before bf.init()."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

__all__ = ["main", "refuse_notebooks"]

_PLACES = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bfrun",
        usage="bfrun -np N [OPTIONS] COMMAND ...",
        description="Start N ranks of COMMAND, on Redpoll.",
    )
    parser.add_argument("-np", "--num-proc", type=int, metavar="N", help="how many; required")
    parser.add_argument("-v", "--version", action="store_true", help="show the version")
    parser.add_argument("-H", "--hosts", metavar="HOST:N,..", help="where, by ssh")
    parser.add_argument("-hostfile", "--hostfile", metavar="FILE", help="lines 'name slots=N'")
    parser.add_argument("-p", "--ssh-port", type=int, metavar="PORT", help="of ssh")
    parser.add_argument("--network-interface", metavar="NAME", help="which ranks listen on")
    parser.add_argument("--verbose", action="store_true", help="BLUEFOG_LOG_LEVEL=debug")
    parser.add_argument("--timeline-filename", metavar="PREFIX", help="BLUEFOG_TIMELINE")
    parser.add_argument("--use-infiniband", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--extra-mpi-flags", help=argparse.SUPPRESS)
    parser.add_argument("--prefix", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Ends with a usage error for what cannot be honoured."""
    refused = {
        "--use-infiniband": (options.use_infiniband, "Redpoll speaks TCP and shared memory"),
        "--extra-mpi-flags": (options.extra_mpi_flags, "there is no MPI underneath"),
        "--prefix": (options.prefix, "there is no MPI underneath"),
    }
    for name, (value, instead) in refused.items():
        if value:
            parser.error(f"{name} is not supported: {instead}")
    if options.num_proc is None:
        parser.error("how many ranks? bfrun -np 4 python train.py")
    if not options.command:
        parser.error("what is to run? bfrun -np 4 python train.py")


def _hosts(options: argparse.Namespace) -> list[str]:
    """What `redpoll run` is told of hosts."""
    words = []
    if options.hosts:
        words += ["-H", options.hosts]
    if options.hostfile:
        words += ["--hostfile", options.hostfile]
    if options.ssh_port:
        words += ["--ssh", f"ssh -p {options.ssh_port}"]
    if words:
        for name in ("BLUEFOG_LOG_LEVEL", "BLUEFOG_TIMELINE", "BLUEFOG_NODES_PER_MACHINE"):
            if name in os.environ:
                words += ["-x", name]
    return words


def main(arguments: Sequence[str] | None = None) -> None:
    """Does not return."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command[:1] == ["--"]:  # argparse leaves it in what remains
        del options.command[0]
    if options.version:
        from bluefog import __version__

        print(__version__)
        sys.exit(0)
    _check(options, parser)
    if options.verbose:
        os.environ["BLUEFOG_LOG_LEVEL"] = "debug"
    if options.timeline_filename:
        os.environ["BLUEFOG_TIMELINE"] = options.timeline_filename
    if options.network_interface:
        os.environ["REDPOLL_SOCKET_IFNAME"] = options.network_interface
    from redpoll.__main__ import main as be_redpoll

    # By its file: with -m a folder `bluefog` where the user stands would come first.
    child = [sys.executable, os.path.abspath(__file__), "--as-rank"]
    start = ["redpoll", "run", "-n", str(options.num_proc), "--no-prefix"]
    sys.argv = [*start, *_hosts(options), "--", *child, *options.command]
    be_redpoll()


def refuse_notebooks() -> None:
    """ibfrun, which keeps ranks for a notebook. Does not return."""
    print(
        "ibfrun is not supported: ranks behind a notebook need MPI's own service; put the "
        "cells into a script, and bfrun -np N python script.py",
        file=sys.stderr,
    )
    sys.exit(2)


def _be_rank(command: Sequence[str]) -> None:
    """One of them, which `redpoll run` has told its place. Does not return."""
    for ours, theirs in _PLACES.items():
        os.environ[theirs] = os.environ[ours]
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        sys.exit(f"bfrun: {command[0]}: {error.strerror}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-rank"]:
        _be_rank(sys.argv[2:])
    main()
