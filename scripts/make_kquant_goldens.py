#!/usr/bin/env python3
"""Write the goldens of the block encoders that search for their scales.

    python scripts/make_kquant_goldens.py --ggml LLAMA_CPP/ggml [fixtures/blocks/ggml]

LLAMA_CPP is the unpacked source of llama.cpp 0c1e57098 (in the source package of llama_cpp_python 0.3.36). Its
`ggml-quants.c` and `ggml.c` are compiled with gcc as

    gcc -std=gnu11 -O2 -ffp-contract=off -fno-fast-math -DNDEBUG -fPIC -shared

because a fused multiply-add changes bytes, and the functions `quantize_TYPE` are called through ctypes.

weights.f32.bin holds ROWS rows of 512 f32 values (little-endian) and importance.f32.bin as many rows of column weights.
TYPE.bin holds the encoded rows, TYPE.weighted.bin the rows encoded with their importance, and
TYPE.dequant.f32.bin the values that the `gguf` package (0.19.0) reads from the first two rows of TYPE.bin. rows.json
names the rows.
"""
import argparse
import ctypes
import json
import os
import subprocess
import tempfile

import gguf
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

f32 = np.float32
SEED = 20261126
WIDTH = 512
K_TYPES = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k")
LEGACY = ("q4_0", "q4_1", "q5_0", "q5_1")
PLAIN = K_TYPES + ("iq4_nl", "iq4_xs", "mxfp4", "nvfp4", "tq1_0", "tq2_0")
WEIGHTED = K_TYPES + ("iq4_nl", "iq4_xs") + LEGACY
DECODED = ("iq4_xs", "mxfp4", "nvfp4", "tq1_0", "tq2_0")
FLAGS = ["-std=gnu11", "-O2", "-ffp-contract=off", "-fno-fast-math", "-DNDEBUG", "-fPIC", "-shared"]


def compile_library(ggml, folder):
    """The library of the two C files. Symbols of other files that they name are not called here."""
    path = os.path.join(folder, "libquants.so")
    source = os.path.join(ggml, "src")
    stub = os.path.join(folder, "threading.c")
    with open(stub, "w") as file:
        file.write("void ggml_critical_section_start(void) {}\nvoid ggml_critical_section_end(void) {}\n")
    with open(os.path.join(folder, "ggml-version.h"), "w") as file:
        file.write('#define GGML_VERSION "0"\n#define GGML_COMMIT "0"\n')
    defines = ["-D_GNU_SOURCE"]
    includes = ["-I" + os.path.join(ggml, "include"), "-I" + source, "-I" + folder]
    files = [os.path.join(source, "ggml-quants.c"), os.path.join(source, "ggml.c"), stub]
    subprocess.run(["gcc", *FLAGS, *defines, *includes, *files, "-lm", "-o", path], check=True)
    return ctypes.CDLL(path, mode=os.RTLD_LAZY)


def quantize(library, name, rows, importance=None):
    """Rows of one tensor, with one importance per column."""
    rows = np.ascontiguousarray(rows, f32)
    length, size = GGML_QUANT_SIZES[T[name.upper()]]
    encoded = np.zeros((len(rows), rows.shape[1] // length * size), np.uint8)
    function = getattr(library, "quantize_" + name.replace("_k", "_K"))
    function.restype = ctypes.c_size_t
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    weights = None if importance is None else np.ascontiguousarray(importance, f32).ctypes.data
    written = function(rows.ctypes.data, encoded.ctypes.data, len(rows), rows.shape[1], weights)
    assert written == encoded.size, (name, written, encoded.size)
    return encoded


def kinds(rng):
    """Names and rows of weights."""
    normal = rng.normal
    magnitudes = np.repeat(10.0 ** rng.uniform(-6, 1, WIDTH // 16), 16)
    bf16 = (normal(0, 0.02, WIDTH).astype(f32).view(np.uint32) & 0xFFFF0000).view(f32)
    edges = np.zeros(WIDTH)
    edges[32:64], edges[64:96], edges[96:128] = 0.5, -0.25, -0.0
    edges[128:160] = np.where(np.arange(32) == 7, -1.0, 0.0)
    edges[160:192] = np.tile([1.0, -1.0], 16)
    edges[192:224], edges[224:256] = np.arange(32) / 4, np.arange(-16, 16) / 2
    edges[256:288] = 2.0 ** np.arange(-16, 16)
    edges[288:320] = -np.nextafter(f32(2.0) ** np.arange(-16, 16, dtype=f32), f32(0))
    edges[320:352] = normal(0, 3000, 32)
    edges[352:384] = rng.choice([-1.0, 0.0, 1.0], 32) * 0.03
    edges[384:416] = np.where(rng.random(32) < 0.1, normal(0, 1, 32), 0.0)
    return {
        "normal, 0.02": normal(0, 0.02, WIDTH),
        "normal, 1": normal(0, 1, WIDTH),
        "bf16 values, 0.02": bf16,
        "heavy tails": rng.standard_t(2, WIDTH) * 0.02,
        "groups of 16 of different size": normal(0, 1, WIDTH) * magnitudes,
        "a block of zeros, then one of all positive": np.r_[np.zeros(256), rng.uniform(0.1, 1, 256)],
        "normal, 1e-6, and denormal": np.r_[normal(0, 1e-6, 256), normal(0, 1e-39, 256)],
        "edges": edges,
        "halves, ties": rng.integers(-32, 33, WIDTH) / 2,
        "normal with one outlier a block": np.where(np.arange(WIDTH) % 256 == 100, 2.0, normal(0, 0.02, WIDTH)),
    }


def importances(rng, count):
    """One row of column weights for each row: usual ones, constants, zeros in groups, a single one, all zero."""
    usual = rng.lognormal(0, 1.5, WIDTH)
    groups = np.where(np.arange(WIDTH) // 16 % 3 == 1, 0.0, usual)
    single = np.where(np.arange(WIDTH) == 300, 1.0, 0.0)
    wide = 10.0 ** rng.uniform(-12, 6, WIDTH)
    rows = [usual, rng.lognormal(0, 1.5, WIDTH), np.ones(WIDTH), wide, groups, usual, usual, groups, usual, single]
    assert len(rows) == count
    return np.array(rows, f32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ggml", required=True, help="the folder ggml of llama.cpp's source")
    parser.add_argument("folder", nargs="?", default="fixtures/blocks/ggml")
    arguments = parser.parse_args()
    rng = np.random.default_rng(SEED)
    named = kinds(rng)
    weights = np.array(list(named.values()), f32)
    importance = importances(rng, len(weights))
    os.makedirs(arguments.folder, exist_ok=True)

    def write(name, values):
        values.tofile(os.path.join(arguments.folder, name))

    write("weights.f32.bin", weights.astype("<f4"))
    write("importance.f32.bin", importance.astype("<f4"))
    with tempfile.TemporaryDirectory() as folder:
        library = compile_library(arguments.ggml, folder)
        library.ggml_quantize_init.argtypes = [ctypes.c_int]
        for name in PLAIN:
            encoded = quantize(library, name, weights)
            write(f"{name}.bin", encoded)
            if name in DECODED:
                values = dequantize(encoded[:2], T[name.upper()]).astype("<f4")
                write(f"{name}.dequant.f32.bin", values)
        for name in WEIGHTED:
            rows = [quantize(library, name, row[None], column) for row, column in zip(weights, importance)]
            write(f"{name}.weighted.bin", np.concatenate(rows))
    about = {"seed": SEED, "width": WIDTH, "rows": list(named), "gguf": "0.19.0", "numpy": np.__version__}
    with open(os.path.join(arguments.folder, "rows.json"), "w") as file:
        json.dump(about, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
