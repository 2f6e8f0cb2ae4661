#!/usr/bin/env python3
"""Makes fixtures/recipes/recipes.json: the type that llama-quantize gives each tensor of made models.

    python scripts/make_recipe_goldens.py LLAMA_QUANTIZE

LLAMA_QUANTIZE is the program of llama.cpp 0c1e57098. Models have the shapes of real architectures, and zeros as
weights; each recipe is a run with --dry-run. Needs gguf 0.19.0 and NumPy. A result such as

    "Q4_K output=Q6_K attn_v=Q6_K@0,3,6-7"

is the type of most tensors, then exceptions: a tensor name without `blk.N.` and `.weight`, its type, and after @ the
layers that have it. Normalization weights and biases are left out.
"""

import collections
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = 64
RECIPES = (
    "Q2_K Q2_K_S Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ4_NL IQ4_XS Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 "
    "MXFP4_MOE TQ1_0 TQ2_0"
).split()


def model(arch, layers, heads, kv_heads, width, ffn, tied=False, experts=0, shared=0):
    """The facts about a made model."""
    names = "arch layers heads kv_heads width ffn tied experts shared".split()
    return dict(zip(names, (arch, layers, heads, kv_heads, width, ffn, tied, experts, shared)))


MODELS = {
    "llama-mha-4": model("llama", 4, 4, 4, 256, 512),
    "llama-gqa4-8": model("llama", 8, 8, 2, 256, 512),
    "llama-gqa8-tied-32": model("llama", 32, 8, 1, 256, 512, tied=True),
    "llama-gqa8-80": model("llama", 80, 8, 1, 256, 256),
    "llama-mha-80": model("llama", 80, 4, 4, 256, 256),
    "llama-gqa4-32-512": model("llama", 32, 8, 2, 512, 512),
    "llama-mha-8-tied": model("llama", 8, 4, 4, 256, 512, tied=True),
    "llama-576-tied-30": model("llama", 30, 9, 3, 576, 1536, tied=True),
    "llama-576-untied-12": model("llama", 12, 9, 9, 576, 1536),
    "llama-272-ffn-400": model("llama", 8, 8, 2, 272, 400),
    "qwen2-24-tied": model("qwen2", 24, 8, 2, 256, 512, tied=True),
    "qwen2-gqa1-80": model("qwen2", 80, 4, 4, 256, 256),
    "mixtral-8x-16": model("llama", 16, 8, 2, 256, 256, experts=8),
    "mixtral-8x-32-gqa1": model("llama", 32, 4, 4, 256, 256, experts=8),
    "mixtral-4x-8-gqa8": model("llama", 8, 8, 1, 256, 256, experts=4),
    "falcon-32-mqa": model("falcon", 32, 8, 1, 256, 1024),
    "falcon-60-tied": model("falcon", 60, 16, 2, 256, 512, tied=True),
    "phi3-32": model("phi3", 32, 8, 8, 256, 512),
    "qwen2moe-24-60x": model("qwen2moe", 24, 8, 8, 256, 256, experts=60, shared=512),
    "qwen3moe-16-128x": model("qwen3moe", 16, 8, 2, 256, 256, experts=128),
    "gemma-18-tied": model("gemma", 18, 8, 1, 256, 512, tied=True),
}

# Runs with options: model, recipe, arguments.
OPTIONS = [
    ("llama-gqa4-8", "Q4_K_M", "--pure"),
    ("llama-gqa4-8", "Q3_K_L", "--pure"),
    ("llama-576-tied-30", "Q4_K_M", "--pure"),
    ("mixtral-8x-16", "Q5_K_M", "--pure"),
    ("mixtral-8x-16", "MXFP4_MOE", "--pure"),
    ("llama-272-ffn-400", "MXFP4_MOE", "--pure"),
    ("llama-gqa4-8", "Q4_K_M", "--output-tensor-type q8_0"),
    ("llama-gqa4-8", "Q4_K_M", "--token-embedding-type q8_0"),
    ("llama-gqa4-8", "Q4_K_M", "--pure --output-tensor-type q8_0 --token-embedding-type f16"),
    ("llama-gqa4-8", "Q4_K_M", "--leave-output-tensor"),
    ("llama-mha-8-tied", "Q4_K_M", "--output-tensor-type q8_0"),
    ("llama-mha-8-tied", "Q4_K_M", "--token-embedding-type q5_K"),
    ("llama-mha-8-tied", "Q4_K_M", "--token-embedding-type q5_K --output-tensor-type q8_0"),
    ("llama-mha-8-tied", "Q4_K_M", "--leave-output-tensor"),
    ("llama-272-ffn-400", "Q4_K_M", "--output-tensor-type q6_k --token-embedding-type q4_K"),
    ("llama-gqa4-8", "Q4_K_M", "--tensor-type attn_v=q8_0"),
    ("llama-gqa4-8", "Q4_K_M", r"--tensor-type blk\.0\.attn_v=q8_0"),
    ("llama-gqa4-8", "Q3_K_M", r"--tensor-type blk\.0\.attn_v=q8_0"),
    ("llama-gqa4-8", "Q4_K_M", r"--tensor-type blk\.[0-3]\.ffn_down=q6_k --tensor-type ffn_down=q3_k"),
    ("llama-gqa4-8", "Q4_K_M", r"--tensor-type ffn_down=q3_k --tensor-type blk\.[0-3]\.ffn_down=q6_k"),
    ("llama-gqa4-8", "Q4_K_M", "--tensor-type output=q5_k"),
    ("llama-gqa4-8", "Q4_K_M", "--tensor-type ^output=q5_k"),
    ("llama-gqa4-8", "Q4_K_M", "--tensor-type ATTN_Q=q5_k"),
    ("llama-gqa4-8", "Q4_K_M", "--tensor-type token_embd=q8_0 --token-embedding-type q4_0"),
    ("llama-gqa4-8", "Q4_K_M", "--pure --tensor-type ffn_up=iq4_xs"),
    ("llama-gqa4-8", "Q4_K_M", "--tensor-type norm=q8_0 --tensor-type nothing_like_this=q2_k"),
    ("mixtral-8x-16", "Q4_K_M", "--tensor-type exps=mxfp4"),
    ("mixtral-8x-16", "Q4_K_M", "--tensor-type ffn_gate_inp=q8_0"),
    (
        "llama-576-untied-12",
        "Q4_K_M",
        "--tensor-type attn_q=q6_k --tensor-type attn_k=iq4_xs --tensor-type attn_output=q2_k",
    ),
    ("llama-gqa4-8", "F16", "--tensor-type attn_v=q8_0 --output-tensor-type q6_k"),
    ("llama-gqa4-8", "BF16", ""),
    ("llama-gqa4-8", "F32", ""),
]


def tensors(facts):
    """Names without `.weight`, and shapes innermost first. Those of a layer start with a dot."""
    width, ffn, experts, arch = facts["width"], facts["ffn"], facts["experts"], facts["arch"]
    kv = width // facts["heads"] * facts["kv_heads"]
    yield "token_embd", (width, VOCABULARY)
    yield "output_norm", (width,)
    if not facts["tied"]:
        yield "output", (width, VOCABULARY)
    yield ".attn_norm", (width,)
    if arch in ("falcon", "phi3"):
        yield ".attn_qkv", (width, width + 2 * kv)
    else:
        yield from ((".attn_q", (width, width)), (".attn_k", (width, kv)), (".attn_v", (width, kv)))
    yield ".attn_output", (width, width)
    if experts:
        yield ".ffn_gate_inp", (width, experts)
        yield from ((".ffn_gate_exps", (width, ffn, experts)), (".ffn_up_exps", (width, ffn, experts)))
        yield ".ffn_down_exps", (ffn, width, experts)
        if shared := facts["shared"]:
            yield ".ffn_gate_inp_shexp", (width,)
            yield from ((".ffn_gate_shexp", (width, shared)), (".ffn_up_shexp", (width, shared)))
            yield ".ffn_down_shexp", (shared, width)
        return
    if arch not in ("falcon", "phi3"):
        yield ".ffn_gate", (width, ffn)
    yield ".ffn_up", (width, 2 * ffn if arch == "phi3" else ffn)
    yield ".ffn_down", (ffn, width)


def write(path, facts):
    """A file of the model, in f16, whose weights are zeros that take no disk space."""
    writer = gguf.GGUFWriter(path, facts["arch"])
    writer.add_context_length(128)
    writer.add_embedding_length(facts["width"])
    writer.add_block_count(facts["layers"])
    writer.add_feed_forward_length(facts["ffn"])
    writer.add_head_count(facts["heads"])
    writer.add_head_count_kv(facts["kv_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    writer.add_rope_dimension_count(facts["width"] // facts["heads"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    if facts["experts"]:
        writer.add_expert_count(facts["experts"])
        writer.add_expert_used_count(2)
        writer.add_expert_feed_forward_length(facts["ffn"])
        writer.add_expert_shared_feed_forward_length(facts["shared"])
    for name, shape in tensors(facts):
        layers = range(facts["layers"]) if name.startswith(".") else [None]
        for layer in layers:
            full = name if layer is None else f"blk.{layer}{name}"
            dtype = numpy.float16 if len(shape) > 1 else numpy.float32
            size = int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize
            writer.add_tensor_info(f"{full}.weight", shape[::-1], numpy.dtype(dtype), size)
    writer.open_output_file(path)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    total = sum(-(-info.nbytes // 32) * 32 for info in writer.tensors[0].values())
    with open(path, "ab") as file:
        file.truncate(-(-file.tell() // 32) * 32 + total)


def importance(path):
    """An importance file with one entry: any entry makes the recipes that use one."""
    writer = gguf.GGUFWriter(path, "")
    writer.add_string("general.type", "imatrix")
    writer.add_array("imatrix.datasets", ["none"])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", 64)
    writer.add_tensor("blk.0.attn_q.weight.in_sum2", numpy.ones(256, numpy.float32))
    writer.add_tensor("blk.0.attn_q.weight.counts", numpy.ones(1, numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run(program, path, recipe, arguments):
    """The result of one run, as the fixture stores it."""
    # Only a real run refuses this recipe in every model.
    dry = [] if recipe == "Q2_K_S" and "--imatrix" not in arguments else ["--dry-run"]
    command = [program, *dry, *arguments, str(path), str(path.with_suffix(".out")), recipe, "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    log = done.stdout + done.stderr
    if "requires an imatrix" in log:
        return "refused: needs an importance matrix"
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{log}")
    line = re.compile(r"\] +(\S+) +- \[.*type = +(\w+), .*?(?:\((\w+)\))?$", re.MULTILINE)
    types = {name: (new or old).upper() for name, old, new in line.findall(log)}
    return summary({name: dtype for name, dtype in types.items() if not name.endswith("_norm.weight")})


def summary(types):
    """The most frequent type, then the exceptions."""
    most = collections.Counter(types.values()).most_common(1)[0][0]
    layers, kinds = collections.defaultdict(list), collections.Counter()
    for name, dtype in types.items():
        layer, kind = re.fullmatch(r"(?:blk\.(\d+)\.)?(\S+)\.weight", name).groups()
        kinds[kind] += 1
        layers[kind, dtype].append(layer and int(layer))
    words = [most]
    for (kind, dtype), numbers in sorted(layers.items(), key=str):
        if dtype != most:
            words.append(f"{kind}={dtype}" + ("" if len(numbers) == kinds[kind] else "@" + ranges(sorted(numbers))))
    return " ".join(words)


def ranges(numbers):
    """Such as 0,3,6-7."""
    runs = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def main(program):
    """Makes the fixture."""
    result = {"command": "python scripts/make_recipe_goldens.py LLAMA_QUANTIZE", "llama.cpp": "0c1e57098"}
    result["models"], result["options"] = {}, []
    with tempfile.TemporaryDirectory() as folder:
        file, paths = Path(folder) / "importance.gguf", {}
        importance(file)
        for name, facts in MODELS.items():
            path = paths[name] = Path(folder) / f"{name}.gguf"
            write(path, facts)
            runs = {recipe: run(program, path, recipe, []) for recipe in RECIPES}
            with_file = {recipe: run(program, path, recipe, ["--imatrix", str(file)]) for recipe in RECIPES}
            changed = {recipe: types for recipe, types in with_file.items() if types != runs[recipe]}
            result["models"][name] = {**facts, "runs": runs, "with_importance": changed}
        for name, recipe, arguments in OPTIONS:
            types = run(program, paths[name], recipe, arguments.split())
            result["options"].append({"model": name, "recipe": recipe, "arguments": arguments, "types": types})
    target = ROOT / "fixtures/recipes/recipes.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
