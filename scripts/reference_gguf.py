#!/usr/bin/env python3
"""A second, independent conversion of a Hugging Face folder to GGUF, with the `gguf` package alone.

    python scripts/reference_gguf.py FOLDER OUT.gguf [--type f32|f16|bf16|q4_0|q4_1|q5_0|q5_1|q8_0]

Names of tensors come from the package's own map, quantized bytes from its own quantizers. Used to make goldens of
quantized models and to compare what the project writes. The default recipe: matrices get the type; token embedding and
output head are q8_0 when the type has 4 bits; one-dimensional tensors stay f32.
"""
import argparse
import base64
import json
import os

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

ARCHITECTURES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2",
                 "Qwen3ForCausalLM": "qwen3", "BaiChuanForCausalLM": "baichuan", "BaichuanForCausalLM": "baichuan",
                 "InternLMForCausalLM": "llama", "ChatGLMModel": "chatglm", "QWenLMHeadModel": "qwen2"}
# ChatGLM's words for what others call so.
CHATGLM_KEYS = {"num_layers": "num_hidden_layers", "multi_query_group_num": "num_key_value_heads", "kv_channels": "head_dim",
                "ffn_hidden_size": "intermediate_size", "padded_vocab_size": "vocab_size", "seq_length": "max_position_embeddings",
                "layernorm_epsilon": "rms_norm_eps"}
# The first Qwen's words, and its names of tensors.
QWEN_KEYS = {"kv_channels": "head_dim", "seq_length": "max_position_embeddings", "layer_norm_epsilon": "rms_norm_eps",
             "rotary_emb_base": "rope_theta"}
QWEN_NAMES = {"transformer.wte": "model.embed_tokens", "transformer.ln_f": "model.norm", "transformer.h": "model.layers", "ln_1": "input_layernorm",
              "ln_2": "post_attention_layernorm", "attn.c_proj": "self_attn.o_proj", "mlp.w2": "mlp.gate_proj", "mlp.w1": "mlp.up_proj",
              "mlp.c_proj": "mlp.down_proj"}
QWEN_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{number}|>" for number in range(205)]
CHATGLM_TOKENS = ("[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>")
# Whose rotary pairs stand side by side in GGUF.
SIDE_BY_SIDE = ("llama", "baichuan")
DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "F64": np.float64, "U8": np.uint8}
FOUR_BITS = ("q4_0", "q4_1")


# ---------------------------------------------------------------- the source

def read_safetensors(path):
    """name -> f32 array."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        body = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        raw = np.frombuffer(body[start:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = (raw.astype(np.uint32) << 16).view(np.float32) if entry["dtype"] == "BF16" else raw.astype(np.float32)
    return tensors


def read_json(folder, name, default=None):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return default
    with open(path, encoding="utf-8") as file:
        return json.load(file)


class Source:
    """config.json and weights of a folder."""

    def __init__(self, folder):
        self.folder, self.config = folder, read_json(folder, "config.json")
        self.arch = ARCHITECTURES[self.config["architectures"][0]]
        if self.arch == "chatglm":
            self.config.update({ours: self.config[theirs] for theirs, ours in CHATGLM_KEYS.items()})
            self.config["rope_theta"] = 10000.0 * self.config.get("rope_ratio", 1)
        self.is_first_qwen = self.config["architectures"] == ["QWenLMHeadModel"]
        if self.is_first_qwen:
            self.config.update({ours: self.config[theirs] for theirs, ours in QWEN_KEYS.items()})
            self.config["intermediate_size"] //= 2
        self.heads = self.config["num_attention_heads"]
        self.kv_heads = self.config.get("num_key_value_heads", self.heads)
        self.head_size = self.config.get("head_dim") or self.config["hidden_size"] // self.heads
        self.rotated = self.head_size // 2 if self.arch == "chatglm" else self.head_size
        self.scaling = self.config.get("rope_scaling") or {}
        self.scaling_type = self.scaling.get("rope_type", self.scaling.get("type"))
        self.has_alibi = self.arch == "baichuan" and "max_position_embeddings" not in self.config
        self.weights = divided(self, read_safetensors(os.path.join(folder, "model.safetensors")))


# ---------------------------------------------------------------- tensors

def divided(source, weights):
    """Joined queries, keys and values apart (Baichuan, the first Qwen, under Qwen2's names), and the rows of version 2's head divided by their lengths."""
    result = {}
    for name, values in weights.items():
        if source.is_first_qwen:
            for theirs, ours in QWEN_NAMES.items():
                name = name.replace(theirs + ".", ours + ".")
        if ".c_attn." in name:
            for part, rows in zip("qkv", np.split(values, 3)):
                result[name.replace("attn.c_attn", f"self_attn.{part}_proj")] = rows
            continue
        if ".W_pack." in name:
            for part, rows in zip("qkv", np.split(values, 3)):
                result[name.replace("W_pack", part + "_proj")] = rows
            continue
        if name == "lm_head.weight" and "z_loss_weight" in source.config:
            wide = values.astype(np.float64)
            values = (wide / np.sqrt((wide * wide).sum(axis=1, keepdims=True))).astype(np.float32)
        result[name] = values
    return result


def interleave(rows, heads):
    """Rows of one head from [first halves, second halves] to pairs side by side."""
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def rope_factors(source):
    """Divisors of the rotary frequencies for scaling of type llama3 (the formula published with Llama 3.1)."""
    s, size = source.scaling, source.head_size
    wavelengths = 2 * np.pi * source.config["rope_theta"] ** (np.arange(0, size, 2) / size)
    context, low, high = s["original_max_position_embeddings"], s["low_freq_factor"], s["high_freq_factor"]
    smooth = np.clip((context / wavelengths - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / s["factor"] + smooth)).astype(np.float32)


def gguf_tensors(source):
    """GGUF name -> f32 array, in the order of the source."""
    arch = gguf.MODEL_ARCH[source.arch.upper()]
    names = gguf.get_tensor_name_map(arch, source.config["num_hidden_layers"])
    tensors = {}
    for name, values in source.weights.items():
        if name.endswith("rotary_pos_emb.inv_freq"):
            continue
        if source.arch in SIDE_BY_SIDE and ".q_proj." in name:
            values = interleave(values, source.heads)
        if source.arch in SIDE_BY_SIDE and ".k_proj." in name:
            values = interleave(values, source.kv_heads)
        known = name.removeprefix("transformer.") if source.arch == "chatglm" else name
        tensors[names.get_name(known, try_suffixes=(".weight", ".bias"))] = values
    if source.scaling_type == "llama3":
        tensors["rope_freqs.weight"] = rope_factors(source)
    return tensors


def type_of(name, values, kind):
    """The default recipe."""
    if values.ndim < 2:
        return T.F32
    if kind in FOUR_BITS and name in ("token_embd.weight", "output.weight"):
        return T.Q8_0
    return T[kind.upper()]


# ---------------------------------------------------------------- tokenizer

def token_types(tokens, added, model):
    """GGUF's kinds: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte."""
    types = [5 if t is None else 1 for t in tokens]
    for i, token in enumerate(tokens):
        if model == "llama" and token and len(token) == 6 and token.startswith("<0x"):
            types[i] = 6
        if i in added:
            types[i] = 3 if added[i]["special"] else 4
    if model == "llama":
        types[0] = 2
    return types


def printable(data):
    """Bytes in GPT-2's alphabet."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    other = [b for b in range(256) if b not in plain]
    table = {b: chr(b) for b in plain} | {b: chr(256 + place) for place, b in enumerate(other)}
    return "".join(table[b] for b in data)


def ranked(path):
    """(tokens, merges) of a file of ranks: a token's two parts are what merges of smaller ranks leave of it."""
    with open(path, "rb") as file:
        ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in file)}
    merges = []
    for token, own in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            rank, place = min((ranks.get(a + b, own), place) for place, (a, b) in enumerate(zip(parts, parts[1:])))
            assert rank < own, f"{token} is made by no merges"
            parts[place:place + 2] = [parts[place] + parts[place + 1]]
        if len(parts) == 2:
            merges.append(" ".join(map(printable, parts)))
    return [printable(token) for token, _ in sorted(ranks.items(), key=lambda item: item[1])], merges


def is_glm4(folder):
    """Whose tokenizer.model is a file of ranks."""
    return read_json(folder, "tokenizer_config.json")["tokenizer_class"] == "ChatGLM4Tokenizer"


def read_tokens(source):
    """(kind of model, pieces by id with None for padding, merges, scores)."""
    size = source.config["vocab_size"]
    value = read_json(source.folder, "tokenizer.json")
    tokens, scores, merges = [None] * size, None, []
    if source.is_first_qwen or is_glm4(source.folder):
        tokens, merges = ranked(os.path.join(source.folder, "qwen.tiktoken" if source.is_first_qwen else "tokenizer.model"))
        return "gpt2", tokens + [None] * (size - len(tokens)), merges, None
    if value is None:
        import sentencepiece
        processor = sentencepiece.SentencePieceProcessor(model_file=os.path.join(source.folder, "tokenizer.model"))
        for i in range(processor.get_piece_size()):
            tokens[i] = processor.id_to_piece(i)
        return "llama", tokens, merges, [-float(max(0, i - 258)) for i in range(size)]
    for token, i in value["model"]["vocab"].items():
        tokens[i] = token
    if value["model"]["byte_fallback"]:
        scores = [-float(max(0, i - 258)) for i in range(size)]
    else:
        merges = [m if isinstance(m, str) else " ".join(m) for m in value["model"]["merges"]]
    return ("llama" if scores else "gpt2"), tokens, merges, scores


def pre_tokenizer_name(folder):
    """GGUF's name for the splitting of the fixture's tokenizer.json."""
    if os.path.exists(os.path.join(folder, "qwen.tiktoken")):
        return "qwen2"
    if is_glm4(folder):
        return "chatglm-bpe"
    text = json.dumps(read_json(folder, "tokenizer.json")["pre_tokenizer"])
    if "\\\\p{N}{1,3}" in text:
        return "llama-bpe"
    return "qwen2" if "Split" in text else "smollm"


def added_tokens(source):
    """By id; ChatGLM's stand behind the pieces, and in its program only."""
    config = read_json(source.folder, "tokenizer_config.json")
    flags = {"special": True, "lstrip": False, "rstrip": False}
    if source.is_first_qwen:
        count = sum(token is not None for token in read_tokens(source)[1])
        return {count + i: {"content": text, **flags} for i, text in enumerate(QWEN_TOKENS)}
    listed = {int(i): t for i, t in config.get("added_tokens_decoder", {}).items()}
    if config["tokenizer_class"] != "ChatGLMTokenizer":
        return listed
    count = sum(token is not None for token in read_tokens(source)[1])
    special = {i: {"content": text, **flags} for i, text in enumerate(("<unk>", "<s>", "</s>"))}
    return special | listed if listed else special | {count + i: {"content": text, **flags} for i, text in enumerate(CHATGLM_TOKENS)}


def add_tokenizer(writer, source):
    config = read_json(source.folder, "tokenizer_config.json")
    model, tokens, merges, scores = read_tokens(source)
    added = added_tokens(source)
    for i, token in added.items():
        tokens[i] = token["content"]
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre("default" if model == "llama" else pre_tokenizer_name(source.folder))
    writer.add_token_list([f"[PAD{i}]" if t is None else t for i, t in enumerate(tokens)])
    writer.add_token_types(token_types(tokens, added, model))
    if scores:
        writer.add_token_scores(scores)
        writer.add_add_space_prefix(True)
    else:
        writer.add_token_merges(merges)
    for key, add in (("bos_token", writer.add_bos_token_id), ("eos_token", writer.add_eos_token_id)):
        if config.get(key):
            add(tokens.index(config[key]))
    template = json.dumps((read_json(source.folder, "tokenizer.json") or {}).get("post_processor"))
    writer.add_add_bos_token(config.get("add_bos_token", "SpecialToken" in template))
    if config.get("chat_template"):
        writer.add_chat_template(config["chat_template"])


# ---------------------------------------------------------------- the file

def add_keys(writer, source):
    config = source.config
    writer.add_context_length(config.get("max_position_embeddings") or config["model_max_length"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(source.heads)
    writer.add_head_count_kv(source.kv_heads)
    writer.add_key_length(source.head_size)
    writer.add_value_length(source.head_size)
    if source.has_alibi:
        writer.add_max_alibi_bias(8.0)
    else:
        writer.add_rope_dimension_count(source.rotated)
        writer.add_rope_freq_base(config.get("rope_theta", 10000.0))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if source.scaling_type in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(source.scaling_type))
        writer.add_rope_scaling_factor(source.scaling["factor"])
    if source.scaling_type == "yarn":
        writer.add_rope_scaling_orig_ctx_len(source.scaling["original_max_position_embeddings"])


def write(folder, out, kind="f32"):
    source = Source(folder)
    writer = gguf.GGUFWriter(out, source.arch)
    writer.add_name(os.path.basename(os.path.normpath(folder)))
    add_keys(writer, source)
    add_tokenizer(writer, source)
    for name, values in gguf_tensors(source).items():
        to = type_of(name, values, kind)
        writer.add_tensor(name, gguf.quants.quantize(values, to), raw_dtype=to)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--type", default="f32")
    arguments = parser.parse_args()
    write(arguments.folder, arguments.out, arguments.type)


if __name__ == "__main__":
    main()
