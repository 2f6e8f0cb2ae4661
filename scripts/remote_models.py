"""Models whose programs came with their checkpoints and are in no release of transformers: an independent forward of each, in torch.

Written from the formulas of the published models, with the names that their checkpoints have. Parameters are read by make_fixtures.py in
any type; `logits(ids)` computes all positions at once in the type of the parameters.
"""
import math

import torch
from torch import nn


class RmsNorm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.epsilon) * self.weight


def turned(x, positions, base):
    """Halves of heads [tokens, heads, size] turned by their positions (RoFormer, with the pairs (i, i + size / 2))."""
    size = x.shape[-1]
    frequencies = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = positions.double()[:, None, None] * frequencies
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., : size // 2], x[..., size // 2:]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


def alibi_slopes(heads):
    """Press et al. 2022, section 3, and for numbers of heads that are no power of two the program published with it."""
    def of_power(count):
        start = 2.0 ** (-8.0 / count)
        return [start ** (index + 1) for index in range(count)]
    power = 2 ** math.floor(math.log2(heads))
    return torch.tensor(of_power(power) + of_power(2 * power)[0::2][: heads - power], dtype=torch.float64)


def attention(query, key, value, bias):
    """[tokens, heads, size] each; `bias` [heads or 1, tokens, tokens] is added to the scores."""
    scores = torch.einsum("qhd,khd->hqk", query, key) / math.sqrt(query.shape[-1]) + bias
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).flatten(1)


def causal(tokens, dtype):
    return torch.full((tokens, tokens), -math.inf, dtype=dtype).triu(1)[None]


class Mlp(nn.Module):
    def __init__(self, width, ffn):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(width, ffn, bias=False), nn.Linear(width, ffn, bias=False)
        self.down_proj = nn.Linear(ffn, width, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One layer of the Llama kind; `attention` takes and gives [tokens, width]."""

    def __init__(self, config, attention):
        super().__init__()
        width, epsilon = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(width, epsilon), RmsNorm(width, epsilon)
        self.self_attn, self.mlp = attention, Mlp(width, config["intermediate_size"])

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Embedding, layers, norm, head, under the names of the Llama kind."""

    def __init__(self, config, attention):
        super().__init__()
        self.config = config
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.model.layers = nn.ModuleList(Block(config, attention(config)) for _ in range(config["num_hidden_layers"]))
        self.model.norm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)

    def head(self):
        return self.lm_head.weight

    def logits(self, ids):
        x = self.model.embed_tokens(torch.tensor(ids))
        for layer in self.model.layers:
            x = layer(x)
        return self.model.norm(x) @ self.head().T


# ---------------------------------------------------------------- Baichuan 1 and 2

class BaichuanAttention(nn.Module):
    """Queries, keys and values in one matrix; the models of 13 billion parameters have ALiBi and no rotation."""

    def __init__(self, config):
        super().__init__()
        width = config["hidden_size"]
        self.heads, self.alibi = config["num_attention_heads"], "max_position_embeddings" not in config
        self.W_pack = nn.Linear(width, 3 * width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x):
        tokens = len(x)
        query, key, value = (part.unflatten(-1, (self.heads, -1)) for part in self.W_pack(x).chunk(3, -1))
        bias = causal(tokens, x.dtype)
        if self.alibi:
            # As published: the bias grows with the key's position, the same for each query, which softmax does not see.
            bias = bias + alibi_slopes(self.heads).to(x.dtype)[:, None, None] * torch.arange(tokens, dtype=x.dtype)
        else:
            positions = torch.arange(tokens)
            query, key = turned(query, positions, 10000.0), turned(key, positions, 10000.0)
        return self.o_proj(attention(query, key, value, bias))


class Baichuan(Decoder):
    def __init__(self, config):
        super().__init__(config, BaichuanAttention)

    def head(self):
        if "z_loss_weight" in self.config:
            return nn.functional.normalize(self.lm_head.weight)
        return self.lm_head.weight


# ---------------------------------------------------------------- InternLM 1

class InternLmAttention(nn.Module):
    """Llama's, with biases on all four projections."""

    def __init__(self, config):
        super().__init__()
        width, bias = config["hidden_size"], config["bias"]
        self.heads, self.base = config["num_attention_heads"], float(config["rotary"]["base"])
        self.q_proj, self.k_proj = nn.Linear(width, width, bias=bias), nn.Linear(width, width, bias=bias)
        self.v_proj, self.o_proj = nn.Linear(width, width, bias=bias), nn.Linear(width, width, bias=bias)

    def forward(self, x):
        split = lambda y: y.unflatten(-1, (self.heads, -1))
        positions = torch.arange(len(x))
        query, key = (turned(split(p(x)), positions, self.base) for p in (self.q_proj, self.k_proj))
        return self.o_proj(attention(query, key, split(self.v_proj(x)), causal(len(x), x.dtype)))


class InternLm(Decoder):
    def __init__(self, config):
        super().__init__(config, InternLmAttention)
