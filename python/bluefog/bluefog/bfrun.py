"""bfrun -np 4 python train.py: start ranks by `redpoll run`, with the variables that scripts of
BlueFog read before bf.init()."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from redpoll._runner import host_words, parsed, runs_as, start

__all__ = ["main", "refuse_notebooks"]

_PLACES = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}
_ALONG = ("BLUEFOG_LOG_LEVEL", "BLUEFOG_TIMELINE", "BLUEFOG_NODES_PER_MACHINE")


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
    ssh = [f"-p {options.ssh_port}"] if options.ssh_port else []
    apart = options.hosts or options.hostfile or ssh
    return host_words(options, ssh, _ALONG if apart else ())


def main(arguments: Sequence[str] | None = None) -> None:
    """Does not return."""
    parser = _parser()
    options = parsed(parser, arguments, "bluefog")
    _check(options, parser)
    if options.verbose:
        os.environ["BLUEFOG_LOG_LEVEL"] = "debug"
    if options.timeline_filename:
        os.environ["BLUEFOG_TIMELINE"] = options.timeline_filename
    if options.network_interface:
        os.environ["REDPOLL_SOCKET_IFNAME"] = options.network_interface
    words = ["-n", str(options.num_proc), "--no-prefix", *_hosts(options)]
    start(__file__, words, options.command)


def refuse_notebooks() -> None:
    """ibfrun, which keeps ranks for a notebook. Does not return."""
    print(
        "ibfrun is not supported: ranks behind a notebook need MPI's own service; put the "
        "cells into a script, and bfrun -np N python script.py",
        file=sys.stderr,
    )
    sys.exit(2)


def _variables(given: Mapping[str, str]) -> dict[str, str]:
    return {theirs: given[ours] for ours, theirs in _PLACES.items()}


if __name__ == "__main__":
    runs_as(main, "bfrun", _variables)
