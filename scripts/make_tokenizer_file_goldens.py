#!/usr/bin/env python3
"""Write token ids for folders whose tokenizer files disagree, or do not say everything in one file.

    python scripts/make_tokenizer_file_goldens.py [--fixtures fixtures]

Every case is a fixture model with changed files: `remove` lists files, `set` gives values by file and JSON pointer, `split`
writes vocab.json and merges.txt from tokenizer.json, and `keep` copies tokenizer.model. The ids come from AutoTokenizer of transformers. A case with `read_as` takes
its ids from that other case, because version 0.22 of tokenizers refuses the file that older versions read.
"""
import argparse
import copy
import json
import os
import shutil
import tempfile
from importlib.metadata import version

from transformers import AutoTokenizer

PLAIN = dict(lstrip=False, rstrip=False, normalized=False, single_word=False, special=True)
TEXTS = ["Hello world", " two  spaces", "I'LL be 12345\n\n\nthere!\n\nOk", "cafe\u0301 e\u0301", ""]


def token(content, **flags):
    return dict(content=content, **{**PLAIN, **flags})


def last(model, fixtures):
    with open(os.path.join(fixtures, "models", model, "tokenizer.json"), encoding="utf-8") as file:
        tokenizer = json.load(file)
    return max([*tokenizer["model"]["vocab"].values(), *(added["id"] for added in tokenizer["added_tokens"])])


def cases(fixtures):
    mistral, qwen = last("mistral", fixtures) + 1, last("qwen2", fixtures) + 1
    config, small_map = "tokenizer_config.json", "special_tokens_map.json"
    wide = {"/vocab_size": 1000}
    listed = {str(mistral): token("[ASK]"), str(mistral + 1): token("[/ASK]", rstrip=True), str(mistral + 2): token("<t>", special=False, normalized=True)}
    marked = ["[ASK] hi [/ASK]  there", "x<t>y <t>", "[ASK][ASK]"]
    yield dict(name="decoder-adds", base="mistral", set={config: {"/added_tokens_decoder": listed}, "config.json": wide}, texts=marked)
    yield dict(name="known-text-other-id", base="mistral", texts=["[INST] hi"], set={
        config: {"/added_tokens_decoder": {str(mistral): token("[INST]")}}, "config.json": wide})
    yield dict(name="added-json-adds", base="mistral", texts=["a [TOOL] b", "a <w> b<w>", "[TOOL]<w>[P]", "x [P]"], set={
        config: {"/added_tokens_decoder": None, "/additional_special_tokens": ["[TOOL]"], "/pad_token": "[P]"},
        "added_tokens.json": {"": {"[TOOL]": mistral, "<w>": mistral + 1}}, "config.json": wide}, remove=[small_map])
    yield dict(name="decoder-hides-added-json", base="mistral", texts=["a [TOOL] b", "[ASK]x"], set={
        config: {"/added_tokens_decoder": {str(mistral): token("[ASK]")}}, "added_tokens.json": {"": {"[TOOL]": mistral + 1}}, "config.json": wide})
    yield dict(name="flags-of-decoder", base="qwen2", texts=["a <|x|> b", "a<|x|>b", "a |w| b |w|c", "|w|"], set={
        config: {"/added_tokens_decoder": {str(qwen): token("<|x|>", lstrip=True, rstrip=True), str(qwen + 1): token("|w|", single_word=True)}},
        "tokenizer.json": {"/added_tokens/-": [dict(id=qwen, **token("<|x|>")), dict(id=qwen + 1, **token("|w|"))]}, "config.json": wide})
    yield dict(name="map-over-config", base="mistral", texts=["a </s> b"], set={
        config: {"/added_tokens_decoder": None, "/eos_token": "</s>", "/pad_token": "</s>"}, small_map: {"/eos_token": "<unk>", "/pad_token": "<s>"}})
    bytes_only = {"/pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}
    yield dict(name="prefix-space-absent", base="qwen2", texts=TEXTS, set={"tokenizer.json": bytes_only})
    yield dict(name="prefix-space-set", base="qwen2", texts=TEXTS, set={"tokenizer.json": bytes_only, config: {"/add_prefix_space": True}})
    around = {"type": "Sequence", "processors": [
        {"type": "RobertaProcessing", "sep": ["!", 0], "cls": ["\"", 1], "trim_offsets": True, "add_prefix_space": False},
        {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "#", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [
            {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"#": {"id": "#", "ids": [2], "tokens": ["#"]}}}]}
    yield dict(name="processors-nest", base="qwen2", texts=TEXTS, set={"tokenizer.json": {"/post_processor": around}})
    beyond = {"/vocab_size": mistral + 1}
    yield dict(name="beyond-embedding", base="mistral", texts=["Hello [ASK]", "two words"], set={
        config: {"/added_tokens_decoder": {str(mistral): token("[ASK]"), str(mistral + 1): token("[X]")}}, "config.json": beyond})
    for scheme, keys in (("never", {"prepend_scheme": "never"}), ("first", {"prepend_scheme": "first", "add_prefix_space": True})):
        metaspace = {"type": "Metaspace", "replacement": "\u2581", "split": True, **keys}
        yield dict(name=f"metaspace-{scheme}", base="mistral", texts=[*TEXTS, "a<s>b c"], set={"tokenizer.json": {"/pre_tokenizer": metaspace, "/normalizer": None}})
    legacy = {"type": "Metaspace", "replacement": "\u2581", "str_rep": "\u2581", "add_prefix_space": False}
    yield dict(name="metaspace-legacy", base="mistral", texts=[], read_as="metaspace-never", set={"tokenizer.json": {"/pre_tokenizer": legacy, "/normalizer": None}})
    for name, cls, settings, model in (
            ("qwen2", "Qwen2Tokenizer", {}, {}), ("gpt2", "GPT2Tokenizer", {}, {}), ("codegen", "CodeGenTokenizerFast", {"add_prefix_space": True}, {}),
            ("gpt2-bos", "GPT2Tokenizer", {"add_bos_token": True, "add_prefix_space": True}, {}), ("roberta", "RobertaTokenizer", {}, {}),
            ("bart", "BartTokenizer", {"add_prefix_space": True, "mask_token": "<m>"}, {}), ("qwen3-type", None, {}, {"/model_type": "qwen3"}),
            ("starcoder2-type", None, {}, {"/model_type": "starcoder2"}), ("config-class", None, {}, {"/tokenizer_class": "GPT2Tokenizer"})):
        small = {"tokenizer_class": cls, **settings} if cls else settings
        yield dict(name=f"class-{name}", base="qwen2", split=True, remove=[small_map], texts=[*TEXTS, "a <|endoftext|>b", "x <mask> y <m> <s>"],
                   set={config: {"": small}, "config.json": {**wide, **model}})
    pieces = ["Hello world", " two  spaces", "a</s>b c", "<note> x", "<s> a<note>b", "caf\u00e9 \u2581x", ""]
    for name, keys in (
            ("legacy", {"/legacy": True}), ("not-legacy", {"/legacy": False}), ("legacy-absent", {"/legacy": None}),
            ("no-space", {"/add_prefix_space": False}), ("not-legacy-no-space", {"/legacy": False, "/add_prefix_space": False}),
            ("not-legacy-space", {"/legacy": False, "/add_prefix_space": True}), ("class-fast", {"/legacy": False, "/tokenizer_class": "LlamaTokenizerFast"})):
        yield dict(name=f"pieces-{name}", base="llama2", keep="tokenizer.model", remove=["tokenizer.json"], texts=pieces, set={config: keys})
    with open(os.path.join(fixtures, "models", "llama2", config), encoding="utf-8") as file:
        whole = json.load(file)
    for name, keys in (("null-space", {}), ("legacy-null-space", {"legacy": True}), ("not-legacy-null-space", {"legacy": False}), ("null-legacy", {"legacy": None})):
        keys = keys if "legacy" in keys and keys["legacy"] is None else {**keys, "add_prefix_space": None}
        yield dict(name=f"pieces-{name}", base="llama2", keep="tokenizer.model", remove=["tokenizer.json"], texts=pieces, set={config: {"": {**whole, **keys}}})
    # A text with two IDs. In `list-repeats`, tokenizer.json also gives a second ID to a token of the vocabulary.
    repeated = {str(mistral): token("[ASK]"), str(mistral + 1): token("[ASK]", rstrip=True)}
    yield dict(name="decoder-repeats", base="mistral", texts=["a [ASK] b[ASK]"], set={config: {"/added_tokens_decoder": repeated}, "config.json": wide})
    yield dict(name="pieces-decoder-repeats", base="llama2", keep="tokenizer.model", remove=["tokenizer.json"], texts=["a [ASK] b[ASK]"], set={
        config: {f"/added_tokens_decoder/{418 + place}": entry for place, entry in enumerate(repeated.values())}, "config.json": wide})
    again = [dict(id=mistral, **token("[ASK]")), dict(id=mistral + 1, **token("[ASK]", rstrip=True)), dict(id=mistral + 2, **token("[/INST]"))]
    yield dict(name="list-repeats", base="mistral", texts=["a [ASK] b[ASK]", "[/INST]x"], set={"tokenizer.json": {"/added_tokens/-": again}, "config.json": wide})


def put(document, pointer, value):
    """Sets a value; none removes it, and the place "-" of a list takes more elements."""
    if not pointer:
        return value
    *path, name = pointer[1:].split("/")
    for part in path:
        document = document[part]
    if name == "-":
        document.extend(value)
    elif value is None and name not in ("normalizer", "pre_tokenizer"):
        document.pop(name, None)
    else:
        document[name] = value
    return None


def write_folder(case, fixtures, folder):
    base = os.path.join(fixtures, "models", case["base"])
    files = {}
    for name in sorted(os.listdir(base)):
        if name.endswith(".json") and not name.startswith("golden") and name not in case.get("remove", []):
            with open(os.path.join(base, name), encoding="utf-8") as file:
                files[name] = json.load(file)
    for name, changes in case["set"].items():
        for pointer, value in changes.items():
            whole = put(files.get(name), pointer, copy.deepcopy(value))
            if not pointer:
                files[name] = whole
    if case.get("split"):
        model = files.pop("tokenizer.json")["model"]
        files["vocab.json"] = model["vocab"]
        merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
        with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8") as file:
            file.write("#version: 0.2\n" + "\n".join(merges) + "\n")
    if "keep" in case:
        shutil.copy(os.path.join(base, case["keep"]), folder)
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixtures", default="fixtures")
    fixtures = parser.parse_args().fixtures
    written = []
    for case in cases(fixtures):
        if "read_as" not in case:
            with tempfile.TemporaryDirectory() as folder:
                write_folder(case, fixtures, folder)
                tokenizer = AutoTokenizer.from_pretrained(folder)
            case["texts"] = [dict(text=text, ids=tokenizer(text)["input_ids"], ids_no_special=tokenizer(text, add_special_tokens=False)["input_ids"])
                             for text in case["texts"]]
            case["roles"] = dict(bos=tokenizer.bos_token_id, eos=tokenizer.eos_token_id, padding=tokenizer.pad_token_id)
        written.append(case)
    golden = dict(command="python scripts/make_tokenizer_file_goldens.py", versions={name: version(name) for name in ("transformers", "tokenizers")}, cases=written)
    folder = os.path.join(fixtures, "tokenizer-files")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "golden.json"), "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(f'"{key}": ' + json.dumps(value, ensure_ascii=False) for key, value in golden.items() if key != "cases"))
        file.write(',\n"cases": [\n' + ",\n".join(json.dumps(case, ensure_ascii=False) for case in written) + "\n]}\n")


if __name__ == "__main__":
    main()
