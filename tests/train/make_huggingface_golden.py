"""Small Hugging Face folders with what transformers makes of them: huggingface_golden/NAME/.

    python tests/train/make_huggingface_golden.py [NAME ...]

Beside config.json and the weights, expected.safetensors holds `tokens`, the first PROMPT of
which were given to generate() and the rest of which it chose greedily, and their `logits`.
Weights are random and wide, so that the choices vary. The vocabulary is that of bytes and an
end of text.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

VOCABULARY, POSITIONS, PROMPT, SPREAD = 257, 40, 7, 0.6

GPT2 = transformers.GPT2Config(
    n_layer=2, n_embd=16, n_head=4, vocab_size=VOCABULARY, n_positions=POSITIONS,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=SPREAD,
)  # fmt: skip
LLAMA = transformers.LlamaConfig(
    num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=32, vocab_size=VOCABULARY, max_position_embeddings=POSITIONS,
    rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 100.0},
    tie_word_embeddings=False, initializer_range=SPREAD,
)  # fmt: skip
MISTRAL = transformers.MistralConfig(
    num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=32, vocab_size=VOCABULARY, max_position_embeddings=POSITIONS,
    rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 100.0},
    sliding_window=6, tie_word_embeddings=True, initializer_range=SPREAD,
)  # fmt: skip
LLAMA31 = transformers.LlamaConfig(
    num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=32, vocab_size=VOCABULARY, max_position_embeddings=POSITIONS,
    rms_norm_eps=1e-5, attention_bias=True, mlp_bias=True, head_dim=8,
    rope_parameters={
        "rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 24,
    },
    tie_word_embeddings=True, initializer_range=SPREAD,
)  # fmt: skip
QWEN2 = transformers.Qwen2Config(
    num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=32, vocab_size=VOCABULARY, max_position_embeddings=POSITIONS,
    rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0},
    tie_word_embeddings=True, initializer_range=SPREAD,
)  # fmt: skip
QWEN3 = transformers.Qwen3Config(
    num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2,
    head_dim=8, intermediate_size=32, vocab_size=VOCABULARY, max_position_embeddings=POSITIONS,
    rope_parameters={"rope_type": "default", "rope_theta": 100.0}, use_sliding_window=True,
    sliding_window=9, max_window_layers=0, tie_word_embeddings=False, initializer_range=SPREAD,
)  # fmt: skip

MODELS = {
    "gpt2": (transformers.GPT2LMHeadModel, GPT2, torch.float16, "5GB"),
    "llama": (transformers.LlamaForCausalLM, LLAMA, torch.bfloat16, "10KB"),
    "mistral": (transformers.MistralForCausalLM, MISTRAL, torch.bfloat16, "5GB"),
    "llama31": (transformers.LlamaForCausalLM, LLAMA31, torch.bfloat16, "5GB"),
    "qwen2": (transformers.Qwen2ForCausalLM, QWEN2, torch.bfloat16, "5GB"),
    "qwen3": (transformers.Qwen3ForCausalLM, QWEN3, torch.bfloat16, "5GB"),
}


def spread_biases(model: torch.nn.Module) -> None:
    """Biases begin at 0, norms of heads at 1, where nobody would see that they are missing."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):
                parameter.normal_(std=SPREAD)
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                parameter.normal_(mean=1, std=SPREAD)


def make(name: str, folder: Path) -> None:
    kind, config, dtype, shard = MODELS[name]
    torch.manual_seed(9)
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    model = kind(config)
    if name in ("llama31", "qwen2", "qwen3"):
        spread_biases(model)
    model = model.to(dtype).eval()
    model.save_pretrained(folder, max_shard_size=shard)
    (folder / "generation_config.json").unlink(missing_ok=True)
    # Read again: buffers of a model that was narrowed stay narrow.
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = torch.randint(0, VOCABULARY - 1, (1, PROMPT))
    with torch.no_grad():
        tokens = model.generate(prompt, do_sample=False, max_length=POSITIONS)
        logits = model(tokens).logits[0]
    expected = {"tokens": tokens[0].to(torch.int32), "logits": logits.contiguous()}
    save_file(expected, folder / "expected.safetensors")
    print(name, tokens[0].tolist())


VIT = transformers.ViTConfig(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    image_size=12, patch_size=4, num_labels=5, layer_norm_eps=1e-3, initializer_range=SPREAD,
)  # fmt: skip


def make_vit(folder: Path) -> None:
    """In place of tokens `pixels`, of one picture."""
    torch.manual_seed(9)
    model = transformers.ViTForImageClassification(VIT)
    spread_biases(model)
    model.to(torch.bfloat16).save_pretrained(folder)
    model = transformers.ViTForImageClassification.from_pretrained(folder, dtype=torch.float32)
    pixels = torch.randn(1, 3, 12, 12)
    with torch.no_grad():
        logits = model.eval()(pixels).logits
    save_file({"pixels": pixels, "logits": logits}, folder / "expected.safetensors")


if __name__ == "__main__":
    golden = Path(__file__).parent / "huggingface_golden"
    for name in sys.argv[1:] or [*MODELS, "vit"]:
        if name == "vit":
            make_vit(golden / name)
        else:
            make(name, golden / name)
