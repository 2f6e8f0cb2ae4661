#!/usr/bin/env python3
"""Write a large synthetic model as GGUF, to measure what a model takes that is larger than memory.

    python scripts/make_large_gguf.py FILE [--shape SHAPE] [--type q4_0|q8_0|f16] [--layers N] [--sparse]

The shapes are the published ones of Llama-3.1-8B (llama-8b), Llama-2-7B (llama-7b), Llama-3.2-1B with 32,000 tokens
(llama-1b), ChatGLM-6B without the 20,000 image tokens of its first version (chatglm-6b), and DeepSeek-V3 (deepseek-v3,
with --sparse only). All matrices have one type, except routers (f32) and the head of q4_0 models (q8_0). Values are
uniform: every chunk of a tensor is copied from a different offset of one random pool. There is no tokenizer: use
`trueup run --ids`. With --sparse, the tensors are holes, which need no disk space; use it with `trueup plan`.
"""
import argparse
import math

import gguf
import numpy as np

POOL_BYTES = 8 << 20
BLOCK = 32
SHAPES = {
    "llama-8b": {"width": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "feed_forward": 14336, "vocabulary": 128256},
    "llama-7b": {"width": 4096, "layers": 32, "heads": 32, "kv_heads": 32, "feed_forward": 11008, "vocabulary": 32000},
    "llama-1b": {"width": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "feed_forward": 8192, "vocabulary": 32000},
    "chatglm-6b": {"width": 4096, "layers": 28, "heads": 32, "kv_heads": 32, "feed_forward": 16384, "vocabulary": 130528},
    "deepseek-v3": {"width": 7168, "layers": 61, "heads": 128, "kv_heads": 1, "feed_forward": 18432, "vocabulary": 129280},
}
# DeepSeek-V3: dense layers, experts, experts per token, expert hidden size; then the attention sizes.
DENSE_LAYERS, EXPERTS, USED_EXPERTS, EXPERT_FFN = 3, 256, 8, 2048
Q_RANK, KV_RANK, NOPE, ROPE, VALUE = 1536, 512, 128, 64, 128
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


def deepseek(shape, kind):
    """Tensors of DeepSeek-V3, as `trueup convert` names and shapes them."""
    width, heads, ffn = shape["width"], shape["heads"], shape["feed_forward"]
    yield "token_embd.weight", shape["vocabulary"], width, kind
    for i in range(shape["layers"]):
        rows = [("attn_norm.weight", None, width), ("attn_q_a.weight", Q_RANK, width),
                ("attn_q_a_norm.weight", None, Q_RANK), ("attn_q_b.weight", heads * (NOPE + ROPE), Q_RANK),
                ("attn_kv_a_mqa.weight", KV_RANK + ROPE, width), ("attn_kv_a_norm.weight", None, KV_RANK),
                ("attn_k_b.weight", (heads, KV_RANK), NOPE), ("attn_v_b.weight", (heads, VALUE), KV_RANK),
                ("attn_output.weight", width, heads * VALUE), ("ffn_norm.weight", None, width)]
        if i < DENSE_LAYERS:
            rows += [("ffn_gate.weight", ffn, width), ("ffn_up.weight", ffn, width), ("ffn_down.weight", width, ffn)]
        else:
            rows += [("ffn_gate_inp.weight", EXPERTS, width), ("exp_probs_b.bias", None, EXPERTS)]
            for name, suffix in (("exps", (EXPERTS,)), ("shexp", ())):
                rows += [(f"ffn_gate_{name}.weight", (*suffix, EXPERT_FFN), width),
                         (f"ffn_up_{name}.weight", (*suffix, EXPERT_FFN), width),
                         (f"ffn_down_{name}.weight", (*suffix, width), EXPERT_FFN)]
        for name, count, columns in rows:
            yield f"blk.{i}.{name}", count, columns, "f32" if name.startswith("ffn_gate_inp") else kind
    yield "output_norm.weight", None, width, "f32"
    yield "output.weight", shape["vocabulary"], width, "q8_0" if kind == "q4_0" else kind


def add_deepseek_keys(writer):
    writer.add_key_length(KV_RANK + ROPE)
    writer.add_value_length(KV_RANK)
    writer.add_key_length_mla(NOPE + ROPE)
    writer.add_value_length_mla(VALUE)
    writer.add_q_lora_rank(Q_RANK)
    writer.add_kv_lora_rank(KV_RANK)
    writer.add_rope_dimension_count(ROPE)
    writer.add_leading_dense_block_count(DENSE_LAYERS)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(USED_EXPERTS)
    writer.add_expert_shared_count(1)
    writer.add_expert_feed_forward_length(EXPERT_FFN)
    writer.add_expert_group_count(8)
    writer.add_expert_group_used_count(4)
    writer.add_expert_weights_scale(2.5)
    writer.add_expert_weights_norm(True)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


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
    if kind == "f32":
        return 4 * columns
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
    is_chatglm, is_deepseek = arguments.shape == "chatglm-6b", arguments.shape == "deepseek-v3"
    if is_deepseek and not arguments.sparse:
        parser.error("deepseek-v3 needs --sparse")
    architecture = "chatglm1" if is_chatglm else "deepseek2" if is_deepseek else "llama"
    writer = gguf.GGUFWriter(arguments.file, architecture)
    if is_chatglm:
        for key, token in (("end", 130004), ("mark", 130001), ("other_mark", 130000)):
            writer.add_uint32(f"chatglm1.prefix.{key}_token_id", token)
        writer.add_rope_dimension_count(shape["width"] // shape["heads"] // 2)
    if is_deepseek:
        add_deepseek_keys(writer)
    writer.add_context_length(2048 if is_chatglm else 8192)
    writer.add_embedding_length(shape["width"])
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(shape["feed_forward"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_layer_norm_rms_eps(1e-6 if is_deepseek else 1e-5)
    writer.add_rope_freq_base(10000.0 if is_chatglm or is_deepseek else 500000.0)
    writer.add_vocab_size(shape["vocabulary"])
    writer.add_tokenizer_model("no_vocab")
    listed = list((chatglm if is_chatglm else deepseek if is_deepseek else tensors)(shape, arguments.type))
    for name, rows, columns, kind in listed:
        if rows is None:
            writer.add_tensor_info(name, (columns,), np.dtype(np.float32), 4 * columns)
        else:
            rows = rows if isinstance(rows, tuple) else (rows,)
            count = row_bytes(columns, kind)
            raw = {} if kind == "f32" else {"raw_dtype": TYPES[kind]}
            stored, dtype = ((*rows, columns), np.float32) if kind == "f32" else ((*rows, count), np.uint8)
            writer.add_tensor_info(name, stored, np.dtype(dtype), math.prod(rows) * count, **raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    pools = {kind: pool(kind, random) for kind in TYPES}
    file = writer.fout[0]
    for _, rows, columns, kind in listed:
        if arguments.sparse:
            writer.write_padding(file, file.tell())
            matrix = math.prod(rows) if isinstance(rows, tuple) else rows
            file.seek(4 * columns if rows is None else matrix * row_bytes(columns, kind), 1)
        else:
            write_tensor(writer, file, rows, columns, kind, pools, random)
    file.truncate()
    writer.close()


if __name__ == "__main__":
    main()
