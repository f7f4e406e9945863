"""Redpoll against gloo, in the same processes: every operation, dtype, shape and mode, in
groups of 1, 2, 3 and 5. Bit-equal for what is moved, integers, minima and maxima; floats that
are added within rounding. The cases are in conformance.py."""

from __future__ import annotations

import time
import traceback
from collections import defaultdict
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from conformance import CASES, FLOATS, Case
from ranks import run_group, values

WORLDS = {1: [3], 2: [3, 4], 3: [0, 1, 2], 5: [0, 1, 2, 3, 4]}
RELATIVE = {
    torch.float16: 2.0**-7,
    torch.bfloat16: 2.0**-4,
}  # gloo rounds every partial sum; else 1e-6
TIMEOUT_S, GROUP_TIMEOUT_S = 400.0, 60.0  # of a hang, on a busy machine


def difference(case: Case, got: torch.Tensor, wanted: torch.Tensor) -> str:
    """What is wrong with `got`; "" for nothing."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype} {tuple(got.shape)} instead of {wanted.dtype} {tuple(wanted.shape)}"
    if got.dtype == torch.bool:
        same = torch.equal(got.to(torch.uint8) != 0, wanted.to(torch.uint8) != 0)
    elif case.sums and (got.dtype in FLOATS or got.dtype.is_complex):
        wide = torch.complex128 if got.dtype.is_complex else torch.float64
        bound = RELATIVE.get(got.dtype, 1e-6)
        same = torch.allclose(got.to(wide), wanted.to(wide), rtol=bound, atol=bound)
    else:
        same = torch.equal(bits(got), bits(wanted))
    return "" if same else f"{got.reshape(-1)[:4]} instead of {wanted.reshape(-1)[:4]}"


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def compare(case, dtype, shape, async_op, groups, rank, world) -> str:
    """Run one instance with both; a sentence on what went wrong, or ""."""
    place = (rank, world, dtype, shape, async_op)
    torch.manual_seed(0)
    got = case.run(groups["redpoll"], *place)
    wanted = case.wanted(groups["gloo"], *place)
    if len(got) != len(wanted):
        return f"{len(got)} tensors instead of {len(wanted)}"
    return "; ".join(filter(None, (difference(case, a, b) for a, b in zip(got, wanted))))


def run_all(rank: int, world: int, names: list[str]) -> dict[tuple[str, int], list[str]]:
    """Every case in every group that this rank is in: problems by case and world."""
    import redpoll.torch  # noqa: F401

    problems: dict[tuple[str, int], list[str]] = defaultdict(list)
    for size, members in WORLDS.items():
        limit = timedelta(seconds=GROUP_TIMEOUT_S)
        groups = {
            name: dist.new_group(members, backend=name, timeout=limit)
            for name in ("redpoll", "gloo")
        }
        if rank not in members:
            continue
        own = members.index(rank)
        for case in CASES:
            if case.name not in names:
                continue
            start = time.monotonic()
            for dtype, shape, async_op in case.instances():
                what = f"rank {own}, {dtype}, {shape}, {'async' if async_op else 'sync'}: "
                try:
                    problem = compare(case, dtype, shape, async_op, groups, own, size)
                except Exception:
                    problems[case.name, size].append(what + traceback.format_exc())
                    return dict(problems)  # ranks are out of step now
                if problem:
                    problems[case.name, size].append(what + problem)
            problems[case.name, 0].append(f"{size}: {time.monotonic() - start:.2f} s")
    return dict(problems)


@pytest.fixture(scope="module")
def problems(request: pytest.FixtureRequest) -> dict[tuple[str, int], list[str]]:
    """Of all ranks together; only the selected cases run."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    cases = [one.params.get("case") for one in calls if one]
    asked = {case.name for case in cases if isinstance(case, Case)}
    merged: dict[tuple[str, int], list[str]] = defaultdict(list)
    outcomes = run_group(
        run_all,
        5,
        sorted(asked),
        backend="gloo",
        timeout=TIMEOUT_S,
        group_timeout=GROUP_TIMEOUT_S,
    )
    for found in values(outcomes):
        for key, each in found.items():
            merged[key] += each
    return merged


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_like_gloo(case: Case, world: int, problems: dict[tuple[str, int], list[str]]) -> None:
    assert problems.get((case.name, 0)), "no rank came to this case"
    assert not problems.get((case.name, world), []), "\n".join(problems[case.name, world][:20])
