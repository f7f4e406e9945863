"""What a comparison says: a table for people, and a processor's section of the documents."""

from __future__ import annotations

import os
import re
from pathlib import Path
from statistics import median

from compare_runs import LOSS, Kind, Result, Sample, interval

HEADING = "## By processor"
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))


def quantity(value: float, unit: str) -> str:
    """12.3 GB/s; others than bytes go without a prefix."""
    for scale, prefix in PREFIXES:
        if unit == "B/s" and value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


def middle(samples: list[Sample]) -> tuple[float, float]:
    return median(s.value for s in samples), median(s.share for s in samples)


def verdict(result: Result) -> str:
    if result.kind is not Kind.COMPARED:
        return f"{result.kind.value}: {result.why}"
    if result.is_down:
        return "DOWN"
    return "looked down once" if result.suspected is not None else ""


def line_of(result: Result) -> str:
    """Name, both medians, the share of the yardstick, the ratio and its spread."""
    row, cells = result.row, ["-"] * 5
    if result.old:
        value, share = middle(result.old)
        cells[0], cells[1] = quantity(value, row.unit), f"{share:.3f}"
    if result.new:
        value, share = middle(result.new)
        cells[2], cells[3] = quantity(value, row.unit), f"{share:.3f}"
    if result.old and result.new:
        low, high = interval(result.ratios)
        cells[4] = f"{median(result.ratios):.3f} ({low:.3f} ... {high:.3f})"
    return (
        f"{row.name:<46} {cells[0]:>15} {cells[1]:>8} {cells[2]:>15} {cells[3]:>8}  "
        f"{cells[4]:<24} {verdict(result)}"
    ).rstrip()


def title(ref: str) -> str:
    return (
        f"{'row':<46} {ref[:13]:>15} {'share':>8} {'here':>15} {'share':>8}  "
        f"{'ratio (spread)':<24}"
    ).rstrip()


def summary(results: list[Result]) -> tuple[str, bool]:
    """The last lines, and whether this is a failure."""
    lines = []
    for kind in (Kind.NEW, Kind.IDLE, Kind.FAILED):
        names = [result.row.name for result in results if result.kind is kind]
        if names:
            lines.append(f"{kind.value}: {', '.join(names)}")
    down = [result for result in results if result.is_down]
    for result in down:
        lines.append(f"DOWN: {result.row.name}: {100 * (1 - median(result.ratios)):.1f} %")
    compared = sum(result.kind is Kind.COMPARED for result in results)
    lines.append(
        f"{compared} rows compared, {len(down)} of them more than {100 * LOSS:g} % down"
    )
    return "\n".join(lines), bool(down) or any(r.kind is Kind.FAILED for r in results)


# ---- docs/performance.md ----


def first_word(path: str, pattern: str) -> str:
    try:
        match = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    except OSError:
        return ""
    return match[1].strip() if match else ""


def cache(level: int) -> str:
    for index in range(8):
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{index}"
        kind, at = first_word(f"{folder}/type", "(.+)"), first_word(f"{folder}/level", "(.+)")
        if at == str(level) and kind != "Instruction":
            size = first_word(f"{folder}/size", r"(\d+)K")
            kib = int(size) if size else 0
            return f"L{level} of {kib // 1024} MB" if kib >= 1024 else f"L{level} of {kib} KB"
    return ""


def processor() -> str:
    """Its name, what machines of one name differ in, and how many cores there are."""
    name = first_word("/proc/cpuinfo", r"^model name\s*:(.+)") or os.uname().machine
    name = re.sub(r"\((R|TM)\)|\bCPU\b", "", name)
    flags = first_word("/proc/cpuinfo", r"^(?:flags|Features)\s*:(.+)").split()
    known = (("amx_tile", "AMX"), ("avx512f", "AVX-512"), ("avx2", "AVX2"), ("asimd", "NEON"))
    has = [word for flag, word in known if flag in flags]
    facts = [*has[:2], *filter(None, (cache(2), cache(3)))]
    cores = len(os.sched_getaffinity(0))
    return f"{' '.join(name.split())} ({', '.join(facts)}), {cores} core{'s' * (cores > 1)}"


def section(results: list[Result], name: str) -> str:
    lines = [
        f"### {name}",
        "",
        "| row | in units of | median | spread |",
        "|---|---|---|---|",
    ]
    for result in results:
        if not result.new:
            continue
        shares = [sample.share for sample in result.new]
        low, high = interval(shares)
        stick = result.row.yardstick
        stick = "its own" if stick.startswith(("json ", "line ")) else stick
        lines.append(
            f"| {result.row.name} | {stick} | {median(shares):.3g} | {low:.3g} ... {high:.3g} |"
        )
    return "\n".join(lines) + "\n"


def write(results: list[Result], path: Path, name: str) -> None:
    """The section of this processor takes the place of its older one."""
    text = path.read_text()
    if HEADING not in text:
        raise SystemExit(f"{path} has no '{HEADING}', below which tables go")
    before, _, rest = text.partition(HEADING)
    body, separator, after = rest.partition("\n## ")
    mark = f"\n### {name}\n"
    start = body.find(mark)
    if start >= 0:
        end = body.find("\n### ", start + 1)
        body = body[:start] + ("" if end < 0 else body[end:])
    body = body.rstrip("\n") + "\n\n" + section(results, name)
    path.write_text(before + HEADING + body + separator + after)
