#!/usr/bin/env python3
"""Write fixtures/quality/importance.json: sums of squared inputs of every linear layer, by transformers in float64.

    python scripts/make_importance_goldens.py

For each model: random ids in chunks, and for each weight of the layers the sum of the squares of each column's inputs,
and how many inputs each matrix saw. Weights have their GGUF names. Packages: scripts/requirements.txt.
"""
import json
import pathlib
import re
import sys

# transformers looks for a package of this name, and would find kernels.py of this folder.
sys.modules["kernels"] = None

import torch
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
CONTEXT, CHUNKS = 32, 3
NAMES = {
    "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
    "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
    "gate": "ffn_gate_inp", "w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps",
}


def sums_of(name):
    """The ids and the sums of one fixture."""
    model = AutoModelForCausalLM.from_pretrained(ROOT / "models" / name, dtype=torch.float64, attn_implementation="eager")
    model.eval()
    experts = getattr(model.config, "num_local_experts", 1)
    entries = {}

    def hook(weight, matrix):
        def add(_, inputs):
            x = inputs[0].reshape(-1, inputs[0].shape[-1])
            matrices = experts if weight.endswith("_exps.weight") else 1
            entry = entries.setdefault(weight, {"sums": torch.zeros(matrices, x.shape[1], dtype=torch.float64),
                                                "counts": [0] * matrices})
            entry["sums"][matrix] += (x * x).sum(0)
            entry["counts"][matrix] += x.shape[0]
        return add

    for path, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and (layer := re.search(r"layers\.(\d+)\.", path)):
            expert = re.search(r"experts\.(\d+)\.", path)
            weight = f"blk.{layer[1]}.{NAMES[path.rsplit('.', 1)[1]]}.weight"
            module.register_forward_pre_hook(hook(weight, int(expert[1]) if expert else 0))
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(3, model.config.vocab_size, (CHUNKS, CONTEXT), generator=generator)
    with torch.no_grad():
        for chunk in ids:
            model(chunk[None], use_cache=False)
    shown = {weight: {"sums": [float(f"{value:.9e}") for value in entry["sums"].flatten()], "counts": entry["counts"]}
             for weight, entry in sorted(entries.items())}
    return {"model": name, "context": CONTEXT, "ids": ids.flatten().tolist(), "entries": shown}


def main():
    target = ROOT / "quality" / "importance.json"
    target.write_text(json.dumps({
        "command": "python scripts/make_importance_goldens.py",
        "models": [sums_of("llama3"), sums_of("mixtral")],
    }) + "\n")


if __name__ == "__main__":
    main()
