"""Checks of a converted file that need no reference conversion of its architecture. Used by check_gguf.py.

The `gguf` package reads the files. Names of tensors must be those that the package lists for the architecture; keys
that it does not list are noted. In the f32 file, the rows of each tensor must be rows or columns of the tensors in the
checkpoint that the package gives this name, or of any tensor if there is none. In all other files, types and bytes must
be those that the package makes of the f32 file.
"""
import os

import gguf
import numpy as np

import reference_gguf
from gguf import GGMLQuantizationType as T

# Stored as f32 by llama.cpp's converter: ends of names of tensors that may have more than one dimension.
STORED_F32 = ("_norm.weight", ".ffn_gate_inp.weight", ".ffn_gate_inp_shexp.weight", ".attn_rel_b.weight",
              "position_embd.weight", "token_types.weight", ".ssm_conv1d.weight", ".ssm_a", ".ssm_d")
# Tensors whose values conversion computes, by architecture or folder: parts of names, and the rule.
COMPUTED = {
    "gemma": (("_norm.weight",), "norms are 1 plus the weight"),
    "gemma2": (("_norm.weight", ".attn_q.weight"), "norms are 1 plus the weight, queries are scaled"),
    "gemma3": (("_norm.weight",), "norms are 1 plus the weight"),
    "bitnet": ((".attn_q.", ".attn_k.", ".attn_v.", ".attn_output.", ".ffn_gate.", ".ffn_up.", ".ffn_down."),
               "matrices are ternary"),
    "mamba": ((".ssm_a",), "it is -exp(A_log)"),
    "mamba2": ((".ssm_a",), "it is -exp(A_log)"),
    "deepseek2": ((".attn_k_b.",), "it is a transposed part of each head"),
    "t5": (("output.weight",), "the head is scaled"),
    "plamo": ((".attn_output.",), "heads are in another order"),
}
# Tensors that llama.cpp does not have for the architecture, by folder; `convert` says so.
OWN_TENSORS = {"falcon-rw": (".ffn_norm.",), "qwen2moe": ("blk.1.ffn_gate.", "blk.1.ffn_up.", "blk.1.ffn_down.")}
# Architectures without attention, whose files have 0 heads.
HEADLESS = ("mamba", "mamba2")
# The factors of LongRoPE, by the name in the description.
FACTORS = {"rope_factors_long.weight": "long_factor", "rope_factors_short.weight": "short_factor"}
# Names in the description of the checkpoint for each key.
CONFIG_KEYS = {
    "block_count": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers"),
    "embedding_length": ("hidden_size", "n_embd", "d_model", "model_dim"),
    "attention.head_count": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "context_length": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length",
                       "max_context_length", "model_max_length"),
    "vocab_size": ("vocab_size", "padded_vocab_size"),
}


class Fixture:
    """A folder with a checkpoint; what is known of it without a conversion of its architecture."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.config = reference_gguf.read_json(folder, "config.json")
        self.golden = reference_gguf.read_json(folder, "golden.json")
        self.is_decoder = os.path.basename(os.path.dirname(folder)) == "models"
        self.weights = reference_gguf.read_safetensors(os.path.join(folder, "model.safetensors"))

    def computed(self, arch):
        """Parts of names of tensors that conversion computes, and the rule."""
        return COMPUTED.get(self.name, COMPUTED.get(arch, ((), "")))


def has_reference(folder):
    """Whether reference_gguf.py converts models of this class."""
    classes = reference_gguf.read_json(folder, "config.json").get("architectures") or [""]
    return classes[0] in reference_gguf.ARCHITECTURES


def read(readers):
    """name -> f32 array, of a file in f32."""
    tensors = {}
    for tensor in (tensor for reader in readers for tensor in reader.tensors):
        shape = [int(size) for size in reversed(tensor.shape)]
        tensors[tensor.name] = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
    return tensors


def type_of(name, values, kind, experts):
    """The type under the default recipe for a model with this number of experts."""
    is_matrix = sum(size != 1 for size in values.shape) > 1
    if not is_matrix or not name.endswith(".weight") or name.endswith(STORED_F32):
        return T.F32
    to = reference_gguf.type_of(name, values, kind)
    # llama-quantize keeps keys and values of models with 8 experts in q8_0.
    if experts == 8 and kind[0] == "q" and (".attn_k." in name or ".attn_v." in name):
        to = T.Q8_0
    if gguf.GGML_QUANT_SIZES[to][0] > 1 and values.shape[-1] % gguf.GGML_QUANT_SIZES[to][0]:
        return T.F16
    return to


def expected_tensors(tensors, kind, experts):
    """name -> (type, bytes, shape) under the default recipe."""
    result = {}
    for name, values in tensors.items():
        to = type_of(name, values, kind, experts)
        result[name] = to, gguf.quants.quantize(values, to).tobytes(), values.shape
    return result


# ---------------------------------------------------------------- names, keys, tokens

def architecture(reader):
    """The package's number of the file's architecture, or None."""
    name = reader.fields["general.architecture"].contents()
    return next((number for number, known in gguf.MODEL_ARCH_NAMES.items() if known == name), None)


def expert_count(reader):
    name = reader.fields["general.architecture"].contents()
    field = reader.fields.get(f"{name}.expert_count")
    return field.contents() if field else 0


def block_count(reader):
    name = reader.fields["general.architecture"].contents()
    keys = [f"{name}.block_count", f"{name}.decoder_block_count"]
    return max(reader.fields[key].contents() for key in keys if key in reader.fields)


def check_names(report, label, reader, fixture, number):
    blocks = range(block_count(reader))
    stems = {gguf.TENSOR_NAMES[kind].format(bid=bid, xid=0) for kind in gguf.MODEL_TENSORS[number] for bid in blocks}
    stems |= {name + suffix for name in stems for suffix in (".weight", ".bias", ".scale")}
    unknown = [tensor.name for tensor in reader.tensors if tensor.name not in stems]
    own = [name for name in unknown if any(part in name for part in OWN_TENSORS.get(fixture.name, ()))]
    if own:
        report.note(f"{fixture.name}: the gguf package does not list {', '.join(own)}")
        unknown = [name for name in unknown if name not in own]
    report.check(not unknown, f"{label}: the gguf package does not list {unknown} for {gguf.MODEL_ARCH_NAMES[number]}")


def known_keys(arch):
    """All keys that the package knows for an architecture."""
    kinds = [kind for kind in vars(gguf.Keys).values() if isinstance(kind, type)]
    templates = [text for kind in kinds for text in vars(kind).values() if isinstance(text, str)]
    plain = [text.replace("{arch}", arch).replace("{id}", "0") for text in templates]
    return {text for text in plain if "{" not in text}


def check_keys(report, label, reader, fixture):
    """Sizes are those of config.json. Keys of the architecture that the package does not list are noted."""
    arch = reader.fields["general.architecture"].contents()
    own = [name for name in reader.fields if name.startswith(f"{arch}.") and name not in known_keys(arch)]
    if own:
        report.note(f"{fixture.name}: the gguf package does not list the keys {', '.join(own)}")
    for key, names in CONFIG_KEYS.items():
        found = reader.fields.get(f"{arch}.{key}")
        expected = next((fixture.config[name] for name in names if name in fixture.config), None)
        if found is None or expected is None or key == "attention.head_count" and arch in HEADLESS:
            continue
        report.check(found.contents() == expected, f"{label}: {arch}.{key} is {found.contents()}, expected {expected}")


def vocabulary(folder):
    """Tokens by id in tokenizer.json, or None if it does not list them as GGUF does."""
    value = reference_gguf.read_json(folder, "tokenizer.json")
    model = (value or {}).get("model", {})
    if model.get("type") == "Unigram":
        tokens = {number: piece for number, (piece, _) in enumerate(model["vocab"])}
    elif "merges" in model:
        tokens = {number: token for token, number in model["vocab"].items()}
    else:
        return None
    return tokens | {token["id"]: token["content"] for token in value["added_tokens"]}


def check_tokens(report, label, reader, fixture):
    expected = vocabulary(fixture.folder)
    if expected is None:
        return report.note(f"{fixture.name}: tokens are not compared: no tokenizer.json that lists them as GGUF does")
    found = dict(enumerate(reader.fields["tokenizer.ggml.tokens"].contents()))
    differing = [(number, token) for number, token in expected.items() if found.get(number) != token]
    return report.check(not differing, f"{label}: {len(differing)} tokens differ, such as {differing[:4]}")


# ---------------------------------------------------------------- values

def rows_of(values):
    """The rows of an array, as bytes."""
    flat = np.ascontiguousarray(values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1))
    return [row.tobytes() for row in flat]


def source_rows(weights):
    """All rows, columns and elements of a checkpoint, as bytes."""
    known = set()
    for values in weights.values():
        known.update(rows_of(values))
        known.update(rows_of(values.reshape(-1, 1)))
        if values.ndim > 1:
            known.update(rows_of(values.reshape(values.shape[0], -1).T))
            known.add(values.tobytes())
    return known


def mapped(fixture, number, blocks):
    """name in the file -> arrays of the checkpoint that the package gives this name."""
    names = gguf.get_tensor_name_map(number, blocks)
    result = {}
    for name, values in fixture.weights.items():
        keys = (name, name.removeprefix("transformer."), name.removeprefix("bert."))
        found = next(filter(None, (names.get_name(key, try_suffixes=(".weight", ".bias")) for key in keys)), None)
        result.setdefault(found, {})[name] = values
    return result


def check_values(report, label, reader, fixture, number):
    """Values of the f32 file; those that are computed are noted."""
    parts, rule = fixture.computed(reader.fields["general.architecture"].contents())
    everything, named, computed = source_rows(fixture.weights), mapped(fixture, number, block_count(reader)), []
    for name, values in read([reader]).items():
        if any(part in name for part in parts):
            computed.append(name)
            continue
        if name in FACTORS:
            expected = np.array(fixture.config["rope_scaling"][FACTORS[name]], np.float32)
            report.check(np.array_equal(values, expected), f"{label}: {name} is {values}, expected {expected}")
            continue
        known = source_rows(named[name]) if name in named else everything
        rows = rows_of(values.reshape(-1, 1)) if values.ndim < 2 else rows_of(values)
        unknown = sum(row not in known for row in rows)
        report.check(unknown == 0, f"{label}: {name}: {unknown} of {len(rows)} rows are not in the checkpoint")
    if computed:
        report.note(f"{fixture.name}: values not compared with the checkpoint ({rule}): {', '.join(computed)}")


def check_all(report, label, reader, fixture):
    """Names, keys, tokens and values of the f32 file."""
    number = architecture(reader)
    name = reader.fields["general.architecture"].contents()
    if not report.check(number is not None, f"{label}: the gguf package does not know the architecture {name}"):
        return
    check_names(report, label, reader, fixture, number)
    check_keys(report, label, reader, fixture)
    check_tokens(report, label, reader, fixture)
    check_values(report, label, reader, fixture, number)
