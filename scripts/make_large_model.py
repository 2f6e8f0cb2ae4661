#!/usr/bin/env python3
"""Write a large synthetic Llama checkpoint, to measure the memory of convert and quantize.

    python scripts/make_large_model.py FOLDER [--shape plain|llama-1b] [--layers N] [--shard-bytes 500000000]

About 2.5 GB of bf16 in several safetensors files with an index, config.json, and the tokenizer of the fixture llama2 (the
vocabulary's other rows have no token). `llama-1b` has the sizes of Llama-3.2-1B, whose head is the embedding. Values are normal with a deviation of 0.02, taken from one random block that every
tensor reads from another offset; the writer streams and needs little memory. The model says nothing of sense.
"""
import argparse
import json
import os
import shutil

import numpy as np

TOKENIZER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "models", "llama2")
POOL_VALUES = 1 << 22
HIDDEN, HEADS = 2048, 32
SHAPES = {"plain": {"layers": 25, "feed_forward": 5632, "kv_heads": 4, "vocabulary": 32000, "tied": False},
          "llama-1b": {"layers": 16, "feed_forward": 8192, "kv_heads": 8, "vocabulary": 128256, "tied": True}}


def config(shape):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
            "intermediate_size": shape["feed_forward"], "num_hidden_layers": shape["layers"], "num_attention_heads": HEADS,
            "num_key_value_heads": shape["kv_heads"], "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "rope_scaling": None, "tie_word_embeddings": shape["tied"], "torch_dtype": "bfloat16", "vocab_size": shape["vocabulary"],
            "bos_token_id": 1, "eos_token_id": 2}


def shapes(shape):
    """name -> shape, in the order of a checkpoint."""
    kv, feed_forward = HIDDEN // HEADS * shape["kv_heads"], shape["feed_forward"]
    result = {"model.embed_tokens.weight": (shape["vocabulary"], HIDDEN)}
    for i in range(shape["layers"]):
        prefix = f"model.layers.{i}."
        result[prefix + "input_layernorm.weight"] = (HIDDEN,)
        for name, rows in (("q", HIDDEN), ("k", kv), ("v", kv), ("o", HIDDEN)):
            result[f"{prefix}self_attn.{name}_proj.weight"] = (rows, HIDDEN)
        result[prefix + "post_attention_layernorm.weight"] = (HIDDEN,)
        result[prefix + "mlp.gate_proj.weight"] = (feed_forward, HIDDEN)
        result[prefix + "mlp.up_proj.weight"] = (feed_forward, HIDDEN)
        result[prefix + "mlp.down_proj.weight"] = (HIDDEN, feed_forward)
    result["model.norm.weight"] = (HIDDEN,)
    if not shape["tied"]:
        result["lm_head.weight"] = (shape["vocabulary"], HIDDEN)
    return result


def size_bytes(shape):
    return 2 * int(np.prod(shape))


def shards(tensors, limit):
    """Lists of names, each of at most `limit` bytes (or one tensor)."""
    result, filled = [[]], 0
    for name, shape in tensors.items():
        if result[-1] and filled + size_bytes(shape) > limit:
            result.append([])
            filled = 0
        result[-1].append(name)
        filled += size_bytes(shape)
    return result


def to_bf16(values):
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def write_values(file, count, pool, offset):
    """`count` values from the pool, beginning at `offset` and going round."""
    while count:
        start = offset % len(pool)
        part = pool[start:start + count]
        file.write(part.tobytes())
        count -= len(part)
        offset += len(part)


def write_shard(path, names, tensors, pools, rng):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name in names:
        start, end = end, end + size_bytes(tensors[name])
        header[name] = {"dtype": "BF16", "shape": list(tensors[name]), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            pool = pools["norm" if len(tensors[name]) == 1 else "matrix"]
            write_values(file, int(np.prod(tensors[name])), pool, int(rng.integers(len(pool))))


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--shape", choices=SHAPES, default="plain")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--shard-bytes", type=int, default=500_000_000)
    arguments = parser.parse_args()
    shape = dict(SHAPES[arguments.shape])
    if arguments.layers:
        shape["layers"] = arguments.layers
    os.makedirs(arguments.folder, exist_ok=True)
    rng = np.random.default_rng(1)
    pools = {"matrix": to_bf16(rng.standard_normal(POOL_VALUES, np.float32) * 0.02),
             "norm": to_bf16(1 + rng.standard_normal(1 << 14, np.float32) * 0.1)}
    tensors = shapes(shape)
    parts = shards(tensors, arguments.shard_bytes)
    index = {"metadata": {"total_size": sum(map(size_bytes, tensors.values()))}, "weight_map": {}}
    for i, names in enumerate(parts):
        name = f"model-{i + 1:05d}-of-{len(parts):05d}.safetensors"
        write_shard(os.path.join(arguments.folder, name), names, tensors, pools, rng)
        index["weight_map"].update(dict.fromkeys(names, name))
    write_json(arguments.folder, "model.safetensors.index.json", index)
    write_json(arguments.folder, "config.json", config(shape))
    for name in ("tokenizer.model", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                 "generation_config.json"):
        shutil.copyfile(os.path.join(TOKENIZER, name), os.path.join(arguments.folder, name))
    print(f"{index['metadata']['total_size']} bytes in {len(parts)} files -> {arguments.folder}")


if __name__ == "__main__":
    main()
