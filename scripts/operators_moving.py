"""Goldens of the operators that move elements or change their type, from PyTorch and the gguf package."""
import numpy as np
import torch
from gguf import GGMLQuantizationType, quants


def normal(rng, *shape):
    return rng.normal(0, 1, shape).astype(np.float32)


def tensor(array):
    return torch.from_numpy(np.asarray(array))


def cpy():
    rng = np.random.default_rng(20)
    x = 300 * normal(rng, 3, 33)
    x[0, :8] = [0.5, -0.5, 2.9999999, -7.0, 65519.0, -65504.0, 1e-8, 16777217.0]
    for name, kind in [("i32", torch.int32), ("i64", torch.int64), ("f16", torch.float16), ("bf16", torch.bfloat16)]:
        yield {"Cast": {"to": name}}, [x], tensor(x).to(kind).double().numpy()
    for source in [np.float16, np.int32, np.int64]:
        x = (100 * normal(rng, 2, 3, 7)).astype(source)
        yield {"Cast": {"to": "f32"}}, [x], tensor(x).to(torch.float32).numpy()
    # In the middle between two f32 but for bits that an f64 does not hold: rounded once.
    large = np.array([2**60 + 2**36 + 1, -(2**60) - 2**36 - 1, 2**60 + 2**36, 2**63 - 1], np.int64)
    yield {"Cast": {"to": "f32"}}, [large], tensor(large).to(torch.float32).numpy()
    small = np.array([2**31 - 1, 16777217, -(2**31)], np.int64)
    yield {"Cast": {"to": "i32"}}, [small], tensor(small).to(torch.int32).numpy()
    for name, kind in [("q8_0", GGMLQuantizationType.Q8_0), ("q4_0", GGMLQuantizationType.Q4_0)]:
        x = normal(rng, 3, 96)
        y = quants.dequantize(quants.quantize(x, kind), kind)
        yield {"Cast": {"to": name}}, [x], y


def permute():
    rng = np.random.default_rng(21)
    x = normal(rng, 2, 5, 3, 7)
    for to in [[1, 0, 2, 3], [0, 2, 1, 3], [2, 0, 1, 3], [1, 2, 0, 3], [3, 2, 1, 0], [1, 2, 3, 0]]:
        # Dimension d of x, the innermost first, becomes dimension to[d]; PyTorch asks which one comes to each place,
        # the outermost first.
        axes = [3 - to.index(3 - place) for place in range(4)]
        yield {"Arrange": {"Permute": {"to": to}}}, [x], tensor(x).permute(axes).numpy()
    integers = rng.integers(-9, 9, (1, 1, 4, 3)).astype(np.int32)
    yield {"Arrange": {"Permute": {"to": [1, 0, 2, 3]}}}, [integers], tensor(integers).permute(0, 1, 3, 2).numpy()


def transpose():
    rng = np.random.default_rng(22)
    for shape in [(7, 33), (2, 3, 5)]:
        x = normal(rng, *shape)
        yield {"Arrange": "Transpose"}, [x], tensor(x).transpose(-1, -2).numpy()


def view():
    rng = np.random.default_rng(32)
    x = normal(rng, 4, 5, 6)
    for offset, strides, sizes in [(7, [1, 30, 6, 0], [5, 3, 2, 1]), (0, [30, 1, 0, 6], [4, 6, 2, 5]), (119, [0, 0, 0, 0], [2, 1, 1, 1])]:
        y = torch.as_strided(tensor(x), sizes[::-1], strides[::-1], offset).numpy()
        yield {"Arrange": {"View": {"offset": offset, "strides": strides, "shape": sizes}}}, [x], y


def repeat():
    rng = np.random.default_rng(23)
    x = normal(rng, 3, 1, 5)
    for times in [(1, 1, 2), (2, 4, 3)]:
        y = tensor(x).repeat(times).numpy()
        yield {"Arrange": {"Repeat": {"shape": [*reversed(y.shape), 1]}}}, [x], y


def repeat_interleave():
    rng = np.random.default_rng(24)
    x = normal(rng, 3, 2, 5)
    for dimension, times in [(0, 3), (1, 2), (2, 4)]:
        y = tensor(x).repeat_interleave(times, dim=2 - dimension).numpy()
        yield {"Arrange": {"RepeatInterleave": {"dimension": dimension, "times": times}}}, [x], y


def pad():
    rng = np.random.default_rng(25)
    x = normal(rng, 2, 3, 4, 5)
    for before, after in [([0, 0, 0, 0], [1, 2, 0, 0]), ([1, 0, 2, 1], [0, 3, 0, 1])]:
        sides = [side for pair in zip(before, after) for side in pair]
        yield {"Arrange": {"Pad": {"before": before, "after": after}}}, [x], torch.nn.functional.pad(tensor(x), sides).numpy()


def roll():
    rng = np.random.default_rng(26)
    x = normal(rng, 2, 3, 4, 5)
    for shifts in [[1, 0, 0, 0], [-2, 3, -5, 1], [7, 0, 41, 0]]:
        y = torch.roll(tensor(x), shifts[::-1], dims=(0, 1, 2, 3)).numpy()
        yield {"Arrange": {"Roll": {"shifts": shifts}}}, [x], y


def concat():
    rng = np.random.default_rng(27)
    for dimension in range(4):
        shape = [2, 3, 4, 5]
        other = list(shape)
        other[3 - dimension] = 3
        a, b = normal(rng, *shape), normal(rng, *other)
        yield {"Concat": {"dimension": dimension}}, [a, b], torch.cat([tensor(a), tensor(b)], dim=3 - dimension).numpy()


def overlaid(how):
    rng = np.random.default_rng(28)
    for shape, part, start in [((4, 7), (2, 3), [4, 1, 0, 0]), ((2, 3, 4, 5), (1, 3, 2, 1), [3, 2, 0, 1])]:
        a, b = normal(rng, *shape), normal(rng, *part)
        y = torch.from_numpy(a.astype(np.float64))
        place = tuple(slice(first, first + size) for first, size in zip(start[: len(shape)][::-1], part))
        y[place] = y[place] + tensor(b) if how == "acc" else tensor(b).double()
        yield {"Overlay": {"how": how, "start": start}}, [a, b], y.numpy()


def index_fill():
    rng = np.random.default_rng(29)
    x = normal(rng, 2, 3, 4, 5)
    for dimension, index, value in [(0, [4, 0], 2.5), (1, [1], -1.0), (2, [2, 2, 0], 0.0), (3, [], 7.0)]:
        index = np.array(index, np.int32)
        y = tensor(x).index_fill(3 - dimension, tensor(index).long(), value).numpy()
        yield {"IndexFill": {"dimension": dimension, "value": value}}, [x, index], y


def set_rows():
    rng = np.random.default_rng(30)
    for dtype in [np.float32, np.float16]:
        table, x = normal(rng, 7, 33).astype(dtype), normal(rng, 3, 33)
        rows = np.array([5, 0, 6], np.int32)
        y = tensor(table).index_copy(0, tensor(rows).long(), tensor(x).to(tensor(table).dtype)).double().numpy()
        yield {"SetRows": None}, [table, x, rows], y


def get_rows():
    rng = np.random.default_rng(31)
    table, index = normal(rng, 9, 31), np.array([8, 0, 0, 3], np.int32)
    yield {"GetRows": {"output": "f32"}}, [table, index], torch.nn.functional.embedding(tensor(index).long(), tensor(table)).numpy()
    # Weights of chosen experts, and rows of each of several tables.
    for width in [1, 5]:
        tables, index = normal(rng, 3, 9, width), rng.integers(0, 9, (3, 4)).astype(np.int32)
        wanted = tensor(index).long()[:, :, None].expand(-1, -1, width)
        yield {"GetRows": {"output": "f32"}}, [tables, index], torch.gather(tensor(tables), 1, wanted).numpy()


GOLDENS = {
    "cpy": cpy,
    "permute": permute,
    "transpose": transpose,
    "view": view,
    "repeat": repeat,
    "repeat_interleave": repeat_interleave,
    "pad": pad,
    "roll": roll,
    "concat": concat,
    "set": lambda: overlaid("set"),
    "acc": lambda: overlaid("acc"),
    "index_fill": index_fill,
    "set_rows": set_rows,
    "get_rows": get_rows,
}
