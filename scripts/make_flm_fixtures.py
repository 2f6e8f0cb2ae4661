#!/usr/bin/env python3
"""Bring .flm files that FastLLM's own programs wrote, and what is known of them, into the form of the other fixtures.

    python scripts/make_flm_fixtures.py FOLDER [--out fixtures/flm]

FOLDER holds NAME.flm (torch2flm.tofile of FastLLM on tiny random models; `quantool`: its `quant` program), NAME.dequant_golden.npz (f32
logits on the weights as FastLLM's loader reads them) and BASE.golden.json (ids of texts by the transformers library's tokenizer).
"""
import argparse
import json
import os
import shutil

import numpy as np
from safetensors.numpy import save_file

MODELS = {"llama_int8": "llama", "llama_quantool_4": "llama", "qwen2_fasttok_float16": "qwen2"}

# A matrix of the model that `quant` was given, in f32: what its codes were made from.
SOURCE, MATRIX = "llama_float32.flm", "model.layers.1.self_attn.o_proj.weight"


def matrix(path, name):
    """The f32 matrix of that name, found by its record: name, two sizes, type 0."""
    with open(path, "rb") as file:
        data = file.read()
    start = data.index(len(name).to_bytes(4, "little") + name.encode()) + 4 + len(name)
    dimensions, rows, columns, dtype = (int(n) for n in np.frombuffer(data, "<i4", 4, start))
    assert (dimensions, dtype) == (2, 0)
    return np.frombuffer(data, "<f4", rows * columns, start + 16).reshape(rows, columns)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder")
parser.add_argument("--out", default="fixtures/flm")
options = parser.parse_args()
for name, base in MODELS.items():
    out = os.path.join(options.out, name)
    os.makedirs(out, exist_ok=True)
    shutil.copyfile(os.path.join(options.folder, name + ".flm"), os.path.join(out, "model.flm"))
    with open(os.path.join(options.folder, base + ".golden.json"), encoding="utf-8") as file:
        base = json.load(file)
    golden = np.load(os.path.join(options.folder, name + ".dequant_golden.npz"))
    prompts = [{"ids": golden[f"p{number}_ids"].tolist()} for number in (0, 1)]
    texts = [{"text": text["text"], "ids_no_special": text["ids"]} for text in base["tokenization_no_special"]]
    with open(os.path.join(out, "golden.json"), "w", encoding="utf-8") as file:
        json.dump({"command": "python scripts/make_flm_fixtures.py FOLDER", "note": base["note"], "prompts": prompts, "texts": texts},
                  file, ensure_ascii=False, indent=1)
        file.write("\n")
    save_file({f"logits_{number}": golden[f"p{number}_logits"] for number in (0, 1)}, os.path.join(out, "golden.safetensors"))
save_file({MATRIX: matrix(os.path.join(options.folder, SOURCE), MATRIX)}, os.path.join(options.out, "quantool_source.safetensors"))
