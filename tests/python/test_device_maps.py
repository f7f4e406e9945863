"""Which backend serves which device: every way to write it, and every way to be told."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

import redpoll.torch as rt
from ranks import refusal, run_ranks, splits_without_a_device, values

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def server() -> dist.TCPStore:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def start(rank: int, world: int, config: str, port: int, **options) -> dist.ProcessGroup:
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group(config, store=store, rank=rank, world_size=world, **options)
    return dist.group.WORLD


def check_sum(group: dist.ProcessGroup, kind: type, world: int) -> None:
    tensor = torch.ones(3)
    work = dist.all_reduce(tensor, group=group, async_op=True)
    assert isinstance(work, rt.Work) == (kind is rt.Work)
    work.wait()
    assert tensor[0] == world


# ---- what may be written ----


def use_a_device_map(rank: int, world: int, config: str, port: int) -> None:
    group = start(rank, world, config, port)
    assert {one.type for one in group._device_types} == {"cpu", "cuda"}
    assert group._get_backend(CUDA).name() == "gloo"
    assert rt.communicator_of().world == world
    check_sum(group, rt.Work, world)
    dist.barrier()
    gathered = [None] * world
    dist.all_gather_object(gathered, rank)
    assert gathered == list(range(world))
    dist.destroy_process_group()


MIXED = ["cpu:redpoll,cuda:gloo", "cuda:gloo,cpu:redpoll"]


@pytest.mark.parametrize("config", MIXED)
def test_device_maps(config: str) -> None:
    store = server()
    values(run_ranks(use_a_device_map, 2, config, store.port))


def use_it_for_cuda_alone(rank: int, world: int, port: int) -> None:
    """Without a GPU no CUDA tensor can be sent, but the doors can be looked at."""
    group = start(rank, world, "cpu:gloo,cuda:redpoll", port)
    assert group._get_backend(CPU).name() == "gloo"
    assert group._get_backend(CUDA).name() == "redpoll"
    check_sum(group, dist.Work, world)


def test_redpoll_for_cuda_and_another_for_the_cpu() -> None:
    store = server()
    values(run_ranks(use_it_for_cuda_alone, 2, store.port))


def use_it_for_both(rank: int, world: int, port: int) -> None:
    group = start(rank, world, "cpu:redpoll,cuda:redpoll", port)
    assert group._get_backend(CPU).name() == group._get_backend(CUDA).name() == "redpoll"
    assert group._get_backend(CUDA).communicator is group.communicator
    check_sum(group, rt.Work, world)


def test_one_backend_written_for_both_devices() -> None:
    store = server()
    values(run_ranks(use_it_for_both, 2, store.port))


def ask_for_an_unknown_backend(rank: int, world: int) -> None:
    store = dist.HashStore()
    with pytest.raises(ValueError, match="'cuda:nosuch': this PyTorch has no backend 'nosuch'"):
        dist.init_process_group("cpu:redpoll,cuda:nosuch", store=store, rank=0, world_size=1)


def test_a_device_map_with_an_unknown_backend_names_it() -> None:
    values(run_ranks(ask_for_an_unknown_backend, 1))


# ---- splits ----


def split_mixed(rank: int, world: int, config: str, port: int) -> list[str]:
    group = start(rank, world, config, port)
    half = dist.split_group(group, [[2, 0], [1]], group_desc="pair")
    assert {one.type for one in half._device_types} == {"cpu", "cuda"}
    assert half.group_desc == "pair"
    check_sum(half, rt.Work, half.size())
    other, tensor = half._get_backend(CUDA), torch.ones(2)
    assert other.name() == "gloo" and other.rank() == half.rank() == {0: 1, 1: 0, 2: 0}[rank]
    other.allreduce([tensor]).wait()  # of the half alone
    assert tensor[0] == half.size()
    alone = dist.split_group(group, [[0, 1, 2]], backend="cpu:redpoll")
    assert alone._device_types == [CPU]
    check_sum(alone, rt.Work, world)
    again = dist.split_group(half, [list(range(half.size()))])
    check_sum(again, rt.Work, half.size())
    said = refusal(
        ValueError, lambda: dist.split_group(group, [[0, 1, 2]], backend="cuda:gloo")
    )
    dist.destroy_process_group()
    return said


@pytest.mark.skipif(not splits_without_a_device(), reason="this PyTorch wants a device_id")
@pytest.mark.parametrize("config", MIXED)
def test_a_split_keeps_the_other_backend(config: str) -> None:
    store = server()
    for said in values(run_ranks(split_mixed, 3, config, store.port)):
        assert "use new_group() with the other backend's name" in said


# ---- releases that make groups otherwise ----


def without_plugins(rank: int, world: int, port: int) -> None:
    """Before 2.15 gloo and NCCL were no plugins: PyTorch made them in its own code."""
    dist.Backend._plugins.pop("GLOO", None)
    dist.Backend._ensure_backend_registered = lambda name: None
    group = start(rank, world, "cpu:redpoll,cuda:gloo", port)
    assert group._get_backend(CUDA).name() == "gloo"
    check_sum(group, rt.Work, world)


def test_backends_that_are_no_plugins_are_made() -> None:
    store = server()
    values(run_ranks(without_plugins, 2, store.port))


def older_options(**changes) -> SimpleNamespace:
    """What a creator is given by 2.4: no process_group."""
    given = {
        "store": dist.PrefixStore("cpu/", dist.PrefixStore("0/", dist.HashStore())),
        "group_rank": 0,
        "group_size": 1,
        "timeout": timedelta(seconds=10),
        "group_id": "0",
        "global_ranks_in_group": [],
    }
    return SimpleNamespace(**{**given, **changes})


def creator():
    return dist.Backend._plugins["REDPOLL"].creator_fn


def create_as_before(rank: int, world: int) -> None:
    backend_config = dist.distributed_c10d.BackendConfig("cuda:gloo,cpu:redpoll")  # noqa: F841
    options = older_options()
    pg = dist.ProcessGroup(options.store, 0, 1)
    gloo = dist.ProcessGroupGloo(options.store, 0, 1, timeout=options.timeout)
    pg._register_backend(CUDA, dist.ProcessGroup.BackendType.GLOO, gloo)
    group = creator()(options, None)
    assert group._get_backend(CUDA).name() == "gloo"
    assert group._get_backend(CPU).name() == "redpoll"


def test_options_without_a_process_group() -> None:
    values(run_ranks(create_as_before, 1))


def create_without_a_map(rank: int, world: int) -> str:
    return refusal(RuntimeError, lambda: creator()(older_options(), None))


def test_a_map_that_is_not_found_is_an_error_that_says_what_to_write() -> None:
    (said,) = values(run_ranks(create_without_a_map, 1))
    assert "does not say which devices" in said
    assert "pg_options=redpoll.torch.Options(devices='cpu:redpoll,cuda:nccl')" in said


def create_with_a_written_map(rank: int, world: int) -> None:
    both = rt.Options(devices="cpu:redpoll, cuda:gloo")
    group = creator()(older_options(), both)
    assert group._get_backend(CUDA).name() == "gloo"
    alone = creator()(older_options(group_id="1"), rt.Options(devices="redpoll"))
    assert alone._device_types == [CPU]


def test_a_map_that_is_written_in_the_options() -> None:
    values(run_ranks(create_with_a_written_map, 1))


@pytest.mark.parametrize(
    "devices, said",
    [
        ("cuda:nccl", "redpoll"),
        ("cpu:redpoll,cpu:gloo", "cpu twice"),
        ("cpu:", "cpu:"),
        ("gloo", "gloo"),
    ],
)
def test_written_maps_that_cannot_be_meant(devices: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        creator()(older_options(), rt.Options(devices=devices))
