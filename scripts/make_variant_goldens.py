#!/usr/bin/env python3
"""Write the logits of fixtures with other settings or weights, where one setting does not fit into a fixture.

    OMP_NUM_THREADS=1 python scripts/make_variant_goldens.py [fixtures/variants.json]

A variant is a fixture of fixtures/models, values for config.json, and changes of tensors: in the given rows, values
become `value * factor + summand` in float32; null removes the tensor. transformers 4.57.6 computes the logits
of the last three of IDS, in float64 where the class can, and for some variants the tokens that follow a text.
"""
import argparse
import json
import os
import sys
import tempfile

# The kernels.py of this folder is not the optional package that transformers looks for.
sys.modules["kernels"] = None

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

IDS = [5, 6, 7, 1, 9, 10, 11, 12, 13, 14, 150, 200]
ROWS = 3
BIAS = "model.layers.1.mlp.gate.e_score_correction_bias"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 0.707, "mscale_all_dim": 0.707}


def by(factor, summand=0.0, rows=None):
    return [{"factor": factor, "summand": summand, "rows": rows}]


def in_both_layers(name, change):
    return {f"model.layers.{layer}.{name}.weight": change for layer in range(2)}


VARIANTS = {
    "The norms of latent attention have an epsilon that config.json does not change": {
        "fixture": "deepseek3",
        "config": {"rms_norm_eps": 1e-3},
        "tensors": in_both_layers("self_attn.kv_a_proj_with_mqa", by(1 / 64)),
    },
    "An expert of a group that is not used counts as 0": {
        # All four, so that it does not matter which of equal scores is chosen.
        "fixture": "deepseek3", "config": {"num_experts_per_tok": 4}, "tensors": {BIAS: by(1.0, -2.0)},
    },
    "Weights are divided by a sum that is close to 0": {
        "fixture": "deepseek3",
        "config": {},
        "tensors": {BIAS: by(1.0, 100.0, [0, 4]), "model.layers.1.mlp.gate.weight": by(512.0)},
    },
    "No expert is shared": {
        "fixture": "deepseek3",
        "config": {"n_shared_experts": 0},
        "tensors": {f"model.layers.1.mlp.shared_experts.{name}_proj.weight": None for name in ["gate", "up", "down"]},
    },
    "DeepSeek's code scales scores by mscale_all_dim in V2, too": {
        "fixture": "deepseek2", "config": {"rope_scaling": YARN}, "tensors": {},
    },
    "A text that is longer than the original context has the long factors of LongRoPE": {
        "fixture": "phi4-long", "config": {"original_max_position_embeddings": 10}, "tensors": {}, "greedy": True,
    },
}


# Tokens of IDS, and of the text that follows.
GREEDY = (6, 12)


def changed(tensor, changes):
    tensor = tensor.float().clone()
    for change in changes:
        first, last = change["rows"] or (0, len(tensor))
        tensor[first:last] = tensor[first:last] * change["factor"] + change["summand"]
    return tensor


def results(root, variant):
    source = os.path.join(root, "models", variant["fixture"])
    with tempfile.TemporaryDirectory() as folder:
        config = json.load(open(os.path.join(source, "config.json")))
        config |= variant["config"]
        json.dump(config, open(os.path.join(folder, "config.json"), "w"))
        tensors = load_file(os.path.join(source, "model.safetensors"))
        for name, changes in variant["tensors"].items():
            tensor = tensors.pop(name)
            if changes is not None:
                tensors[name] = changed(tensor, changes)
        save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        dtype = torch.float32 if variant["fixture"] == "deepseek3" else torch.float64
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
        if variant["fixture"] == "deepseek2" and "rope_scaling" in variant["config"]:
            # As modeling_deepseek.py, published with the models, computes softmax_scale.
            from transformers.models.deepseek_v3.modeling_deepseek_v3 import yarn_get_mscale
            for layer in model.model.layers:
                layer.self_attn.scaling *= yarn_get_mscale(YARN["factor"], YARN["mscale_all_dim"]) ** 2
        with torch.no_grad():
            rows = model(torch.tensor([IDS])).logits[0, -ROWS:].float().numpy()
        result = {"logits": [[float(f"{x:.8e}") for x in row] for row in rows]}
        if variant.get("greedy"):
            prompt, count = GREEDY
            # Without a cache: `generate` keeps keys that were computed with the short factors.
            ids = model.generate(torch.tensor([IDS[:prompt]]), max_new_tokens=count, min_new_tokens=count,
                                 do_sample=False, use_cache=False)
            result["greedy"] = {"prompt": IDS[:prompt], "ids": ids[0, prompt:].tolist()}
        return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("target", nargs="?", default="fixtures/variants.json")
    target = parser.parse_args().target
    root = os.path.dirname(os.path.abspath(target))
    variants = [{"name": name, **variant, **results(root, variant)} for name, variant in VARIANTS.items()]
    golden = {"command": "python scripts/make_variant_goldens.py", "ids": IDS, "variants": variants}
    with open(target, "w") as file:
        json.dump(golden, file, indent=None, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
