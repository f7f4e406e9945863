"""The files in examples/ for clusters: every key is one that its kind has, what must be there
is, and the commands inside parse. Without a cluster: the kinds are in a table, SHAPES, to which
a manifest of another kind adds a row.
"""

from __future__ import annotations

import copy
import os
import re
import shlex
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = sorted((ROOT / "examples/kubernetes").glob("*.yaml"))
BATCH = ROOT / "examples/slurm/train.sbatch"

# A shape is a type, a list of one shape (a list of such), a set (one of these words), or a dict
# of keys; a key that ends in "!" must be there, "*" stands for keys of any name.
METADATA = {"name!": str, "labels": {"*": str}}
QUANTITIES = {"cpu": str, "memory": str}
VARIABLE = {
    "name!": str,
    "value": str,
    "valueFrom": {"secretKeyRef!": {"name!": str, "key!": str}},
}
CONTAINER = {
    "name!": str,
    "image!": str,
    "command": [str],
    "args": [str],
    "env": [VARIABLE],
    "ports": [{"containerPort!": int, "name": str}],
    "resources!": {"requests!": QUANTITIES, "limits!": QUANTITIES},
    "securityContext": {
        "runAsNonRoot": bool,
        "runAsUser": int,
        "allowPrivilegeEscalation": bool,
    },
    "volumeMounts": [{"name!": str, "mountPath!": str}],
}
POD = {
    "metadata": {"labels!": {"*": str}},
    "spec!": {
        "containers!": [CONTAINER],
        "restartPolicy": {"Never", "OnFailure"},
        "volumes": [{"name!": str, "*": dict}],
    },
}
REPLICAS = {
    "replicas!": int,
    "restartPolicy": {"Never", "OnFailure", "Always", "ExitCode"},
    "template!": POD,
}
RUN_POLICY = {"backoffLimit": int, "cleanPodPolicy": {"None", "Running", "All"}}
JOB = {
    "parallelism!": int,
    "completions!": int,
    "completionMode!": {"Indexed", "NonIndexed"},
    "backoffLimit": int,
    "template!": POD,
}
SHAPES: dict[tuple[str, str], Any] = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): {
        "failurePolicy": {"maxRestarts!": int},
        "network": {"enableDNSHostnames": bool, "subdomain": str},
        "replicatedJobs!": [{"name!": str, "replicas!": int, "template!": {"spec!": JOB}}],
    },
    ("kubeflow.org/v1", "PyTorchJob"): {
        "runPolicy": RUN_POLICY,
        "pytorchReplicaSpecs!": {"Master!": REPLICAS, "Worker": REPLICAS},
    },
    ("kubeflow.org/v2beta1", "MPIJob"): {
        "slotsPerWorker": int,
        "sshAuthMountPath": str,
        "launcherCreationPolicy": {"AtStartup", "WaitForWorkersReady"},
        "runPolicy": RUN_POLICY,
        "mpiReplicaSpecs!": {"Launcher!": REPLICAS, "Worker!": REPLICAS},
    },
}


def misfits(found: Any, shape: Any, place: str) -> list[str]:
    """One line for each thing in which `found` is not of the shape."""
    if isinstance(shape, list):
        if not isinstance(found, list) or not found:
            return [f"{place} is no list"]
        return [
            line
            for i, one in enumerate(found)
            for line in misfits(one, shape[0], f"{place}[{i}]")
        ]
    if isinstance(shape, set):
        return [] if found in shape else [f"{place} is {found!r}, none of {sorted(shape)}"]
    if isinstance(shape, dict):
        return misfits_of_keys(found, shape, place)
    return [] if type(found) is shape else [f"{place} is {found!r}, no {shape.__name__}"]


def misfits_of_keys(found: Any, shape: dict[str, Any], place: str) -> list[str]:
    if not isinstance(found, dict):
        return [f"{place} has no keys"]
    keys = {key.rstrip("!"): (key.endswith("!"), inner) for key, inner in shape.items()}
    said = [
        f"{place}.{key} is missing"
        for key, (must, _) in keys.items()
        if must and key not in found
    ]
    for key, value in found.items():
        _, inner = keys.get(key, keys.get("*", (False, None)))
        if inner is None:
            said.append(f"{place}.{key} is no key there")
        else:
            said += misfits(value, inner, f"{place}.{key}")
    return said


def read(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one is not None]


def misfits_of(manifest: dict[str, Any]) -> list[str]:
    kind = manifest.get("apiVersion"), manifest.get("kind")
    if kind not in SHAPES:
        return [f"{kind} is in no row of SHAPES"]
    top = {"apiVersion!": str, "kind!": str, "metadata!": METADATA, "spec!": SHAPES[kind]}
    return misfits(manifest, top, str(kind[1]))


def containers(found: Any) -> list[dict[str, Any]]:
    if isinstance(found, list):
        return [one for each in found for one in containers(each)]
    if not isinstance(found, dict):
        return []
    own = found.get("containers", [])
    return own + [
        one for key, each in found.items() if key != "containers" for one in containers(each)
    ]


def test_there_are_manifests() -> None:
    assert {read(path)[0]["kind"] for path in MANIFESTS} == {kind for _, kind in SHAPES}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_is_of_its_kind(path: Path) -> None:
    for manifest in read(path):
        assert not misfits_of(manifest)


def broken(manifest: dict[str, Any], where: list[Any], key: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(manifest)
    at = changed
    for step in where:
        at = at[step]
    at.pop(key, None) if value is None else at.update({key: value})
    return changed


JOB_AT = ["spec", "replicatedJobs", 0, "template", "spec"]
CONTAINER_AT = [*JOB_AT, "template", "spec", "containers", 0]
BREACHES = {  # where in jobset.yaml, key, its value (None: without it), what is said
    "a key misspelt": (JOB_AT, "completionmode", "Indexed", "completionmode is no key"),
    "a key left out": (JOB_AT, "completionMode", None, "completionMode is missing"),
    "a number as text": (JOB_AT, "parallelism", "2", "no int"),
    "a text as number": ([*CONTAINER_AT, "env", 0], "value", 2, "no str"),
    "another word": ([*JOB_AT, "template", "spec"], "restartPolicy", "Always", "none of"),
    "no list": (CONTAINER_AT, "command", "torchrun", "is no list"),
    "another version": ([], "apiVersion", "jobset.x-k8s.io/v1", "no row of SHAPES"),
}


@pytest.mark.parametrize("case", BREACHES)
def test_a_breach_is_told(case: str) -> None:
    where, key, value, said = BREACHES[case]
    (manifest,) = read(ROOT / "examples/kubernetes/jobset.yaml")
    found = misfits_of(broken(manifest, where, key, value))
    assert len(found) == 1 and said in found[0], found


# ---- what runs inside ----


def command_of(container: dict[str, Any]) -> str:
    shell, option, text = container["command"]
    assert (shell, option) == ("sh", "-c")
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_its_command_starts_an_example(path: Path, tmp_path: Path) -> None:
    """Typed into a shell with programs of our own in place of torchrun and mpirun."""
    told = tmp_path / "told"
    for name in ("torchrun", "mpirun"):
        program = tmp_path / name
        program.write_text(
            f'#!/bin/sh\nprintf "%s\\n" {name} "$@" >>{shlex.quote(str(told))}\n'
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("first.job slots=1\nsecond.job slots=1\n")
    place = {"JOB_COMPLETION_INDEX": "1", "WORLD_SIZE": "2", "RANK": "1"}
    place |= {"MASTER_ADDR": "first.job", "MASTER_PORT": "29500"}
    environment = {**os.environ, **place, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for container in containers(read(path)):
        if "command" not in container:
            continue  # a worker of the MPI operator, which puts sshd there
        text = command_of(container).replace("/etc/mpi/hostfile", str(hostfile))
        told.unlink(missing_ok=True)
        subprocess.run(["sh", "-euc", text], env=environment, check=True, timeout=60)
        words = told.read_text().splitlines()
        assert any("first" in word or "pods-0-0" in word for word in words), words
        assert "29500" in " ".join(words)
        if words[0] == "torchrun":
            assert words[words.index("--node-rank") + 1] == "1"
            assert words[words.index("--nnodes") + 1] == "2"
        (script,) = [word for word in words if word.endswith(".py")]
        assert (ROOT / script.replace("examples/", "examples/pytorch/")).is_file()


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_containers_are_told_the_secret_and_the_interface(path: Path) -> None:
    for container in containers(read(path)):
        names = {one["name"] for one in container["env"]}
        assert {"REDPOLL_SECRET", "REDPOLL_SOCKET_IFNAME"} <= names


# ---- Slurm ----

OPTIONS = {  # of sbatch, that the file may use, and what their values look like
    "job-name": r"[\w-]+",
    "nodes": r"\d+(-\d+)?",
    "ntasks-per-node": r"\d+",
    "cpus-per-task": r"\d+",
    "time": r"\d\d:\d\d:\d\d",
    "output": r"[\w%.-]+",
    "requeue": "",
}


def test_the_batch_script_has_sbatchs_options() -> None:
    lines = BATCH.read_text().splitlines()
    given = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")]
    assert len(given) >= 5
    for one in given:
        name, _, value = one.partition("=")
        assert name in OPTIONS and re.fullmatch(OPTIONS[name], value), one
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert not any(line.startswith("#SBATCH") for line in lines[first:]), "sbatch stops there"


@pytest.mark.parametrize("own", [[], ["python", "mine.py", "--lr", "a b"]])
def test_the_batch_script_starts_ranks(tmp_path: Path, own: list[str]) -> None:
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\necho "threads $OMP_NUM_THREADS"\nprintf "%s\\n" "$@"\n')
    srun.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_CPUS_PER_TASK": "3"}
    done = subprocess.run(
        ["sh", BATCH, *own], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[0] == "threads 3"
    assert words[words.index("--cpus-per-task") + 1] == "3"
    if own:
        assert words[-len(own) :] == own
    else:
        (script,) = [word for word in words if word.endswith(".py")]
        assert (ROOT / script).is_file()
