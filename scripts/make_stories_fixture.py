#!/usr/bin/env python3
"""Copy the trained stories-1M model into the fixtures, with its goldens in forms that tests read.

    python scripts/make_stories_fixture.py MODELS [--out fixtures/stories-1M]

MODELS is the folder that the model's own export wrote: stories-1M/ (bf16), llama2c/tokenizer.bin, golden/golden.json and
golden/golden.npz. The logits (`logits_N`, `logits_v2_N`: prompt tokens x vocabulary, f32) become golden.safetensors;
golden.json is kept as it is, with lists of numbers on one line.
"""
import argparse
import json
import os
import re
import shutil

import numpy as np
from safetensors.numpy import save_file


def write_json(path, value):
    text = json.dumps(value, ensure_ascii=False, indent=1)
    text = re.sub(r"\[\s+((?:\d+,\s+)*\d+)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m.group(1)) + "]", text)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models")
    parser.add_argument("--out", default="fixtures/stories-1M")
    arguments = parser.parse_args()
    source = os.path.join(arguments.models, "stories-1M")
    os.makedirs(arguments.out, exist_ok=True)
    for name in sorted(os.listdir(source)):
        shutil.copyfile(os.path.join(source, name), os.path.join(arguments.out, name))
    shutil.copyfile(os.path.join(arguments.models, "llama2c", "tokenizer.bin"), os.path.join(arguments.out, "tokenizer.bin"))
    with open(os.path.join(arguments.models, "golden", "golden.json"), encoding="utf-8") as file:
        write_json(os.path.join(arguments.out, "golden.json"), json.load(file))
    arrays = np.load(os.path.join(arguments.models, "golden", "golden.npz"))
    logits = {k: np.ascontiguousarray(arrays[k], np.float32) for k in arrays.files if k.startswith("logits_")}
    save_file(logits, os.path.join(arguments.out, "golden.safetensors"))
    for name in os.listdir(arguments.out):
        os.chmod(os.path.join(arguments.out, name), 0o644)
    for key, value in sorted(logits.items()):
        print(key, value.shape)


if __name__ == "__main__":
    main()
