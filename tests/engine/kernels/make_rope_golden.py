"""Angles of YaRN as transformers has them, of random parameters: rope_yarn.golden.

    python tests/engine/kernels/make_rope_golden.py

A line: base, elements that are turned, factor, tokens of a text in training, circles at which
angles are divided and from which they are not, 1 where the ramp's ends are not rounded,
attention's factor (0: it follows), the scale of cosines and sines, then the angles of one
token.
"""

from __future__ import annotations

import random
from pathlib import Path

import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

CASES = 40


def draw(rng: random.Random) -> str:
    base = rng.choice([100.0, 10000.0, 500000.0, 1000000.0, 10 ** rng.uniform(1, 7)])
    rotary = rng.choice([64, 128, 2 * rng.randint(2, 64)])
    factor = rng.choice([1.0, 2.0, 4.0, 40.0, rng.uniform(1, 64)])
    original = rng.choice([2048, 4096, 32768, rng.randint(1, 200000)])
    slow = rng.choice([1.0, rng.uniform(0.01, 8)])
    fast = rng.choice([32.0, slow + rng.uniform(0.1, 64)])
    fast = fast if fast > slow else slow + 1
    parameters = {
        "rope_type": "yarn", "rope_theta": base, "factor": factor, "beta_fast": fast,
        "beta_slow": slow, "original_max_position_embeddings": original,
    }  # fmt: skip
    exact, attention = rng.random() < 0.4, rng.choice([0, 0, rng.uniform(0.5, 2)])
    if exact:
        parameters["truncate"] = False
    if attention:
        parameters["attention_factor"] = attention
    config = transformers.LlamaConfig(
        head_dim=rotary, max_position_embeddings=4 * original, rope_parameters=parameters
    )
    angles, scale = ROPE_INIT_FUNCTIONS["yarn"](config)
    given = [base, rotary, factor, original, slow, fast, int(exact), attention, scale]
    return " ".join([*(repr(x) for x in given), *(f"{x:.9g}" for x in angles.tolist())])


if __name__ == "__main__":
    rng = random.Random(7)
    lines = [draw(rng) for _ in range(CASES)]
    (Path(__file__).parent / "rope_yarn.golden").write_text("\n".join(lines) + "\n")
