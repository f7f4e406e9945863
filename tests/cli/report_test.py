"""`redpoll report` as its users meet it. usage: report_test.py REDPOLL [NAME...]

Pages are read by an XML parser, event files by a reader of their own, tables by csv; numbers
are compared with those in metrics.jsonl.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, Callable

REDPOLL = os.path.abspath(sys.argv[1])
NAMESPACE = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>\"'&]]>\x01\u202e|`"


def report(*words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [REDPOLL, "report", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (
        f"{command}: exit code {done.returncode}, not {code}: {done.stderr}"
    )
    return done


def fails(message: str, *words: str | Path, code: int = 1) -> None:
    done = report(*words, code=code)
    assert message in done.stderr, f"'{message}' is not in: {done.stderr}"
    assert done.stderr.count("\n") <= (1 if code == 1 else 2), done.stderr


def header(**changes: Any) -> dict[str, Any]:
    options = {"data": "synthetic", "link": "1Gbit,50us", "seed": 1, "out": "x"}
    options.update(changes.pop("options", {}))
    line = {"redpoll": "0.1.0", "host": "h", "time": 1700000000, "model": "mlp", "ranks": 2}
    line.update({"transport": "tcp", "codec": "fp32", "first_step": 1, "last_step": 100})
    return {**line, **changes, "options": options}


def step(number: int, **changes: Any) -> dict[str, Any]:
    line: dict[str, Any] = {"step": number, "loss": 2.5 / (1 + number / 10), "lr": 0.05}
    line.update(
        {"images_s": 100.0 + number % 7, "step_s": 0.5, "compute_s": 0.4, "comm_s": 0.3}
    )
    line.update({"encode_s": 0.02, "decode_s": 0.03, "exposed_s": 0.1, "skew_s": 0.04})
    return {**line, "wire_bytes": 1500000, **changes}


def evaluation(number: int, accuracy: float) -> dict[str, Any]:
    return {
        "evaluated_step": number,
        "test_accuracy": accuracy,
        "test_loss": 1.5,
        "test_images": 9,
    }


CLOSING = {"steps": 1, "images_s_median": 5}


def write_run(folder: Path, *lines: dict[str, Any] | str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines]
    (folder / "metrics.jsonl").write_text("".join(texts))
    return folder


def simple_run(folder: Path, steps: int = 40, **changes: Any) -> Path:
    lines = [step(i) for i in range(1, steps + 1)]
    return write_run(folder, header(**changes), *lines, evaluation(steps, 0.875), CLOSING)


def page(path: Path) -> ElementTree.Element:
    """The page, well-formed, and in need of nothing else."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    addresses = set(re.findall(r"https?://[^\"'\s<)]+", text))
    assert addresses <= {"http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg"}, (
        addresses
    )
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    root = ElementTree.fromstring(text)
    for element in root.iter():
        assert element.tag not in (
            NAMESPACE + "script",
            NAMESPACE + "link",
            NAMESPACE + "img",
        ), element.tag
        assert not any(name.startswith("on") for name in element.attrib), element.attrib
    check_figures(root)
    return root


def check_figures(root: ElementTree.Element) -> None:
    """Each figure has a title, a description and a table; names in the page are unique."""
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids)), ids
    for figure in root.iter(NAMESPACE + "figure"):
        drawing = figure.find(SVG + "svg")
        assert drawing is not None and drawing.get("role") == "img"
        title, description = drawing.find(SVG + "title"), drawing.find(SVG + "desc")
        assert title is not None and title.text and description is not None and description.text
        assert drawing.get("aria-labelledby", "").split() == [
            title.get("id"),
            description.get("id"),
        ]
        assert figure.find(f".//{NAMESPACE}table") is not None, title.text
        check_inside(drawing)


def check_inside(drawing: ElementTree.Element) -> None:
    """No coordinate is a NaN, and every label lies within the drawing."""
    _, _, width, height = map(float, drawing.get("viewBox", "").split())
    for element in drawing.iter():
        for value in element.attrib.values():
            assert "nan" not in value.split("-")[0].lower() and "inf" not in value, (
                element.attrib
            )
        if element.tag == SVG + "text":
            assert 0 <= float(element.get("x", "0")) <= width, element.attrib
            assert 0 <= float(element.get("y", "0")) <= height, element.attrib
        moved = re.fullmatch(r"translate\((\S+) (\S+)\)", element.get("transform", ""))
        if moved:
            assert 0 <= float(moved[1]) < width, element.attrib
            assert 0 <= float(moved[2]) < height, element.attrib


def text_of(element: ElementTree.Element) -> str:
    return "".join(element.itertext()).replace("\u00a0", " ").strip()


def table_of(parent: ElementTree.Element) -> list[list[str]]:
    table = parent.find(f".//{NAMESPACE}table")
    assert table is not None
    rows = table.iter(NAMESPACE + "tr")
    return [
        [text_of(cell) for cell in row if cell.tag[len(NAMESPACE) :] in ("td", "th")]
        for row in rows
    ]


def comparison_of(root: ElementTree.Element) -> dict[str, dict[str, str]]:
    heading, *rows = table_of(root)
    return {row[0]: dict(zip(heading, row)) for row in rows}


def figure_of(root: ElementTree.Element, name: str) -> ElementTree.Element:
    return next(
        figure for figure in root.iter(NAMESPACE + "figure") if figure.get("id") == name
    )


def steps_in(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if "step" in line]


def leftovers(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*.tmp")]


# What a page says


def test_a_real_run(tmp: Path) -> None:
    for ranks in (1, 2):
        words = [
            "--model",
            "mlp",
            "--data",
            "synthetic",
            "--steps",
            "30",
            "--eval-every",
            "10",
            "-n",
            str(ranks),
        ]
        words += ["--codec", "q4", "--global-batch-size", "32", "--out", str(tmp / f"n{ranks}")]
        subprocess.run([REDPOLL, "train", *words], check=True, capture_output=True, timeout=120)
    report(tmp / "n1", tmp / "n2", "-o", tmp / "out.html")
    root = page(tmp / "out.html")
    rows = comparison_of(root)
    for ranks in (1, 2):
        steps = steps_in(tmp / f"n{ranks}")
        row = rows[f"n{ranks}"]
        assert row["ranks"] == str(ranks) and row["steps"] == "30" and row["model"] == "mlp", (
            row
        )
        rate = statistics.median(line["images_s"] for line in steps)
        assert math.isclose(float(row["images/s"]), rate, rel_tol=1e-3), (row, rate)
        sent = statistics.mean(line["wire_bytes"] for line in steps) / 1e6
        assert math.isclose(float(row["MB a step"]), sent, rel_tol=1e-3, abs_tol=1e-9), (
            row,
            sent,
        )
        last = [line["loss"] for line in steps[-2:]]  # 30 steps: means over 3, 2 at the end
        assert math.isclose(float(row["final loss"]), sum(last) / 2, rel_tol=1e-3), (row, last)
    names = [figure.get("id") for figure in root.iter(NAMESPACE + "figure")]
    wanted = [
        "loss-steps",
        "loss-time",
        "loss-bytes",
        "accuracy",
        "throughput",
        "step-time",
        "scaling",
    ]
    assert names == wanted, names


def test_numbers_of_figures(tmp: Path) -> None:
    run = simple_run(tmp / "run")
    report(run, "-o", tmp / "out.html")
    root = page(tmp / "out.html")
    (_, *columns), (_, *values) = table_of(figure_of(root, "loss-steps"))
    losses = {line["step"]: line["loss"] for line in steps_in(run)}
    for column, value in zip(columns, values):
        around = [losses[i] for i in range(int(column) - 1, int(column) + 2) if i in losses]
        assert math.isclose(float(value), statistics.mean(around), rel_tol=1e-3), (
            column,
            value,
        )
    assert len(columns) >= 4
    heading, row = table_of(figure_of(root, "step-time"))
    parts = dict(zip(heading, row))
    assert parts["step"] == "500 ms" and parts["compute"] == "400 ms", parts
    assert parts["exposed: network"] == "60.0 ms", parts
    assert parts["exposed: waiting for a rank"] == "40.0 ms" and parts["codec"] == "50.0 ms", (
        parts
    )
    assert comparison_of(root)["run"]["exposed"] == "20.0 %"
    texts = [text_of(text) for text in figure_of(root, "step-time").iter(SVG + "text")]
    assert "500 ms, 20 % exposed" in texts, texts
    assert comparison_of(root)["run"]["best accuracy"] == "87.50 %"
    time = table_of(figure_of(root, "loss-time"))
    assert time[0][-1] == "20.0 s", time  # 40 steps of 0.5 s
    assert table_of(figure_of(root, "loss-bytes"))[0][-1] == "60.0 MB"


def picture() -> dict[str, Any]:
    """Two stages, two micro-batches; spans that are none, which are passed over."""
    first = [["forward", 0, 0, 0.0, 0.1], ["forward", 0, 1, 0.1, 0.2]]
    first += [["stages", 0, 0, 0.2, 0.5], ["backward", 0, 0, 0.5, 0.7]]
    first += [["backward", 0, 1, 0.7, 0.9], ["replicas", 0, -1, 0.9, 1.0]]
    second = [["stages", 0, 0, 0.0, 0.1], ["forward", 0, 0, 0.1, 0.2]]
    second += [["layers", 0, -1, 0.15, 0.2], ["inputs", 0, 0, 0.2, 0.3]]
    second += [["weights", 0, 0, 0.3, 0.4], ["dance", 0, 0, 0.4, 0.5]]
    second += [["forward", 0, 0, 0.9, 0.1], ["forward"], [], 7, ["forward", 0, 0, None, 1]]
    ranks: list[Any] = [
        {"rank": 0, "stage": 0, "tensor": 0, "start_s": 0, "end_s": 1.0, "spans": first},
        {"rank": 2, "stage": 1, "tensor": 0, "start_s": 0, "end_s": 1.0, "spans": second},
        {"rank": 3, "stage": 1, "tensor": 0, "start_s": 1, "end_s": 1, "spans": []},
        {"rank": -1, "stage": 1, "tensor": 0, "start_s": 0, "end_s": 1, "spans": []},
        {"rank": 4, "stage": 1},
        "no rank",
    ]
    return {"picture_step": 40, "ranks": ranks}


def test_a_step_rank_by_rank(tmp: Path) -> None:
    lines = [step(i) for i in range(1, 41)]
    run = write_run(tmp / "pp", header(), *lines, picture(), CLOSING)
    report(run, "-o", tmp / "out.html")
    figure = figure_of(page(tmp / "out.html"), "step-picture")
    heading, *rows = table_of(figure)
    assert [row[0] for row in rows] == ["pp: rank 0, stage 0", "pp: rank 2, stage 1"], rows
    first, second = (dict(zip(heading, row)) for row in rows)
    for row, wanted in (
        (first, {"forward": 200, "backward": 400, "stages": 300, "replicas": 100}),
        (second, {"forward": 100, "backward": 100, "weights": 100, "layers": 50}),
    ):
        assert row["step"] == "1.00 s", row
        for what, milliseconds in wanted.items():
            number, unit = row[what].split()
            assert unit == "ms" and math.isclose(float(number), milliseconds), (row, what)
    texts = [text_of(text) for text in figure.iter(SVG + "text")]
    assert "computes 60 %, stages 30 %, replicas 10 %" in texts, texts
    titles = [text_of(title) for title in figure.iter(SVG + "title")]
    assert "backward of micro-batch 0: 200 ms" in titles, titles
    # Nothing of it in a run that was started anew and has none, nor of what is no picture.
    for odd in ({"picture_step": 1}, {"picture_step": 1, "ranks": 5}, CLOSING):
        again = header(first_step=41)
        run = write_run(tmp / "none", header(), *lines, picture(), again, odd, CLOSING)
        report(run, "-o", tmp / "out.html")
        names = [
            figure.get("id") for figure in page(tmp / "out.html").iter(NAMESPACE + "figure")
        ]
        assert "step-picture" not in names, names


def test_ranks_beside_the_ideal(tmp: Path) -> None:
    """A sample of 32 takes 1e9 operations; `step` says 64 images a second and 0.5 s."""
    runs = []
    for ranks, rate in ((4, 160), (1, 64), (2, 96)):
        changes = {"ranks": ranks, "sample_flops": 1e9, "global_batch_size": 32}
        lines = [{**step(i), "images_s": rate, "step_s": 32 / rate} for i in range(1, 11)]
        options = {"pp": 2} if ranks == 4 else {}
        first = header(**changes)
        first["options"] = {**first.get("options", {}), **options}
        runs.append(write_run(tmp / f"n{ranks}", first, *lines, CLOSING))
    told = report(*runs, "-o", tmp / "out.html", "--markdown").stdout
    table = [line.strip("| ").split(" | ") for line in told.splitlines() if "TFLOP" in line]
    assert len(table) == 1, told
    at = next(i for i, line in enumerate(told.splitlines()) if "TFLOP" in line)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in told.splitlines()]
    one, two, four = rows[at + 2 : at + 5]
    assert one == ["n1", "1", "dp 1", "0.0640", "64.00", "64.00", "64.00, 100 %"], one
    assert two == ["n2", "2", "dp 2", "0.0480", "48.00", "96.00", "128.0, 75 %"], two
    assert four == ["n4", "4", "dp 2, pp 2", "0.0400", "40.00", "160.0", "256.0, 62 %"], four
    assert "Ranks beside the ideal" in (tmp / "out.html").read_text()
    report(runs[0], "-o", tmp / "out.html")
    assert "Ranks beside the ideal" not in (tmp / "out.html").read_text()


def test_consensus(tmp: Path) -> None:
    """Ranks with parameters of their own: against steps, time and bytes, and in the tables."""
    ring, exact = {"consensus_distance": 0.5}, {"consensus_distance": 0.0125}
    lines = [step(i) for i in range(1, 41)]
    lines.insert(20, {**evaluation(20, 0.5), **ring})
    ends = [{**evaluation(40, 0.875), **exact}, CLOSING]
    run = write_run(tmp / "gossip", header(), *lines, *ends)
    report(run, simple_run(tmp / "all-reduce"), "-o", tmp / "out.html")
    root = page(tmp / "out.html")
    for kind, places in (
        ("steps", ["20", "40"]),
        ("time", ["10.0 s", "20.0 s"]),  # steps of 0.5 s
        ("bytes", ["30.0 MB", "60.0 MB"]),
    ):
        heading, *rows = table_of(figure_of(root, f"consensus-{kind}"))
        assert heading[1:] == places and rows == [["gossip", "0.5000", "0.01250"]], (
            heading,
            rows,
        )
    report(run, "--csv", tmp / "csv")
    with (tmp / "csv" / "evaluations.csv").open(newline="") as stream:
        rows_of_table = list(csv.DictReader(stream))
    assert [row["consensus_distance"] for row in rows_of_table] == ["0.5", "0.0125"]
    report(simple_run(tmp / "alone"), "-o", tmp / "alone.html")
    names = [
        str(figure.get("id")) for figure in page(tmp / "alone.html").iter(NAMESPACE + "figure")
    ]
    assert not [name for name in names if name.startswith("consensus")], names


def test_runs_of_tokens(tmp: Path) -> None:
    """Rates say what they count; perplexity has a figure, a column and a scalar of its own."""
    evaluated = {"evaluated_step": 2, "test_accuracy": 0.25, "test_loss": 2.0}
    lines = [step(i, tokens_s=900.0) for i in (1, 2)]
    for line in lines:
        del line["images_s"]
    run = write_run(
        tmp / "run",
        header(),
        *lines,
        {**evaluated, "test_perplexity": 7.389, "test_tokens": 96},
        {"steps": 2, "tokens_s_median": 900.0},
    )
    report(run, "-o", tmp / "out.html")
    root = page(tmp / "out.html")
    assert comparison_of(root)["run"]["images/s"] == "900.0 tokens"
    assert table_of(figure_of(root, "perplexity"))[1][-1] == "7.389"
    report(run, "--csv", tmp / "csv")
    with (tmp / "csv" / "evaluations.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert row["test_perplexity"] == "7.389" and row["test_images"] == "96"
    report(run, "--tensorboard", tmp / "tb")
    (path,) = (tmp / "tb").rglob("events*")
    seen = [values for _, _, values in scalars(path) if "test/loss" in values]
    assert len(seen) == 1 and abs(seen[0]["test/perplexity"] - 7.389) < 1e-6
    report(simple_run(tmp / "images"), "-o", tmp / "images.html")
    figures = page(tmp / "images.html").iter(NAMESPACE + "figure")
    assert not [figure for figure in figures if figure.get("id") == "perplexity"]


def test_steps_that_exchange_seldom(tmp: Path) -> None:
    """Local SGD: one step of ten sends, and is the slow one; medians know nothing of it."""
    lines = []
    for i in range(1, 41):
        sends = i % 10 == 0
        lines.append(
            step(
                i,
                wire_bytes=3000000 if sends else 0,
                step_s=0.9 if sends else 0.4,
                exposed_s=0.5 if sends else 0.0,
                skew_s=0.0,
            )
        )
    write_run(tmp / "run", header(), *lines, CLOSING)
    report(tmp / "run", "-o", tmp / "out.html", "--csv", tmp / "tables")
    row = comparison_of(page(tmp / "out.html"))["run"]
    assert row["MB a step"] == "0.3000", row
    assert row["step"] == "450 ms" and row["exposed"] == "11.1 %", row
    (values,) = csv.DictReader((tmp / "tables" / "runs.csv").open())
    assert float(values["wire_bytes_mean"]) == 300000.0, values


def test_scaling(tmp: Path) -> None:
    runs = []
    for ranks, rate in ((1, 100), (2, 190), (4, 300)):
        lines = [step(i, images_s=rate) for i in range(1, 6)]
        runs.append(write_run(tmp / f"n{ranks}", header(ranks=ranks), *lines, CLOSING))
    report(*runs, "-o", tmp / "out.html")
    table = table_of(figure_of(page(tmp / "out.html"), "scaling"))
    assert table[0][1:] == ["1", "2", "4"], table
    assert table[1][1:] == ["100.0", "190.0", "300.0"], table
    assert table[2][1:] == ["100.0", "200.0", "400.0"], table
    idle = write_run(tmp / "idle", header(ranks=8), CLOSING)  # without a step
    report(*runs, idle, "-o", tmp / "idle.html")
    assert table_of(figure_of(page(tmp / "idle.html"), "scaling")) == table
    report(runs[0], "-o", tmp / "one.html")
    assert not [
        f for f in page(tmp / "one.html").iter(NAMESPACE + "figure") if f.get("id") == "scaling"
    ]


def test_settings_that_differ(tmp: Path) -> None:
    first = simple_run(tmp / "a", options={"seed": 1})
    second = simple_run(tmp / "b", codec="q4:bucket=512", options={"seed": 2})
    report(first, second, "-o", tmp / "out.html")
    text = text_of(page(tmp / "out.html"))
    part = text[text.index("What differs") : text.index("Settings that all runs share")]
    assert "--seed" in part and "q4:bucket=512" in part and "--link" not in part, part
    assert "--link" in text[text.index("Settings that all runs share") :]


def test_notes(tmp: Path) -> None:
    lines = [step(i) for i in range(1, 11)]
    again = [step(i, loss=9.0) for i in range(8, 13)]
    failed = {"failed_step": 12, "error": "rank 1 left & is gone"}
    run = write_run(
        tmp / "run",
        header(),
        *lines,
        '{"step": 11, "lo\n',
        header(first_step=8),
        *again,
        failed,
    )
    none = write_run(
        tmp / "none", header(), step(1), step(2, loss=None), step(3, loss=float("nan"))
    )
    told = write_run(tmp / "told", header(), step(1), {**CLOSING, "stopped": True})
    report(run, none, told, "-o", tmp / "out.html")
    text = text_of(page(tmp / "out.html"))
    for words in (
        "run: failed after step 12: rank 1 left & is gone",
        "run: resumed at step 8",
        "run: 3 steps done again after a resume replace those of before",
        "run: a line of the file that breaks off was left out",
        "none: the loss is no number at 2 steps, the first is 2",
        "none: has not said that it ended",
        "told: was told to end: it stopped after step 1 of 100",
    ):
        assert words in text, (words, text)
    assert comparison_of(page(tmp / "out.html"))["run"]["steps"] == "12"
    assert comparison_of(page(tmp / "out.html"))["none"]["final loss"] == "–"


def test_another_layout(tmp: Path) -> None:
    """Of a run that goes on over other ranks, what a step takes is that of the last ones."""
    slow = [step(i, step_s=1.0, images_s=100.0, wire_bytes=8e6) for i in range(1, 9)]
    quick = [step(i, step_s=0.25, images_s=400.0, wire_bytes=2e6) for i in range(5, 9)]
    words = "since step 5 it is over other ranks"
    two, four = header(ranks=4, options={"pp": 2}), {"ranks": 4, "first_step": 5}
    layouts = {
        "other": (header(**four, options={"pp": 1, "tp": 2}), "400", "2.000"),
        "fewer": (header(ranks=2, first_step=5, options={"pp": 2}), "400", "2.000"),
        "same": (header(**four, options={"pp": 2}), "250", "5.000"),
    }
    for name, (second, rate, sent) in layouts.items():
        run = write_run(tmp / name, two, *slow, second, *quick, CLOSING)
        report(run, "-o", tmp / "out.html")
        text = text_of(page(tmp / "out.html"))
        assert (words in text) == (name != "same"), (name, text)
        row = comparison_of(page(tmp / "out.html"))[name]
        assert row["images/s"].startswith(rate) and row["MB a step"] == sent, (name, row)
        assert row["steps"] == "8", row


def test_hostile_text(tmp: Path) -> None:
    run = simple_run(
        tmp / "run", model=HOSTILE, codec=HOSTILE, options={"data": HOSTILE, "link": HOSTILE}
    )
    other = write_run(
        tmp / "a&b<c", header(model=HOSTILE), step(1), {"failed_step": 1, "error": HOSTILE}
    )
    label = HOSTILE.replace("\x01", "").replace("/", "")
    done = report(
        f"{label}={run}",
        other,
        "-o",
        tmp / "out.html",
        "--svg",
        tmp / "svg",
        "--markdown",
        "--title",
        HOSTILE,
    )
    root = page(tmp / "out.html")
    title = root.find(f"{NAMESPACE}head/{NAMESPACE}title")
    assert title is not None and title.text == HOSTILE.replace("\x01", "\ufffd")
    for path in (tmp / "svg").iterdir():
        for element in ElementTree.parse(path).getroot().iter():
            assert element.tag.startswith(SVG) and element.tag != SVG + "script", element.tag
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1, rows
    assert not re.search(r"(?<!\\)<", done.stdout)


def test_markdown_is_what_the_page_offers(tmp: Path) -> None:
    runs = [simple_run(tmp / name) for name in ("a", "b")]
    done = report(*runs, "-o", tmp / "out.html", "--markdown")
    offered = page(tmp / "out.html").find(f".//{NAMESPACE}pre")
    assert offered is not None and offered.text == done.stdout, done.stdout
    assert not (tmp / "report.html").exists()
    done = report(f"[a](b)|<c>*_`\\={runs[0]}", "-o", tmp / "odd.html", "--markdown")
    assert "| \\[a\\](b)\\|\\<c\\>\\*\\_\\`\\\\ |" in done.stdout, done.stdout


# All kinds of runs


def test_fifty_runs(tmp: Path) -> None:
    runs = [
        simple_run(tmp / f"run-{i:02}", steps=20 + i, codec=f"q{i % 8 + 1}") for i in range(50)
    ]
    report(*runs, "-o", tmp / "out.html")
    root = page(tmp / "out.html")
    assert len(comparison_of(root)) == 50
    lines = [
        g.get("class")
        for g in figure_of(root, "loss-steps").iter(SVG + "g")
        if "series" in g.get("class", "")
    ]
    assert len(lines) == 50 and len(set(lines)) == 50, "styles repeat too early"
    assert (tmp / "out.html").stat().st_size < 3e6


def test_one_step(tmp: Path) -> None:
    run = write_run(tmp / "run", header(ranks=1), step(1, wire_bytes=0), CLOSING)
    report(run, "-o", tmp / "out.html")
    root = page(tmp / "out.html")
    assert comparison_of(root)["run"]["steps"] == "1"
    assert figure_of(root, "loss-steps").find(f".//{SVG}circle") is not None


def test_a_long_run(tmp: Path) -> None:
    count = 60000
    lines = [step(i, loss=50.0 if i == 31000 else 1.0) for i in range(1, count + 1)]
    run = write_run(tmp / "run", header(), *lines, CLOSING)
    report(run, "-o", tmp / "out.html")
    root = page(tmp / "out.html")
    assert comparison_of(root)["run"]["steps"] == str(count)
    assert (tmp / "out.html").stat().st_size < 150e3
    bands = [
        p for p in figure_of(root, "loss-steps").iter(SVG + "path") if p.get("class") == "band"
    ]
    assert len(bands) == 1


def test_missing_values(tmp: Path) -> None:
    bare = write_run(
        tmp / "bare",
        {"step": 1},
        {"step": 2, "loss": None, "step_s": None},
        {"step": 3, "loss": 1e36},
    )
    huge = write_run(
        tmp / "huge",
        header(ranks="two", options={"link": None}),
        step(1, loss=1e300, step_s=1e300),
    )
    report(
        bare,
        huge,
        "-o",
        tmp / "out.html",
        "--csv",
        tmp / "csv",
        "--tensorboard",
        tmp / "tb",
        "--svg",
        tmp / "svg",
    )
    page(tmp / "out.html")
    for path in (tmp / "svg").iterdir():
        check_inside(ElementTree.parse(path).getroot())


def test_a_run_that_is_being_written(tmp: Path) -> None:
    text = (
        json.dumps(header()) + "\n" + "".join(json.dumps(step(i)) + "\n" for i in range(1, 6))
    )
    whole = simple_run(tmp / "whole")
    for bytes_there in list(range(0, len(text), 97)) + [len(text)]:
        write_run(tmp / "run", text[:bytes_there])
        report(tmp / "run", whole, "-o", tmp / "out.html")
    root = page(tmp / "out.html")
    assert comparison_of(root)["run"]["steps"] == "5"
    assert "has not said that it ended" in text_of(root)


def test_resumed_in_another_folder(tmp: Path) -> None:
    run = write_run(
        tmp / "run", header(first_step=21), *[step(i) for i in range(21, 31)], CLOSING
    )
    report(run, "-o", tmp / "out.html")
    text = text_of(page(tmp / "out.html"))
    assert "resumed at step 21" in text and "the steps before 21 are not in this folder" in text


def test_benchmarks(tmp: Path) -> None:
    for codec in ("fp32", "q4"):
        words = [
            "all-reduce",
            "-n",
            "2",
            "--sizes",
            "4K,64K,256K",
            "--codec",
            codec,
            "--algorithm",
            "sra",
            "--json",
            "--iters",
            "3",
        ]
        done = subprocess.run(
            [REDPOLL, "bench", *words], check=True, capture_output=True, text=True, timeout=120
        )
        (tmp / f"{codec}.jsonl").write_text(
            "".join(s + "\n" for s in done.stdout.splitlines() if s.startswith("{"))
        )
    report(
        f"32 bits={tmp}/fp32.jsonl",
        tmp / "q4.jsonl",
        "-o",
        tmp / "out.html",
        "--csv",
        tmp / "csv",
    )
    root = page(tmp / "out.html")
    table = table_of(figure_of(root, "bench-time"))
    assert [row[0] for row in table[1:]] == ["32 bits", "q4.jsonl"], table
    assert len(table[0]) == 4
    both = (tmp / "fp32.jsonl").read_text() + (tmp / "q4.jsonl").read_text()
    (tmp / "both.jsonl").write_text(both)
    report(tmp / "both.jsonl", "-o", tmp / "both.html")
    rows_of_both = table_of(figure_of(page(tmp / "both.html"), "bench-time"))[1:]
    assert len(rows_of_both) == 2, rows_of_both
    assert ", fp32," in rows_of_both[0][0] and ", q4" in rows_of_both[1][0], rows_of_both
    lines = [json.loads(line) for line in (tmp / "fp32.jsonl").read_text().splitlines()]
    with (tmp / "csv" / "bench.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["run"] == "32 bits"]
    assert [float(row["time_s"]) for row in rows] == [line["time_s"] for line in lines]
    codec = {
        "codec": "q4",
        "dtype": "f32",
        "isa": "avx2",
        "encode_bytes_s": 1e10,
        "decode_add_bytes_s": 2e10,
    }
    (tmp / "codec.jsonl").write_text(json.dumps({**codec, "memcpy_bytes_s": 8e9}) + "\n")
    report(tmp / "codec.jsonl", "-o", tmp / "codec.html")
    figure = figure_of(page(tmp / "codec.html"), "codecs")
    assert table_of(figure)[1][1:4] == ["10.0 GB/s", "20.0 GB/s", "8.00 GB/s"]
    bars = [bar for bar in figure.iter(SVG + "rect") if bar.find(SVG + "title") is not None]
    spans = sorted((float(bar.get("y", "")), float(bar.get("height", ""))) for bar in bars)
    assert len(spans) == 3, spans
    assert all(y + height <= below for (y, height), (below, _) in zip(spans, spans[1:])), spans


# Tables, events, figures


def test_csv(tmp: Path) -> None:
    run = write_run(
        tmp / "run",
        header(),
        step(1, loss=1 / 3),
        step(2, loss=None),
        evaluation(2, 0.1),
        CLOSING,
    )
    report(f'a,"b"={run}', "--csv", tmp / "deep" / "er")
    assert not (tmp / "report.html").exists()
    with (tmp / "deep" / "er" / "steps.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["run"] for row in rows] == ['a,"b"'] * 2 and rows[1]["loss"] == ""
    for row, line in zip(rows, steps_in(run)):
        for key, value in line.items():
            assert value is None or float(row[key]) == value, (key, row)
    with (tmp / "deep" / "er" / "runs.csv").open(newline="") as stream:
        (summary,) = csv.DictReader(stream)
    assert summary["codec"] == "fp32" and float(summary["exposed_share"]) == 0.2
    # A spreadsheet runs no name.
    report(f"@SUM(1)={run}", "--csv", tmp / "formula")
    for name in ("steps", "evaluations", "runs", "settings"):
        with (tmp / "formula" / f"{name}.csv").open(newline="") as stream:
            assert {row["run"] for row in csv.DictReader(stream)} == {"'@SUM(1)"}, name
    report(run, "--csv", tmp / "steps.csv")
    assert (tmp / "steps.csv").read_text().startswith("run,step,loss,")


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == masked(data[at : at + 8])
        body = data[at + 12 : at + 12 + length]
        assert len(body) == length
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(body)
        found.append(body)
        at += 16 + length
    return found


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fields(data: bytes) -> list[tuple[int, Any]]:
    """The fields of a protobuf message, as (number, value)."""
    found, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        value: Any
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            size, form = (8, "<d") if key & 7 == 1 else (4, "<f")
            value, at = struct.unpack_from(form, data, at)[0], at + size
        found.append((key >> 3, value))
    return found


def scalars(path: Path) -> list[tuple[int, float, dict[str, float]]]:
    version, *events = map(fields, map(records, [path.read_bytes()]).__next__())
    assert dict(version)[3] == b"brain.Event:2"
    found = []
    for event in events:
        values = [
            dict(fields(value)) for number, value in fields(dict(event)[5]) if number == 1
        ]
        found.append((dict(event)[2], dict(event)[1], {v[1].decode(): v[2] for v in values}))
    return found


def test_tensorboard(tmp: Path) -> None:
    run = write_run(
        tmp / "run",
        header(),
        step(1),
        evaluation(1, 0.25),
        step(2, loss=None, lr=None),
        step(300),
    )
    report(
        f"../x/{HOSTILE}={run}".replace("\x01", ""),
        run.parent / "run2",
        "--tensorboard",
        tmp / "tb",
        code=1,
    )
    assert not leftovers(tmp)
    report(f".q/4={run}", "--tensorboard", tmp / "tb")
    (path,) = (tmp / "tb").rglob("events*")
    assert path.parent.name == "_q_4" and path.name == "events.out.tfevents.1700000000.redpoll"
    events = scalars(path)
    assert [number for number, _, _ in events] == [1, 1, 2, 300]
    lines = steps_in(run)
    assert (
        events[0][2]["train/loss"] == struct.unpack("f", struct.pack("f", lines[0]["loss"]))[0]
    )
    assert events[0][2]["network/wire_bytes"] == 1500000 and events[0][1] == 1700000000.5
    assert events[1][2] == {"test/accuracy": 0.25, "test/loss": 1.5}
    assert math.isnan(events[2][2]["train/loss"]) and "train/lr" not in events[2][2]
    assert len(events[3][2]) == 11
    report(f".q/4={run}", "--tensorboard", tmp / "tb")  # the same file again, not a second one
    assert len(list((tmp / "tb").rglob("events*"))) == 1


def test_figures_of_their_own(tmp: Path) -> None:
    runs = [simple_run(tmp / name) for name in ("a", "b")]
    report(*runs, "--svg", tmp / "svg")
    names = sorted(path.name for path in (tmp / "svg").iterdir())
    assert names == [
        "accuracy.svg",
        "loss-bytes.svg",
        "loss-steps.svg",
        "loss-time.svg",
        "step-time.svg",
        "throughput.svg",
    ], names
    for path in (tmp / "svg").iterdir():
        text = path.read_text(encoding="utf-8")
        root = ElementTree.fromstring(text)
        assert root.tag == SVG + "svg" and root.get("role") == "img"
        assert "prefers-color-scheme:dark" in text
        assert root.find(f'.//{SVG}rect[@class="ground"]') is not None
        check_inside(root)


def test_the_same_files_give_the_same_bytes(tmp: Path) -> None:
    runs = [simple_run(tmp / name) for name in ("a", "b")]
    for name in ("one", "two"):
        report(*runs, "-o", tmp / f"{name}.html")
    assert (tmp / "one.html").read_bytes() == (tmp / "two.html").read_bytes()


def test_labels(tmp: Path) -> None:
    twins = [simple_run(tmp / "x" / "q4"), simple_run(tmp / "y" / "q4")]
    odd = simple_run(tmp / "lr=0.1")
    report(*twins, odd, f"named={simple_run(tmp / 'z')}", "-o", tmp / "out.html")
    assert list(comparison_of(page(tmp / "out.html"))) == [
        str(twins[0]),
        str(twins[1]),
        "lr=0.1",
        "named",
    ]


# Mistakes


def test_mistakes(tmp: Path) -> None:
    run = simple_run(tmp / "run")
    (tmp / "empty").mkdir()
    out = tmp / "out.html"
    out.write_text("before")
    fails("which run?", code=2)
    fails("is given twice", run, f"again={run / 'metrics.jsonl'}", "-o", out, code=2)
    fails("two runs are called 'x'", f"x={run}", f"x={simple_run(tmp / 'other')}", code=2)
    fails("--outputt", run, "--outputt", "x", code=2)
    fails("cannot read", tmp / "nowhere", "-o", out)
    fails("empty holds no metrics.jsonl", tmp / "empty", "-o", out)
    fails(
        "run/metrics.jsonl:2: not JSON", write_run(run, header(), "oops\n", step(1)), "-o", out
    )
    fails("has no steps yet", write_run(run, header()), "-o", out)
    fails("has no steps yet", write_run(run, ""), "-o", out)
    fails("holds nothing that redpoll", write_run(run, '{"a": 1}\n'), "-o", out)
    os.mkfifo(tmp / "pipe")
    fails(f"{tmp}/pipe is", tmp / "pipe", "-o", out)
    assert out.read_text() == "before" and not leftovers(tmp)


def test_output_that_cannot_be_written(tmp: Path) -> None:
    run = simple_run(tmp / "run")
    (tmp / "file").write_text("")
    fails("cannot write", run, "-o", tmp / "nowhere" / "out.html")
    fails("it is a folder", run, "-o", tmp)
    for option in ("--csv", "--svg", "--tensorboard"):
        fails(f"{tmp}/file", run, option, tmp / "file" / "below")
        fails(f"{tmp}/file", run, option, tmp / "file")
    if os.path.exists("/dev/full"):
        fails("cannot write /dev/full", run, "-o", "/dev/full")
        command = [REDPOLL, "report", str(run), "--markdown"]
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
            )
        assert done.returncode == 1 and "standard output" in done.stderr, done
    assert not leftovers(tmp) and (tmp / "file").read_text() == ""


def machine(path: Path, ranks: int = 2) -> Path:
    """As of `redpoll bench machine -o`: two sizes of products, and a copy."""
    items: list[dict[str, Any]] = []
    for size, rate in ((64, 2e10), (512, 1e11)):
        item = {"what": "product", "name": "fp32", "m": size, "n": size, "k": size}
        items.append({**item, "unit": "flop/s", "value": rate})
    items.append({"what": "copy", "bytes": 1e8, "unit": "bytes/s", "value": 1e10})
    items = [
        {**item, "low": 0.9 * item["value"], "high": 1.1 * item["value"], "repeats": 5}
        for item in items
    ]
    facts = {"op": "machine", "cpu": "a <b> & c", "ranks": ranks, "threads": 1}
    path.write_text(json.dumps({**facts, "rank_memory_bytes": 8e9, "items": items}))
    return path


GPT = "gpt2:layers=2,hidden=64,heads=2,positions=32,vocabulary=257"
TRAINING: dict[str, Any] = {"strategy": "all-reduce", "codec": "fp32", "seq-length": 32}
TRAINING.update({"optimizer": "adamw", "bucket-mb": 4, "accumulate": 1, "dtype": "fp32"})


def gpt_run(folder: Path, **changes: Any) -> Path:
    """Of 8 sequences of 32 tokens a step, in half a second."""
    options = {**TRAINING, **changes.pop("options", {})}
    first = header(options=options, **{"model": GPT, "global_batch_size": 8, **changes})
    steps = []
    for number in range(1, 21):
        row = step(number, tokens_s=512)
        del row["images_s"]
        steps.append(row)
    closing = {"steps": 20, "tokens_s_median": 512, "memory_bytes": 3e8}
    return write_run(folder, first, *steps, closing)


def forecasts(*words: str | Path) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads(report(*words, "--json").stdout)["runs"]
    return runs


def items_of(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["item"]: item for item in run["forecast"]["items"]}


def test_predicted_beside_measured(tmp: Path) -> None:
    here, run = machine(tmp / "here.json"), gpt_run(tmp / "run")
    items = items_of(forecasts(run, "--machine", here)[0])
    measured = {"step_s": 0.5, "compute_s": 0.4, "exposed_s": 0.1, "memory_bytes": 3e8}
    measured.update({"wire_bytes": 1500000, "tokens_s": 512})
    assert {key: item["measured"] for key, item in items.items()} == measured, items
    units = ["s", "s", "s", "bytes", "bytes", "tokens/s"]
    assert [item["unit"] for item in items.values()] == units, items
    for item in items.values():
        assert math.isclose(item["error"], item["predicted"] / item["measured"] - 1), item
    words = [REDPOLL, "plan", "train", "--machine", str(here), "--model", GPT, "--json"]
    words += "--hosts 2 --ranks-per-host 1 --link 1Gbit,50us --tp 1 --pp 1 --dp 2".split()
    words += "--zero 0 --micro-batch-size 4 --global-batch-size 8 --recompute none".split()
    done = subprocess.run([*words, "--seq-length", "32"], capture_output=True, check=True)
    best = json.loads(done.stdout)["trainings"][0]["best"][0]
    step_s, tokens_s = items["step_s"], items["tokens_s"]
    assert math.isclose(step_s["predicted"], best["step_s"], rel_tol=1e-9), (step_s, best)
    assert math.isclose(step_s["low"], best["step_low_s"], rel_tol=1e-9)
    assert math.isclose(tokens_s["predicted"], best["tokens_s"], rel_tol=1e-9)
    assert math.isclose(items["memory_bytes"]["predicted"], best["rank_memory_bytes"])
    assert math.isclose(items["exposed_s"]["predicted"], best["time_s"]["data_sums"])
    # Each of two ranks sends half of the gradients to be summed, and half of the sums.
    parameters = 257 * 64 + 32 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64
    assert math.isclose(items["wire_bytes"]["predicted"], 4 * parameters, rel_tol=1e-3)


def test_bytes_by_tensor(tmp: Path) -> None:
    """Matrices of 10,000 elements and more travel by the codec, the rest exact."""
    here = machine(tmp / "here.json")
    run = gpt_run(tmp / "run", options={"codec": "q4", "error-feedback": "on"})
    items = items_of(forecasts(run, "--machine", here)[0])
    coded = 257 * 64 + 2 * (3 + 4 + 4) * 64 * 64
    exact = 32 * 64 + 2 * (64 * 64 + 13 * 64) + 2 * 64
    bytes_sent = coded * (4 / 8 + 8 / 512) + 4 * exact
    assert math.isclose(items["wire_bytes"]["predicted"], bytes_sent, rel_tol=5e-3), items
    plain = items_of(forecasts(gpt_run(tmp / "plain"), "--machine", here)[0])
    more = items["memory_bytes"]["predicted"] - plain["memory_bytes"]["predicted"]
    assert math.isclose(more, 4 * (coded + exact), rel_tol=1e-3), more


def test_forecasts_of_strategies(tmp: Path) -> None:
    here = machine(tmp / "here.json")

    def of(strategy: str, **changes: Any) -> dict[str, dict[str, Any]]:
        run = gpt_run(tmp / "run", options={"strategy": strategy, **changes})
        return items_of(forecasts(run, "--machine", here)[0])

    once = of("local-sgd:every=1")
    seldom = of("local-sgd:every=10")
    for key in ("wire_bytes", "exposed_s"):
        ratio = once[key]["predicted"] / seldom[key]["predicted"]
        assert math.isclose(ratio, 10), (key, ratio)
    assert of("gossip:topology=ring")["wire_bytes"]["predicted"] > 0
    sgd, adam = of("all-reduce", optimizer="sgd", momentum=0.9), of("all-reduce")
    less = adam["memory_bytes"]["predicted"] - sgd["memory_bytes"]["predicted"]
    parameters = once["wire_bytes"]["predicted"] / 4
    assert math.isclose(less, 4 * parameters, rel_tol=0.03), (less, parameters)
    alone = items_of(forecasts(gpt_run(tmp / "one", ranks=1), "--machine", here)[0])
    assert alone["wire_bytes"]["predicted"] == 0 == alone["exposed_s"]["predicted"]


def test_the_recorded_machine(tmp: Path) -> None:
    run = gpt_run(tmp / "run")
    assert "forecast" not in forecasts(run)[0]
    machine(run / "machine.json", ranks=4)
    for word in (run, run / "metrics.jsonl"):
        forecast = forecasts(word)[0]["forecast"]
        assert forecast["machine"] == {"cpu": "a <b> & c", "ranks": 4, "threads": 1}
        assert "measured with 4 ranks" in forecast["remark"], forecast
    other = machine(tmp / "other.json")
    assert "remark" not in forecasts(run, "--machine", other)[0]["forecast"]
    (run / "machine.json").write_text('{"op": "machine"')
    assert "machine.json: it is no JSON" in forecasts(run)[0]["no_forecast"]


def test_forecasts_as_people_read_them(tmp: Path) -> None:
    here, run = machine(tmp / "here.json", ranks=1), gpt_run(tmp / "run")
    other = simple_run(tmp / "other")
    done = report(run, other, "--machine", here, "-o", "out.html", "--csv", "csv")
    assert "run, predicted by a <b> & c, 1 rank, 1 thread each\n" in done.stdout, done.stdout
    assert re.search(r"^  step +\d\S* [mµ]?s +\d.* to .* 500 ms +[-+]\d", done.stdout, re.M)
    assert "other: no forecast: " in done.stdout and "redpoll bench machine -n 2" in done.stdout
    text = "".join(page(tmp / "out.html").itertext())
    assert "Predicted beside measured" in text and "memory of a rank, peak" in text
    assert "measured with 1 rank at the same time" in text
    with (tmp / "csv" / "forecasts.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["run"] for row in rows] == 6 * ["run"] and rows[0]["item"] == "step_s"
    assert float(rows[0]["measured"]) == 0.5 and rows[1]["low"] == ""
    table = report(run, "--machine", here, "--markdown").stdout
    assert "\n| run | communication exposed | " in table, table
    assert "Predicted" not in "".join(page_of(tmp, other).itertext())


def page_of(tmp: Path, run: Path) -> ElementTree.Element:
    report(run, "-o", tmp / "plain.html")
    return page(tmp / "plain.html")


def test_runs_that_cannot_be_predicted(tmp: Path) -> None:
    """Each with a line that says why; the report is made all the same."""
    here = machine(tmp / "here.json")
    rows: list[tuple[dict[str, Any], str]] = [
        ({"model": "mlp"}, "no decoder of transformer blocks"),
        ({"model": None}, "lacks its model"),
        ({"ranks": 0}, "lacks its model, ranks"),
        ({"ranks": -3}, "lacks its model, ranks"),
        ({"model": "gpt3"}, "gpt3"),
        ({"global_batch_size": "many"}, "or batch"),
        ({"options": {"codec": "q99"}}, "q99"),
        ({"options": {"link": "0,1us"}}, "a link of 0 carries nothing"),
        ({"options": {"seq-length": 4096}}, "positions"),
        ({"options": {"strategy": "async-local-sgd"}}, "async-local-sgd"),
        ({"options": {"tp": 3}}, "2 ranks are not 3 x 1"),
        ({"options": {"dtype": "bf16"}}, "bf16"),
    ]
    for changes, why in rows:
        run = gpt_run(tmp / "run", **changes)
        line = forecasts(run, "--machine", here)[0].get("no_forecast", "")
        assert why in line and "\n" not in line, (changes, line)
    run = gpt_run(tmp / "run")
    fails("nowhere.json is missing", run, "--machine", tmp / "nowhere.json")
    here.write_text("[]")
    fails("here.json: it is no", run, "--machine", here)
    fails("one of them", run, "--json", "--markdown", code=2)


def main() -> int:
    tests: dict[str, Callable[[Path], None]] = {
        name: test for name, test in globals().items() if name.startswith("test_")
    }
    failed = 0
    for name, test in tests.items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        with tempfile.TemporaryDirectory(prefix="redpoll-report-") as folder:
            os.chdir(folder)
            try:
                test(Path(folder))
                print(f"ok       {name}")
            except Exception as error:  # noqa: BLE001
                failed += 1
                print(f"FAILED   {name}: {type(error).__name__}: {error}")
            os.chdir("/")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
