"""Hugging Face folders: what `redpoll export` writes opens elsewhere with the same loss."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F

COMMAND = Path(os.environ["REDPOLL_BUILD"]) / "src" / "cli" / "redpoll"
TEXT = "In the beginning was the seed, and the finch. "
SEQUENCE, HEADS, LAYERS, WIDTH, VOCABULARY, POSITIONS = 24, 4, 2, 32, 300, 40
SIZES = f"layers={LAYERS},hidden={WIDTH},heads={HEADS}"
Tensors = dict[str, torch.Tensor]


class Run(NamedTuple):
    """A run whose held-out samples are those that it learns from."""

    model: str
    architecture: str
    folder: Path  # text.ds, run/


def redpoll(*words: object) -> str:
    done = subprocess.run(
        [COMMAND, *map(str, words)], check=True, capture_output=True, text=True, timeout=300
    )
    return done.stdout


def windows(path: Path) -> torch.Tensor:
    """All windows of a file of tokens, as redpoll cuts them."""
    ids = np.fromfile(f"{path}.ds", dtype="<u2").astype(np.int64)
    count = len(ids) // (SEQUENCE + 1)
    return torch.from_numpy(ids[: count * (SEQUENCE + 1)]).view(count, SEQUENCE + 1)


MODELS = {
    "GPT2LMHeadModel": f"gpt2:{SIZES},vocabulary={VOCABULARY},positions={POSITIONS}",
    "LlamaForCausalLM": f"llama:{SIZES},kv-heads=2,intermediate=64,vocabulary={VOCABULARY},"
    f"positions={POSITIONS},rope-base=500,norm-epsilon=1e-06",
    "Qwen3ForCausalLM": f"llama:{SIZES},kv-heads=2,head=12,intermediate=64,"
    f"vocabulary={VOCABULARY},positions={POSITIONS},rope-base=500,norm-epsilon=1e-06,"
    "qk-norm=on",
}


@pytest.fixture(scope="module", params=MODELS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("hf")
    (folder / "text.txt").write_text(TEXT * 200)
    text = folder / "text"
    tokenize = ["data", "tokenize", "--tokenizer", "train:bpe=300", "--in", folder / "text.txt"]
    redpoll(*tokenize, "--out", text)
    recipe = ["--seq-length", SEQUENCE, "--steps", 30, "--optimizer", "adamw", "--lr", "1e-2"]
    data = f"tokens:{text},validation={text}"
    model = MODELS[request.param]
    redpoll("train", "--model", model, "--data", data, *recipe, "--out", folder / "run")
    return Run(model, request.param, folder)


def evaluation(folder: Path) -> dict[str, Any]:
    lines = map(json.loads, (folder / "run" / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "test_loss" in line][-1]


def export(run: Run, to: Path) -> Path:
    said = redpoll("export", "--from", run.folder / "run", "--to", f"hf:{to}")
    assert said.startswith(f"{run.architecture} of "), said
    return to


def read_tensors(path: Path) -> Tensors:
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = np.frombuffer(raw[begin:end], dtype="<f4").reshape(entry["shape"]).copy()
        found[name] = torch.from_numpy(values)
    return found


def gpt2(p: Tensors, ids: torch.Tensor, heads: int) -> torch.Tensor:
    """GPT2LMHeadModel by the names and layouts of its files: weights are inputs x outputs."""

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        weight, bias = p[f"transformer.{name}.weight"], p[f"transformer.{name}.bias"]
        return F.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)

    def conv1d(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ p[f"transformer.{name}.weight"] + p[f"transformer.{name}.bias"]

    wte = p["transformer.wte.weight"]
    x = wte[ids] + p["transformer.wpe.weight"][: ids.shape[1]]
    for layer in range(LAYERS):
        h = f"h.{layer}"
        parts = conv1d(f"{h}.attn.c_attn", norm(f"{h}.ln_1", x)).split(x.shape[-1], dim=2)
        q, k, v = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + conv1d(f"{h}.attn.c_proj", y)
        y = conv1d(f"{h}.mlp.c_fc", norm(f"{h}.ln_2", x))
        x = x + conv1d(f"{h}.mlp.c_proj", F.gelu(y, approximate="tanh"))
    return norm("ln_f", x) @ wte.T


def llama(p: Tensors, ids: torch.Tensor, config: dict[str, Any]) -> torch.Tensor:
    """LlamaForCausalLM, and Qwen3's, by the names and layouts of their files."""
    heads, kv_heads, size = (
        config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim")
    )
    angles = torch.arange(ids.shape[1])[:, None] * config["rope_theta"] ** (
        -torch.arange(0, size, 2) / size
    )
    cosines, sines = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], p[f"{name}.weight"], config["rms_norm_eps"])

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ p[f"{name}.weight"].T

    def turn(x: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, -1)
        return x * cosines + torch.cat([-high, low], -1) * sines

    x = p["model.embed_tokens.weight"][ids]
    for layer in range(LAYERS):
        h = f"model.layers.{layer}"
        y = norm(f"{h}.input_layernorm", x)
        q, k, v = (
            linear(f"{h}.self_attn.{part}_proj", y).unflatten(2, (-1, size)).transpose(1, 2)
            for part in "qkv"
        )
        if f"{h}.self_attn.q_norm.weight" in p:
            q, k = norm(f"{h}.self_attn.q_norm", q), norm(f"{h}.self_attn.k_norm", k)
        k, v = (part.repeat_interleave(heads // kv_heads, dim=1) for part in (k, v))
        y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
        x = x + linear(f"{h}.self_attn.o_proj", y.transpose(1, 2).flatten(2))
        y = norm(f"{h}.post_attention_layernorm", x)
        gate, up = linear(f"{h}.mlp.gate_proj", y), linear(f"{h}.mlp.up_proj", y)
        x = x + linear(f"{h}.mlp.down_proj", F.silu(gate) * up)
    return linear("lm_head", norm("model.norm", x))


def loss_of(logits: torch.Tensor, rows: torch.Tensor) -> float:
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item()


def test_an_export_has_the_loss_of_its_run(run: Run, tmp_path: Path) -> None:
    to = export(run, tmp_path / "out")
    config = json.loads((to / "config.json").read_text())
    assert config["architectures"] == [run.architecture]
    assert config["bos_token_id"] == config["eos_token_id"] == 0  # <|endoftext|> of the data
    rows = windows(run.folder / "text")
    tensors = read_tensors(to / "model.safetensors")
    if run.architecture == "GPT2LMHeadModel":
        assert (config["n_layer"], config["n_head"], config["n_embd"]) == (LAYERS, HEADS, WIDTH)
        logits = gpt2(tensors, rows[:, :-1], config["n_head"])
    else:
        assert config["rope_parameters"] == {"rope_theta": 500, "rope_type": "default"}
        assert (config["tie_word_embeddings"], config["rms_norm_eps"]) == (False, 1e-6)
        logits = llama(tensors, rows[:, :-1], config)
    assert loss_of(logits, rows) == pytest.approx(evaluation(run.folder)["test_loss"], abs=1e-4)


def test_transformers_opens_an_export(run: Run, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    to = export(run, tmp_path / "out")
    kind = getattr(transformers, run.architecture)
    model, report = kind.from_pretrained(to, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[key], (key, report[key])
    rows = windows(run.folder / "text")
    with torch.no_grad():
        logits = model.eval()(rows[:, :-1]).logits
    assert loss_of(logits, rows) == pytest.approx(evaluation(run.folder)["test_loss"], abs=1e-4)


def test_transformers_opens_its_tokenizer(run: Run, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(export(run, tmp_path / "out"))
    ids = tokenizer(TEXT * 3)["input_ids"]
    ids = ids[: 2 * len(ids) // 3]  # how it ends depends on what follows
    assert ids == windows(run.folder / "text").flatten().tolist()[: len(ids)]


def train_from(folder: Path, data: Path, out: Path, *words: object) -> tuple[float, str]:
    """The loss of the first step, over all windows of the data, and what was printed."""
    count = len(windows(data))
    recipe = ["--seq-length", SEQUENCE, "--global-batch-size", 2 * (count // 2), "--steps", 1]
    model = ["--model", f"hf:{folder}", "--data", f"tokens:{data},validation={data}"]
    said = redpoll("train", *model, *recipe, "--lr", "1e-38", "--out", out, *words)
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "test_loss" in line][-1]["test_loss"], said


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_export_is_trained_further(run: Run, tmp_path: Path, ranks: int) -> None:
    to = export(run, tmp_path / "out")
    loss, _ = train_from(to, run.folder / "text", tmp_path / "next", "-n", ranks)
    assert loss == pytest.approx(evaluation(run.folder)["test_loss"], abs=1e-5)
    # The run goes on without the folder.
    (to / "config.json").unlink()
    redpoll("train", "--resume", tmp_path / "next", "--steps", 2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_folder_of_transformers_is_trained(run: Run, tmp_path: Path, dtype: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(5)
    if run.architecture == "GPT2LMHeadModel":
        config = transformers.GPT2Config(n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH)
        config.n_positions = POSITIONS
    else:
        named = getattr(transformers, run.architecture.replace("ForCausalLM", "Config"))
        config = named(num_hidden_layers=LAYERS, hidden_size=WIDTH)
        config.num_attention_heads, config.num_key_value_heads = HEADS, 2
        config.head_dim, config.intermediate_size = WIDTH // HEADS, 64
        config.max_position_embeddings, config.tie_word_embeddings = POSITIONS, True
    config.vocab_size = VOCABULARY
    config.bos_token_id = config.eos_token_id = 0
    kind = getattr(transformers, run.architecture)
    kind(config).to(getattr(torch, dtype)).save_pretrained(
        tmp_path / "hf", max_shard_size="20KB"
    )
    # Read again: buffers of a model that was narrowed stay narrow.
    model = kind.from_pretrained(tmp_path / "hf", dtype=torch.float32).eval()
    assert (tmp_path / "hf" / "model.safetensors.index.json").exists()
    rows = windows(run.folder / "text")
    with torch.no_grad():
        wanted = loss_of(model(rows[:, :-1]).logits, rows)
    loss, said = train_from(tmp_path / "hf", run.folder / "text", tmp_path / "next")
    assert loss == pytest.approx(wanted, abs=1e-4)
    assert "missing" not in said and "no use" not in said, said


@pytest.mark.parametrize(
    "stretch",
    [
        "rope-factor=2,rope-original=16,rope-yarn=on",
        "rope-factor=3,rope-original=20,rope-yarn=on,rope-low=0.5,rope-high=2,"
        "rope-truncate=off,rope-attention=1.3",
    ],
)
def test_transformers_stretches_positions_of_an_export_alike(
    tmp_path: Path, stretch: str
) -> None:
    transformers = pytest.importorskip("transformers")
    text, to = tmp_path / "text", tmp_path / "out"
    (tmp_path / "text.txt").write_text(TEXT * 20)
    redpoll("data", "tokenize", "--tokenizer", "byte", "--in", f"{text}.txt", "--out", text)
    model = f"llama:{SIZES},vocabulary=257,positions={POSITIONS},init-std=0.3,{stretch}"
    recipe = ["--data", f"tokens:{text},validation={text}", "--seq-length", SEQUENCE]
    redpoll("train", "--model", model, *recipe, "--steps", 1, "--out", tmp_path / "run")
    redpoll("export", "--from", tmp_path / "run", "--to", f"hf:{to}")
    theirs = transformers.LlamaForCausalLM.from_pretrained(to).eval()
    rows = windows(text)
    with torch.no_grad():
        loss = loss_of(theirs(rows[:, :-1]).logits, rows)
    assert loss == pytest.approx(evaluation(tmp_path)["test_loss"], abs=1e-4)


def test_an_evaluation_is_that_of_the_run(run: Run, tmp_path: Path) -> None:
    wanted = evaluation(run.folder)
    for model in (run.folder / "run", f"hf:{export(run, tmp_path / 'out')}"):
        data = ["--data", f"tokens:{run.folder / 'text'}", "--all", "--seq-length", SEQUENCE]
        ways = [[], data] if isinstance(model, Path) else [data]
        for words in ways:
            seen = json.loads(redpoll("eval", "--model", model, "--json", *words))
            assert seen["loss"] == pytest.approx(wanted["test_loss"], rel=1e-6)
            assert seen["perplexity"] == pytest.approx(wanted["test_perplexity"], rel=1e-6)
            assert seen["accuracy"] == pytest.approx(wanted["test_accuracy"], rel=1e-6)
            assert seen["tokens"] == wanted["test_tokens"]
            assert seen["model"].startswith(
                run.model.partition(",vocabulary")[0].partition(",kv")[0]
            )


def test_an_evaluation_of_images_is_that_of_the_run(tmp_path: Path) -> None:
    data = ["--data", "synthetic", "--train-images", 200, "--test-images", 50, "--seed", 3]
    redpoll(
        "train", "--model", "resnet20:width=4", *data, "--steps", 3, "--out", tmp_path / "run"
    )
    wanted = evaluation(tmp_path)
    seen = json.loads(redpoll("eval", "--model", tmp_path / "run", "--json"))
    assert seen["loss"] == pytest.approx(wanted["test_loss"], rel=1e-6)
    assert seen["images"] == wanted["test_images"] == 50
    assert "perplexity" not in seen


def test_what_cannot_be_evaluated_is_told(run: Run, tmp_path: Path) -> None:
    to = export(run, tmp_path / "out")
    tokens = f"tokens:{run.folder / 'text'}"
    for words, part in [
        ([], "which model? --model RUN or --model hf:FOLDER"),
        (["--model", tmp_path / "nowhere"], "there is no run"),
        (["--model", f"hf:{to}"], "which data?"),
        (["--model", f"hf:{tmp_path}", "--data", tokens], "config.json is missing"),
        (
            ["--model", f"hf:{to}", "--data", tokens, "--seq-length", 41],
            "use --seq-length 40 or less",
        ),
        (["--model", f"hf:{to}", "--data", "synthetic"], "learns from tokens"),
        (["--model", f"hf:{to}", "--data", "synthetic", "--all"], "--all is for tokens:PATH"),
    ]:
        command = [COMMAND, "eval", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode in (1, 2), words
        assert part in done.stderr, (words, done.stderr)


def generate(model: object, *words: object, prompt: str = "In the beginning") -> dict[str, Any]:
    said = redpoll("generate", "--model", model, "--prompt", prompt, "--json", *words)
    found: dict[str, Any] = json.loads(said)
    return found


def test_a_run_goes_on_with_what_it_has_learnt(run: Run, tmp_path: Path) -> None:
    greedy = ["--temperature", 0, "--max-new-tokens", 12]
    seen = generate(run.folder / "run", *greedy)
    assert (seen["stopped_by"], len(seen["tokens"])) == ("length", 12)
    plain = redpoll("generate", "--model", run.folder / "run", "--prompt", TEXT[:16], *greedy)
    assert plain == f"{TEXT[:16]}{seen['text']}\n"
    # The folder has the tokenizer that the run's data have; the text is read from its end.
    folder = f"hf:{export(run, tmp_path / 'out')}"
    assert generate(folder, *greedy)["tokens"] == seen["tokens"]
    long = generate(folder, "--temperature", 0, "--max-new-tokens", 400, "--ignore-end")
    assert long["stopped_by"] == "positions"
    assert long["prompt_tokens"] + len(long["tokens"]) == POSITIONS


def test_draws_follow_the_seed(run: Run) -> None:
    hot = ["--temperature", 3, "--max-new-tokens", 20, "--ignore-end"]
    first, again = (generate(run.folder / "run", *hot, "--seed", 4) for _ in range(2))
    other = generate(run.folder / "run", *hot, "--seed", 5)
    assert first["tokens"] == again["tokens"] != other["tokens"]
    narrow = generate(run.folder / "run", *hot, "--top-k", 1)
    assert narrow["tokens"] == generate(run.folder / "run", *hot, "--temperature", 0)["tokens"]
    assert generate(run.folder / "run", *hot, "--top-p", "1e-6")["tokens"] == narrow["tokens"]


def test_prompts_come_from_files_and_pipes(run: Run, tmp_path: Path) -> None:
    words = ["--model", run.folder / "run", "--temperature", 0, "--max-new-tokens", 5]
    wanted = redpoll("generate", *words, "--prompt", "In the", "--no-echo")
    (tmp_path / "prompt.txt").write_text("In the\n")
    from_file = ["--prompt-file", tmp_path / "prompt.txt", "--no-echo"]
    assert redpoll("generate", *words, *from_file) == wanted
    piped = subprocess.run(
        [COMMAND, "generate", *map(str, words), "--prompt", "-", "--no-echo", "--stats"],
        input="In the\n", capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert piped.stdout == wanted
    assert "tokens/s; stopped by length" in piped.stderr


def test_transformers_chooses_the_same_tokens(run: Run, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    to = export(run, tmp_path / "out")
    model = getattr(transformers, run.architecture).from_pretrained(to).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(to)
    ids = tokenizer("In the beginning", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        tokens = model.generate(ids, do_sample=False, max_length=POSITIONS, pad_token_id=0)
    wanted = tokens[0, ids.shape[1] :].tolist()
    wanted = wanted[: wanted.index(0)] if 0 in wanted else wanted
    seen = generate(f"hf:{to}", "--temperature", 0, "--max-new-tokens", POSITIONS)
    assert seen["prompt_tokens"] == ids.shape[1]
    assert seen["tokens"] == wanted
    assert seen["text"] == tokenizer.decode(wanted)


def test_a_text_ends_where_the_folder_says(run: Run, tmp_path: Path) -> None:
    to = export(run, tmp_path / "out")
    words = ["--temperature", 0, "--max-new-tokens", 9]
    tokens = generate(f"hf:{to}", *words)["tokens"]
    config = to / "generation_config.json"
    config.write_text(json.dumps({"eos_token_id": [299, tokens[4]]}))
    seen = generate(f"hf:{to}", *words)
    assert seen["stopped_by"] == "end"
    assert seen["tokens"] == tokens[: tokens.index(tokens[4])]
    config.write_text(json.dumps({"eos_token_id": "</s>"}))
    with pytest.raises(subprocess.CalledProcessError) as failed:
        generate(f"hf:{to}", *words)
    assert "generation_config.json: 'eos_token_id' is no token" in failed.value.stderr


def test_what_cannot_be_generated_is_told(run: Run, tmp_path: Path) -> None:
    model = ["--model", run.folder / "run"]
    pictures = ["--data", "synthetic", "--train-images", 96, "--test-images", 48, "--steps", 1]
    redpoll("train", "--model", "mlp", *pictures, "--out", tmp_path / "mlp")
    redpoll("data", "tokenize", "--tokenizer", "train:bpe=400", "--in", __file__,
            "--out", tmp_path / "other")  # fmt: skip
    bare = export(run, tmp_path / "out")
    (bare / "tokenizer.json").unlink()
    prompt = ["--prompt", "In"]
    for words, part in [
        (prompt, "which model? --model RUN or --model hf:FOLDER"),
        (model, "which text? --prompt TEXT"),
        ([*model, *prompt, "--prompt-file", "x"], "--prompt or --prompt-file, not both"),
        ([*model, "--prompt", ""], "the prompt is empty"),
        ([*model, "--prompt", TEXT * 20], f"the model {POSITIONS} positions: that leaves none"),
        ([*model, *prompt, "--temperature", -1], "temperature"),
        ([*model, *prompt, "--top-k", 0], "top-k"),
        ([*model, *prompt, "--top-p", 0], "top-p"),
        ([*model, *prompt, "--max-new-tokens", 0], "max-new-tokens"),
        ([*model, *prompt, "--tokenizer", tmp_path / "other.tokenizer.json"], "tokens"),
        (["--model", tmp_path / "mlp", *prompt], "mlp is no language model"),
        (["--model", tmp_path / "nowhere", *prompt], "there is no run"),
        (["--model", f"hf:{bare}", *prompt], "--tokenizer says which one it is"),
    ]:
        command = [COMMAND, "generate", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode in (1, 2), words
        assert part in done.stderr, (words, done.stderr)
        assert not done.stdout, words


def pieces_of(tokenizer: Any, lines: list[str]) -> list[list[str]]:
    return [tokenizer.encode(line, add_special_tokens=False).tokens for line in lines]


def test_trained_tokenizers_are_those_of_hugging_face(tmp_path: Path) -> None:
    """The same vocabulary, up to ties, which a hash table decides there."""
    tokenizers = pytest.importorskip("tokenizers")
    rng = np.random.default_rng(5)
    alphabet = list("aaaabcdeeeeefghiiiijklmnooopqrstttuvwxyz")
    stems = ["".join(rng.choice(alphabet, rng.integers(2, 9))) for _ in range(400)]
    ends = ["", "", "s", "ing", "ed", "ness", "É"]
    chances = 1.0 / np.arange(1, 401)
    words = [
        s + ends[rng.integers(7)] for s in rng.choice(stems, 30000, p=chances / chances.sum())
    ]
    lines = [
        " ".join(words[i : i + 10]) + ("." if i % 3 else ", I say!")
        for i in range(0, 30000, 10)
    ]
    text = tmp_path / "text.txt"
    text.write_text("\n".join(lines) + "\n")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    cut = tokenizers.pre_tokenizers
    for kind, lowercase in (("wordpiece", True), ("wordpiece-cased", False)):
        redpoll("data", "tokenize", "--tokenizer", f"train:{kind}=600", "--in", text,
                "--split-lines", "--out", tmp_path / kind)  # fmt: skip
        theirs = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
        theirs.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
        theirs.pre_tokenizer = cut.BertPreTokenizer()
        theirs.train_from_iterator(
            lines, tokenizers.trainers.WordPieceTrainer(vocab_size=600, special_tokens=special)
        )
        ours = tokenizers.Tokenizer.from_file(str(tmp_path / f"{kind}.tokenizer.json"))
        letters = [{t for t in v.get_vocab() if len(t) == 1} for v in (ours, theirs)]
        assert ours.get_vocab_size() == 600 and letters[0] == letters[1]
        differ = set(ours.get_vocab()) ^ set(theirs.get_vocab())
        assert len(differ) <= 60, differ
        assert ours.encode("a").tokens[0] == "[CLS]"
        counts = [sum(map(len, pieces_of(v, lines))) for v in (ours, theirs)]
        assert abs(counts[0] - counts[1]) < 0.01 * counts[1], counts
        ids = np.fromfile(tmp_path / f"{kind}.ds", dtype="<u2")
        first = ours.encode(lines[0], add_special_tokens=False).ids
        assert ids[: len(first)].tolist() == first
    redpoll("data", "tokenize", "--tokenizer", "train:wordlevel=500", "--in", text,
            "--split-lines", "--out", tmp_path / "words")  # fmt: skip
    theirs = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="[UNK]"))
    theirs.pre_tokenizer = cut.Whitespace()
    theirs.train_from_iterator(
        lines,
        tokenizers.trainers.WordLevelTrainer(
            vocab_size=500, special_tokens=["<|endoftext|>", "[UNK]"]
        ),
    )
    ours = tokenizers.Tokenizer.from_file(str(tmp_path / "words.tokenizer.json"))
    assert ours.get_vocab() == theirs.get_vocab()
