#!/usr/bin/env python3
"""Write a large synthetic model as GGUF, to measure what a model takes that is larger than memory.

    python scripts/make_large_gguf.py FILE [--shape llama-8b|llama-7b|llama-1b|chatglm-6b] [--type q4_0|q8_0|f16] [--layers N] [--sparse]

The shapes are the published ones of Llama-3.1-8B, Llama-2-7B, Llama-3.2-1B (with 32,000 tokens) and ChatGLM-6B (without
the 20,000 image tokens of its first version). All matrices have one type, except the head of q4_0 models, which is
q8_0. Values are uniform: every piece of a tensor is read from another place of one random pool. There is no tokenizer:
use `trueup run --ids`. With --sparse, the tensors are holes, which need no disk space; use it with `trueup plan`.
"""
import argparse

import gguf
import numpy as np

POOL_BYTES = 8 << 20
BLOCK = 32
SHAPES = {
    "llama-8b": {"width": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "feed_forward": 14336, "vocabulary": 128256},
    "llama-7b": {"width": 4096, "layers": 32, "heads": 32, "kv_heads": 32, "feed_forward": 11008, "vocabulary": 32000},
    "llama-1b": {"width": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "feed_forward": 8192, "vocabulary": 32000},
    "chatglm-6b": {"width": 4096, "layers": 28, "heads": 32, "kv_heads": 32, "feed_forward": 16384, "vocabulary": 130528},
}
TYPES = {"q4_0": gguf.GGMLQuantizationType.Q4_0, "q8_0": gguf.GGMLQuantizationType.Q8_0, "f16": gguf.GGMLQuantizationType.F16}
# Bytes of codes behind the scale, and the scale that gives values a deviation near 1 / sqrt(4096).
CODES = {"q4_0": (16, 0.0034), "q8_0": (32, 0.0002)}


def chatglm(shape, kind):
    """As docs/chatglm.md lists them."""
    width, ffn = shape["width"], shape["feed_forward"]
    yield "token_embd.weight", shape["vocabulary"], width, kind
    for i in range(shape["layers"]):
        for name, rows, columns in (("attn_norm", None, width), ("attn_qkv", 3 * width, width), ("attn_output", width, width),
                                    ("ffn_norm", None, width), ("ffn_up", ffn, width), ("ffn_down", width, ffn)):
            yield f"blk.{i}.{name}.weight", rows, columns, kind
            yield f"blk.{i}.{name}.bias", None, rows or columns, "f32"
    yield "output_norm.weight", None, width, "f32"
    yield "output_norm.bias", None, width, "f32"
    yield "output.weight", shape["vocabulary"], width, "q8_0" if kind == "q4_0" else kind


def tensors(shape, kind):
    """(name, rows, columns, type) in the order of a file; vectors have no rows."""
    width, kv = shape["width"], shape["width"] // shape["heads"] * shape["kv_heads"]
    yield "token_embd.weight", shape["vocabulary"], width, kind
    for i in range(shape["layers"]):
        yield f"blk.{i}.attn_norm.weight", None, width, "f32"
        for name, rows in (("q", width), ("k", kv), ("v", kv), ("output", width)):
            yield f"blk.{i}.attn_{name}.weight", rows, width, kind
        yield f"blk.{i}.ffn_norm.weight", None, width, "f32"
        yield f"blk.{i}.ffn_gate.weight", shape["feed_forward"], width, kind
        yield f"blk.{i}.ffn_up.weight", shape["feed_forward"], width, kind
        yield f"blk.{i}.ffn_down.weight", width, shape["feed_forward"], kind
    yield "output_norm.weight", None, width, "f32"
    yield "output.weight", shape["vocabulary"], width, "q8_0" if kind == "q4_0" else kind


def pool(kind, random):
    """Bytes of whole blocks."""
    if kind == "f16":
        return random.normal(0, 1 / 64, POOL_BYTES // 2).astype(np.float16).view(np.uint8)
    codes, scale = CODES[kind]
    blocks = np.empty((POOL_BYTES // (2 + codes), 2 + codes), np.uint8)
    blocks[:, :2] = np.full((len(blocks), 1), scale, np.float16).view(np.uint8)
    blocks[:, 2:] = random.integers(0, 256, (len(blocks), codes), np.uint8)
    return blocks.reshape(-1)


def row_bytes(columns, kind):
    return 2 * columns if kind == "f16" else columns // BLOCK * (2 + CODES[kind][0])


def write_tensor(writer, file, rows, columns, kind, pools, random):
    """Streams a tensor behind what was written."""
    writer.write_padding(file, file.tell())
    if rows is None:
        np.ones(columns, np.float32).tofile(file)
    else:
        left, source = rows * row_bytes(columns, kind), pools[kind]
        unit = 2 if kind == "f16" else 2 + CODES[kind][0]
        start = int(random.integers(0, len(source) // unit)) * unit
        while left:
            piece = source[start : start + left]
            piece.tofile(file)
            left, start = left - len(piece), 0
    writer.write_padding(file, file.tell())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--shape", choices=SHAPES, default="llama-8b")
    parser.add_argument("--type", choices=TYPES, default="q4_0")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--sparse", action="store_true")
    arguments = parser.parse_args()
    shape = dict(SHAPES[arguments.shape])
    shape["layers"] = arguments.layers or shape["layers"]
    random = np.random.default_rng(1)
    is_chatglm = arguments.shape == "chatglm-6b"
    writer = gguf.GGUFWriter(arguments.file, "chatglm1" if is_chatglm else "llama")
    if is_chatglm:
        for key, token in (("end", 130004), ("mark", 130001), ("other_mark", 130000)):
            writer.add_uint32(f"chatglm1.prefix.{key}_token_id", token)
        writer.add_rope_dimension_count(shape["width"] // shape["heads"] // 2)
    writer.add_context_length(2048 if is_chatglm else 8192)
    writer.add_embedding_length(shape["width"])
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(shape["feed_forward"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0 if is_chatglm else 500000.0)
    writer.add_vocab_size(shape["vocabulary"])
    writer.add_tokenizer_model("no_vocab")
    listed = list((chatglm if is_chatglm else tensors)(shape, arguments.type))
    for name, rows, columns, kind in listed:
        if rows is None:
            writer.add_tensor_info(name, (columns,), np.dtype(np.float32), 4 * columns)
        else:
            count = row_bytes(columns, kind)
            writer.add_tensor_info(name, (rows, count), np.dtype(np.uint8), rows * count, TYPES[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    pools = {kind: pool(kind, random) for kind in TYPES}
    file = writer.fout[0]
    for _, rows, columns, kind in listed:
        if arguments.sparse:
            writer.write_padding(file, file.tell())
            file.seek(4 * columns if rows is None else rows * row_bytes(columns, kind), 1)
        else:
            write_tensor(writer, file, rows, columns, kind, pools, random)
    file.truncate()
    writer.close()


if __name__ == "__main__":
    main()
