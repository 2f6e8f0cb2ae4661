"""Goldens of matrix and attention operators beyond one matrix and one sequence, from PyTorch in float64."""
import numpy as np
import torch
import torch.nn.functional as F


def normal(rng, *shape):
    return rng.normal(0, 1, shape).astype(np.float32)


def f64(array):
    return torch.from_numpy(np.asarray(array, np.float64))


def f32(value):
    return float(np.float32(value))


def mul_mat():
    rng = np.random.default_rng(41)
    for (rows, columns, tokens), dtype in [((7, 33, 3), np.float32), ((5, 64, 1), np.float16)]:
        w, x = normal(rng, rows, columns).astype(dtype), normal(rng, tokens, columns)
        yield {"MulMat": None}, [w, x], (f64(x) @ f64(w).T).numpy()
    for stack, batches, x_dtype in [((1, 2), (1, 6), np.float32), ((3, 2), (3, 4), np.float16), ((1, 1), (2, 3), np.float32)]:
        w, x = normal(rng, *stack, 5, 17), normal(rng, *batches, 3, 17).astype(x_dtype)
        shared = f64(w)
        for dimension in (0, 1):
            shared = shared.repeat_interleave(batches[dimension] // stack[dimension], dimension)
        yield {"MulMat": None}, [w, x], (f64(x) @ shared.transpose(-1, -2)).numpy()


def mul_mat_id():
    rng = np.random.default_rng(42)
    for experts, used, seen in [(4, 2, 2), (5, 3, 1)]:
        w, x = normal(rng, experts, 7, 33), normal(rng, 6, seen, 33)
        ids = np.stack([rng.permutation(experts)[:used] for _ in range(6)]).astype(np.int32)
        chosen = f64(w)[torch.from_numpy(ids).long()]
        y = torch.einsum("tumk,tuk->tum", chosen, f64(x).expand(6, used, 33))
        yield {"MulMatId": None}, [w, x, ids], y.numpy()


def slopes(max_bias, heads):
    """The code published with ALiBi (get_slopes of fairseq's transformer), its 8 replaced by max_bias."""
    def of_power(n):
        return [2.0 ** (-max_bias / n * (head + 1)) for head in range(n)]
    n = 2 ** int(np.floor(np.log2(heads)))
    return torch.tensor(of_power(n) + of_power(2 * n)[0::2][:heads - n], dtype=torch.float64)


def causal(tokens, positions, dtype, distances=False):
    j, i = np.arange(positions), np.arange(tokens)[:, None] + positions - tokens
    return np.where(j <= i, j - i if distances else 0.0, -np.inf).astype(dtype)


def soft_max():
    rng = np.random.default_rng(43)
    for scale, (heads, tokens, capacity) in [(0.125, (2, 3, 64)), (1.0, (1, 5, 31))]:
        x = 4 * normal(rng, heads, tokens, capacity)
        mask = np.where(np.arange(capacity) <= np.arange(tokens)[:, None] + 2, 0, -np.inf).astype(np.float32)
        y = torch.softmax(f64(x) * scale + f64(mask), -1)
        yield {"SoftMax": {"scale": scale}}, [x, mask], y.numpy()
    x = 4 * normal(rng, 2, 5, 33)
    yield {"SoftMax": {"scale": 0.3}}, [x], torch.softmax(f64(x) * f32(0.3), -1).numpy()
    for max_bias, heads, dtype in [(8.0, 4, np.float32), (8.0, 12, np.float16), (4.5, 7, np.float32)]:
        x, mask = 4 * normal(rng, heads, 3, 20), causal(3, 20, dtype, distances=True)
        bias = slopes(max_bias, heads)[:, None, None] * f64(mask)
        y = torch.softmax(f64(x) * 0.25 + bias, -1)
        yield {"SoftMax": {"scale": 0.25, "max_bias": max_bias}}, [x, mask], y.numpy()
    x, mask = 4 * normal(rng, 2, 6, 3, 9), normal(rng, 2, 3, 3, 9)
    y = torch.softmax(f64(x) + f64(mask).repeat(1, 2, 1, 1), -1)
    yield {"SoftMax": {"scale": 1.0}}, [x, mask], y.numpy()


def diag_mask():
    rng = np.random.default_rng(44)
    for past in (0, 4):
        for value in (-np.inf, 0.0, -5.0):
            x = normal(rng, 2, 5, 9)
            ones = torch.ones(5, 9, dtype=torch.bool)
            for triangle, kept in [("Upper", torch.tril(ones, past)), ("Lower", torch.triu(ones, past))]:
                written = "-inf" if value == -np.inf else value
                y = f64(x).masked_fill(~kept, value)
                yield {"DiagMask": {"triangle": triangle, "past": past, "value": written}}, [x], y.numpy()


def flash_attn():
    rng = np.random.default_rng(45)
    for batch, heads, kv_heads, tokens, positions, size, width, dtype in [
        (1, 2, 2, 3, 17, 8, 8, np.float32),
        (2, 4, 2, 3, 35, 8, 5, np.float16),
    ]:
        q = normal(rng, batch, heads, tokens, size)
        k, v = (normal(rng, batch, kv_heads, positions, n).astype(dtype) for n in (size, width))
        shared = [f64(x).repeat_interleave(heads // kv_heads, 1) for x in (k, v)]
        for scale, max_bias, softcap, masked in [
            (0.25, 0.0, 0.0, False),
            (0.3, 0.0, 0.0, True),
            (0.25, 8.0, 0.0, True),
            (1.0, 0.0, 3.0, True),
            (1.0, 8.0, 2.5, True),
        ]:
            mask = causal(tokens, positions, dtype, distances=max_bias > 0)
            bias = f64(mask) if masked else torch.zeros(tokens, positions, dtype=torch.float64)
            if max_bias > 0:
                bias = slopes(max_bias, heads)[:, None, None] * bias
            if softcap > 0:
                scores = f64(q) @ shared[0].transpose(-1, -2) * f32(scale)
                y = torch.softmax(softcap * torch.tanh(scores / softcap) + bias, -1) @ shared[1]
            else:
                y = F.scaled_dot_product_attention(f64(q), *shared, attn_mask=bias, scale=f32(scale))
            op = {"FlashAttn": {"scale": scale, "max_bias": max_bias, "softcap": softcap}}
            yield op, [q, k, v] + [mask] * masked, y.transpose(1, 2).numpy()


def kv_attention():
    """The cache (sequences, context, heads of the cache, size); each token looks at the first positions of its own sequence."""
    rng = np.random.default_rng(47)
    for heads, kv_heads, size, width, dtype in [(4, 2, 8, 8, np.float16), (6, 3, 7, 5, np.float32), (3, 1, 8, 8, np.float16)]:
        sequences, lengths = np.array([2, 0, 0, 1], np.int32), np.array([17, 1, 20, 9])
        context, capacity, tokens = 24, 20, len(sequences)
        q = normal(rng, tokens, heads, size)
        k, v = (normal(rng, 3, context, kv_heads, n).astype(dtype) for n in (size, width))
        for scale, max_bias, window in [(0.3, 0.0, context), (0.25, 8.0, context), (1.0, 0.0, 5)]:
            j, last = np.arange(capacity), lengths[:, None] - 1
            distances = j - last if max_bias > 0 else np.zeros((tokens, capacity))
            mask = np.where((j <= last) & (j > last - window), distances, -np.inf).astype(np.float32)
            bias = f64(mask)[:, None, :]
            if max_bias > 0:
                bias = slopes(max_bias, heads)[None, :, None] * bias
            own = [f64(cache[sequences, :capacity]).repeat_interleave(heads // kv_heads, 2).transpose(1, 2) for cache in (k, v)]
            y = F.scaled_dot_product_attention(f64(q)[:, :, None], *own, attn_mask=bias[:, :, None], scale=f32(scale))
            inputs = [q, *(cache.reshape(3, context, -1) for cache in (k, v)), sequences, mask]
            op = {"KvAttention": {"scale": scale, "max_bias": max_bias}}
            yield op, inputs, y.reshape(tokens, heads * width).numpy()


def angles(positions, dimensions, base, scaling, factors):
    """Su et al. 2021, equation 34, and Peng et al. 2023, equations 17 to 23."""
    i = np.arange(dimensions // 2)
    theta = np.float64(base) ** (-2 * i / dimensions) / (1 if factors is None else factors.astype(np.float64))
    if "Linear" in scaling:
        theta = theta / f32(scaling["Linear"]["factor"])
    if "Yarn" in scaling:
        yarn = scaling["Yarn"]
        turn = [dimensions * np.log(yarn["original_context"] / (2 * np.pi * yarn[beta])) / (2 * np.log(base))
                for beta in ("beta_fast", "beta_slow")]
        low, high = max(np.floor(turn[0]), 0), min(np.ceil(turn[1]), dimensions - 1)
        interpolated = np.clip((i - low) / max(high - low, 0.001), 0, 1)
        theta = theta / f32(yarn["factor"]) * interpolated + theta * (1 - interpolated)
    return positions[:, None].astype(np.float64) * theta


def turned(x, a, pairs, magnitude):
    """x (tokens, heads, dimensions) by angles a (tokens, dimensions / 2)."""
    x = torch.from_numpy(x)
    if pairs == "Neighbours":
        numbers = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
        turn = torch.polar(torch.full(a.shape, magnitude, dtype=torch.float64), torch.from_numpy(a))
        return torch.view_as_real(numbers * turn[:, None]).flatten(-2).numpy()
    cos, sin = (magnitude * f(torch.from_numpy(np.concatenate([a, a], -1)))[:, None] for f in (torch.cos, torch.sin))
    first, second = x.chunk(2, -1)
    return (x * cos + torch.cat([-second, first], -1) * sin).numpy()


def rope():
    rng = np.random.default_rng(46)
    yarn = {"factor": 4.0, "original_context": 4096, "beta_fast": 32.0, "beta_slow": 1.0, "magnitude": 1.125}
    for pairs in ("Neighbours", "Halves"):
        for scaling, with_factors in [("None", False), ({"Linear": {"factor": 8.0}}, False), ({"Yarn": yarn}, False),
                                      ({"Long": {"magnitude": 1.1875}}, True), ("None", True)]:
            for size, dimensions, rows in [(20, 16, 1), (20, 10, 2)]:
                x = normal(rng, 3, 2, size)
                positions = rng.integers(0, 3000, (rows, 3)).astype(np.int32)
                factors = rng.uniform(1, 30, dimensions // 2).astype(np.float32) if with_factors else None
                magnitude = next((v.get("magnitude", 1.0) for v in scaling.values()), 1.0) if scaling != "None" else 1.0
                y = x.astype(np.float64)
                for row in range(rows):
                    part = slice(row * dimensions, (row + 1) * dimensions)
                    a = angles(positions[row], dimensions, 10000.0, scaling, factors)
                    y[..., part] = turned(y[..., part], a, pairs, magnitude)
                op = {"Rope": {"pairs": pairs, "dimensions": dimensions, "base": 10000.0, "scaling": scaling}}
                inputs = [x, positions if rows > 1 else positions[0]]
                yield op, inputs + ([factors] if with_factors else []), y


GOLDENS = {
    "diag_mask": diag_mask,
    "flash_attn": flash_attn,
    "kv_attention": kv_attention,
    "mul_mat": mul_mat,
    "mul_mat_id": mul_mat_id,
    "rope": rope,
    "soft_max": soft_max,
}
