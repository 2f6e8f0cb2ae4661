#!/usr/bin/env python3
"""Write fixtures/traces/k-quants.gguf: a llama of two layers whose matrices are in q2_K to q6_K, of random bytes.

    python scripts/make_trace_fixtures.py

The commands that make the traces are in fixtures/traces/README.md.
"""
import gguf
import numpy as np

TARGET = "fixtures/traces/k-quants.gguf"
HIDDEN, HEADS, HEAD_SIZE, LAYERS, CONTEXT = 256, 2, 32, 2, 64
BLOCK = 256
PIECES = ["<unk>", "<s>", "</s>", *(f"▁{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"), *"abcdefghijklmnopqrs"]
TYPE = gguf.GGMLQuantizationType

# The fields of a block in order: bytes of codes and scales, or the f16 factors d and m, which center weights around 0.
FIELDS = {
    TYPE.Q2_K: (16, 64, "d", "m"),
    TYPE.Q3_K: (32, 64, 12, "d"),
    TYPE.Q4_K: ("d", "m", 12, 128),
    TYPE.Q5_K: ("d", "m", 12, 32, 128),
    TYPE.Q6_K: (128, 64, "scales", "d"),
}
FACTORS = {TYPE.Q2_K: (6.6e-3, 1.5), TYPE.Q3_K: (1.4e-3, 0), TYPE.Q4_K: (3.3e-4, 7.5), TYPE.Q5_K: (1.7e-4, 15.5),
           TYPE.Q6_K: (3.7e-4, 0)}
MATRICES = {
    "blk.0.attn_q": TYPE.Q4_K, "blk.0.attn_k": TYPE.Q5_K, "blk.0.attn_v": TYPE.Q6_K,
    "blk.0.ffn_gate": TYPE.Q4_K, "blk.0.ffn_up": TYPE.Q5_K, "blk.0.ffn_down": TYPE.Q6_K,
    "blk.1.attn_q": TYPE.Q2_K, "blk.1.attn_k": TYPE.Q3_K, "blk.1.attn_v": TYPE.Q4_K,
    "blk.1.ffn_gate": TYPE.Q2_K, "blk.1.ffn_up": TYPE.Q3_K, "blk.1.ffn_down": TYPE.Q2_K,
}


def blocks(random, dtype, rows, length):
    """Rows of random blocks."""
    count = rows * length // BLOCK
    scale = np.float16(FACTORS[dtype][0] * random.uniform(0.5, 1.5, (count, 1)))
    parts = []
    for field in FIELDS[dtype]:
        if field == "d":
            parts.append(scale.view(np.uint8))
        elif field == "m":
            parts.append(np.float16(scale * FACTORS[dtype][1]).view(np.uint8))
        elif field == "scales":
            parts.append(random.integers(-16, 17, (count, 16)).astype(np.int8).view(np.uint8))
        else:
            parts.append(random.integers(0, 256, (count, field), dtype=np.uint8))
    return np.concatenate(parts, axis=1).reshape(rows, -1)


def norm(random):
    return random.uniform(0.5, 1.5, HIDDEN).astype(np.float32)


def add_facts(writer):
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD_SIZE)
    writer.add_value_length(HEAD_SIZE)
    writer.add_rope_dimension_count(HEAD_SIZE)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(PIECES))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(PIECES)
    writer.add_token_scores([-float(number) for number in range(len(PIECES))])
    kinds = gguf.TokenType
    writer.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL] + [kinds.NORMAL] * (len(PIECES) - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def main():
    random = np.random.Generator(np.random.PCG64(26))
    writer = gguf.GGUFWriter(TARGET, "llama")
    add_facts(writer)
    for name in ("token_embd", "output"):
        writer.add_tensor(f"{name}.weight", blocks(random, TYPE.Q6_K, len(PIECES), HIDDEN), raw_dtype=TYPE.Q6_K)
    writer.add_tensor("output_norm.weight", norm(random))
    rows = {"attn_q": HEADS * HEAD_SIZE, "attn_k": HEAD_SIZE, "attn_v": HEAD_SIZE}
    for name, dtype in MATRICES.items():
        count = rows.get(name.split(".")[-1], HIDDEN)
        writer.add_tensor(f"{name}.weight", blocks(random, dtype, count, HIDDEN), raw_dtype=dtype)
    for layer in range(LAYERS):
        # Rows of the output projection are too short for a K-quant.
        projection = random.normal(0, 0.1, (HIDDEN, HEADS * HEAD_SIZE)).astype(np.float32)
        data = gguf.quants.quantize(projection, TYPE.Q5_1)
        writer.add_tensor(f"blk.{layer}.attn_output.weight", data, raw_dtype=TYPE.Q5_1)
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", norm(random))
        writer.add_tensor(f"blk.{layer}.ffn_norm.weight", norm(random))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
