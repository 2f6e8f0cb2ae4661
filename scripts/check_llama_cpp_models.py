#!/usr/bin/env python3
"""Check that llama.cpp loads the GGUF files that trueup writes, and generates the same tokens as transformers.

    python scripts/check_llama_cpp_models.py target/release/trueup [NAME ...]

Converts every model in fixtures/models (or the named ones) to f32 GGUF, loads it with llama-cpp-python, and generates
tokens greedily from the golden prompts. Prints one line per model. Exit code 1 if a model that is not in DIFFERENT
cannot be loaded or gives other tokens, or if one in DIFFERENT gives the same tokens. Packages:
scripts/requirements.txt.
"""
import argparse
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile

import llama_cpp
import numpy as np

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "models"
# What llama.cpp cannot load or computes in another way.
DIFFERENT = {
    "baichuan": "rotates heads only in models with 32 layers",
    "baichuan2-13b": "applies ALiBi only in models with 40 layers",
    "bitnet-2b": "computes silu in place of relu2",
    "chatglm1": "has no such architecture",
    "command-r": "expects norms of heads only in models with at least 64 layers",
    "falcon-rw": "expects parallel layers without biases",
    "glm4": "expects heads of hidden_size / heads elements",
    "internlm2": "does not load the bias of the attention's output",
    "mistral": "ignores the sliding window",
    "moss": "has no such architecture",
    "phi4": "ignores the sliding window",
    "qwen2moe": "expects experts in every layer",
    "refact": "computes RMS norms in place of layer norms",
    "starcoder2": "ignores the sliding window",
}
messages = []


@llama_cpp.llama_log_callback
def log(level, text, data):
    if level >= 3:
        messages.append(text.decode(errors="replace").strip())


def generated(path, prompt, count):
    """Greedy continuation of a prompt by llama.cpp on one thread, or the reason why it does not load the file."""
    llama_cpp.llama_log_set(log, ctypes.c_void_p(0))
    messages.clear()
    model_params = llama_cpp.llama_model_default_params()
    model_params.use_mmap = False
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_params)
    if not model:
        return "; ".join(messages) or "not loaded"
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch = 256, 1, 1
    params.flash_attn_type, params.type_k, params.type_v = 0, 0, 0
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        return "; ".join(messages) or "no context"
    size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    out, batch = [], list(prompt)
    for _ in range(count):
        ids = (llama_cpp.llama_token * len(batch))(*batch)
        llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(ids, len(batch)))
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), shape=(size,))
        batch = [int(logits.argmax())]
        out += batch
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return out


def check(trueup, folder, scratch):
    """One line, and whether the model passes."""
    line, is_equal = compared(trueup, folder, scratch)
    reason = DIFFERENT.get(folder.name)
    if reason is None:
        return line, is_equal
    if is_equal:
        return f"{line}; expected a difference: llama.cpp {reason}", False
    return f"{folder.name}: differs: llama.cpp {reason}", True


def compared(trueup, folder, scratch):
    """One line, and whether llama.cpp generates the golden tokens."""
    target = scratch / f"{folder.name}.gguf"
    command = [trueup, "convert", folder, target, "--type", "f32", "-q"]
    converted = subprocess.run(command, capture_output=True, text=True)
    if converted.returncode:
        return f"{folder.name}: {converted.stderr.strip()}", False
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    prompts = golden["prompts"]
    equal = 0
    for prompt in prompts:
        found = generated(target, prompt["ids"], len(prompt["greedy_ids"]))
        if isinstance(found, str):
            return f"{folder.name}: llama.cpp refuses the file: {found}", False
        if found != prompt["greedy_ids"]:
            return f"{folder.name}: expected {prompt['greedy_ids']}, found {found}", False
        equal += len(found)
    target.unlink()
    return f"{folder.name}: {equal} tokens equal", True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trueup")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    folders = sorted(folder for folder in FIXTURES.iterdir() if (folder / "golden.json").exists())
    passes = True
    with tempfile.TemporaryDirectory() as scratch:
        for folder in folders:
            if not arguments.names or folder.name in arguments.names:
                line, is_equal = check(arguments.trueup, folder, pathlib.Path(scratch))
                passes = passes and is_equal
                print(line, flush=True)
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
