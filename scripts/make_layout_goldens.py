#!/usr/bin/env python3
"""Write how transformers 5 stores the fixtures, and logits of settings that it reads and transformers 4 does not.

    OMP_NUM_THREADS=1 python scripts/make_layout_goldens.py [fixtures/layouts.json]

This script needs transformers 5.24.0, other than those that make the fixtures (scripts/requirements.txt).

spellings    for each fixture whose class transformers has: the keys that config.json loses, and those that it gets or
             that change, when transformers 5 reads and writes it
multimodal   for fixtures that are language models of a multimodal class: its config.json, the prefix of their tensors,
             and the names and shapes of the tensors of other parts
variants     as in variants.json (scripts/make_variant_goldens.py). Tensors of "added" do not exist in the fixture:
             element i is ((37 i) mod 64 - 32) / 32, plus 1 if the tensor has one dimension
"""
import argparse
import json
import math
import os
import sys
import tempfile

# The kernels.py of this folder is not the optional package that transformers looks for.
sys.modules["kernels"] = None

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, Gemma3Config, Mistral3Config
from transformers.models.mpt import modeling_mpt

from make_variant_goldens import IDS, ROWS

VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
          "image_size": 8, "patch_size": 4}
MULTIMODAL = {
    "gemma3": (Gemma3Config, VISION, {"mm_tokens_per_image": 1}),
    "mistral": (Mistral3Config, VISION | {"model_type": "pixtral", "head_dim": 8}, {}),
}


def attn_config(root, **changes):
    config = json.load(open(os.path.join(root, "models", "mpt", "config.json")))
    return {"attn_config": config["attn_config"] | changes}


def variants(root):
    return {
        "Heads of a group share B and C, and each group has a norm": {
            "fixture": "mamba2", "config": {"n_groups": 2, "state_size": 4},
        },
        "Queries and keys are limited after their norms": {"fixture": "olmoe", "config": {"clip_qkv": 0.5}},
        "The largest exponent of ALiBi is 16": {"fixture": "mpt", "config": attn_config(root, alibi_bias_max=16)},
        "All heads of queries have one norm, and all heads of keys": {
            "fixture": "mpt",
            "config": attn_config(root, qk_ln=True),
            "added": {f"transformer.blocks.{layer}.attn.{part}_ln.weight": [64] for layer in range(2) for part in "qk"},
        },
        "Positions are learned": {
            "fixture": "mpt", "config": attn_config(root, alibi=False), "added": {"transformer.wpe.weight": [256, 64]},
        },
        "There are no positions": {
            "fixture": "mpt", "config": attn_config(root, alibi=False) | {"learned_pos_emb": False},
        },
    }


def spelling(folder, target):
    """The changes of config.json, or None if transformers has no such class."""
    before = json.load(open(os.path.join(folder, "config.json")))
    try:
        AutoConfig.from_pretrained(folder).save_pretrained(target)
    except ValueError:
        return None
    after = json.load(open(os.path.join(target, "config.json")))
    after.pop("transformers_version", None)
    removed = [key for key in before if key not in after and key != "transformers_version"]
    return {"removed": removed, "set": {key: value for key, value in after.items() if before.get(key, "") != value}}


def multimodal(root, target, name):
    config_class, vision, more = MULTIMODAL[name]
    text = AutoConfig.from_pretrained(os.path.join(root, "models", name))
    model = AutoModelForImageTextToText.from_config(config_class(text_config=text, vision_config=vision, **more))
    model.save_pretrained(target)
    others, prefix, end = {}, None, "model.embed_tokens.weight"
    with safe_open(os.path.join(target, "model.safetensors"), "pt") as file:
        for name in file.keys():
            if name.endswith(end):
                prefix = name.removesuffix(end)
            elif "language_model." not in name:
                others[name] = list(file.get_slice(name).get_shape())
    config = json.load(open(os.path.join(target, "config.json")))
    config["text_config"].pop("_name_or_path", None)
    return {"config": config, "prefix": prefix, "others": others}


def added(shape):
    values = [((37 * i) % 64 - 32) / 32 + (len(shape) == 1) for i in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float32).reshape(shape)


def follow_the_published_program(model, tensors, config):
    """Applies what MptForCausalLM ignores and llm-foundry's MPTForCausalLM does."""
    options, transformer = config["attn_config"], model.transformer

    def slopes(heads, length, alibi_bias_max=8, device=None):
        slopes = modeling_mpt.build_mpt_alibi_tensor(heads, length, options["alibi_bias_max"], device)
        return slopes if options["alibi"] else 0 * slopes

    transformer.build_mpt_alibi_tensor = slopes
    if "transformer.wpe.weight" in tensors:
        table = tensors["transformer.wpe.weight"].double()
        transformer.wte.register_forward_hook(lambda module, inputs, rows: rows + table[:rows.shape[1]])
    for number, block in enumerate(transformer.blocks) if options["qk_ln"] else []:
        norms = [tensors[f"transformer.blocks.{number}.attn.{part}_ln.weight"].double() for part in "qk"]
        limit, block.attn.clip_qkv = block.attn.clip_qkv, None

        def normed(module, inputs, rows, norms=norms, limit=limit):
            *parts, value = rows.clamp(-limit, limit).chunk(3, dim=2)
            parts = [torch.nn.functional.layer_norm(part, part.shape[-1:], norm, None, 1e-5)
                     for part, norm in zip(parts, norms)]
            return torch.cat([*parts, value], dim=2)

        block.attn.Wqkv.register_forward_hook(normed)


def logits(root, variant):
    source = os.path.join(root, "models", variant["fixture"])
    config = json.load(open(os.path.join(source, "config.json"))) | variant["config"]
    tensors = load_file(os.path.join(source, "model.safetensors"))
    tensors |= {name: added(shape) for name, shape in variant.get("added", {}).items()}
    with tempfile.TemporaryDirectory() as folder:
        json.dump(config, open(os.path.join(folder, "config.json"), "w"))
        save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager",
                                                     experts_implementation="eager")
    if variant["fixture"] == "mpt":
        follow_the_published_program(model, tensors, config)
    with torch.no_grad():
        rows = model(torch.tensor([IDS]), use_cache=False).logits[0, -ROWS:].float().numpy()
    return [[float(f"{x:.8e}") for x in row] for row in rows]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("target", nargs="?", default="fixtures/layouts.json")
    target = parser.parse_args().target
    root = os.path.dirname(os.path.abspath(target))
    with tempfile.TemporaryDirectory() as scratch:
        fixtures = [f"{kind}/{name}" for kind in ["encoder-decoders", "encoders", "models"]
                    for name in sorted(os.listdir(os.path.join(root, kind)))]
        spellings = {name: spelling(os.path.join(root, name), scratch) for name in fixtures}
        golden = {
            "command": "python scripts/make_layout_goldens.py",
            "ids": IDS,
            "spellings": {name: changes for name, changes in spellings.items() if changes is not None},
            "multimodal": {name: multimodal(root, scratch, name) for name in MULTIMODAL},
            "variants": [{"name": name, **variant, "logits": logits(root, variant)}
                         for name, variant in variants(root).items()],
        }
    with open(target, "w") as file:
        json.dump(golden, file, indent=None, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
