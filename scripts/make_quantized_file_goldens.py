#!/usr/bin/env python3
"""Makes fixtures/recipes/files.json: sha256 of the files that llama-quantize writes for made models.

    python scripts/make_quantized_file_goldens.py LLAMA_QUANTIZE

LLAMA_QUANTIZE is the program of llama.cpp 0c1e57098, built without fused multiply-add (`-ffp-contract=off`, or any
build for x86-64 without `-march`). `tests/tests/integration/quantized_files.rs` makes the same models and importance
matrices: all numbers come from one generator. Needs gguf 0.19.0 and NumPy.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = 32
RECIPES = (
    "Q2_K Q2_K_S Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ4_NL IQ4_XS Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 "
    "MXFP4_MOE TQ1_0 TQ2_0"
).split()
# layers, heads, key-value heads, width, feed-forward width, experts
MODELS = {"dense": (2, 4, 1, 256, 256, 0), "experts": (1, 4, 1, 256, 96, 3), "narrow": (2, 3, 1, 96, 96, 0)}
# Recipes whose ends differ on purpose are compared with the same ends.
SAME_ENDS = "--output-tensor-type q8_0 --token-embedding-type q8_0"


def random(count, seed):
    """Integers of 24 bits."""
    state, numbers = (seed * 2654435761 + 1) % 2**32, []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        numbers.append(state >> 8)
    return numpy.array(numbers, numpy.float32)


def tensors(model):
    """Names and shapes, innermost first, in the order of the output."""
    layers, heads, kv_heads, width, ffn, experts = model
    kv = width // heads * kv_heads
    yield "output.weight", (width, VOCABULARY)
    yield "output_norm.weight", (width,)
    yield "token_embd.weight", (width, VOCABULARY)
    for layer in range(layers):
        stacked = (experts,) if experts else ()
        suffix = "_exps" if experts else ""
        parts = {
            "attn_k": (width, kv),
            "attn_norm": (width,),
            "attn_output": (width, width),
            "attn_q": (width, width),
            "attn_v": (width, kv),
            f"ffn_down{suffix}": (ffn, width, *stacked),
            f"ffn_gate{suffix}": (width, ffn, *stacked),
            "ffn_gate_inp": (width, experts),
            "ffn_norm": (width,),
            f"ffn_up{suffix}": (width, ffn, *stacked),
        }
        for name, shape in parts.items():
            if name != "ffn_gate_inp" or experts:
                yield f"blk.{layer}.{name}.weight", shape


def write_model(path, model):
    """A model in f32, with weights between -1 and 1."""
    layers, heads, kv_heads, width, ffn, experts = model
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in {
        "context_length": 128,
        "embedding_length": width,
        "block_count": layers,
        "feed_forward_length": ffn,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
    }.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 2.0**-16)
    writer.add_uint32("llama.rope.dimension_count", width // heads)
    writer.add_uint32("general.file_type", 0)
    if experts:
        writer.add_uint32("llama.expert_count", experts)
        writer.add_uint32("llama.expert_used_count", 2)
    for seed, (name, shape) in enumerate(tensors(model)):
        values = random(int(numpy.prod(shape)), seed) / numpy.float32(2**23) - numpy.float32(1)
        writer.add_tensor(name, values.reshape(shape[::-1]))
    write(writer)


def write(writer):
    """Writes all parts of a file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def importance(model):
    """For each weight of a layer with a name in order: sums, and a count for each matrix. Some of both are zero."""
    for seed, (name, shape) in enumerate(sorted(tensors(model))):
        if len(shape) == 1 or not name.startswith("blk.") or "ffn_gate_inp" in name:
            continue
        matrices = shape[2] if len(shape) == 3 else 1
        sums = (random(shape[0] * matrices, 100 + seed) / numpy.float32(2**16)).reshape(matrices, shape[0])
        sums[:, 32:64] = 0
        counts = numpy.full(matrices, 64, numpy.float32)
        if matrices > 1:
            counts[1], sums[1] = 0, 0
        yield name, sums, counts


def write_importance(path, model):
    """The importance as GGUF, and next to it as .dat."""
    writer = gguf.GGUFWriter(path, "")
    writer.add_string("general.type", "imatrix")
    writer.add_array("imatrix.datasets", ["text.txt"])
    writer.add_uint32("imatrix.chunk_count", 5)
    writer.add_uint32("imatrix.chunk_size", 64)
    entries = list(importance(model))
    legacy = [numpy.int32(len(entries)).tobytes()]
    for name, sums, counts in entries:
        writer.add_tensor(f"{name}.in_sum2", sums if len(counts) > 1 else sums[0])
        writer.add_tensor(f"{name}.counts", counts.reshape(-1, 1) if len(counts) > 1 else counts)
        means = numpy.where(counts[:, None] > 0, sums / numpy.float32(64), numpy.float32(1)) * numpy.float32(5)
        legacy += [numpy.int32(len(name)).tobytes(), name.encode(), numpy.int32(5).tobytes()]
        legacy += [numpy.int32(means.size).tobytes(), means.astype(numpy.float32).tobytes()]
    write(writer)
    tail = [numpy.int32(5).tobytes(), numpy.int32(8).tobytes(), b"text.txt"]
    path.with_suffix(".dat").write_bytes(b"".join(legacy + tail))


def main(program):
    """Makes the fixture."""
    program = str(Path(program).resolve())
    result = {"command": "python scripts/make_quantized_file_goldens.py LLAMA_QUANTIZE", "llama.cpp": "0c1e57098"}
    result["files"] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in MODELS.items():
            folder = Path(folder)
            write_model(folder / "model.gguf", model)
            write_importance(folder / "importance.gguf", model)
            for recipe in RECIPES:
                for file in [None, "importance.gguf", "importance.dat"]:
                    is_extra = file == "importance.dat" and recipe not in ("Q4_0", "Q4_K_M")
                    if is_extra or file is None and recipe == "Q2_K_S":
                        continue
                    ends = SAME_ENDS.split() if recipe in ("Q4_0", "Q4_1", "Q5_0", "Q5_1") else []
                    options = [*ends, *(["--imatrix", file] if file else [])]
                    command = [program, *options, "model.gguf", "out.gguf", recipe, "2"]
                    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
                    if done.returncode != 0:
                        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
                    digest = hashlib.sha256((folder / "out.gguf").read_bytes()).hexdigest()
                    result["files"][f"{name} {recipe} {file or '-'}"] = digest
    target = ROOT / "fixtures/recipes/files.json"
    target.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
