#!/usr/bin/env python3
"""Redpoll beside gloo under PyTorch: medians and ratios, all backends in the same processes.

    python bench/torch.py                      # everything; the link needs root (else skipped)
    python bench/torch.py all-reduce overhead  # these sections only
    python bench/torch.py link --rates 200mbit,100mbit --json

Needs PyTorch and Redpoll in the interpreter that runs it (`pip install .`). Figures of a
machine that others use at the same time are noisy: look at the ratios, and repeat.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent / "pytorch"
SKIPPED = 77

RESNET = {"what": "steps", "model": "resnet18", "batch": 32, "samples": "images"}
GPT = {"what": "steps", "model": "gpt", "batch": 4, "samples": "sequences"}
GPT.update(layers=12, width=384, context=64, vocabulary=8192)
GPT2 = {**GPT, "width": 768, "vocabulary": 50257}
ON_GPU = {
    "resnet50": {"what": "steps", "model": "resnet50", "batch": 64, "samples": "images"},
    "gpt2": {**GPT2, "batch": 8, "context": 512, "samples": "sequences"},
}
EXACT = {"gloo": ["gloo", None], "redpoll": ["redpoll", None]}
FSDP = {**GPT, "what": "fsdp", "layers": 4, "batch": 2, "vocabulary": 2048}
SHARDED = {
    "gloo": ["gloo", None],
    "redpoll": ["redpoll", None],
    "redpoll q8": ["redpoll", {}],
    "redpoll q4": ["redpoll", {"grads": "q4", "weights": "q8", "error_feedback": True}],
}
GROUPS = 20  # of a turn
LOSSY = {**EXACT, "redpoll q4": ["redpoll", "q4"]}


class Skipped(Exception):
    """A section that cannot run here."""


def start(job: dict, ranks: int, rate: str | None = None) -> dict:
    """measure.py in `ranks` processes, on this host or (rate) on hosts of a shaped link."""
    threads = str(max(1, (os.cpu_count() or 1) // ranks))
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads)}
    environment.update(PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, str(HERE / "measure.py"), json.dumps(job)]
    if rate:
        command = ["sh", str(HERE / "namespaces.sh"), str(ranks), rate, *command]
        return answer([start_process(command, environment)])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    place.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    return answer(
        [
            start_process(
                command, {**environment, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            )
            for rank in range(ranks)
        ]
    )


STARTS = 4


def start_anew(job: dict, ranks: int, rate: str | None = None) -> dict:
    """A job of training steps, in several processes one after the other: how a model's memory
    happens to lie, and which was made first, moves its steps by some percent for the life of
    a process. Rounds are shared out; every other process makes them the other way round."""
    pooled: dict = {}
    for turn in range(STARTS):
        each = list(job["contestants"].items())
        rounds = -(-job["rounds"] // STARTS)
        turned = dict(reversed(each) if turn % 2 else each)
        found = start({**job, "rounds": rounds, "contestants": turned}, ranks, rate)
        for name, seconds in found["seconds"].items():
            pooled.setdefault(name, []).extend(seconds)
    return {**found, "seconds": pooled}


def start_process(command: list[str], environment: dict) -> tuple:
    """The process, and the file that it prints into."""
    output = tempfile.TemporaryFile("w+")
    return subprocess.Popen(command, env=environment, stdout=output), output


def answer(started: list[tuple]) -> dict:
    """What rank 0 printed, once all have ended well; when one fails, the others are ended."""
    processes = [process for process, _ in started]
    try:
        while any(process.poll() is None for process in processes):
            if any(process.poll() for process in processes):
                break
            time.sleep(0.1)
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        codes = [process.wait() for process in processes]
    if SKIPPED in codes:
        raise Skipped
    if any(codes):
        raise SystemExit(f"bench/torch.py: ranks ended with codes {codes}; see above")
    output = started[0][1]
    output.seek(0)
    return json.loads(output.read().splitlines()[-1])


def medians(seconds: dict) -> dict:
    return {name: statistics.median(list_) for name, list_ in seconds.items()}


def size_name(size: int) -> str:
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size >> shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def repeats(size: int) -> int:
    """Calls in a turn: what the caches and the scheduler still owe to the other backend's turn
    shall not be most of it."""
    return max(8, min(50, (16 << 20) // size))


# ---- sections: each yields rows, and says how to print one ----


def all_reduce(options):
    """exact all-reduce, float32, one host"""
    print_row(
        f"{'ranks':>5} {'size':>8} {'gloo ms':>9} {'redpoll ms':>10} {'registered':>10} "
        f"{'ratio':>7}   goal"
    )
    for ranks in options.ranks:
        for size in options.sizes:
            job = {"what": "all-reduce", "bytes": size, "rounds": options.rounds}
            job["iterations"] = repeats(size)
            found = medians(start(job, ranks))
            row = {"ranks": ranks, "bytes": size, "gloo_s": found["gloo"]}
            row.update(redpoll_s=found["redpoll"], ratio=found["gloo"] / found["redpoll"])
            row.update(registered_s=found["registered"])
            print_row(
                f"{ranks:5} {size_name(size):>8} {1e3 * row['gloo_s']:9.3f} "
                f"{1e3 * row['redpoll_s']:10.3f} {1e3 * row['registered_s']:10.3f} "
                f"{row['ratio']:6.2f}x   >= 2x"
            )
            yield row


def operations(options):
    """every operation, synchronous unless it says async, on blocks of float32, one host"""
    print_row(
        f"{'ranks':>5} {'block':>8} {'operation':<22} {'gloo us':>9} {'redpoll us':>10} "
        f"{'ratio':>7}"
    )
    for ranks in options.ranks:
        for size in (64, 64 << 10, 4 << 20):
            job = {"what": "operations", "bytes": size, "rounds": options.rounds}
            job["iterations"] = repeats(size)
            for name, seconds in start(job, ranks).items():
                found = medians(seconds)
                row = {"ranks": ranks, "bytes": size, "operation": name}
                row.update(gloo_s=found["gloo"], redpoll_s=found["redpoll"])
                row["ratio"] = found["gloo"] / found["redpoll"]
                print_row(
                    f"{ranks:5} {size_name(size):>8} {name:<22} {1e6 * row['gloo_s']:9.1f} "
                    f"{1e6 * row['redpoll_s']:10.1f} {row['ratio']:6.2f}x"
                )
                yield row


def groups(options):
    """new_group() of all ranks, one after the other, one host"""
    print_row(
        f"{'ranks':>5} {'gloo ms':>9} {'redpoll ms':>10} {'ratio':>7} {'gloo KiB':>9} "
        f"{'redpoll KiB':>11}   goal"
    )
    for ranks in options.ranks:
        job = {"what": "groups", "rounds": options.rounds, "iterations": GROUPS}
        found = start(job, ranks)
        seconds, sizes = medians(found["seconds"]), medians(found["bytes"])
        row = {"ranks": ranks, "ratio": seconds["gloo"] / seconds["redpoll"]}
        for name in EXACT:
            row.update({f"{name}_s": seconds[name], f"{name}_bytes": sizes[name]})
        print_row(
            f"{ranks:5} {1e3 * seconds['gloo']:9.2f} {1e3 * seconds['redpoll']:10.2f} "
            f"{row['ratio']:6.2f}x {sizes['gloo'] / 1024:9.0f} {sizes['redpoll'] / 1024:11.0f}"
            "   >= 1x, <= 64 KiB"
        )
        yield row


def steps(options):
    """one DDP training step, exact, one host"""
    print_row(
        f"{'model':>8} {'ranks':>5} {'alone ms':>9} {'gloo ms':>9} {'redpoll ms':>10} "
        f"{'ratio':>7}   goal"
    )
    models = {"resnet18": RESNET, "gpt": GPT2 if options.gpt2 else GPT}
    for name, model in models.items():
        for ranks in options.ranks:
            job = {**model, "contestants": EXACT, "rounds": options.rounds}
            found = medians(start_anew(job, ranks)["seconds"])
            row = {"model": name, "ranks": ranks, "alone_s": found["alone"]}
            row.update(gloo_s=found["gloo"], redpoll_s=found["redpoll"])
            row["ratio"] = found["gloo"] / found["redpoll"]
            print_row(
                f"{name:>8} {ranks:5} {1e3 * row['alone_s']:9.1f} {1e3 * row['gloo_s']:9.1f} "
                f"{1e3 * row['redpoll_s']:10.1f} {row['ratio']:6.2f}x   >= 1x"
            )
            yield row


def integrations(options):
    """one DDP training step by q4 in frameworks, beside a plain script's"""
    print_row(f"{'in':>12} {'ranks':>5} {'step ms':>9} {'more':>8}   goal")
    for ranks in options.ranks:
        job = {**GPT, "what": "integrations", "layers": options.layers, "steps": 12}
        turns = start({**job, "rounds": options.rounds}, ranks)["seconds"]
        for name, seconds in medians(turns).items():
            more = statistics.median(a / b for a, b in zip(turns[name], turns["plain"])) - 1
            row = {"name": name, "ranks": ranks, "step_s": seconds, "more": more}
            print_row(f"{name:>12} {ranks:5} {1e3 * seconds:9.1f} {100 * more:6.1f} %   <= 3 %")
            yield row


def overhead(options):
    """Python's part of a call: an all-reduce of one element, microseconds"""
    print_row(
        f"{'ranks':>5} {'C call':>7} {'redpoll':>8} {'gloo':>7} {'added':>7} "
        f"{'async':>7} {'gloo':>7} {'added':>7}   goal"
    )
    for ranks in (1, *options.ranks):
        job = {"what": "overhead", "calls": 500, "rounds": options.rounds}
        found = {name: 1e6 * s for name, s in medians(start(job, ranks)).items()}
        row = {"ranks": ranks, **{f"{name}_us": value for name, value in found.items()}}
        row["added_us"] = found["redpoll"] - found["c"]
        row["async_added_us"] = found["redpoll_async"] - found["c"]
        # Where ranks share a core, each waits for the others' Python as well.
        goal = "<= 25, <= 30" if ranks <= (os.cpu_count() or 1) else "(ranks share cores)"
        print_row(
            f"{ranks:5} {found['c']:7.1f} {found['redpoll']:8.1f} {found['gloo']:7.1f} "
            f"{row['added_us']:7.1f} {found['redpoll_async']:7.1f} {found['gloo_async']:7.1f} "
            f"{row['async_added_us']:7.1f}   {goal}"
        )
        yield row


def predicted(job: dict, found: dict, name: str, rate: str) -> tuple[float, float]:
    """Seconds of a step from bytes and rate alone: all traffic hidden by computing, or
    none of it. An all-reduce over P ranks sends 2 (P - 1) / P of the encoded gradients."""
    compute = statistics.median(found["seconds"]["alone"])
    wire = 0.0
    if rate != "unlimited":
        sent = found["gradient_bytes"][name] * 2 * (job["ranks"] - 1) / job["ranks"]
        wire = sent * 8 / bits_a_second(rate)
    return max(compute, wire), compute + wire


def bits_a_second(rate: str) -> float:
    for unit, factor in (("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)):
        if rate.endswith(unit):
            return float(rate[: -len(unit)]) * factor
    raise SystemExit(f"rate is {rate}; 200mbit, 1gbit or unlimited are understood")


def link(options):
    """DDP ResNet-18, 2 hosts (network namespaces, tbf), 32 images a rank, images/s"""
    print_row(
        f"{'rate':>9} {'':>10} {'images/s':>8} {'predicted':>13} {'x gloo':>7} "
        f"{'of unlimited':>12}   goal"
    )
    unlimited = None
    for rate in options.rates:
        job = {**RESNET, "ranks": 2, "contestants": LOSSY, "rounds": options.rounds}
        found = start_anew(job, 2, rate)
        images = 2 * job["batch"]
        seconds = medians(found["seconds"])
        if rate == "unlimited":
            unlimited = seconds["alone"] / seconds["redpoll"]
        for name in LOSSY:
            fast, slow = predicted(job, found, name, rate)
            row = {"rate": rate, "backend": name, "images_s": images / seconds[name]}
            row.update(predicted_images_s=[images / slow, images / fast])
            row["ratio"] = seconds["gloo"] / seconds[name]
            # Each beside "alone" of its own run: the machine may have become slower in between.
            share = seconds["alone"] / seconds[name] / unlimited if unlimited else None
            row["share_of_unlimited"] = share
            print_row(
                f"{rate:>9} {name:>10} {row['images_s']:8.1f} "
                f"{images / slow:6.1f}-{images / fast:<6.1f} {row['ratio']:6.2f}x "
                f"{f'{100 * share:.0f} %' if share else '-':>12}   "
                f"{LINK_GOALS.get((rate, name), '')}"
            )
            yield row


def fsdp(options):
    """FSDP2, a GPT of 4 blocks, 2 hosts (namespaces, tbf); bound: of computing and sending"""
    print_row(
        f"{'rate':>9} {'':>10} {'step ms':>8} {'MB sent':>8} {'bound ms':>8} {'of bound':>8} "
        f"{'x exact':>7}   goal"
    )
    for rate in options.asked_rates or ["200mbit"]:
        job = {**FSDP, "contestants": SHARDED, "rounds": options.rounds}
        found = start(job, 2, rate)
        seconds, sent = medians(found["seconds"]), found["sent"]
        for name in SHARDED:
            bits = 8 * (sent[name] or sent["redpoll"])
            wire = 0.0 if rate == "unlimited" else bits / bits_a_second(rate)
            bound = max(seconds["alone"], wire)
            row = {"rate": rate, "backend": name, "step_s": seconds[name], "bound_s": bound}
            row.update(sent=sent[name], alone_s=seconds["alone"], wire_s=wire)
            row.update(of_bound=seconds[name] / bound)
            row.update(ratio=seconds["redpoll"] / seconds[name])
            print_row(
                f"{rate:>9} {name:>10} {1e3 * row['step_s']:8.1f} {bits / 8e6:8.2f} "
                f"{1e3 * bound:8.1f} {100 * row['of_bound']:6.0f} % {row['ratio']:6.2f}x   "
                f"{FSDP_GOALS.get((rate, name), '')}"
            )
            yield row


def gpu(options):
    """DDP, 2 ranks on one GPU, bf16, hosts of a shaped link (namespaces), samples/s"""
    if not has_gpu():
        print_row("no GPU here (torch.cuda.is_available() is False)")
        raise Skipped
    rates = options.asked_rates or ["unlimited", "25gbit", "10gbit", "1gbit"]
    print_row(
        f"{'model':>9} {'rate':>9} {'':>10} {'samples/s':>9} {'x gloo':>7} {'of alone':>9}"
    )
    for model, shape in ON_GPU.items():
        for rate in rates:
            job = {**shape, "device": "cuda", "contestants": LOSSY, "rounds": options.rounds}
            seconds = medians(start(job, 2, rate)["seconds"])
            for name in LOSSY:
                row = {"model": model, "rate": rate, "backend": name}
                row["samples_s"] = 2 * job["batch"] / seconds[name]
                row["ratio"] = seconds["gloo"] / seconds[name]
                row["share_of_alone"] = seconds["alone"] / seconds[name]
                print_row(
                    f"{model:>9} {rate:>9} {name:>10} {row['samples_s']:9.1f} "
                    f"{row['ratio']:6.2f}x {100 * row['share_of_alone']:7.0f} %"
                )
                yield row


def has_gpu() -> bool:
    probe = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


LINK_GOALS = {
    ("200mbit", "redpoll q4"): ">= 1.9x, >= 85 %",
    ("100mbit", "redpoll q4"): ">= 3.2x, >= 85 %",
    **{(r, "redpoll"): ">= 1x" for r in ("unlimited", "1gbit", "200mbit", "100mbit")},
}
FSDP_GOALS = {
    ("200mbit", "redpoll q8"): "<= 115 %, >= 2.5x",
    ("200mbit", "redpoll q4"): "<= 115 %",
}
SECTIONS = {
    "all-reduce": all_reduce,
    "operations": operations,
    "groups": groups,
    "steps": steps,
    "overhead": overhead,
    "integrations": integrations,
    "link": link,
    "fsdp": fsdp,
    "gpu": gpu,
}


def print_row(line: str) -> None:
    print(line, flush=True, file=sys.stderr if print_row.quiet else sys.stdout)


print_row.quiet = False


def machine() -> dict:
    probe = "import torch, redpoll; print(torch.__version__, redpoll.__version__)"
    try:
        found = subprocess.run(
            [sys.executable, "-c", probe],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
            cwd=HERE,
        )
    except subprocess.CalledProcessError:
        raise SystemExit(
            f"bench/torch.py: PyTorch or Redpoll is missing for {sys.executable}; "
            "`pip install torch numpy .` installs both"
        ) from None
    pytorch, redpoll = found.stdout.split()
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "pytorch": pytorch,
        "redpoll": redpoll,
    }


def parse() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--ranks", type=numbers, default=[2, 4], help="of one host (2,4)")
    parser.add_argument("--sizes", type=numbers, default=[1 << s for s in (16, 20, 22, 24, 26)])
    parser.add_argument("--rates", type=lambda text: text.split(","))
    parser.add_argument("--rounds", type=int, default=7, help="turns of each backend (7)")
    parser.add_argument("--layers", type=int, default=4, help="of integrations' model (4)")
    parser.add_argument("--gpt2", action="store_true", help="GPT-2 itself, 124M parameters")
    parser.add_argument("--json", action="store_true", help="results as one JSON object")
    options = parser.parse_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    options.asked_rates = options.rates
    options.rates = options.rates or ["unlimited", "1gbit", "200mbit", "100mbit"]
    return options


def main() -> None:
    options = parse()
    print_row.quiet = options.json
    results = {"machine": machine()}
    print_row(", ".join(f"{key} {value}" for key, value in results["machine"].items()))
    for name in options.sections or SECTIONS:
        print_row(f"\n{name}: {SECTIONS[name].__doc__}, median of {options.rounds}")
        try:
            results[name] = list(SECTIONS[name](options))
        except Skipped:
            print_row("skipped")
            results[name] = "skipped"
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
