"""The table of YAML's words, tests/cli/yaml_words.txt, says what PyYAML reads, too."""

from __future__ import annotations

from pathlib import Path

import pytest

TABLE = Path(__file__).parents[1] / "cli" / "yaml_words.txt"
ROWS = [line.split() for line in TABLE.read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(("kind", "scalar", "value"), ROWS)
def test_pyyaml_reads_the_same(kind: str, scalar: str, value: str) -> None:
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load(f"key: {scalar}")["key"]
    if value == "null":
        assert found is None
    elif isinstance(found, bool):
        assert value in (str(found).lower(), "refused", scalar)
    elif kind == "text" or value == "refused":
        assert found is not None
    elif isinstance(found, (int, float)):
        assert found == float(value)
    else:
        assert found == scalar.strip("\"'")  # a text, which the option takes as such
