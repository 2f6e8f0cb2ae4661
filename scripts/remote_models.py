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

    def __init__(self, config, attention, norm=RmsNorm):
        super().__init__()
        width, epsilon = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm, self.post_attention_layernorm = norm(width, epsilon), norm(width, epsilon)
        self.self_attn, self.mlp = attention, Mlp(width, config["intermediate_size"])

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Embedding, layers, norm, head, under the names of the Llama kind."""

    def __init__(self, config, attention, norm=RmsNorm):
        super().__init__()
        self.config = config
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.model.layers = nn.ModuleList(Block(config, attention(config), norm) for _ in range(config["num_hidden_layers"]))
        self.model.norm = norm(config["hidden_size"], config["rms_norm_eps"])
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)

    def head(self):
        return self.lm_head.weight

    def logits(self, ids):
        x = self.model.embed_tokens(torch.tensor(ids))
        for layer in self.model.layers:
            x = layer(x)
        return self.model.norm(x) @ self.head().T


# ---------------------------------------------------------------- XVERSE and Orion

class GptDecoder(nn.Module):
    """The names of GPT-2: blocks of one kind between an embedding and a norm, and an output head."""

    def __init__(self, config, block, width, layers, norm, has_bias=False):
        super().__init__()
        self.config, self.transformer = config, nn.Module()
        self.transformer.wte = nn.Embedding(config["vocab_size"], config[width])
        self.transformer.h = nn.ModuleList(block(config) for _ in range(config[layers]))
        self.transformer.ln_f = norm(config[width], config["layer_norm_epsilon"])
        self.lm_head = nn.Linear(config[width], config["vocab_size"], bias=has_bias)

    def logits(self, ids):
        x = self.transformer.wte(torch.tensor(ids))
        for layer in self.transformer.h:
            x = layer(x)
        return self.lm_head(self.transformer.ln_f(x))


class LlamaAttention(nn.Module):
    """Separate projections without biases; groups of heads share keys and values; halves of heads are rotated."""

    def __init__(self, config):
        super().__init__()
        width, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.kv_heads, self.base = config.get("num_key_value_heads", self.heads), config.get("rope_theta", 10000.0)
        size = width // self.heads
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, self.kv_heads * size, bias=False)
        self.v_proj = nn.Linear(width, self.kv_heads * size, bias=False)

    def forward(self, x):
        query = self.q_proj(x).unflatten(-1, (self.heads, -1))
        key, value = (p(x).unflatten(-1, (self.kv_heads, -1)) for p in (self.k_proj, self.v_proj))
        positions = torch.arange(len(x))
        query, key = turned(query, positions, self.base), turned(key, positions, self.base)
        key, value = (part.repeat_interleave(self.heads // self.kv_heads, 1) for part in (key, value))
        return self.o_proj(attention(query, key, value, causal(len(x), x.dtype)))


class Xverse(Decoder):
    def __init__(self, config):
        super().__init__(config, LlamaAttention)


class Orion(Decoder):
    """Layer norms with biases in place of RMS norms."""

    def __init__(self, config):
        super().__init__(config, LlamaAttention, nn.LayerNorm)


# ---------------------------------------------------------------- InternLM2

class InternLm2Attention(nn.Module):
    """One matrix with a group for each KV head: the queries that share it, its key, its value."""

    def __init__(self, config):
        super().__init__()
        width, heads, bias = config["hidden_size"], config["num_attention_heads"], config["bias"]
        self.kv_heads, self.size, self.base = config["num_key_value_heads"], width // heads, float(config["rope_theta"])
        self.wqkv = nn.Linear(width, (heads + 2 * self.kv_heads) * self.size, bias=bias)
        self.wo = nn.Linear(width, width, bias=bias)

    def forward(self, x):
        groups = self.wqkv(x).unflatten(-1, (self.kv_heads, -1, self.size))
        query, key, value = groups[:, :, :-2], groups[:, :, -2], groups[:, :, -1]
        shared, positions = query.shape[2], torch.arange(len(x))
        query, key = turned(query.flatten(1, 2), positions, self.base), turned(key, positions, self.base)
        key, value = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
        return self.wo(attention(query, key, value, causal(len(x), x.dtype)))


class InternLm2Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, epsilon, ffn = config["hidden_size"], config["rms_norm_eps"], config["intermediate_size"]
        self.attention_norm, self.ffn_norm = RmsNorm(width, epsilon), RmsNorm(width, epsilon)
        self.attention, self.feed_forward = InternLm2Attention(config), nn.Module()
        self.feed_forward.w1, self.feed_forward.w3 = nn.Linear(width, ffn, bias=False), nn.Linear(width, ffn, bias=False)
        self.feed_forward.w2 = nn.Linear(ffn, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        y, ffn = self.ffn_norm(x), self.feed_forward
        return x + ffn.w2(nn.functional.silu(ffn.w1(y)) * ffn.w3(y))


class InternLm2(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.model = config, nn.Module()
        self.model.tok_embeddings = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.model.layers = nn.ModuleList(InternLm2Block(config) for _ in range(config["num_hidden_layers"]))
        self.model.norm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        self.output = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)

    def logits(self, ids):
        x = self.model.tok_embeddings(torch.tensor(ids))
        for layer in self.model.layers:
            x = layer(x)
        return self.output(self.model.norm(x))


# ---------------------------------------------------------------- MiniCPM

class MiniCpmBlock(Block):
    """The outputs of both branches are multiplied before they are added."""

    def __init__(self, config):
        super().__init__(config, LlamaAttention(config))
        self.scale = config["scale_depth"] / math.sqrt(config["num_hidden_layers"])

    def forward(self, x):
        x = x + self.scale * self.self_attn(self.input_layernorm(x))
        return x + self.scale * self.mlp(self.post_attention_layernorm(x))


class MiniCpm(Decoder):
    """The embedding is multiplied too, and logits are divided."""

    def __init__(self, config):
        super().__init__(config, LlamaAttention)
        self.model.layers = nn.ModuleList(MiniCpmBlock(config) for _ in range(config["num_hidden_layers"]))

    def logits(self, ids):
        x = self.config["scale_emb"] * self.model.embed_tokens(torch.tensor(ids))
        for layer in self.model.layers:
            x = layer(x)
        return self.lm_head(self.model.norm(x) / (self.config["hidden_size"] / self.config["dim_model_base"]))


# ---------------------------------------------------------------- OpenELM

class OpenElmBlock(nn.Module):
    """Each layer has its own number of heads and its own feed-forward; heads are normed before they are rotated."""

    def __init__(self, config, layer):
        super().__init__()
        width, self.size, self.base = config["model_dim"], config["head_dim"], float(config["rope_freq_constant"])
        self.heads, self.kv_heads = config["num_query_heads"][layer], config["num_kv_heads"][layer]
        wanted, divisor = config["ffn_multipliers"][layer] * width, config["ffn_dim_divisor"]
        ffn = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
        ffn += divisor if ffn < 0.9 * wanted else 0
        self.attn_norm, self.ffn_norm = RmsNorm(width, 1e-6), RmsNorm(width, 1e-6)
        self.attn, self.ffn = nn.Module(), nn.Module()
        self.attn.qkv_proj = nn.Linear(width, (self.heads + 2 * self.kv_heads) * self.size, bias=False)
        self.attn.q_norm, self.attn.k_norm = RmsNorm(self.size, 1e-6), RmsNorm(self.size, 1e-6)
        self.attn.out_proj = nn.Linear(self.heads * self.size, width, bias=False)
        self.ffn.proj_1, self.ffn.proj_2 = nn.Linear(width, 2 * ffn, bias=False), nn.Linear(ffn, width, bias=False)

    def forward(self, x):
        heads = self.attn.qkv_proj(self.attn_norm(x)).unflatten(-1, (-1, self.size))
        query, key, value = heads.split([self.heads, self.kv_heads, self.kv_heads], 1)
        positions = torch.arange(len(x))
        query = turned(self.attn.q_norm(query), positions, self.base)
        key = turned(self.attn.k_norm(key), positions, self.base)
        key, value = (part.repeat_interleave(self.heads // self.kv_heads, 1) for part in (key, value))
        x = x + self.attn.out_proj(attention(query, key, value, causal(len(x), x.dtype)))
        gate, up = self.ffn.proj_1(self.ffn_norm(x)).chunk(2, -1)
        return x + self.ffn.proj_2(nn.functional.silu(gate) * up)


class OpenElm(nn.Module):
    """The head is the embedding."""

    def __init__(self, config):
        super().__init__()
        self.config, self.transformer = config, nn.Module()
        self.transformer.token_embeddings = nn.Embedding(config["vocab_size"], config["model_dim"])
        self.transformer.layers = nn.ModuleList(OpenElmBlock(config, layer) for layer in range(config["num_transformer_layers"]))
        self.transformer.norm = RmsNorm(config["model_dim"], 1e-6)

    def logits(self, ids):
        x = self.transformer.token_embeddings(torch.tensor(ids))
        for layer in self.transformer.layers:
            x = layer(x)
        return self.transformer.norm(x) @ self.transformer.token_embeddings.weight.T


# ---------------------------------------------------------------- PLaMo

class PlamoAttention(nn.Module):
    """Head `i` takes the keys and values of head `i mod kv_heads`; halves of heads are rotated."""

    def __init__(self, config):
        super().__init__()
        width, self.heads, self.shared = config["hidden_size"], config["num_attention_heads"], config["n_shared_head"]
        size, kv_heads = width // self.heads, self.heads // self.shared
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = nn.Linear(width, kv_heads * size, bias=False), nn.Linear(width, kv_heads * size, bias=False)
        self.size = size

    def forward(self, x):
        query, key, value = (p(x).unflatten(-1, (-1, self.size)) for p in (self.q_proj, self.k_proj, self.v_proj))
        positions = torch.arange(len(x))
        query, key = turned(query, positions, 10000.0), turned(key, positions, 10000.0)
        key, value = key.repeat(1, self.shared, 1), value.repeat(1, self.shared, 1)
        return self.o_proj(attention(query, key, value, causal(len(x), x.dtype)))


class PlamoBlock(nn.Module):
    """Attention and feed-forward after one norm."""

    def __init__(self, config):
        super().__init__()
        self.norm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        self.self_attn, self.mlp = PlamoAttention(config), Mlp(config["hidden_size"], config["intermediate_size"])

    def forward(self, x):
        normed = self.norm(x)
        return x + self.self_attn(normed) + self.mlp(normed)


class Plamo(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.model = config, nn.Module()
        self.model.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.model.layers = nn.Module()
        self.model.layers.layers = nn.ModuleList(PlamoBlock(config) for _ in range(config["num_hidden_layers"]))
        self.model.norm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)

    def logits(self, ids):
        x = self.model.embed_tokens(torch.tensor(ids))
        for layer in self.model.layers.layers:
            x = layer(x)
        return self.lm_head(self.model.norm(x))


# ---------------------------------------------------------------- Refact

class ScaleNorm(nn.Module):
    """A layer norm with a weight and no bias."""

    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, None, self.epsilon)


class RefactBlock(nn.Module):
    """ALiBi; all heads share one head of keys and values; gate and up are one matrix."""

    def __init__(self, config):
        super().__init__()
        width, epsilon, self.heads = config["n_embd"], config["layer_norm_epsilon"], config["n_head"]
        size, inner = width // self.heads, config["n_inner"] or 4 * width
        ffn = 256 * math.ceil(int(2 * inner / 3) / 256)
        self.ln_1, self.ln_2 = ScaleNorm(width, epsilon), ScaleNorm(width, epsilon)
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.q, self.attn.kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * size, bias=False)
        self.attn.c_proj = nn.Linear(width, width, bias=False)
        self.mlp.gate_up_proj, self.mlp.c_proj = nn.Linear(width, 2 * ffn, bias=False), nn.Linear(ffn, width, bias=False)

    def forward(self, x):
        y, tokens = self.ln_1(x), len(x)
        query = self.attn.q(y).unflatten(-1, (self.heads, -1))
        key, value = (part[:, None].expand(-1, self.heads, -1) for part in self.attn.kv(y).chunk(2, -1))
        distance = torch.arange(tokens)[None, :] - torch.arange(tokens)[:, None]
        bias = causal(tokens, x.dtype) + alibi_slopes(self.heads).to(x.dtype)[:, None, None] * distance
        x = x + self.attn.c_proj(attention(query, key, value, bias))
        gate, up = self.mlp.gate_up_proj(self.ln_2(x)).chunk(2, -1)
        return x + self.mlp.c_proj(nn.functional.silu(gate) * up)


class Refact(GptDecoder):
    def __init__(self, config):
        super().__init__(config, RefactBlock, "n_embd", "n_layer", ScaleNorm)


# ---------------------------------------------------------------- CodeShell

class CodeShellBlock(nn.Module):
    """Queries, keys and values in one matrix with a bias; groups of heads share keys; halves of heads are rotated."""

    def __init__(self, config):
        super().__init__()
        width, epsilon, self.heads = config["n_embd"], config["layer_norm_epsilon"], config["n_head"]
        self.groups, self.size, inner = config["num_query_groups"], width // self.heads, config["n_inner"]
        self.ln_1, self.ln_2 = nn.LayerNorm(width, epsilon), nn.LayerNorm(width, epsilon)
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.c_attn = nn.Linear(width, width + 2 * self.groups * self.size)
        self.attn.c_proj = nn.Linear(width, width)
        self.mlp.c_fc, self.mlp.c_proj = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        sizes = [self.heads * self.size, self.groups * self.size, self.groups * self.size]
        query, key, value = (part.unflatten(-1, (-1, self.size)) for part in self.attn.c_attn(self.ln_1(x)).split(sizes, -1))
        positions = torch.arange(len(x))
        query, key = turned(query, positions, 10000.0), turned(key, positions, 10000.0)
        key, value = (part.repeat_interleave(self.heads // self.groups, 1) for part in (key, value))
        x = x + self.attn.c_proj(attention(query, key, value, causal(len(x), x.dtype)))
        return x + self.mlp.c_proj(nn.functional.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class CodeShell(GptDecoder):
    def __init__(self, config):
        super().__init__(config, CodeShellBlock, "n_embd", "n_layer", nn.LayerNorm)


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


# ---------------------------------------------------------------- ChatGLM2 and 3

def turned_pairs(x, positions, base, size):
    """The first `size` elements of heads [tokens, heads, ..] turned by their positions, with the pairs (2 i, 2 i + 1)."""
    frequencies = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = positions.double()[:, None, None] * frequencies
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    even, odd = x[..., 0:size:2], x[..., 1:size:2]
    pairs = torch.stack([even * cosine - odd * sine, odd * cosine + even * sine], -1).flatten(-2)
    return torch.cat([pairs, x[..., size:]], -1)


class ChatGlm2Attention(nn.Module):
    """Queries, keys and values in one matrix with a bias; groups of heads share keys; half of a head is turned."""

    def __init__(self, config):
        super().__init__()
        self.size, self.heads = config["kv_channels"], config["num_attention_heads"]
        self.groups, self.base = config["multi_query_group_num"], 10000.0 * config.get("rope_ratio", 1)
        rows = (self.heads + 2 * self.groups) * self.size
        self.query_key_value = nn.Linear(config["hidden_size"], rows, bias=config["add_qkv_bias"])
        self.dense = nn.Linear(self.heads * self.size, config["hidden_size"], bias=False)

    def forward(self, x):
        sizes = [self.heads * self.size, self.groups * self.size, self.groups * self.size]
        query, key, value = (part.unflatten(-1, (-1, self.size)) for part in self.query_key_value(x).split(sizes, -1))
        positions = torch.arange(len(x))
        query, key = (turned_pairs(part, positions, self.base, self.size // 2) for part in (query, key))
        key, value = (part.repeat_interleave(self.heads // self.groups, 1) for part in (key, value))
        return self.dense(attention(query, key, value, causal(len(x), x.dtype)))


class ChatGlm2Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, epsilon = config["hidden_size"], config["layernorm_epsilon"]
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(width, epsilon), RmsNorm(width, epsilon)
        self.self_attention, self.mlp = ChatGlm2Attention(config), nn.Module()
        self.mlp.dense_h_to_4h = nn.Linear(width, 2 * config["ffn_hidden_size"], bias=False)
        self.mlp.dense_4h_to_h = nn.Linear(config["ffn_hidden_size"], width, bias=False)

    def forward(self, x):
        x = x + self.self_attention(self.input_layernorm(x))
        gate, up = self.mlp.dense_h_to_4h(self.post_attention_layernorm(x)).chunk(2, -1)
        return x + self.mlp.dense_4h_to_h(nn.functional.silu(gate) * up)


class ChatGlm2(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, rows = config, config["padded_vocab_size"]
        self.transformer = transformer = nn.Module()
        transformer.embedding, transformer.encoder, transformer.rotary_pos_emb = nn.Module(), nn.Module(), nn.Module()
        transformer.embedding.word_embeddings = nn.Embedding(rows, config["hidden_size"])
        turned = config["kv_channels"] // 2
        transformer.rotary_pos_emb.register_buffer("inv_freq", 10000.0 ** (-torch.arange(0, turned, 2) / turned))
        transformer.encoder.layers = nn.ModuleList(ChatGlm2Block(config) for _ in range(config["num_layers"]))
        transformer.encoder.final_layernorm = RmsNorm(config["hidden_size"], config["layernorm_epsilon"])
        transformer.output_layer = nn.Linear(config["hidden_size"], rows, bias=False)

    def logits(self, ids):
        x = self.transformer.embedding.word_embeddings(torch.tensor(ids))
        for layer in self.transformer.encoder.layers:
            x = layer(x)
        return self.transformer.output_layer(self.transformer.encoder.final_layernorm(x))


# ---------------------------------------------------------------- Qwen, the first

class QwenBlock(nn.Module):
    """Queries, keys and values in one matrix with a bias; the gate is the second of the feed-forward's matrices."""

    def __init__(self, config):
        super().__init__()
        width, epsilon, ffn = config["hidden_size"], config["layer_norm_epsilon"], config["intermediate_size"] // 2
        self.heads, self.base = config["num_attention_heads"], float(config["rotary_emb_base"])
        self.ln_1, self.ln_2 = RmsNorm(width, epsilon), RmsNorm(width, epsilon)
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.c_attn, self.attn.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width, bias=False)
        self.mlp.w1, self.mlp.w2 = nn.Linear(width, ffn, bias=False), nn.Linear(width, ffn, bias=False)
        self.mlp.c_proj = nn.Linear(ffn, width, bias=False)

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (self.heads, -1)) for part in self.attn.c_attn(self.ln_1(x)).chunk(3, -1))
        positions = torch.arange(len(x))
        query, key = turned(query, positions, self.base), turned(key, positions, self.base)
        x = x + self.attn.c_proj(attention(query, key, value, causal(len(x), x.dtype)))
        y = self.ln_2(x)
        return x + self.mlp.c_proj(self.mlp.w1(y) * nn.functional.silu(self.mlp.w2(y)))


class Qwen(GptDecoder):
    def __init__(self, config):
        super().__init__(config, QwenBlock, "hidden_size", "num_hidden_layers", RmsNorm)


# ---------------------------------------------------------------- ChatGLM-6B

class ChatGlm1Attention(nn.Module):
    """Queries, keys and values head by head in one matrix; half of a head is turned by each of two positions."""

    def __init__(self, config, layer):
        super().__init__()
        width, self.heads, self.layer = config["hidden_size"], config["num_attention_heads"], layer
        self.query_key_value, self.dense = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, positions, hidden):
        heads = self.query_key_value(x).unflatten(-1, (self.heads, 3, -1))
        query, key, value = heads.unbind(-2)
        half = query.shape[-1] // 2
        query, key = (torch.cat([turned(part[..., :half], positions[0], 10000.0), turned(part[..., half:], positions[1], 10000.0)], -1)
                      for part in (query, key))
        scale = self.layer + 1.0
        scores = torch.einsum("qhd,khd->hqk", query / (math.sqrt(query.shape[-1]) * scale), key)
        scores = scores.masked_fill(hidden, -10000.0) * scale
        return self.dense(torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).flatten(1))


class ChatGlm1Block(nn.Module):
    """Results are added to what the norms gave, times the root of twice the number of layers."""

    def __init__(self, config, layer):
        super().__init__()
        width, epsilon, ffn = config["hidden_size"], config["layernorm_epsilon"], config["inner_hidden_size"]
        self.input_layernorm, self.post_attention_layernorm = nn.LayerNorm(width, epsilon), nn.LayerNorm(width, epsilon)
        self.attention, self.mlp = ChatGlm1Attention(config, layer), nn.Module()
        self.mlp.dense_h_to_4h, self.mlp.dense_4h_to_h = nn.Linear(width, ffn), nn.Linear(ffn, width)
        self.alpha = math.sqrt(2 * config["num_layers"])

    def forward(self, x, positions, hidden):
        normed = self.input_layernorm(x)
        x = self.alpha * normed + self.attention(normed, positions, hidden)
        normed = self.post_attention_layernorm(x)
        hidden_layer = nn.functional.gelu(self.mlp.dense_h_to_4h(normed), approximate="tanh")
        return self.alpha * normed + self.mlp.dense_4h_to_h(hidden_layer)


class ChatGlm1(nn.Module):
    """The words of a prompt, up to the token that begins the answer, see each other."""

    def __init__(self, config):
        super().__init__()
        self.config, self.transformer = config, nn.Module()
        rows, width = config["vocab_size"], config["hidden_size"]
        self.transformer.word_embeddings = nn.Embedding(rows, width)
        self.transformer.layers = nn.ModuleList(ChatGlm1Block(config, layer) for layer in range(config["num_layers"]))
        self.transformer.final_layernorm = nn.LayerNorm(width, config["layernorm_epsilon"])
        self.lm_head = nn.Linear(width, rows, bias=False)

    def divided(self, ids):
        """Positions [2, tokens] and what is hidden [tokens, tokens]."""
        context = ids.index(self.config["bos_token_id"])
        gmask, mask = self.config["gmask_token_id"], self.config["mask_token_id"]
        mark = ids.index(gmask if gmask in ids else mask)
        positions = torch.arange(len(ids))
        positions[context:] = mark
        blocks = torch.cat([torch.zeros(context, dtype=torch.long), torch.arange(len(ids) - context) + 1])
        hidden = torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1)
        hidden[:, :context] = False
        return torch.stack([positions, blocks]), hidden

    def logits(self, ids):
        positions, hidden = self.divided(list(ids))
        x = self.transformer.word_embeddings(torch.tensor(ids))
        for layer in self.transformer.layers:
            x = layer(x, positions, hidden)
        return self.lm_head(self.transformer.final_layernorm(x))


# ---------------------------------------------------------------- MOSS

class MossBlock(nn.Module):
    """Attention and feed-forward behind one norm; queries, values and keys of each quarter of the heads stand together."""

    def __init__(self, config):
        super().__init__()
        width, self.heads, self.turned = config["n_embd"], config["n_head"], config["rotary_dim"]
        self.ln_1 = nn.LayerNorm(width, config["layer_norm_epsilon"])
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.qkv_proj, self.attn.out_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        inner = config["n_inner"] or 4 * width
        self.mlp.fc_in, self.mlp.fc_out = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        normed = self.ln_1(x)
        quarters = self.attn.qkv_proj(normed).unflatten(-1, (4, 3, -1))
        query, value, key = (quarters[:, :, kind].flatten(1).unflatten(-1, (self.heads, -1)) for kind in range(3))
        positions = torch.arange(len(x))
        query, key = (turned_pairs(part, positions, 10000.0, self.turned) for part in (query, key))
        mixed = self.attn.out_proj(attention(query, key, value, causal(len(x), x.dtype)))
        return x + mixed + self.mlp.fc_out(nn.functional.gelu(self.mlp.fc_in(normed), approximate="tanh"))


class Moss(GptDecoder):
    def __init__(self, config):
        super().__init__(config, MossBlock, "n_embd", "n_layer", nn.LayerNorm, has_bias=True)
