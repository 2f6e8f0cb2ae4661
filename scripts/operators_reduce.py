"""Goldens of norms, sums, ranks, made tensors, images and state space models, from PyTorch and NumPy in float64."""
import numpy as np
import torch

from operators_layers import f64, normal


def layer_norm():
    rng = np.random.default_rng(20)
    for epsilon, shape in [(1e-5, (3, 33)), (1e-6, (2, 4, 64)), (1e-2, (2, 1))]:
        x = normal(rng, *shape) + np.float32(3)
        y = torch.nn.functional.layer_norm(f64(x), (shape[-1],), eps=float(np.float32(epsilon)))
        yield {"Norm": {"rule": "layer", "epsilon": epsilon}}, [x], y.numpy()


def group_norm():
    rng = np.random.default_rng(21)
    for groups, epsilon, shape in [(3, 1e-5, (2, 6, 5, 7)), (1, 1e-2, (1, 4, 3, 3)), (4, 1e-6, (3, 4, 1, 9))]:
        x = normal(rng, *shape) + np.float32(1)
        y = torch.nn.functional.group_norm(f64(x), groups, eps=float(np.float32(epsilon)))
        yield {"Norm": {"rule": {"group": {"groups": groups}}, "epsilon": epsilon}}, [x], y.numpy()


def l2_norm():
    rng = np.random.default_rng(22)
    for epsilon, scale in [(1e-6, 1.0), (0.5, 0.01), (1e-12, 0.0)]:
        x = (scale * normal(rng, 4, 31)).astype(np.float32)
        y = torch.nn.functional.normalize(f64(x), dim=-1, eps=float(np.float32(epsilon)))
        yield {"Norm": {"rule": "l2", "epsilon": epsilon}}, [x], y.numpy()


def reductions(rule, seed, reduce):
    def cases():
        rng = np.random.default_rng(seed)
        for shape in [(3, 33), (2, 3, 5, 7), (1,)]:
            x = normal(rng, *shape)
            yield {"Reduce": {"rule": rule}}, [x], reduce(f64(x)).numpy()

    return cases


def with_ties(rng, *shape):
    return rng.integers(-4, 5, shape).astype(np.float32)


def argmax():
    rng = np.random.default_rng(30)
    for x in [normal(rng, 5, 33), with_ties(rng, 2, 3, 31), with_ties(rng, 2, 2, 3, 9)]:
        # NumPy takes the first of equal ones.
        yield {"Rank": {"rule": "arg_max"}}, [x], np.argmax(x, -1).astype(np.int32)


def argsort():
    rng = np.random.default_rng(31)
    for x in [normal(rng, 5, 33), with_ties(rng, 2, 3, 31)]:
        for rule, descending in [("ascending", False), ("descending", True)]:
            y = torch.sort(f64(x), dim=-1, descending=descending, stable=True).indices
            yield {"Rank": {"rule": rule}}, [x], y.numpy().astype(np.int32)


def top_k():
    rng = np.random.default_rng(32)
    for k, x in [(1, normal(rng, 4, 9)), (5, normal(rng, 2, 3, 33)), (31, normal(rng, 2, 31))]:
        y = torch.topk(f64(x), k, dim=-1, largest=True, sorted=True).indices
        yield {"Rank": {"rule": {"top_k": {"k": k}}}}, [x], y.numpy().astype(np.int32)


def make(rule):
    return {"Make": {"rule": rule, "output": "f64"}}


def arange():
    for start, stop, step in [(0.0, 7.0, 1.0), (-5.5, 6.0, 0.7), (3.0, -20.0, -1.5), (2.0, 2.0, 1.0)]:
        y = torch.arange(*(float(np.float32(v)) for v in (start, stop, step)), dtype=torch.float64)
        yield make({"arange": {"start": start, "stop": stop, "step": step}}), [], y.numpy()


def fill():
    for value in [0.25, -np.inf]:
        written = value if np.isfinite(value) else "-inf"
        yield make({"fill": {"shape": [5, 3, 1, 1], "value": written}}), [], np.full((3, 5), value)


def timestep_embedding():
    for dimensions, period_max, steps in [(16, 10000.0, [0, 1, 999]), (7, 100.0, [0.25, 33.5])]:
        t = np.asarray(steps, np.float32)
        half = dimensions // 2
        # Ho et al. 2020, the U-Net's code as in guided-diffusion: cosines, sines, and a zero where the number is odd.
        frequencies = np.exp(-np.log(period_max) * np.arange(half) / half)
        angles = t.astype(np.float64)[:, None] * frequencies
        y = np.concatenate([np.cos(angles), np.sin(angles)], -1)
        y = np.pad(y, ((0, 0), (0, dimensions - 2 * half)))
        yield make({"timestep_embedding": {"dimensions": dimensions, "period_max": period_max}}), [t], y


def alibi(heads, bias_max):
    """Press et al. 2022, the slopes of their code: those of a power of two, then every second one of twice as many."""
    if heads & (heads - 1) == 0:
        return [2.0 ** (-bias_max * (h + 1) / heads) for h in range(heads)]
    whole = 1 << (heads.bit_length() - 1)
    return alibi(whole, bias_max) + alibi(2 * whole, bias_max)[0::2][: heads - whole]


def alibi_slopes():
    for heads, bias_max in [(1, 8.0), (8, 8.0), (12, 8.0), (33, 10.0), (71, 8.0)]:
        y = np.asarray(alibi(heads, bias_max))
        yield make({"alibi_slopes": {"heads": heads, "bias_max": bias_max}}), [], y


def window(size, stride, padding, dilation=(1, 1)):
    """Widths first; PyTorch has heights first."""
    names = ["size", "stride", "padding", "dilation"]
    return dict(zip(names, [list(v) for v in (size, stride, padding, dilation)]))


def down_first(pair):
    return tuple(reversed(pair))


def im2col():
    rng = np.random.default_rng(40)
    planes = [
        ((2, 3, 7, 9), (3, 2), (2, 1), (1, 0), (1, 2)),
        ((1, 2, 5, 5), (3, 3), (1, 1), (1, 1), (1, 1)),
        ((2, 1, 6, 8), (2, 3), (2, 3), (0, 2), (2, 1)),
    ]
    for shape, *numbers in planes:
        x = normal(rng, *shape)
        size, stride, padding, dilation = map(down_first, numbers)
        y = torch.nn.functional.unfold(f64(x), size, dilation, padding, stride)
        down = (shape[2] + 2 * padding[0] - dilation[0] * (size[0] - 1) - 1) // stride[0] + 1
        y = y.transpose(1, 2).reshape(shape[0], down, -1, y.shape[1])
        yield {"Im2Col": {"window": window(*numbers), "lines": False}}, [x], y.numpy()
    for size, stride, padding, dilation in [(3, 1, 1, 1), (5, 3, 4, 2)]:
        x = normal(rng, 2, 3, 17)
        y = torch.nn.functional.unfold(f64(x)[:, :, None], (1, size), (1, dilation), (0, padding), (1, stride))
        flat = window((size, 1), (stride, 1), (padding, 0), (dilation, 1))
        yield {"Im2Col": {"window": flat, "lines": True}}, [x], y.transpose(1, 2).numpy()


def pool_2d():
    rng = np.random.default_rng(41)
    for shape, *numbers in [
        ((3, 8, 8), (2, 2), (2, 2), (0, 0)),
        ((2, 3, 7, 9), (3, 2), (2, 1), (1, 0)),
        ((1, 2, 9, 5), (3, 5), (1, 3), (1, 2)),
    ]:
        x = normal(rng, *shape)
        size, stride, padding = map(down_first, numbers)
        largest = torch.nn.functional.max_pool2d(f64(x), size, stride, padding)
        mean = torch.nn.functional.avg_pool2d(f64(x), size, stride, padding, count_include_pad=True)
        for rule, y in [("max", largest), ("average", mean)]:
            yield {"Pool2d": {"window": window(*numbers), "rule": rule}}, [x], y.numpy()


def upscale():
    rng = np.random.default_rng(42)
    for shape, factors in [((2, 3, 5, 7), (2, 2)), ((1, 2, 3, 4), (3, 1)), ((2, 1, 4, 3), (1, 5))]:
        x = normal(rng, *shape)
        y = torch.nn.functional.interpolate(f64(x), scale_factor=down_first(factors), mode="nearest-exact")
        yield {"Upscale": {"factors": [*factors, 1, 1]}}, [x], y.numpy()
    x = normal(rng, 2, 3, 1, 2)
    y = f64(x).repeat_interleave(3, 0).repeat_interleave(2, 1)
    yield {"Upscale": {"factors": [1, 1, 2, 3]}}, [x], y.numpy()


def ssm_conv():
    rng = np.random.default_rng(50)
    for taps, tokens, channels, sequences, dtype in [(4, 7, 5, 2, np.float32), (1, 3, 2, 1, np.float32), (3, 1, 9, 3, np.float16)]:
        x = normal(rng, sequences, channels, taps - 1 + tokens)
        w = normal(rng, channels, taps).astype(dtype)
        y = torch.nn.functional.conv1d(f64(x), f64(w)[:, None], groups=channels)
        yield {"SsmConv": None}, [x, w], y.transpose(1, 2).numpy()


def ssm_scan():
    """Gu and Dao 2023, algorithm 2, and Dao and Gu 2024, section 7, as whole arrays of NumPy."""
    rng = np.random.default_rng(51)
    for state, size, heads, groups, tokens, sequences, shared in [
        (4, 1, 6, 1, 5, 2, False),
        (3, 5, 4, 2, 4, 2, True),
        (2, 3, 2, 1, 1, 1, False),
    ]:
        states = normal(rng, sequences + 1, heads, size, state)
        x = normal(rng, sequences, tokens, heads, size)
        dt = normal(rng, sequences, tokens, heads) * np.float32(4)
        a = -np.exp(normal(rng, heads, 1 if shared else state))
        b, c = normal(rng, sequences, tokens, groups, state), normal(rng, sequences, tokens, groups, state)
        ids = rng.permutation(sequences + 1)[:sequences].astype(np.int32)
        delta = np.logaddexp(0, dt.astype(np.float64))
        held = states.astype(np.float64)[ids]
        spread = lambda v: np.repeat(v.astype(np.float64), heads // groups, axis=2)
        y = []
        for t in range(tokens):
            d = delta[:, t, :, None, None]
            held = held * np.exp(d * a.astype(np.float64)[:, None]) + d * spread(b)[:, t, :, None] * x[:, t, ..., None]
            y.append(np.einsum("shin,shn->shi", held, spread(c)[:, t]))
        y = np.concatenate([np.stack(y, 1).ravel(), held.ravel()])
        yield {"SsmScan": None}, [states, x, dt, a, b, c, ids], y


GOLDENS = {
    "norm": layer_norm,
    "group_norm": group_norm,
    "l2_norm": l2_norm,
    "sum": reductions("sum", 23, lambda x: x.sum().reshape(1)),
    "sum_rows": reductions("sum_rows", 24, lambda x: x.sum(-1, keepdim=True)),
    "mean": reductions("mean", 25, lambda x: x.mean(-1, keepdim=True)),
    "cumsum": reductions("cum_sum", 26, lambda x: x.cumsum(-1)),
    "argmax": argmax,
    "argsort": argsort,
    "top_k": top_k,
    "arange": arange,
    "fill": fill,
    "timestep_embedding": timestep_embedding,
    "alibi_slopes": alibi_slopes,
    "im2col": im2col,
    "pool_2d": pool_2d,
    "upscale": upscale,
    "ssm_conv": ssm_conv,
    "ssm_scan": ssm_scan,
}
