#!/usr/bin/env python3
"""Write the logits of quantized models, computed on the dequantized weights in float64.

    python scripts/make_quantized_goldens.py [--out fixtures/quantized]

For each model the weights are quantized by the `gguf` package under the default recipe (reference_gguf.py: matrices get
the type, token embedding and output head q8_0 when the type is q4_0, one-dimensional tensors f32, rows of q and k in GGUF's
order), then run by numpy_forward.py. MODEL.TYPE.safetensors holds `logits_N` [tokens, vocabulary] for the prompts of the
model's golden.json, stored as f32; quantized.json says what was made and how far each type is from f32.
"""
import argparse
import hashlib
import json
import os
import tempfile
from importlib.metadata import version

import numpy as np
from safetensors.numpy import save_file

import numpy_forward
import reference_gguf

MODELS = {"llama2": "fixtures/models/llama2", "qwen2": "fixtures/models/qwen2", "stories-1M": "fixtures/stories-1M"}
TYPES = ("q8_0", "q4_0")


def tensor_hashes(path):
    """name -> type and sha256 of the stored bytes."""
    import gguf
    return {t.name: {"type": t.tensor_type.name.lower(), "sha256": hashlib.sha256(t.data.tobytes()).hexdigest()}
            for t in gguf.GGUFReader(path).tensors}


def make(name, folder, kind, out):
    with open(os.path.join(folder, "golden.json"), encoding="utf-8") as file:
        prompts = [p["ids"] for p in json.load(file)["prompts"]]
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "model.gguf")
        reference_gguf.write(folder, path, "f32")
        plain = [numpy_forward.forward(numpy_forward.Model(path), ids) for ids in prompts]
        reference_gguf.write(folder, path, kind)
        model, hashes = numpy_forward.Model(path), tensor_hashes(path)
    logits = {f"logits_{i}": numpy_forward.forward(model, ids) for i, ids in enumerate(prompts)}
    save_file({k: v.astype(np.float32) for k, v in logits.items()}, os.path.join(out, f"{name}.{kind}.safetensors"))
    os.chmod(os.path.join(out, f"{name}.{kind}.safetensors"), 0o644)
    greedy, gap = numpy_forward.greedy(model, prompts[0], 16)
    distance = [numpy_forward.nmse(logits[f"logits_{i}"], plain[i]) for i in range(len(prompts))]
    return {"model": name, "folder": folder, "type": kind, "prompts": prompts, "nmse_to_f32": distance,
            "greedy_ids_0": greedy, "min_gap_0": gap, "tensors": hashes}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="fixtures/quantized")
    out = parser.parse_args().out
    os.makedirs(out, exist_ok=True)
    results = [make(name, folder, kind, out) for name, folder in MODELS.items() for kind in TYPES]
    about = {"command": "python scripts/make_quantized_goldens.py",
             "versions": {n: version(n) for n in ("gguf", "numpy", "safetensors")}, "models": results}
    from make_stories_fixture import write_json
    write_json(os.path.join(out, "quantized.json"), about)
    for r in results:
        print(r["model"], r["type"], "NMSE to f32", ["%.2g" % d for d in r["nmse_to_f32"]], "gap", round(r["min_gap_0"], 4))


if __name__ == "__main__":
    main()
