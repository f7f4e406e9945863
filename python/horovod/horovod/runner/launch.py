"""horovodrun -np 4 python train.py: start ranks by `redpoll run`, with the variables that
scripts of Horovod read."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence

from redpoll._runner import host_words, parsed, runs_as, start

__all__ = ["main"]

# Options without a meaning here, and those that cannot be honoured with what to do instead.
_NO_MATTER = (
    "--gloo",
    "--tcp",
    "--disable-cache",
    "--no-hierarchical-allreduce",
    "--no-hierarchical-allgather",
    "--no-stall-check",
    "--prefix-output-with-timestamp",
)
_NO_MATTER_VALUES = (
    "--cycle-time-ms",
    "--cache-capacity",
    "--start-timeout",
    "--elastic-timeout",
    "--gloo-timeout-seconds",
    "--num-nccl-streams",
    "--blacklist-cooldown-range",
    "--thread-affinity",
)
_REFUSED = {
    "--mpi": "there is no MPI underneath; leave it out",
    "--jsrun": "there is no jsrun here; in a job of Slurm or PBS leave out hosts",
    "--autotune": "Redpoll chooses by the link; leave it out",
    "--hierarchical-allreduce": "Redpoll chooses by the hosts; leave it out",
    "--hierarchical-allgather": "Redpoll chooses by the hosts; leave it out",
    "--check-build": "run `redpoll info`",
}
_REFUSED_VALUES = {
    "--mpi-args": "there is no MPI underneath; leave it out",
    "--max-np": "no rank joins a job that runs; give -np",
    "--host-discovery-script": "no host joins a job that runs; give -H",
    "--slots-per-host": "no host joins a job that runs; give -H host:slots",
    "--reset-limit": "ranks are lost until fewer than --min-np are left; leave it out",
    "--config-file": "give options as words",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="horovodrun",
        usage="horovodrun -np N [OPTIONS] COMMAND ...",
        description="Start N ranks of COMMAND, on Redpoll.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-np", "--num-proc", type=int, metavar="N", help="how many; required")
    add("-v", "--version", action="store_true", help="show the version")
    add("-H", "--hosts", metavar="HOST:N,..", help="where, by ssh")
    add("-hostfile", "--hostfile", metavar="FILE", help="lines 'name slots=N'")
    add("-p", "--ssh-port", type=int, metavar="PORT", help="of ssh")
    add("-i", "--ssh-identity-file", metavar="FILE", help="of ssh")
    add("--network-interfaces", "--network-interface", metavar="A,B", help="of ranks")
    add("--min-np", "--min-num-proc", type=int, metavar="N", help="go on while N are left")
    add("--output-filename", metavar="FOLDER", help="what ranks print, in files")
    add("--verbose", action="store_true", help="HOROVOD_LOG_LEVEL=debug")
    add("--log-level", metavar="LEVEL", help="HOROVOD_LOG_LEVEL")
    add("--timeline-filename", metavar="FILE", help="HOROVOD_TIMELINE")
    add("--timeline-mark-cycles", action="store_true", help="rounds, in the timeline")
    add("--fusion-threshold-mb", type=int, metavar="MB", help="HOROVOD_FUSION_THRESHOLD")
    add("--stall-check-warning-time-seconds", type=int, metavar="S", help="0: never")
    for name in _NO_MATTER:
        add(name, action="store_true", help=argparse.SUPPRESS)
    for name in _NO_MATTER_VALUES:
        add(name, help=argparse.SUPPRESS)
    for name in _REFUSED:
        add(name, action="store_true", help=argparse.SUPPRESS)
    for name in _REFUSED_VALUES:
        add(name, help=argparse.SUPPRESS)
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Ends with a usage error for what cannot be honoured."""
    for name, instead in {**_REFUSED, **_REFUSED_VALUES}.items():
        if getattr(options, name[2:].replace("-", "_")):
            parser.error(f"{name} is not supported: {instead}")
    if options.num_proc is None and not (options.hosts or options.hostfile):
        parser.error("how many ranks? horovodrun -np 4 python train.py")
    if not options.command:
        parser.error("what is to run? horovodrun -np 4 python train.py")


def _variables(options: argparse.Namespace) -> dict[str, str]:
    found = {
        "HOROVOD_TIMELINE": options.timeline_filename,
        "HOROVOD_TIMELINE_MARK_CYCLES": "1" if options.timeline_mark_cycles else None,
        "HOROVOD_LOG_LEVEL": "debug" if options.verbose else options.log_level,
        "HOROVOD_STALL_CHECK_TIME_SECONDS": options.stall_check_warning_time_seconds,
        "HOROVOD_STALL_CHECK_DISABLE": "1" if options.no_stall_check else None,
        "HOROVOD_ELASTIC": "1" if options.min_np else None,
        "REDPOLL_SOCKET_IFNAME": options.network_interfaces,
    }
    if options.fusion_threshold_mb is not None:
        found["HOROVOD_FUSION_THRESHOLD"] = options.fusion_threshold_mb << 20
    return {name: str(value) for name, value in found.items() if value is not None}


def _words(options: argparse.Namespace) -> list[str]:
    """What `redpoll run` is told."""
    words = ["--no-prefix"]
    if options.num_proc is not None:
        words += ["-n", str(options.num_proc)]
    ssh = [f"-p {options.ssh_port}"] if options.ssh_port else []
    ssh += [f"-i {options.ssh_identity_file}"] if options.ssh_identity_file else []
    is_apart = options.hosts or options.hostfile
    along = [name for name in sorted(os.environ) if name.startswith("HOROVOD_")]
    words += host_words(options, ssh, along if is_apart else ())
    if options.min_np:
        words += ["--on-loss", "continue"]
    if options.output_filename:
        words += ["--output-dir", options.output_filename]
    return words


def main(arguments: Sequence[str] | None = None) -> None:
    """Does not return."""
    parser = _parser()
    options = parsed(parser, arguments, "horovod")
    _check(options, parser)
    os.environ.update(_variables(options))
    start(__file__, _words(options), options.command)


def _places(given: Mapping[str, str]) -> dict[str, str]:
    rank, local, hosts = (int(given[n]) for n in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    world = int(given["WORLD_SIZE"])
    places = {"RANK": rank, "SIZE": world, "LOCAL_RANK": local, "LOCAL_SIZE": hosts}
    places.update(CROSS_RANK=(rank - local) // hosts, CROSS_SIZE=-(-world // hosts))
    return {f"HOROVOD_{name}": str(value) for name, value in places.items()}


if __name__ == "__main__":
    runs_as(main, "horovodrun", _places)
