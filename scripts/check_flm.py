#!/usr/bin/env python3
"""Check the .flm files that `trueup` writes with FastLLM itself.

    python scripts/check_flm.py PATH/TO/trueup [NAME ...] [--work DIR]
    python scripts/check_flm.py --save-matrix fixtures/flm/saved_int8_o_proj.bin      makes that fixture

For each fixture, with heads as large as FastLLM takes for granted where it does (128, MOSS 256):
1. written from the directory, and by way of GGUF, FastLLM opens the file and gives the logits that `trueup` gives on the device ref (of MOSS, whose logits it
   keeps, the likeliest token), and the ids of plain texts as `trueup tokenize` gives them for the file;
2. with 8 and 4 bits the logits are those of the written codes, as far as FastLLM's 8 bits for activations go;
3. where FastLLM reads the directory too, its own codes and ranges of 8 and 4 bits are those that `trueup` writes, byte for byte; minima of 4 bits, which it saves
   behind another pass through the rule of its loader, behind such a pass;
4. prompts that the file gives in pieces are those of the pieces.
Needs the package `ftllm` (scripts/requirements.txt), whose library runs on the processor. Exit: 0 all passed; 1 a difference; 3 it is absent.
"""
import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "models")
EXACT, CODED = 1e-9, 2e-2
# Layer norms have another epsilon there.
COARSE = {"chatglm1": 1e-6, "moss": 1e-6}
# Scalings and windows that FastLLM computes without, as the notes of `convert` say.
UNKNOWN_TO_FASTLLM = ("llama-yarn", "llama3", "llama3-tied", "mistral")
# Kinds of models for which it gives no logits, and ends at the second token: the first behind each beginning of a
# prompt is compared.
WITHOUT_LOGITS, STEPS, BEGINNINGS = ("moss",), 1, 12
# Kinds of models that the pinned version does not have.
ABSENT = ("qwen3",)
# What FastLLM's reader of directories knows, with tokenizers that it reads.
READ_BY_FASTLLM = ("llama2", "qwen2")
# The head size that FastLLM takes for granted, and the rows that hold ids which it takes for granted.
HEAD = {"qwen": (128, 592), "moss": (256, 387), "chatglm1": (128, 475), "chatglm2": (128, 64_800), "chatglm3": (128, 64_800), "glm4": (128, 400)}
FEED_FORWARD = 192


# ---------------------------------------------------------------- what FastLLM makes of a file, in a process of its own

def fastllm(task):
    """Runs inside the child: a fault of the library ends only that. What is said goes to a file."""
    import ctypes
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    from ftllm import llm
    library = llm.fastllm_lib
    library.set_cpu_threads(1)
    said = {}

    def logits(model, ids, count):
        room = (ctypes.c_float * (1 << 22))()
        handle = library.launch_response_llm_model(model.model, len(ids), (ctypes.c_int * len(ids))(*ids), 1, False, 1, 1, 1, 1, True, 0, None)
        left = library.fetch_response_logits_llm_model(model.model, handle, room)
        values = list(room[:count])
        while left > -1:
            left = library.fetch_response_logits_llm_model(model.model, handle, room)
        return values

    def greedy(model, ids, count):
        handle = library.launch_response_llm_model(model.model, len(ids), (ctypes.c_int * len(ids))(*ids), count, False, 1, 1, 1, 1, False, 0, None)
        tokens, token = [], library.fetch_response_llm_model(model.model, handle)
        while token >= 0:
            tokens.append(token)
            token = library.fetch_response_llm_model(model.model, handle)
        return tokens
    if "save" in task:
        llm.model(task["model"], dtype=task["dtype"], tokenizer_type="fastllm").save(task["save"])
    else:
        model = llm.model(task["model"])
        said["texts"] = [list(model.encode(text)) for text in task["texts"]]
        if task["prompts"]:
            said["prompts"] = [model.get_prompt("Q2", [["Q1", "A1"]]), model.get_prompt("Q1", [])]
        said["logits"] = [logits(model, ids, task["count"]) for ids in task["ids"] if not task["steps"]]
        said["greedy"] = [greedy(model, ids, task["steps"]) for ids in task["ids"] if task["steps"]]
    with open(task["out"], "w", encoding="utf-8") as file:
        json.dump(said, file)
    os._exit(0)


def ask(work, **task):
    task["out"] = os.path.join(work, "said.json")
    if os.path.exists(task["out"]):
        os.remove(task["out"])
    done = subprocess.run([sys.executable, __file__, "--fastllm", json.dumps(task)], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"FastLLM ends with {done.returncode}: {done.stderr.strip()[-300:]}")
    with open(task["out"], encoding="utf-8") as file:
        return json.load(file)


# ---------------------------------------------------------------- .flm files, read apart

def read_flm(path):
    """name -> (type, bytes of ranges, bytes of numbers or codes)."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0

    def number():
        nonlocal at
        at += 4
        return struct.unpack_from("<i", data, at - 4)[0]

    def text():
        nonlocal at
        size = number()
        at += size
        return data[at - size:at].decode()
    assert number() == 2
    table = {}
    for _ in range(number()):
        key = text()
        table[key] = text()
    for _ in range(number()):
        size = number()
        at += 4 * size
        number()
        if table.get("tokenizer_use_score") == "1":
            number()
    if table.get("tokenizer_has_special_tokens") == "1":
        for _ in range(number()):
            text()
    tensors = {}
    for _ in range(number()):
        name = text()
        shape = [number() for _ in range(number())]
        kind, count, ranges = number(), int(np.prod(shape)), b""
        if kind in (3, 8):
            assert number() == 0
            ranges = data[at:at + 8 * shape[0]]
            at += 8 * shape[0]
        size = {0: 4 * count, 1: 2 * count, 7: 2 * count, 3: count, 8: (count + 1) // 2}[kind]
        tensors[name] = kind, ranges, data[at:at + size]
        at += size
    assert at == len(data), "bytes behind the last tensor"
    return table, tensors


# ---------------------------------------------------------------- models

def larger(name, folder):
    """A copy of a fixture with random weights, heads of the size that FastLLM has in its program, and rows for the ids that it has there."""
    source, (head, rows) = os.path.join(FIXTURES, name), HEAD[name]
    shutil.copytree(source, folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    heads = 4 if name == "moss" else 2
    width = heads * head
    keys = 1 if "multi_query_group_num" in config else heads
    qkv = {"chatglm2": width + 2 * keys * head, "chatglm3": width + 2 * keys * head, "glm4": width + 2 * keys * head}.get(name, 3 * width)
    feed = 4 * width if name == "moss" else FEED_FORWARD
    changes = {"hidden_size": width, "n_embd": width, "num_attention_heads": heads, "n_head": heads, "kv_channels": head, "multi_query_group_num": keys,
               "ffn_hidden_size": feed, "inner_hidden_size": feed, "intermediate_size": 2 * feed, "rotary_dim": 64, "rope_ratio": 1,
               "padded_vocab_size": rows, "vocab_size": rows, "use_dynamic_ntk": False, "use_logn_attn": False}
    config.update({key: value for key, value in changes.items() if key in config})
    config["torch_dtype"] = "float32"
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    random, tensors = np.random.default_rng(7), {}
    with safe_open(os.path.join(source, "model.safetensors"), "np") as file:
        for tensor in file.keys():
            shape = shape_of(tensor, width, qkv, feed, rows, file.get_slice(tensor).get_shape())
            if shape is None:
                continue
            # Embeddings are large, for FastLLM adds another epsilon than the model's to what it normalizes.
            is_embedding = "wte" in tensor or "embeddings" in tensor
            values = random.normal(0, 1 if is_embedding else 1 / np.sqrt(shape[-1]) if len(shape) > 1 else 0.1, shape)
            is_norm = len(shape) == 1 and tensor.endswith("weight")
            tensors[tensor] = (values + (1 if is_norm else 0)).astype(np.float32)
    save_file(tensors, os.path.join(folder, "model.safetensors"))
    return folder


def shape_of(name, width, qkv, feed, rows, old):
    if "inv_freq" in name:
        return None
    last = 1 if name.endswith("bias") else len(old)
    for pattern, outputs, inputs in ((r"c_attn|query_key_value|qkv_proj", qkv, width), (r"dense_h_to_4h", 2 * feed if old[0] == 192 else feed, width),
                                     (r"dense_4h_to_h|fc_out|mlp\.c_proj", width, feed), (r"fc_in|w1|w2", feed, width),
                                     (r"lm_head|output_layer|wte|embeddings", rows, width)):
        if re.search(pattern, name):
            return [outputs, inputs][:last]
    return [width, width][:len(old)]


class Model:
    """A directory, and what is expected of it."""

    def __init__(self, trueup, name, work):
        self.name, self.trueup, self.work = name, trueup, work
        self.folder = larger(name, os.path.join(work, name)) if name in HEAD else os.path.join(FIXTURES, name)
        with open(os.path.join(FIXTURES, name, "golden.json"), encoding="utf-8") as file:
            golden = json.load(file)
        self.texts = [row["text"] for row in golden["texts"] if row["text"] and "\0" not in row["text"]]
        before, behind = {"chatglm2": ([64_790, 64_792], []), "chatglm3": ([64_790, 64_792], [])}.get(name, ([], []))
        self.ids = [before + prompt["ids"] + behind for prompt in golden["prompts"]]
        if name in WITHOUT_LOGITS:
            self.ids = [ids[:count] for ids in self.ids for count in range(2, len(ids) + 1)][:BEGINNINGS]

    def call(self, *arguments):
        done = subprocess.run([self.trueup, *arguments], capture_output=True, text=True, encoding="utf-8", check=False)
        if done.returncode != 0:
            raise RuntimeError(f"trueup {' '.join(arguments)}: exit {done.returncode}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def path(self, ending):
        return os.path.join(self.work, f"{self.name}{ending}")

    def logits(self, model):
        """Behind each prompt, by the oracle."""
        gguf, found = model, []
        if model.endswith(".flm"):
            gguf = model + ".gguf"
            self.call("convert", model, gguf)
        for ids in self.ids:
            self.call("run", gguf, "--ids", " ".join(map(str, ids)), "-n", "0", "--device", "ref", "--logits", self.path(".logits"), "--json")
            found.append(load_file(self.path(".logits"))["p0_logits"][-1].astype(np.float64))
        return found

    def tokenize(self, model, text):
        with open(self.path(".txt"), "w", encoding="utf-8", newline="") as file:
            file.write(text)
        return json.loads(self.call("tokenize", model, "-f", self.path(".txt"), "--no-special", "--json"))["ids"]


# ---------------------------------------------------------------- checks

class Report:
    def __init__(self):
        self.passed, self.failed, self.texts = 0, 0, [0, 0]

    def check(self, condition, message):
        if condition:
            self.passed += 1
        else:
            self.failed += 1
            print("DIFFERS " + message, flush=True)


def nmse(found, expected):
    found = np.array(found, np.float64)
    return float(((found - expected) ** 2).sum() / (expected ** 2).sum())


def check_file(report, model, flm, expected, most, label):
    # Its reading of Jinja ends the process for some templates.
    prompts = "user_role" in read_flm(flm)[0]
    steps = STEPS if model.name in WITHOUT_LOGITS else 0
    said = ask(model.work, model=flm, texts=model.texts, ids=model.ids, count=len(expected[0]), prompts=prompts, steps=steps)
    for number, ids in enumerate(said["greedy"]):
        # Another choice is right where two are as close as the error of the logits leaves open.
        own, error = expected[number], 4 * np.sqrt(most * (expected[number] ** 2).mean())
        gap = own.max() - own[ids[0]]
        report.check(gap <= error, f"{label}: prompt {number}: FastLLM goes on with {ids}, behind the likeliest {own.argmax()} by {gap:.3g}, allowed {error:.3g}")
    if model.name not in UNKNOWN_TO_FASTLLM:
        for number, values in enumerate(said["logits"]):
            error = nmse(values, expected[number])
            report.check(error < most, f"{label}: prompt {number}: NMSE of FastLLM's logits is {error:.3g}, allowed {most}")
    return said


def check_texts(report, model, flm, said):
    for text, ids in zip(model.texts, said["texts"]):
        own = model.tokenize(flm, text)
        report.texts[own == ids] += 1
        # FastLLM has no cut of words, no composition of characters and no rule for what surrounds whole tokens.
        if re.fullmatch(r"[A-Za-z,.]+( [A-Za-z,.]+)*", text):
            report.check(own == ids, f"{model.name}: FastLLM cuts {text!r} to {ids}, trueup to {own}")


def check_prompts(report, model, flm, said):
    table, _ = read_flm(flm)
    if "user_role" in table:
        before, user, bot, after = (table[key] for key in ("pre_prompt", "user_role", "bot_role", "history_sep"))
        expected = [f"{before}{user}Q1{bot}A1{after}{user}Q2{bot}", f"{before}{user}Q1{bot}"]
        report.check(said["prompts"] == expected, f"{model.name}: FastLLM's prompts are {said['prompts']!r}, expected {expected!r}")


def loaded(ranges):
    """Minimum and maximum of 4 bits as FastLLM's loader keeps them, in f32."""
    low, high = np.minimum(ranges[:, 0], 0), np.maximum(ranges[:, 1], 0)
    scale = ((high - low) / np.float32(15)).astype(np.float32)
    zero = np.clip(np.round(-low / scale), 0, 15).astype(np.float32)
    return np.stack([-scale * zero, ranges[:, 1]], 1).astype(np.float32)


def check_codes(report, model, bits, flm):
    """FastLLM's own file of the same directory; it joins tensors that stand one behind the other in ours."""
    theirs_path = model.path(f"-theirs-{bits}.flm")
    ask(model.work, model=model.folder, dtype=f"int{bits}", save=theirs_path)
    (_, ours), (_, theirs) = read_flm(flm), read_flm(theirs_path)
    joined = {"self_attn.mergeqkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], "mlp.gateup_proj": ["mlp.gate_proj", "mlp.up_proj"]}
    compared = 0
    for name, (kind, ranges, codes) in theirs.items():
        parts = next(([name.replace(whole, part) for part in parts] for whole, parts in joined.items() if whole in name), [name])
        if kind in (3, 8):
            own = [ours[part] for part in parts]
            own_ranges = np.frombuffer(b"".join(part[1] for part in own), "<f4").reshape(-1, 2)
            if kind == 8:
                # What FastLLM saves went through the rule of its loader once more than what its `quant` saves.
                own_ranges = loaded(own_ranges)
            same = all(part[0] == kind for part in own) and own_ranges.tobytes() == ranges and b"".join(part[2] for part in own) == codes
            report.check(same, f"{model.name}: {name}: codes or ranges of {bits} bits are not FastLLM's")
            compared += 1
    report.check(compared > 4, f"{model.name}: only {compared} tensors of codes in FastLLM's file")


def check_model(report, trueup, name, work):
    model = Model(trueup, name, work)
    gguf, flm = model.path(".gguf"), model.path(".flm")
    model.call("convert", model.folder, gguf)
    model.call("convert", model.folder, flm)
    expected = model.logits(gguf)
    said = check_file(report, model, flm, expected, COARSE.get(name, EXACT), name)
    check_texts(report, model, flm, said)
    check_prompts(report, model, flm, said)
    if name not in ("llama3", "llama3-tied"):
        model.call("convert", gguf, model.path("-back.flm"))
        again = check_file(report, model, model.path("-back.flm"), expected, COARSE.get(name, EXACT), f"{name}, by way of GGUF")
        # A GGUF file of the first Qwen is one of Qwen2, whose tokens FastLLM keeps otherwise.
        report.check(name == "qwen" or again["texts"] == said["texts"] and again.get("prompts") == said.get("prompts"), f"{name}, by way of GGUF: other ids or prompts")
    for bits in (8, 4):
        coded = model.path(f"-{bits}.flm")
        model.call("quantize", "-b", str(bits), flm, coded)
        check_file(report, model, coded, model.logits(coded), CODED, f"{name}, {bits} bits")
        if name in READ_BY_FASTLLM:
            check_codes(report, model, bits, coded)


def save_matrix(path):
    """Axis, ranges and codes of one matrix as FastLLM saves them with 8 bits."""
    with tempfile.TemporaryDirectory() as work:
        saved = os.path.join(work, "saved.flm")
        ask(work, model=os.path.abspath(os.path.join(FIXTURES, "llama2")), dtype="int8", save=saved)
        _, ranges, codes = read_flm(saved)[1]["model.layers.1.self_attn.o_proj.weight"]
        with open(path, "wb") as file:
            file.write(struct.pack("<i", 0) + ranges + codes)


def main():
    if sys.argv[1:2] == ["--save-matrix"]:
        sys.exit(save_matrix(sys.argv[2]))
    if sys.argv[1:2] == ["--fastllm"]:
        fastllm(json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trueup")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--work", help="keep the written files here")
    options = parser.parse_args()
    try:
        import ftllm  # noqa: F401
    except ImportError:
        print("not checked: the package ftllm is absent")
        sys.exit(3)
    report = Report()
    names = options.names or [name for name in sorted(os.listdir(FIXTURES)) if name not in ABSENT]
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or scratch
        os.makedirs(work, exist_ok=True)
        for name in names:
            before = report.passed, report.failed
            try:
                check_model(report, os.path.abspath(options.trueup), name, work)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                report.check(False, f"{name}: {error}")
            print(f"{name}: {report.passed - before[0]} passed, {report.failed - before[1]} differ", flush=True)
    for name in ABSENT:
        print(f"not checked: {name}, which this version of FastLLM does not know")
    print(f"ids of texts: {report.texts[1]} of {sum(report.texts)} equal; the others have white space around whole tokens, characters that are composed, or cuts that FastLLM does not know")
    print(f"{report.passed} checks passed, {report.failed} differ")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
