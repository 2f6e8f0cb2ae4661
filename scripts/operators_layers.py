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


GOLDENS = {"rms_norm": rms_norm}
