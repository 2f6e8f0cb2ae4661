#!/usr/bin/env python3
"""Write models whose config.json is a published one with smaller sizes, and their reference logits.

    OMP_NUM_THREADS=1 python scripts/make_published_goldens.py [fixtures/published.json]

Many published models share a class with others, so no checkpoint of fixtures/models has their name and their keys.
published_models.py lists them. A model here has no stored weights: `values` computes each element from the seed, the
names of the model and the tensor, and the index. transformers computes the logits in float64; for classes that it does
not have, the class with the same layers or remote_models.py computes them. The seed is the first one with clear greedy
tokens, as in make_fixtures.py.
"""
import argparse
import json
import os
import re
import sys
import tempfile
from importlib.metadata import version

# The kernels.py of this folder is not the optional package that transformers looks for.
sys.modules["kernels"] = None

import numpy as np
import torch
import transformers

from make_fixtures import ROUTING_GAP_MIN, SEEDS_MAX, greedy, logits_of, remote, routing_gap, widened
from published_models import MODELS, elements

IDS = [5, 6, 7, 1, 9, 10, 11, 12, 13, 14, 150, 200, 31, 77, 300, 18, 260, 95]


def scale_of(name, shape, is_tied):
    """Center and half the range of a tensor, both powers of two or zero."""
    if name.endswith("bias"):
        return 0.0, 0.0625 if is_tied else 0.25
    if is_tied and name.endswith(("ln_f.weight", "model.norm.weight")):
        # Otherwise the embedding of the last token is the best answer again and again.
        return 0.0, 2.0
    if len(shape) == 1:
        return 1.0, 0.5
    if "embed" in name or "lm_head" in name:
        return 0.0, 0.5
    if ".mlp.gate." in name or "router" in name:
        return 0.0, 0.5
    # The deviation is near that of make_fixtures.py: sqrt(3) * 1.3 / sqrt(inputs) is the range.
    return 0.0, 2.0 ** round(np.log2(2.25 / shape[-1] ** 0.5))


def values(name, shape, seed, is_tied):
    """The elements of a tensor."""
    return torch.tensor(elements(name, shape, seed, *scale_of(name, shape, is_tied)))


def build(spec):
    """The model, with attention that all classes compute in float64."""
    if "remote" in spec:
        return remote(spec["remote"], dict(spec["config"]))
    config = dict(spec["config"], **spec.get("oracle", {}))
    config.pop("auto_map", None)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        read = transformers.AutoConfig.from_pretrained(folder)
    read._attn_implementation = spec.get("attention", "eager")
    model = transformers.AutoModelForCausalLM.from_config(read).double().eval()
    model.tie_weights()
    return widened(model)


def stored(model):
    """The tensors that a checkpoint has: tied ones once."""
    tensors, places = {}, set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in places:
            places.add(tensor.data_ptr())
            tensors[name] = tensor
    return tensors


def fill(model, tensors, seed, is_tied):
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(values(f"{model}/{name}", list(tensor.shape), seed, is_tied))


def described(tensors, is_tied):
    """Shape, center and range by name. A star in a name stands for the numbers of both layers."""
    every = {name: [list(tensor.shape), *scale_of(name, tensor.shape, is_tied)] for name, tensor in tensors.items()}
    described = {}
    for name, values in every.items():
        start, number, end = re.match(r"(\D*)(\d*)(.*)", name).groups()
        both = [f"{start}{layer}{end}" for layer in range(2)]
        is_equal = number != "" and all(every.get(other) == values for other in both)
        described[f"{start}*{end}" if is_equal else name] = values
    return described


def golden(name, spec):
    model = build(spec)
    tensors = stored(model)
    is_tied = not any(name.startswith("lm_head") or name.startswith("embed_out") for name in tensors)
    for seed in range(SEEDS_MAX):
        fill(name, tensors, seed, is_tied)
        result = greedy(model, IDS, set())
        if result and routing_gap(model, IDS + result[0]) >= ROUTING_GAP_MIN:
            break
    else:
        raise SystemExit(f"{name}: no seed below {SEEDS_MAX} is clear")
    row = logits_of(model, IDS)[-1].float().numpy()
    print(f"{name}: seed {seed}, gap {result[1]:.3f}", flush=True)
    of = {"remote": spec["remote"]} if "remote" in spec else spec.get("oracle", {})
    return {"name": name, "source": spec["source"], "tokenizer": spec["tokenizer"], "computed_as": of, "seed": seed,
            "config": spec["config"], "tensors": described(tensors, is_tied),
            "greedy_ids": result[0], "min_gap": round(result[1], 4), "logits": [float(f"{x:.5e}") for x in row]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("target", nargs="?", default="fixtures/published.json")
    target = parser.parse_args().target
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    lines = [json.dumps(golden(name, spec), separators=(",", ":")) for name, spec in MODELS.items()]
    head = {"command": "python scripts/make_published_goldens.py", "ids": IDS,
            "versions": {name: version(name) for name in ("torch", "transformers")}}
    with open(target, "w", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(head)[:-1] + ', "models": [\n' + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
