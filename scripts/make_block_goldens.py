#!/usr/bin/env python3
"""Write the goldens of the 32-value block formats.

    python scripts/make_block_goldens.py [fixtures/blocks]

input.f32.bin holds N blocks of 32 f32 values (little-endian), blocks.json names the groups they
fall into. For every type, TYPE.bin holds the N encoded blocks and TYPE.dequant.f32.bin the values
read back from them. q4_0, q4_1, q5_0, q5_1, q8_0, f16 and bf16 come from the `gguf` package; q8_1,
which it does not write, from the published rule, in NumPy.

Every gguf result is also compared with a scalar rendering of the published rule (`rule_*` below).
The two differ on one input only, blocks of nothing but zeros that hold a -0.0: the C rule starts
from +0.0 and keeps the first extreme, NumPy returns the first element of largest magnitude. Such
blocks are kept apart (signed_zero.*) and follow the C rule.
"""
import argparse
import json
import os
import warnings

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize, quantize

f32 = np.float32
SEED = 20261121
PACKAGE_TYPES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")


# ---------------------------------------------------------------- inputs

def gaussian(rng, n, sd):
    return rng.normal(0.0, sd, (n, 32)).astype(f32)


def as_bf16(x):
    """f32 values rounded to bf16, to nearest, ties to even."""
    bits = x.astype(f32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(f32)


def spikes():
    """One nonzero value, at every second place, of either sign."""
    x = np.zeros((16, 32), f32)
    for i in range(16):
        x[i, 2 * i + i % 2] = f32(0.37 * (i + 1)) * (-1) ** i
    return x


def constants():
    values = [1.0, -1.0, 0.1, -0.1, 127.0, -8.0, 15.0, 31.0, 1e-3, -3.7, 2.0 ** -14, 65504.0]
    return np.repeat(np.array(values, f32)[:, None], 32, 1)


def ties(rng):
    """Multiples of half a step: every scale is a power of two, so x * (1/d) lands on exact halves."""
    rows = []
    for top in (8.0, 16.0, 127.0, 15.0, 31.0, 63.5):
        for power in (0, -3, 5, -11):
            x = rng.integers(-2 * int(top), 2 * int(top) + 1, 32).astype(f32) / 2
            x[int(rng.integers(0, 32))] = -top
            rows.append((x * f32(2.0 ** power)).astype(f32))
    return np.stack(rows)


def offset_ties(rng):
    """0 .. 15 and 0 .. 31 steps with halves above an offset, for the types with a minimum."""
    rows = []
    for top in (15, 31):
        for low in (0.0, -7.0, 3.0, -40.0):
            x = rng.integers(0, 2 * top + 1, 32).astype(f32) / 2 + f32(low)
            x[3], x[21] = low, low + top
            rows.append(x.astype(f32))
    return np.stack(rows)


def equal_extremes(rng):
    """Largest magnitude reached by both signs: the first one decides the sign of the scale."""
    x = gaussian(rng, 8, 0.3)
    for i in range(8):
        a, b = rng.choice(32, 2, replace=False)
        x[i, a], x[i, b] = 2.5, -2.5
    return x


def zeros_inside(rng):
    x = gaussian(rng, 4, 1.0)
    x[:, ::3] = 0.0
    x[:, 1::3] = -0.0
    return x


def outliers(rng):
    x = gaussian(rng, 16, 0.05)
    x[np.arange(16), rng.integers(0, 32, 16)] = rng.normal(0, 20, 16).astype(f32)
    return x


def groups():
    """name -> (count, 32) f32; the order is the order in the file."""
    rng = np.random.default_rng(SEED)
    log = 10.0 ** rng.uniform(-12, 4, (16, 32)) * rng.choice([-1, 1], (16, 32))
    return {
        "gaussian": gaussian(rng, 40, 1.0),
        "gaussian_bf16_small": as_bf16(gaussian(rng, 32, 0.02)),
        "outliers": outliers(rng),
        "positive": np.abs(gaussian(rng, 12, 1.0)) + f32(0.5),
        "negative": -np.abs(gaussian(rng, 8, 1.0)) - f32(0.25),
        "zeros": np.zeros((2, 32), f32),
        "zeros_of_both_signs_inside": zeros_inside(rng),
        "constants": constants(),
        "single_spike": spikes(),
        "times_1e-6": gaussian(rng, 12, 1e-6),
        "times_1e-9": gaussian(rng, 8, 1e-9),
        "times_1e-20": gaussian(rng, 8, 1e-20),
        "times_1e5": gaussian(rng, 12, 1e5),
        "ties": ties(rng),
        "ties_above_an_offset": offset_ties(rng),
        "equal_extremes": equal_extremes(rng),
        "ramps": np.stack([np.linspace(-s, s * 0.9, 32) for s in (1, 8, 0.01, 300, 7, 31, 1e-4, 5)]).astype(f32),
        "all_magnitudes": log.astype(f32),
    }


# ---------------------------------------------------------------- the published rule, one block at a time

def half(v):
    with np.errstate(over="ignore"):
        return np.float16(v).tobytes()


def nibbles(q):
    return bytes((int(q[j]) & 15) | (int(q[j + 16]) & 15) << 4 for j in range(16))


def fifth_bits(q):
    return sum((int(q[j]) >> 4 & 1) << j for j in range(32)).to_bytes(4, "little")


def reciprocal(d):
    return f32(1) / d if d != 0 else f32(0)


def rule_symmetric(x, low, top):
    best, m = f32(0), f32(0)
    for v in x:
        if best < abs(v):
            best, m = abs(v), v
    d = f32(m / f32(low))
    inverse = reciprocal(d)
    q = [min(top, int(f32(f32(v * inverse) + f32(-low + 0.5)))) for v in x]
    return d, q


def rule_affine(x, top):
    low, high = x[0], x[0]
    for v in x[1:]:
        low, high = (v if v < low else low), (v if v > high else high)
    d = f32(f32(high - low) / f32(top))
    inverse = reciprocal(d)
    return d, low, [min(top, int(f32(f32(f32(v - low) * inverse) + f32(0.5)))) for v in x]


def rule_round(x):
    largest = f32(0)
    for v in x:
        largest = max(largest, abs(v))
    d = f32(largest / f32(127))
    inverse = reciprocal(d)
    q = []
    for v in x:
        a = abs(float(f32(v * inverse)))
        q.append(int(np.copysign(np.floor(a + 0.5), v)))  # exact in double: half away from zero
    return d, q


def rule_q4_0(x):
    d, q = rule_symmetric(x, -8, 15)
    return half(d) + nibbles(q)


def rule_q5_0(x):
    d, q = rule_symmetric(x, -16, 31)
    return half(d) + fifth_bits(q) + nibbles(q)


def rule_q4_1(x):
    d, m, q = rule_affine(x, 15)
    return half(d) + half(m) + nibbles(q)


def rule_q5_1(x):
    d, m, q = rule_affine(x, 31)
    return half(d) + half(m) + fifth_bits(q) + nibbles(q)


def rule_q8_0(x):
    d, q = rule_round(x)
    return half(d) + np.array(q, np.int8).tobytes()


def rule_q8_1(x):
    """d, then s = the exact sum of the codes times the unrounded d, then the codes."""
    d, q = rule_round(x)
    with np.errstate(over="ignore"):
        s = f32(f32(sum(q)) * d)
    return half(d) + half(s) + np.array(q, np.int8).tobytes()


RULES = {"q4_0": rule_q4_0, "q4_1": rule_q4_1, "q5_0": rule_q5_0, "q5_1": rule_q5_1, "q8_0": rule_q8_0, "q8_1": rule_q8_1}


def by_rule(name, x):
    return np.stack([np.frombuffer(RULES[name](block), np.uint8) for block in x])


def dequantize_q8_1(blocks):
    d = blocks[:, :2].copy().view(np.float16).astype(f32)
    return d * blocks[:, 4:].view(np.int8).astype(f32)


# ---------------------------------------------------------------- files

def encode_all(x):
    """type -> (encoded blocks, values read back), the package's where it has the type."""
    out = {}
    for name in PACKAGE_TYPES:
        encoded = quantize(x, T[name.upper()])
        differing = np.flatnonzero((encoded != by_rule(name, x)).any(axis=1))
        assert differing.size == 0, f"{name}: gguf and the rule differ in blocks {differing}"
        out[name] = encoded, dequantize(encoded, T[name.upper()])
    encoded = by_rule("q8_1", x)
    out["q8_1"] = encoded, dequantize_q8_1(encoded)
    with np.errstate(over="ignore"):
        half_bits = quantize(x, T.F16)
    out["f16"] = half_bits, dequantize(half_bits, T.F16)
    brain = quantize(x, T.BF16)
    out["bf16"] = brain, dequantize(brain, T.BF16)
    return out


def write(folder, name, array):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(np.ascontiguousarray(array).tobytes())


def write_signed_zeros(folder):
    """Blocks of zeros with a -0.0 among them: the C rule, see the head of this file."""
    x = np.zeros((4, 32), f32)
    x[0] = -0.0
    x[1, 0] = -0.0
    x[2, 31] = -0.0
    x[3, 1::2] = -0.0
    write(folder, "signed_zero.f32.bin", x)
    for name in RULES:
        write(folder, f"signed_zero.{name}.bin", by_rule(name, x))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", default="fixtures/blocks")
    folder = parser.parse_args().folder
    os.makedirs(folder, exist_ok=True)
    warnings.simplefilter("error")
    named = groups()
    x = np.concatenate(list(named.values())).astype(f32)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="overflow encountered in cast")
        results = encode_all(x)
    write(folder, "input.f32.bin", x)
    for name, (encoded, values) in results.items():
        assert values.dtype == f32 and not np.isnan(values).any(), name
        write(folder, f"{name}.bin", encoded)
        write(folder, f"{name}.dequant.f32.bin", values)
    write_signed_zeros(folder)
    listing, start = [], 0
    for name, blocks in named.items():
        listing.append({"name": name, "start": start, "count": len(blocks)})
        start += len(blocks)
    about = {"command": "python scripts/make_block_goldens.py", "gguf": GGUF_VERSION, "numpy": np.__version__,
             "seed": SEED, "blocks": start, "values_per_block": 32, "groups": listing}
    with open(os.path.join(folder, "blocks.json"), "w", encoding="utf-8") as file:
        json.dump(about, file, indent=1)
        file.write("\n")
    print(f"{start} blocks, {len(results)} types -> {folder}")


def package_version(name):
    from importlib.metadata import version
    return version(name)


GGUF_VERSION = package_version("gguf")

if __name__ == "__main__":
    main()
