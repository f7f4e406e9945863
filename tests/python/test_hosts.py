"""Groups over several hosts: which interface each listens on."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import redpoll.torch as rt
from ranks import refusal, run_ranks, values
from redpoll.torch.comm import _launcher, _store

LAUNCH_OF_ONE = {"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "REDPOLL_TRANSPORT": "tcp"}
HOST_OF = ["a", "a", "b"]


def join(rank: int, world: int, port: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    limit = timedelta(seconds=30)
    dist.init_process_group("redpoll", store=store, rank=rank, world_size=world, timeout=limit)


def add_up(group: dist.ProcessGroup | None = None) -> float:
    tensor = torch.ones(5)
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def places(rank: int, world: int, port: int) -> list[str | None]:
    """Hosts are told apart by what they say of themselves; here they say it falsely."""
    _store.host_identity = lambda: HOST_OF[rank]
    _store._facing = lambda place: f"127.0.0.{2 + rank}"
    join(rank, world, port)
    pairs = [dist.new_group([0, 1]), dist.new_group([1, 2])]
    assert add_up() == world
    mine = [group for group in pairs if group is not dist.GroupMember.NON_GROUP_MEMBER]
    for group in mine:
        assert add_up(group) == 2
    found = [rt.communicator_of(group).bind_host for group in [None, *mine]]
    dist.destroy_process_group()
    return found


def test_groups_are_reached_as_the_default_group_is() -> None:
    """Whatever a launcher's variables say: each rank here was launched as a world of one."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    found = values(run_ranks(places, 3, server.port, environment=LAUNCH_OF_ONE))
    assert found[0] == ["127.0.0.2", "127.0.0.2"]  # theirs are the links of the world
    assert found[1] == ["127.0.0.3", "127.0.0.3", "127.0.0.3"]
    assert found[2] == ["127.0.0.4", "127.0.0.4"]


def bind_partly(rank: int, world: int, port: int) -> str | None:
    """REDPOLL_BIND may be set on some ranks only."""
    if rank == 0:
        os.environ["REDPOLL_BIND"] = "127.0.0.9"
    join(rank, world, port)
    assert add_up() == world
    return rt.communicator_of().bind_host


def test_a_rank_with_a_bind_address_tells_where_it_is() -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    found = values(run_ranks(bind_partly, 2, server.port, environment=LAUNCH_OF_ONE))
    assert found == ["127.0.0.9", None]


def without_interface(rank: int, world: int, port: int) -> str:
    _store.host_identity = lambda: f"host {rank}"
    _store._facing = lambda place: None
    return refusal(rt.RedpollError, lambda: join(rank, world, port))


def test_no_interface_faces_the_others() -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for said in values(run_ranks(without_interface, 2, server.port)):
        assert "on 2 hosts" in said and "set REDPOLL_BIND" in said


def filtered(rank: int, world: int, port: int) -> str:
    """REDPOLL_SOCKET_IFNAME decides, whichever interface faces the store's host."""
    _store.host_identity = lambda: f"host {rank}"
    _store._facing = lambda place: "192.0.2.7"
    join(rank, world, port)
    assert add_up() == world
    return rt.communicator_of().bind_host or ""


def test_interfaces_are_those_that_the_variable_names() -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = {**LAUNCH_OF_ONE, "REDPOLL_SOCKET_IFNAME": "=lo"}
    for said in values(run_ranks(filtered, 2, server.port, environment=environment)):
        assert "127.0.0.1" in said.split(",") and "192.0.2.7" not in said


def refused(rank: int, world: int, port: int) -> str:
    _store.host_identity = lambda: f"host {rank}"
    return refusal(rt.RedpollError, lambda: join(rank, world, port))


def test_a_variable_that_matches_no_interface_says_which_there_are() -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = {**LAUNCH_OF_ONE, "REDPOLL_SOCKET_IFNAME": "=nosuch0"}
    for said in values(run_ranks(refused, 2, server.port, environment=environment)):
        assert "REDPOLL_SOCKET_IFNAME is '=nosuch0'" in said and "there are: lo" in said


def test_a_bind_address_wins_over_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDPOLL_SOCKET_IFNAME", "=nosuch0")
    monkeypatch.setenv("REDPOLL_BIND", "127.0.0.9")
    assert _store.bind_host(dist.HashStore(), 0, 2, "0", timeout_s=1) == "127.0.0.9"


def test_one_that_its_launcher_says_has_ended_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = {"redpoll/launch/ended": "2 ended with exit code 0"}
    monkeypatch.setattr(_launcher, "_store", lambda: contextlib.nullcontext(said))
    monkeypatch.setattr(_launcher, "_get", lambda store, key: store.get(key))
    place = {"REDPOLL_STORE": "127.0.0.1:9", "RANK": "0", "WORLD_SIZE": "3"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(_store.JoinError) as failed:
        _store.bind_host(dist.HashStore(), 0, 3, "0", timeout_s=600)
    assert str(failed.value) == (
        "rank 2 ended with exit code 0, and the ranks cannot connect without it (connection "
        "closed by peer)"
    )
    with pytest.raises(_store.JoinError, match="timed out: rank 1 did not arrive"):
        _store.bind_host(dist.HashStore(), 0, 2, "0", timeout_s=1.5)  # of other ranks


# ---- real ones: network namespaces ----

SCRIPT = """
import sys, torch, torch.distributed as dist, redpoll.torch as rt
from datetime import timedelta
rank, host = int(sys.argv[1]), sys.argv[2]
limit = timedelta(seconds=20)
store = dist.TCPStore(host, 29111, is_master=rank == 0, timeout=limit, wait_for_workers=False)
dist.init_process_group("redpoll", store=store, rank=rank, world_size=2, timeout=limit)
tensor = torch.ones(5)
dist.all_reduce(tensor)
print(tensor[0].item(), rt.communicator_of().bind_host)
dist.destroy_process_group()
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    """Two network namespaces that reach each other as 10.97.0.1 and 10.97.0.2, each with an
    interface, deaf0, that leads nowhere."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and ip (Debian: iproute2)")
    names = [f"redpoll-{os.getpid()}-{end}" for end in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
        ip(
            "link",
            "add",
            "to-b",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "to-a",
            "netns",
            names[1],
        )
        for number, (name, device) in enumerate(zip(names, ["to-b", "to-a"]), 1):
            ip("-n", name, "addr", "add", f"10.97.0.{number}/24", "dev", device)
            ip("-n", name, "link", "set", device, "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "add", "deaf0", "type", "veth", "peer", "name", "end0")
            ip("-n", name, "addr", "add", f"10.98.{number}.1/24", "dev", "deaf0")
            ip("-n", name, "link", "set", "deaf0", "up")
            ip("-n", name, "link", "set", "end0", "up")
    except subprocess.CalledProcessError as error:
        remove(names)
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    yield names
    remove(names)


def remove(names: list[str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


def launch(namespaces: list[str], **variables: str) -> list[str]:
    """What each of two ranks prints, one a namespace."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **LAUNCH_OF_ONE, **variables}
    running = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-c", SCRIPT, str(rank), "10.97.0.1"],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank, name in enumerate(namespaces)
    ]
    answers = [process.communicate(timeout=90) for process in running]
    for process, (_, err) in zip(running, answers):
        assert process.returncode == 0, err
    return [out for out, _ in answers]


def test_two_launches_of_one_host_each(namespaces: list[str]) -> None:
    for rank, out in enumerate(launch(namespaces)):
        assert out.split() == ["2.0", f"10.97.0.{1 + rank}"]


def test_the_interface_that_faces_the_others_comes_first(namespaces: list[str]) -> None:
    out = launch(namespaces, REDPOLL_SOCKET_IFNAME="deaf,to-")
    for rank, said in enumerate(out):
        assert said.split() == ["2.0", f"10.97.0.{1 + rank},10.98.{1 + rank}.1"]
