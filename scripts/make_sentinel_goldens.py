#!/usr/bin/env python3
"""Write a sentencepiece file of T5's tokenizer class, with the ids of transformers for several settings of the class.

    python scripts/make_sentinel_goldens.py [--out fixtures/tokenizer-files]

Each case is a folder with spiece.model and a tokenizer_config.json. The ids come from AutoTokenizer, which makes a
T5TokenizerFast or MT5TokenizerFast of them.
"""
import argparse
import json
import os
import shutil
import sys
import tempfile
from importlib.metadata import version

sys.modules["kernels"] = None

from transformers import AutoTokenizer

from make_tokenizer_fixtures import train

TEXTS = ["the house is  small", "a <extra_id_0> b", "<extra_id_1>the<extra_id_0>", "<extra_id_2> <extra_id_3>", "a</s> b", "<sep> <x>", ""]
LISTED = [f"<extra_id_{number}>" for number in range(4)]
ROLES = dict(eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
CASES = {
    "listed": dict(tokenizer_class="T5Tokenizer", extra_ids=4, additional_special_tokens=LISTED, **ROLES),
    "counted": dict(tokenizer_class="T5Tokenizer", extra_ids=4),
    "default": dict(tokenizer_class="T5TokenizerFast", **ROLES),
    "none": dict(tokenizer_class="MT5Tokenizer", extra_ids=0, additional_special_tokens=None, **ROLES),
    "another": dict(tokenizer_class="T5Tokenizer", extra_ids=4, additional_special_tokens=["<x>"], **ROLES),
    "unnamed": dict(extra_ids=4),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="fixtures/tokenizer-files")
    out = parser.parse_args().out
    path = os.path.join(out, "spiece.model")
    model = train("identity", model_type="unigram", vocab_size=200, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    with open(path, "wb") as file:
        file.write(model)
    cases = []
    for name, config in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(path, folder)
            for file, content in (("config.json", {"model_type": "t5"}), ("tokenizer_config.json", config)):
                with open(os.path.join(folder, file), "w", encoding="utf-8") as target:
                    json.dump(content, target)
            tokenizer = AutoTokenizer.from_pretrained(folder)
            texts = [dict(text=text, ids=tokenizer(text).input_ids) for text in TEXTS]
            cases.append(dict(name=name, config=config, tokens=len(tokenizer), texts=texts))
    golden = dict(command="python scripts/make_sentinel_goldens.py", versions={name: version(name) for name in ("transformers", "tokenizers", "sentencepiece")})
    with open(os.path.join(out, "sentinels.json"), "w", encoding="utf-8", newline="\n") as file:
        head = json.dumps(golden, ensure_ascii=False)[:-1]
        file.write(head + ', "cases": [\n' + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]}\n")


if __name__ == "__main__":
    main()
