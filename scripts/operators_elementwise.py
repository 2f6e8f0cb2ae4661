"""Goldens of elementwise operators, from PyTorch in float64, and from NumPy where PyTorch has no such operator."""
import numpy as np
import torch
import torch.nn.functional as F


def f64(array):
    return torch.from_numpy(np.asarray(array, np.float64))


def values(seed, *shape):
    """Both sides of 0, both ends of the functions, 0 itself."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 2, shape).astype(np.float32)
    flat = x.reshape(-1)
    flat[:12] = [0, -0.0, 1, -1, 3, -3, 20, -20, 90, -90, 1e-5, -1e-5]
    return x


def float32(value):
    """A parameter is kept in float32."""
    return float(np.float32(value))


ARITHMETIC = {
    "add": ("Add", lambda a, b: a + b),
    "sub": ("Sub", lambda a, b: a - b),
    "mul": ("Mul", lambda a, b: a * b),
    "div": ("Div", lambda a, b: a / b),
    "pow": ("Pow", torch.pow),
}


def tiled(array, shape):
    """Generalised broadcasting: whole repetitions in each dimension."""
    return np.tile(array, [size // own for size, own in zip(shape, array.shape)])


def arithmetic(name):
    member, function = ARITHMETIC[name]

    def cases():
        rng = np.random.default_rng(31)
        for left, right in [((5, 33), (1, 33)), ((3, 4, 6), (3, 2, 3)), ((1, 2, 3), (2, 4, 3)), ((2, 1, 4), (1, 3, 2))]:
            a = rng.integers(-12, 13, left).astype(np.float32) / 4
            b = rng.integers(-6, 7, right).astype(np.float32) / 2
            shape = [max(sizes) for sizes in zip(left, right)]
            y = function(f64(tiled(a, shape)), f64(tiled(b, shape)))
            yield {"Arithmetic": member}, [a, b], y.numpy()
        a, b = rng.normal(0, 1, (3, 8)).astype(np.float32), rng.normal(0, 1, 8).astype(np.float16)
        yield {"Arithmetic": member}, [a, b], function(f64(a), f64(b)).numpy()

    return cases


UNARY = {
    "sqr": ("Sqr", torch.square),
    "sqrt": ("Sqrt", torch.sqrt),
    "exp": ("Exp", torch.exp),
    "log": ("Log", torch.log),
    "sin": ("Sin", torch.sin),
    "cos": ("Cos", torch.cos),
    "neg": ("Neg", torch.neg),
    "abs": ("Abs", torch.abs),
    "step": ("Step", lambda x: torch.heaviside(x, torch.zeros_like(x))),
    "relu": ("Relu", F.relu),
    "silu": ("Silu", F.silu),
    "gelu": ("Gelu", lambda x: F.gelu(x, approximate="tanh")),
    "gelu_erf": ("GeluErf", F.gelu),
    "gelu_quick": ("GeluQuick", lambda x: x * torch.sigmoid(1.702 * x)),
    "sigmoid": ("Sigmoid", torch.sigmoid),
    "tanh": ("Tanh", torch.tanh),
    "hardsigmoid": ("Hardsigmoid", F.hardsigmoid),
    "hardswish": ("Hardswish", F.hardswish),
    # PyTorch's own is x itself above 20.
    "softplus": ("Softplus", lambda x: torch.from_numpy(np.logaddexp(0, x.numpy()))),
}


def unary(name):
    member, function = UNARY[name]

    def cases():
        # Whole powers of e overflow nowhere here, and errors are measured by the largest result.
        for shape, limit in [((64,), 4), ((3, 2, 11), 100)]:
            x = np.clip(values(32, *shape), -limit, min(limit, 20) if name == "exp" else limit)
            yield {"Unary": member}, [x], function(f64(x)).numpy()

    return cases


def scale(x, factor, bias):
    return float32(factor) * x + float32(bias)


def clamp(x, min, max):
    return torch.clamp(x, float(min), float(max))


def pow_scalar(x, exponent):
    return torch.pow(x, float32(exponent))


def leaky_relu(x, slope):
    return F.leaky_relu(x, float32(slope))


def elu(x, alpha):
    return F.elu(x, float32(alpha))


PARAMETERS = {
    "scale": ("Scale", scale, [{"factor": 0.3, "bias": 0.0}, {"factor": -2.0, "bias": 1.7}]),
    "clamp": ("Clamp", clamp, [{"min": -1.0, "max": 1.5}, {"min": "-inf", "max": 0.5}, {"min": -0.5, "max": "inf"}]),
    "pow_scalar": ("PowScalar", pow_scalar, [{"exponent": e} for e in (0.0, 0.5, 2.0, 3.0, -1.0, 2.7)]),
    "leaky_relu": ("LeakyRelu", leaky_relu, [{"slope": 0.01}, {"slope": -0.5}]),
    "elu": ("Elu", elu, [{"alpha": 1.0}, {"alpha": -0.4}]),
}


def parameterised(name):
    member, function, parameters = PARAMETERS[name]

    def cases():
        for chosen in parameters:
            x = np.clip(values(33, 5, 9), -50, 50)
            yield {"Unary": {member: chosen}}, [x], function(f64(x), **chosen).numpy()

    return cases


GATED = {
    "reglu": ("Reglu", "relu"),
    "geglu": ("Geglu", "gelu"),
    "geglu_erf": ("GegluErf", "gelu_erf"),
    "geglu_quick": ("GegluQuick", "gelu_quick"),
    "swiglu": ("Swiglu", "silu"),
}


def gated(name):
    member, function = GATED[name]

    def cases():
        gate, up = values(34, 5, 33), np.random.default_rng(35).normal(0, 1, (5, 33)).astype(np.float32)
        yield {"Gated": member}, [gate, up], (UNARY[function][1](f64(gate)) * f64(up)).numpy()

    return cases


def mul_mat_gated(name):
    """Two products of the same activations, and the gated product of both: `torch.nn.functional.linear` without bias, twice."""
    member, function = GATED[name]

    def cases():
        rng = np.random.default_rng(36)
        normal = lambda *shape: rng.normal(0, 1, shape).astype(np.float32)
        for (rows, columns, tokens), dtype in [((7, 33, 3), np.float32), ((5, 16, 1), np.float16)]:
            gate, up = [(normal(rows, columns) / 4).astype(dtype) for _ in range(2)]
            x = normal(tokens, columns)
            gates, ups = [torch.nn.functional.linear(f64(x), f64(w)) for w in (gate, up)]
            yield {"MulMatGated": {"gated": member}}, [gate, up, x], (UNARY[function][1](gates) * ups).numpy()

    return cases


MAKERS = [(ARITHMETIC, arithmetic), (UNARY, unary), (PARAMETERS, parameterised), (GATED, gated)]
GOLDENS = {name: make(name) for names, make in MAKERS for name in names}
GOLDENS |= {f"mul_mat_{name}": mul_mat_gated(name) for name in GATED}
