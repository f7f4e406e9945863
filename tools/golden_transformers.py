"""Small transformers in PyTorch, in double precision, for tools/make_golden.py.

Each is shaped like the model it is named after and uses what makes it different. GPT-2: learned
positions, LayerNorm, one matrix for queries, keys and values, GELU by tanh, a tied head. LLaMA:
rotary positions, RMSNorm, grouped queries, SwiGLU; texts packed in one row, a smoothed loss.
BERT: looks both ways, normalises behind each sum, GELU by erf, a head of its own on the tied
table. ViT, of pictures: patches by convolution, a class token.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, POSITIONS, HIDDEN, HEADS, KV_HEADS, LAYERS = 61, 16, 32, 4, 2, 2
BATCH, LENGTH = 3, 13
PICTURE, PATCH, CLASSES = 12, 4, 10
IGNORED = -100


def attend(q, k, v, seen):
    """batch x heads x length x size each; seen: which keys a query sees."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~seen, -math.inf).softmax(-1) @ v


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join(x):
    return x.transpose(1, 2).flatten(2)


def causal():
    return torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()


class Gpt2Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attn = nn.ModuleDict(
            {"c_attn": nn.Linear(HIDDEN, 3 * HIDDEN), "c_proj": nn.Linear(HIDDEN, HIDDEN)}
        )
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(HIDDEN, 4 * HIDDEN), "c_proj": nn.Linear(4 * HIDDEN, HIDDEN)}
        )

    def forward(self, x):
        q, k, v = (split(t, HEADS) for t in self.attn["c_attn"](self.ln_1(x)).chunk(3, -1))
        x = x + self.attn["c_proj"](join(attend(q, k, v, causal())))
        y = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](y)


class Gpt2(nn.Module):
    smoothing = 0.0

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(POSITIONS, HIDDEN)
        self.h = nn.ModuleList(Gpt2Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(HIDDEN)

    def forward(self, tokens, documents):
        del documents
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


class RmsNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        return self.weight * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def rotate(x):
    """Halves, as in Hugging Face's LLaMA. x: batch x heads x length x size."""
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * frequencies
    low, high = x[..., :half], x[..., half:]
    turned = (
        low * angles.cos() - high * angles.sin(),
        high * angles.cos() + low * angles.sin(),
    )
    return torch.cat(turned, -1)


class LlamaBlock(nn.Module):
    def __init__(self):
        super().__init__()
        size, inner = HIDDEN // HEADS, 3 * HIDDEN
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(), RmsNorm()
        widths = {"q": HIDDEN, "k": KV_HEADS * size, "v": KV_HEADS * size, "o": HIDDEN}
        self.self_attn = nn.ModuleDict(
            {
                f"{name}_proj": nn.Linear(HIDDEN, width, bias=False)
                for name, width in widths.items()
            }
        )
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(HIDDEN, inner, bias=False),
                "up_proj": nn.Linear(HIDDEN, inner, bias=False),
                "down_proj": nn.Linear(inner, HIDDEN, bias=False),
            }
        )

    def forward(self, x, seen):
        y, attn, mlp = self.input_layernorm(x), self.self_attn, self.mlp
        q, k = (
            rotate(split(attn["q_proj"](y), HEADS)),
            rotate(split(attn["k_proj"](y), KV_HEADS)),
        )
        k, v = (
            t.repeat_interleave(HEADS // KV_HEADS, 1)
            for t in (k, split(attn["v_proj"](y), KV_HEADS))
        )
        x = x + attn["o_proj"](join(attend(q, k, v, seen)))
        y = self.post_attention_layernorm(x)
        return x + mlp["down_proj"](F.silu(mlp["gate_proj"](y)) * mlp["up_proj"](y))


class Llama(nn.Module):
    smoothing = 0.1

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(LlamaBlock() for _ in range(LAYERS))
        self.norm = RmsNorm()
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens, documents):
        same = documents[:, :, None] == documents[:, None, :]
        x = self.embed_tokens(tokens)
        for block in self.layers:
            x = block(x, (same & causal())[:, None])
        return self.lm_head(self.norm(x))


class BertBlock(nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("query", "key", "value", "attention_output"):
            setattr(self, name, nn.Linear(HIDDEN, HIDDEN))
        self.intermediate = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.output = nn.Linear(4 * HIDDEN, HIDDEN)
        self.attention_norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.output_norm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def forward(self, x):
        q, k, v = (split(layer(x), HEADS) for layer in (self.query, self.key, self.value))
        y = join(attend(q, k, v, torch.ones(LENGTH, LENGTH, dtype=torch.bool)))
        x = self.attention_norm(x + self.attention_output(y))
        return self.output_norm(x + self.output(F.gelu(self.intermediate(x))))


class Bert(nn.Module):
    smoothing = 0.0

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = nn.Embedding(POSITIONS, HIDDEN)
        self.types = nn.Embedding(2, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.layers = nn.ModuleList(BertBlock() for _ in range(LAYERS))
        self.transform = nn.Linear(HIDDEN, HIDDEN)
        self.transform_norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))

    def forward(self, tokens, documents):
        x = (
            self.words(tokens)
            + self.positions.weight[: tokens.shape[1]]
            + self.types(documents)
        )
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        x = self.transform_norm(F.gelu(self.transform(x)))
        return F.linear(x, self.words.weight, self.bias)


class VitBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = (nn.LayerNorm(HIDDEN, eps=1e-6) for _ in range(2))
        self.in_proj, self.out_proj = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.fc1, self.fc2 = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        q, k, v = (split(t, HEADS) for t in self.in_proj(self.ln_1(x)).chunk(3, -1))
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
        x = x + self.out_proj(join(attend(q, k, v, seen)))
        return x + self.fc2(F.gelu(self.fc1(self.ln_2(x))))


class Vit(nn.Module):
    smoothing = 0.0

    def __init__(self):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, HIDDEN, PATCH, PATCH)
        self.class_token = nn.Parameter(torch.zeros(HIDDEN))
        self.pos_embedding = nn.Parameter(torch.zeros((PICTURE // PATCH) ** 2 + 1, HIDDEN))
        self.layers = nn.ModuleList(VitBlock() for _ in range(LAYERS))
        self.ln = nn.LayerNorm(HIDDEN, eps=1e-6)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, images):
        x = self.conv_proj(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.class_token.expand(len(x), 1, -1), x), 1) + self.pos_embedding
        for layer in self.layers:
            x = layer(x)
        return self.head(self.ln(x)[:, 0])


MODELS = {"gpt2": Gpt2, "llama": Llama, "bert": Bert, "vit": Vit}


def draw(model, generator):
    """Every parameter from a normal distribution: also those that usually start as 0 or 1."""
    for name, parameter in model.named_parameters():
        is_scale = parameter.dim() == 1 and name.endswith("weight")
        values = torch.randn(parameter.shape, generator=generator) * 0.1 + is_scale
        parameter.data = values.to(torch.float32).to(torch.float64)


def draw_text(generator):
    """Tokens, texts packed in a row, and labels of which some are ignored."""
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)
    labels = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)
    labels[torch.rand(BATCH, LENGTH, generator=generator) < 0.3] = IGNORED
    documents = (torch.arange(LENGTH) >= torch.tensor([[LENGTH], [5], [9]])).long()
    return {"tokens": tokens, "labels": labels, "documents": documents}


def draw_pictures(generator):
    pictures = torch.randn(BATCH, 3, PICTURE, PICTURE, generator=generator)
    return {
        "images": pictures.double(),
        "labels": torch.randint(0, CLASSES, (BATCH,), generator=generator),
    }


def run(model_class, seed):
    """The tensors of one golden file: one step, its loss and gradients."""
    generator = torch.Generator().manual_seed(seed)
    model = model_class().to(torch.float64)
    draw(model, generator)
    inputs = draw_pictures(generator) if model_class is Vit else draw_text(generator)
    tensors = {
        name: tensor.float() if tensor.is_floating_point() else tensor.to(torch.int32)
        for name, tensor in inputs.items()
    }
    tensors |= {f"initial/{n}": p.detach().float().clone() for n, p in model.named_parameters()}
    labels = inputs.pop("labels")
    logits = model(*inputs.values())
    if model_class is Vit:
        tensors["logits"] = logits.detach().float()
    loss = F.cross_entropy(
        logits.flatten(0, -2),
        labels.flatten(),
        ignore_index=IGNORED,
        label_smoothing=model.smoothing,
    )
    loss.backward()
    tensors |= {f"gradient/{n}": p.grad.float().clone() for n, p in model.named_parameters()}
    tensors["losses"] = torch.tensor([loss.item()], dtype=torch.float32)
    return tensors
