"""bench/torch.py runs: it must not rot while nobody measures. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "bench" / "torch.py"


@pytest.mark.parametrize(
    ("section", "figures"),
    [("overhead", {"c_us", "redpoll_us", "gloo_us"}), ("all-reduce", {"redpoll_s", "gloo_s"})],
)
def test_a_section_measures_both_backends(section: str, figures: set[str]) -> None:
    command = [sys.executable, str(PROGRAM), section, "--ranks", "2", "--rounds", "1"]
    command += ["--sizes", "65536", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)[section]
    assert rows and all(row[figure] > 0 for row in rows for figure in figures)
