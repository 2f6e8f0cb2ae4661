#!/usr/bin/env python3
"""Write a checkpoint of ChatGLM-6B's published shape with random weights and a tokenizer of its size, as a Hugging Face directory of 13.4 GB.

    python scripts/make_chatglm6b.py FOLDER [--layers N]

As it was first published: 150,528 tokens, of which the first 20,000 stand for images, 28 layers, f16. Values are taken from one random pool that every
piece of a tensor reads from another place; a few MiB are held at a time. ice_text.model holds made-up pieces: the tokens for white space, those that steer the
model, letters, and words of letters that merge. Slimmed: trueup convert FOLDER model.gguf --type q4_0 --prune-vocab drop:0-19999
"""
import argparse
import itertools
import json
import os
import struct

import numpy as np

WIDTH, FEED, HEADS, TOKENS, IMAGES, PIECES = 4096, 16384, 32, 150_528, 20_000, 130_344
POOL = 8 << 20
STEERING = {130_000: "[MASK]", 130_001: "[gMASK]", 130_002: "[sMASK]", 130_003: "<unused_0>", 130_004: "<sop>", 130_005: "<eop>"}


def tensors(layers):
    """(name, shape), outermost first."""
    yield "transformer.word_embeddings.weight", [TOKENS, WIDTH]
    for layer in range(layers):
        at = f"transformer.layers.{layer}."
        for name, rows, columns in (("input_layernorm", WIDTH, None), ("attention.query_key_value", 3 * WIDTH, WIDTH), ("attention.dense", WIDTH, WIDTH),
                                    ("post_attention_layernorm", WIDTH, None), ("mlp.dense_h_to_4h", FEED, WIDTH), ("mlp.dense_4h_to_h", WIDTH, FEED)):
            yield at + name + ".weight", [rows, columns] if columns else [rows]
            yield at + name + ".bias", [rows]
    yield "transformer.final_layernorm.weight", [WIDTH]
    yield "transformer.final_layernorm.bias", [WIDTH]
    yield "lm_head.weight", [TOKENS, WIDTH]


def write_weights(path, layers):
    shapes, header, at = list(tensors(layers)), {}, 0
    for name, shape in shapes:
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(5)
    pool = random.normal(0, 1 / 64, POOL // 2).astype(np.float16)
    ones = np.ones(FEED, np.float16)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes:
            left, start = int(np.prod(shape)), int(random.integers(0, len(pool)))
            if name.endswith("layernorm.weight"):
                ones[:left].tofile(file)
                continue
            while left:
                piece = pool[start:start + left]
                piece.tofile(file)
                left -= len(piece)
                start = 0


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def field(number, bytes_):
    return varint(number << 3 | 2) + varint(len(bytes_)) + bytes_


def piece(text, score, kind):
    message = field(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + varint(3 << 3) + varint(kind)
    return field(1, message)


def pieces():
    """Texts with kinds of sentencepiece: 1 normal, 2 unknown, 3 control, 4 user-defined."""
    yield "<unk>", 2
    yield "<s>", 3
    yield "</s>", 3
    for text in ["<n>", "<|tab|>"] + [f"<|blank_{count}|>" for count in range(2, 81)]:
        yield text, 4
    letters = "etaoinshrdlcumwfgypbvkjxqz"
    yield "▁", 1
    for text in letters + letters.upper() + "0123456789.,!?'\"-:;()":
        yield text, 1
    words = itertools.chain.from_iterable(map("".join, itertools.product(letters, repeat=size)) for size in (2, 3, 4))
    for word in words:
        yield word, 1
        yield "▁" + word, 1


def write_tokenizer(path):
    with open(path, "wb") as file:
        for number, (text, kind) in enumerate(itertools.islice(pieces(), PIECES)):
            text = STEERING.get(number, text)
            file.write(piece(text, -float(number), kind))
        # BPE; identity, with a space before each text, white space as it is.
        file.write(field(2, varint(3 << 3) + varint(2)))
        file.write(field(3, field(1, b"identity") + varint(3 << 3) + varint(1) + varint(4 << 3) + varint(0)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--layers", type=int, default=28)
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    config = {"architectures": ["ChatGLMModel"], "model_type": "chatglm", "hidden_size": WIDTH, "inner_hidden_size": FEED, "num_attention_heads": HEADS,
              "num_layers": options.layers, "layernorm_epsilon": 1e-5, "max_sequence_length": 2048, "position_encoding_2d": True, "vocab_size": TOKENS,
              "bos_token_id": 150_004, "eos_token_id": 150_005, "mask_token_id": 150_000, "gmask_token_id": 150_001, "pad_token_id": 20_003, "torch_dtype": "float16"}
    tokenizer = {"tokenizer_class": "ChatGLMTokenizer", "num_image_tokens": IMAGES, "bos_token": "<sop>", "eos_token": "</s>", "gmask_token": "[gMASK]", "mask_token": "[MASK]"}
    for name, content in (("config.json", config), ("tokenizer_config.json", tokenizer)):
        with open(os.path.join(options.folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
    write_tokenizer(os.path.join(options.folder, "ice_text.model"))
    write_weights(os.path.join(options.folder, "model.safetensors"), options.layers)


if __name__ == "__main__":
    main()
