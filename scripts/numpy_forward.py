#!/usr/bin/env python3
"""An independent forward pass of a GGUF model, in NumPy and float64.

    python scripts/numpy_forward.py MODEL.gguf --ids "1 2 3" -o logits.safetensors

Reads the file with the `gguf` package, dequantizes with it (to f32, then f64) and writes the logits of all positions as
`p0_logits` [tokens, vocabulary] (f64). For the Llama family: architectures llama (rotary pairs side by side), qwen2 and
qwen3 (rotary halves), baichuan (side by side, or ALiBi), chatglm (side by side, joined tensors), with biases, norms on q and k, tied heads, frequency factors,
linear and yarn scaling, and sliding windows. It shares no code with the project.
"""
import argparse
import math

import gguf
import numpy as np

SIDE_BY_SIDE = {"llama": True, "qwen2": False, "qwen3": False, "baichuan": True, "chatglm": True}


class Model:
    """Hyper-parameters by key, tensors by name as f64 arrays of shape [rows, columns]."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.keys = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer.")}
        self.arch = self.keys["general.architecture"]
        if self.arch not in SIDE_BY_SIDE:
            raise SystemExit(f"{path}: architecture {self.arch} is none of {', '.join(SIDE_BY_SIDE)}")
        self.tensors = {}
        for tensor in reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            self.tensors[tensor.name] = values.reshape([int(n) for n in reversed(tensor.shape)]).astype(np.float64)

    def key(self, name, default=None):
        value = self.keys.get(f"{self.arch}.{name}", default)
        if value is None:
            raise SystemExit(f"the file has no key {self.arch}.{name}")
        return value


def rms_norm(x, weight, epsilon):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * weight


def linear(model, name, x):
    bias = model.tensors.get(name + ".bias")
    y = x @ model.tensors[name + ".weight"].T
    return y if bias is None else y + bias


# ---------------------------------------------------------------- rotary positions

def yarn(model, frequencies, dimensions, base, factor):
    """Frequencies between the original and the slowed ones by wavelength, and the factor on cosine and sine.

    Formula of "YaRN: Efficient Context Window Extension", section 3.
    """
    context = model.key("rope.scaling.original_context_length")
    fast, slow = model.key("rope.scaling.yarn_beta_fast", 32.0), model.key("rope.scaling.yarn_beta_slow", 1.0)

    def dimension_of(rotations):
        return dimensions * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(0, math.floor(dimension_of(fast)))
    high = min(dimensions - 1, math.ceil(dimension_of(slow)))
    ramp = np.clip((np.arange(dimensions // 2) - low) / max(0.001, high - low), 0, 1)
    attention = model.key("rope.scaling.attn_factor", 1.0)
    return frequencies / factor * ramp + frequencies * (1 - ramp), attention * (1 + 0.1 * math.log(factor))


def rotary(model, head_size, count):
    """(cosines, sines), each [count, rotated / 2]."""
    dimensions = model.key("rope.dimension_count", head_size)
    base = model.key("rope.freq_base", 10000.0)
    frequencies = base ** (-2.0 * np.arange(dimensions // 2) / dimensions)
    if "rope_freqs.weight" in model.tensors:
        frequencies = frequencies / model.tensors["rope_freqs.weight"]
    scale = 1.0
    kind = model.key("rope.scaling.type", "none")
    if kind == "linear":
        frequencies = frequencies / model.key("rope.scaling.factor")
    elif kind == "yarn":
        frequencies, scale = yarn(model, frequencies, dimensions, base, model.key("rope.scaling.factor"))
    elif kind != "none":
        raise SystemExit(f"rope scaling {kind} is not known here")
    angles = np.arange(count)[:, None] * frequencies[None, :]
    return np.cos(angles) * scale, np.sin(angles) * scale


def rotate(x, cosines, sines, side_by_side):
    """x: [tokens, heads, head size]; values beyond the rotated ones stay."""
    half = cosines.shape[1]
    first = slice(0, 2 * half, 2) if side_by_side else slice(0, half)
    second = slice(1, 2 * half, 2) if side_by_side else slice(half, 2 * half)
    a, b, c, s = x[..., first], x[..., second], cosines[:, None, :], sines[:, None, :]
    y = x.copy()
    y[..., first], y[..., second] = a * c - b * s, a * s + b * c
    return y


# ---------------------------------------------------------------- layers

def visible(count, window):
    """[query, key]: keys up to the query, the last `window` of them where there is a window."""
    query, key = np.arange(count)[:, None], np.arange(count)[None, :]
    return (key <= query) & (query - key < window if window else True)


def alibi_slopes(heads, max_bias):
    """Press et al. 2022; where heads are no power of two, every second slope of twice as many for the rest."""
    power = 2 ** math.floor(math.log2(heads))
    first = [2 ** (-max_bias * (head + 1) / power) for head in range(power)]
    rest = [2 ** (-max_bias * (2 * head + 1) / (2 * power)) for head in range(heads - power)]
    return np.array(first + rest)


def attention(model, prefix, x, rotation, mask):
    count, heads = len(x), model.key("attention.head_count")
    kv_heads = model.key("attention.head_count_kv", heads)
    if prefix + "attn_qkv.weight" in model.tensors:
        joined = linear(model, prefix + "attn_qkv", x).reshape(count, heads + 2 * kv_heads, -1)
        q, k, v = np.split(joined, [heads, heads + kv_heads], axis=1)
    else:
        q, k, v = (linear(model, prefix + name, x).reshape(count, number, -1)
                   for name, number in (("attn_q", heads), ("attn_k", kv_heads), ("attn_v", kv_heads)))
    if prefix + "attn_q_norm.weight" in model.tensors:
        epsilon = model.key("attention.layer_norm_rms_epsilon")
        q = rms_norm(q, model.tensors[prefix + "attn_q_norm.weight"], epsilon)
        k = rms_norm(k, model.tensors[prefix + "attn_k_norm.weight"], epsilon)
    max_bias = model.key("attention.max_alibi_bias", 0.0)
    if not max_bias:
        q, k = (rotate(t, *rotation, SIDE_BY_SIDE[model.arch]) for t in (q, k))
    k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
    if max_bias:
        distances = np.arange(count)[None, :] - np.arange(count)[:, None]
        scores = scores + alibi_slopes(heads, max_bias)[:, None, None] * distances
    scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return linear(model, prefix + "attn_output", np.einsum("hqk,khd->qhd", weights, v).reshape(count, -1))


def feed_forward(model, prefix, x):
    if prefix + "ffn_gate.weight" in model.tensors:
        gate, up = linear(model, prefix + "ffn_gate", x), linear(model, prefix + "ffn_up", x)
    else:
        gate, up = np.split(linear(model, prefix + "ffn_up", x), 2, axis=-1)
    return linear(model, prefix + "ffn_down", gate / (1 + np.exp(-gate)) * up)


def forward(model, ids, ignore_window=False):
    """Logits of all positions, [tokens, vocabulary]."""
    epsilon = model.key("attention.layer_norm_rms_epsilon")
    x = model.tensors["token_embd.weight"][ids]
    head_size = model.key("attention.key_length", x.shape[1] // model.key("attention.head_count"))
    rotation = rotary(model, head_size, len(ids))
    mask = visible(len(ids), 0 if ignore_window else model.key("attention.sliding_window", 0))
    for layer in range(model.key("block_count")):
        prefix = f"blk.{layer}."
        normed = rms_norm(x, model.tensors[prefix + "attn_norm.weight"], epsilon)
        x = x + attention(model, prefix, normed, rotation, mask)
        x = x + feed_forward(model, prefix, rms_norm(x, model.tensors[prefix + "ffn_norm.weight"], epsilon))
    x = rms_norm(x, model.tensors["output_norm.weight"], epsilon)
    return x @ model.tensors.get("output.weight", model.tensors["token_embd.weight"]).T


def greedy(model, ids, count, ignore_window=False):
    """`count` greedy tokens after `ids`, and the smallest distance of the best two logits on the way."""
    ids, start, smallest = list(ids), len(ids), float("inf")
    for _ in range(count):
        logits = forward(model, ids, ignore_window)[-1]
        second, best = np.sort(logits)[-2:]
        smallest = min(smallest, float(best - second))
        ids.append(int(logits.argmax()))
    return ids[start:], smallest


def nmse(result, reference):
    return float(((result - reference) ** 2).sum() / (np.asarray(reference, np.float64) ** 2).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--ids", required=True, help="token ids, separated by spaces")
    parser.add_argument("-o", "--output", required=True, help="safetensors file with p0_logits")
    parser.add_argument("--ignore-window", action="store_true", help="attend to all earlier tokens, as programs that ignore the key do")
    arguments = parser.parse_args()
    from safetensors.numpy import save_file
    ids = [int(i) for i in arguments.ids.split()]
    save_file({"p0_logits": forward(Model(arguments.model), ids, arguments.ignore_window)}, arguments.output)


if __name__ == "__main__":
    main()
