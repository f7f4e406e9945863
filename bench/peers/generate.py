"""Text from a model, token by token, beside transformers with its cache of keys and values.

    python bench/peers/generate.py build/release/src/cli/redpoll [--turns 5] [--only small]

Needs torch and transformers. The same weights (random, of GPT-2's and LLaMA's kind) in a
Hugging Face folder, the same prompt, the likeliest token each time, one thread. Compared is
the processor time of a token: that of so many new tokens less that of one, so that loading
and the prompt are no part of it. Turns alternate, medians are shown, and how many tokens
from the first are the same on both sides: all, unless two are as likely. Exit code 1: not
even the first is.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

PROMPT = "In the beginning God created the heaven and the earth."
GPT2 = {"vocab_size": 50257, "n_positions": 1024, "bos_token_id": None, "eos_token_id": None}
LLAMA = {"vocab_size": 32000, "max_position_embeddings": 1024}
SHAPES: dict[str, dict[str, Any]] = {
    "small": {"n_layer": 4, "n_embd": 256, "n_head": 4, **GPT2, "vocab_size": 4096},
    "gpt2": {"n_layer": 12, "n_embd": 768, "n_head": 12, **GPT2},
    "llama": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12,
              "num_key_value_heads": 12, "intermediate_size": 2048, **LLAMA},
}  # fmt: skip


def make_model(name: str, folder: Path) -> Any:
    """Random weights, larger than at the start of training, so that tokens differ."""
    torch.manual_seed(1)
    shape = SHAPES[name]
    if name == "llama":
        config = transformers.LlamaConfig(**shape)
        model = transformers.LlamaForCausalLM(config)
    else:
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(3)
    model.save_pretrained(folder)
    return model.eval()


def children_seconds() -> float:
    """Of all processes that have ended; os.times() counts in hundredths."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def redpoll(command: str, folder: Path, tokens: int) -> tuple[float, list[int]]:
    """Processor seconds of the whole process, and what it wrote."""
    words = ["generate", "--model", f"hf:{folder}", "--tokenizer", "byte", "--prompt", PROMPT,
             "--max-new-tokens", str(tokens), "--temperature", "0", "--threads", "1",
             "--ignore-end", "--json"]  # fmt: skip
    before = children_seconds()
    done = subprocess.run([command, *words], capture_output=True, text=True, check=True)
    return children_seconds() - before, json.loads(done.stdout)["tokens"]


def peer(model: Any, tokens: int, banned: list[int]) -> tuple[float, list[int]]:
    ids = torch.tensor([list(PROMPT.encode())])
    start = time.process_time()
    with torch.no_grad():
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False,
            min_new_tokens=tokens, use_cache=True, pad_token_id=0, suppress_tokens=banned,
        )  # fmt: skip
    return time.process_time() - start, out[0, ids.shape[1] :].tolist()


def same_until(ours: list[int], theirs: list[int]) -> int:
    pairs = enumerate(zip(ours, theirs))
    return next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))


def compare(command: str, name: str, tokens: int, turns: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(name, Path(folder))
        # Tokens without a text are never chosen there: those beyond the 256 bytes.
        banned = list(range(256, model.config.vocab_size))
        peer(model, 4, banned)
        costs: tuple[list[float], list[float]] = ([], [])
        same = tokens
        for _ in range(turns):
            long, ours = redpoll(command, Path(folder), tokens)
            short, _ = redpoll(command, Path(folder), 1)
            costs[0].append((long - short) / (tokens - 1))
            long, theirs = peer(model, tokens, banned)
            short, _ = peer(model, 1, banned)
            costs[1].append((long - short) / (tokens - 1))
            same = min(same, same_until(ours, theirs))
        a, b = (1e3 * statistics.median(side) for side in costs)
        ratio = f"{b / a:9.2f}" if a > 0 else "        -"
        print(f"{name:8} {a:12.2f} {b:17.2f} {ratio} {same:8}/{tokens}", flush=True)
    return same > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("redpoll")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--only", default=",".join(SHAPES))
    options = parser.parse_args()
    if options.tokens < 2 or options.turns < 1:
        parser.error("--tokens 2 or more, --turns 1 or more")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}; one thread")
    print("model    redpoll ms/t  transformers ms/t   ratio    same tokens")
    names = options.only.split(",")
    unknown = [name for name in names if name not in SHAPES]
    if unknown:
        parser.error(f"--only {unknown[0]}: there are {', '.join(SHAPES)}")
    results = [compare(options.redpoll, name, options.tokens, options.turns) for name in names]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
