"""Goldens of the operators that decoders are built of, from PyTorch in float64."""
import numpy as np
import torch


def normal(rng, *shape):
    return rng.normal(0, 1, shape).astype(np.float32)


def f64(array):
    return torch.from_numpy(np.asarray(array, np.float64))


def rms_norm():
    rng = np.random.default_rng(1)
    for epsilon, shape in [(1e-5, (3, 33)), (1e-6, (2, 4, 64)), (1e-2, (1, 1))]:
        x, w = normal(rng, *shape), normal(rng, shape[-1])
        y = torch.nn.functional.rms_norm(f64(x), (shape[-1],), f64(w), float(np.float32(epsilon)))
        yield {"RmsNorm": {"epsilon": epsilon}}, [x, w], y.numpy()


def soft_max():
    rng = np.random.default_rng(2)
    for scale, (heads, tokens, capacity) in [(0.125, (2, 3, 64)), (1.0, (1, 5, 31))]:
        x = 4 * normal(rng, heads, tokens, capacity)
        mask = np.where(np.arange(capacity) <= np.arange(tokens)[:, None] + 2, 0, -np.inf).astype(np.float32)
        y = torch.softmax(f64(x) * scale + f64(mask), -1)
        yield {"SoftMax": {"scale": scale}}, [x, mask], y.numpy()


def mul_mat():
    rng = np.random.default_rng(4)
    for (rows, columns, tokens), dtype in [((7, 33, 3), np.float32), ((5, 64, 1), np.float16)]:
        w, x = normal(rng, rows, columns).astype(dtype), normal(rng, tokens, columns)
        yield {"MulMat": None}, [w, x], (f64(x) @ f64(w).T).numpy()


GOLDENS = {"rms_norm": rms_norm, "soft_max": soft_max, "mul_mat": mul_mat}
