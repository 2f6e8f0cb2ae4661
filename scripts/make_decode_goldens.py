#!/usr/bin/env python3
"""Write the goldens of the block formats that are only read.

    python scripts/make_decode_goldens.py [fixtures/blocks]

TYPE.bin holds 12 blocks (64 of iq4_nl) of random bytes, whose f16 scales are finite and of both signs;
TYPE.dequant.f32.bin the values that the `gguf` package (0.19.0) reads from them.
"""
import argparse
import os

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

# Where the f16 scales stand in a block, in bytes.
SCALES = {"q2_k": (80, 82), "q3_k": (108,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,), "iq4_nl": (0,)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default="fixtures/blocks")
    folder = parser.parse_args().folder
    rng = np.random.default_rng(20261121)
    for name, scales in SCALES.items():
        dtype = T[name.upper()]
        length, size = GGML_QUANT_SIZES[dtype]
        blocks = rng.integers(0, 256, (64 if length == 32 else 12, size), dtype=np.uint8)
        for at in scales:
            scale = (rng.normal(0, 1, len(blocks)) * 10.0 ** rng.uniform(-5, 1, len(blocks))).astype(np.float16)
            blocks[:, at:at + 2] = scale.view(np.uint8).reshape(-1, 2)
        values = dequantize(blocks, dtype).astype("<f4")
        assert np.isfinite(values).all() and values.size == len(blocks) * length
        blocks.tofile(os.path.join(folder, f"{name}.bin"))
        values.tofile(os.path.join(folder, f"{name}.dequant.f32.bin"))


if __name__ == "__main__":
    main()
