#!/usr/bin/env python3
"""Check that llama.cpp loads the GGUF files that trueup writes, and generates the same tokens as transformers.

    python scripts/check_llama_cpp_models.py target/release/trueup [NAME ...] [--types f32 default q8_0]

Converts every model in fixtures/models, fixtures/encoders, fixtures/encoder-decoders and fixtures/published.json (or
the named ones), loads it with llama-cpp-python, and generates tokens greedily from the golden prompts. In f32, the tokens must be those of
transformers. In the default type, which keeps the types of the checkpoint, and in others, llama.cpp rounds the inputs
of matrices: the logits after each prompt must be close to those of transformers. For encoders, the pooled
embeddings are compared. Each file is run in a separate process, because llama.cpp ends the process if an operator does
not support a type.

Prints one line per model and type. Exit code 1 if a model that is not in DIFFERENT cannot be loaded or differs, if
one in DIFFERENT gives the same tokens in f32, if llama.cpp ends the process, or if `trueup convert` fails. Packages:
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
from safetensors.numpy import load_file

from published_models import write_checkpoint

TYPES = ("f32", "default", "q8_0")
# Largest NMSE of the logits by type; in f32, tokens are compared.
NMSE_MAX = {"default": 1e-3, "q8_0": 1e-2}
# Rounded inputs choose other experts.
NMSE_MAX_OF_EXPERTS = 5e-2
WITH_EXPERTS = ("deepseek2", "deepseek3", "DeepSeek-V2")
# Scores of experts that are so close that q8_0 chooses others: only f32 and the default type are compared.
CLOSE_EXPERTS = ("DeepSeek-V3",)
# Largest NMSE of the embeddings of encoders in f32: llama.cpp looks GELU up in an f16 table.
NMSE_MAX_OF_EMBEDDINGS = 1e-6
FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
KINDS = ("models", "encoders", "encoder-decoders")
# What llama.cpp cannot load or computes in another way.
DIFFERENT = {
    "Baichuan-13B": "applies ALiBi only in models with 40 layers",
    "Baichuan2-7B": "rotates heads only in models with 32 layers",
    "Falcon-RW": "expects parallel layers without biases",
    "GritLM": "ignores the sliding window",
    "Phi-3-mini": "expects the token <|endoftext|>, which the tokenizer of this test does not have",
    "Refact": "computes RMS norms in place of layer norms",
    "baichuan": "rotates heads only in models with 32 layers",
    "baichuan2-13b": "applies ALiBi only in models with 40 layers",
    "bitnet-2b": "computes silu in place of relu2",
    "chatglm1": "has no such architecture",
    "command-r": "expects norms of heads only in models with at least 64 layers",
    "falcon-rw": "expects parallel layers without biases",
    "flan-t5": "does not load decoders with more layers than the encoder",
    "glm4": "expects heads of hidden_size / heads elements",
    "internlm2": "does not load the bias of the attention's output",
    "mistral": "ignores the sliding window",
    "moss": "has no such architecture",
    "phi4": "ignores the sliding window",
    "qwen2moe": "expects experts in every layer",
    "refact": "computes RMS norms in place of layer norms",
    "starcoder2": "ignores the sliding window",
    "umt5": "expects a maximum relative attention distance of 128",
}
ENDED = "llama.cpp ends the process"
NOT_CONVERTED = "trueup convert fails"
messages = []


@llama_cpp.llama_log_callback
def log(level, text, data):
    if level >= 3:
        messages.append(text.decode(errors="replace").strip())


def loaded(path):
    """A model, or the error message."""
    llama_cpp.llama_log_set(log, ctypes.c_void_p(0))
    messages.clear()
    params = llama_cpp.llama_model_default_params()
    # Its kernels for AMX read beyond rows of 64 elements.
    params.use_mmap, params.use_extra_bufts = False, False
    return llama_cpp.llama_model_load_from_file(str(path).encode(), params) or "; ".join(messages) or "not loaded"


def opened(model, embeddings=False):
    """A context with an f32 cache on one thread, or the error message."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch = 256, 1, 1
    params.flash_attn_type, params.type_k, params.type_v, params.embeddings = 0, 0, 0, embeddings
    return llama_cpp.llama_init_from_model(model, params) or "; ".join(messages) or "no context"


def compute(function, context, ids):
    """Calls llama_encode or llama_decode for a batch of IDs."""
    # The batch only points to the array, so the array must stay alive during the call.
    array = (llama_cpp.llama_token * len(ids))(*ids)
    status = function(context, llama_cpp.llama_batch_get_one(array, len(ids)))
    if status:
        sys.exit(f"Error: {function.__name__} returned {status}")


def tokenized(path, text):
    """The IDs of a text, with the special tokens that the model adds."""
    model = loaded(path)
    if isinstance(model, str):
        sys.exit(f"{path}: {model}")
    ids, text = (llama_cpp.llama_token * 256)(), text.encode()
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    count = llama_cpp.llama_tokenize(vocabulary, text, len(text), ids, len(ids), True, True)
    llama_cpp.llama_model_free(model)
    return list(ids[:count])


def embedded(path, ids):
    """The pooled embedding of an encoder, or the error message."""
    model = loaded(path)
    context = model if isinstance(model, str) else opened(model, embeddings=True)
    if isinstance(context, str):
        return context
    compute(llama_cpp.llama_encode, context, ids)
    vector = llama_cpp.llama_get_embeddings_seq(context, 0)
    vector = np.ctypeslib.as_array(vector, shape=(llama_cpp.llama_model_n_embd(model),)).tolist()
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return {"pooled": vector}


def logits_of(context, ids, size):
    """The logits after the last of the IDs."""
    compute(llama_cpp.llama_decode, context, ids)
    return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), shape=(size,)).copy()


def generated(path, prompt, count, decoder_prompt=None):
    """Greedy continuation of a prompt by llama.cpp on one thread, the margin over the second largest logit at each
    token, and the logits after the prompt; or the error message. If the model has an encoder, it reads the prompt;
    `logits` follow `decoder_prompt`; the tokens continue its first token."""
    model = loaded(path)
    context = model if isinstance(model, str) else opened(model)
    if isinstance(context, str):
        return context
    size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    if decoder_prompt:
        compute(llama_cpp.llama_encode, context, prompt)
        first = logits_of(context, decoder_prompt, size)
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        compute(llama_cpp.llama_encode, context, prompt)
        logits = logits_of(context, decoder_prompt[:1], size)
    else:
        first = logits = logits_of(context, prompt, size)
    out, margins = [], []
    while len(out) < count:
        second, best = np.partition(logits, -2)[-2:]
        out.append(int(logits.argmax()))
        margins.append(float(best - second))
        if len(out) < count:
            logits = logits_of(context, out[-1:], size)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return {"ids": out, "margins": margins, "logits": first.tolist()}


def in_process(path, prompts):
    """The result of `generated` or `embedded` for each prompt, or the first error message."""
    command = [sys.executable, __file__, "--generate", path]
    done = subprocess.run(command, input=json.dumps(prompts), capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.splitlines() or ["no message"]
        causes = [line for line in lines if any(word in line for word in ("Error", "error", "ASSERT", "unsupported"))]
        return f"{ENDED} with {done.returncode}: {(causes or lines)[0]}"
    results = json.loads(done.stdout.splitlines()[-1])
    return next((f"llama.cpp refuses the file: {result}" for result in results if isinstance(result, str)), results)


def generate(path):
    """Answers `in_process`."""
    prompts = json.load(sys.stdin)
    def result(prompt):
        if "greedy_ids" not in prompt:
            return embedded(path, prompt["ids"])
        return generated(path, prompt["ids"], len(prompt["greedy_ids"]), prompt.get("decoder_ids"))

    print("\n" + json.dumps([result(prompt) for prompt in prompts]))


def nmse(found, expected):
    found, expected = np.array(found, np.float64), np.array(expected, np.float64)
    return ((found - expected) ** 2).sum() / (expected ** 2).sum()


def check(trueup, folder, kind, scratch):
    """One line, and whether the model passes."""
    line, is_equal = compared(trueup, folder, kind, scratch)
    reason = DIFFERENT.get(folder.name)
    if reason is None or ENDED in line or NOT_CONVERTED in line:
        return line, is_equal
    if is_equal and kind == "f32":
        return f"{line}; expected a difference: llama.cpp {reason}", False
    return f"{folder.name} {kind}: differs: llama.cpp {reason}", True


def compared(trueup, folder, kind, scratch):
    """One line, and whether llama.cpp computes what transformers computes."""
    label, target = f"{folder.name} {kind}", scratch / f"{folder.name}.gguf"
    if kind == "q8_0" and folder.name in CLOSE_EXPERTS:
        return f"{label}: skipped: q8_0 chooses other experts", True
    chosen = [] if kind == "default" else ["--type", kind]
    converted = subprocess.run([trueup, "convert", folder, target, "-q", *chosen], capture_output=True, text=True)
    if converted.returncode:
        return f"{label}: {NOT_CONVERTED}: {converted.stderr.strip()}", False
    prompts = json.loads((folder / "golden.json").read_text(encoding="utf-8"))["prompts"]
    logits = load_file(folder / "golden.safetensors")
    results = in_process(target, prompts)
    target.unlink()
    if isinstance(results, str):
        return f"{label}: {results}", False
    if "pooled" in results[0]:
        allowed = NMSE_MAX_OF_EMBEDDINGS if kind == "f32" else NMSE_MAX[kind]
        error = max(nmse(result["pooled"], logits[f"pooled_{i}"][0]) for i, result in enumerate(results))
        return f"{label}: NMSE of the embeddings {error:.2g}, allowed {allowed}", error < allowed
    if kind == "f32":
        for prompt, result in zip(prompts, results):
            if result["ids"] != prompt["greedy_ids"]:
                return f"{label}: expected {prompt['greedy_ids']}, found {result['ids']}", False
        return f"{label}: {sum(len(result['ids']) for result in results)} tokens equal", True
    errors = [nmse(result["logits"], logits[f"logits_{i}"][-1]) for i, result in enumerate(results)]
    allowed = NMSE_MAX_OF_EXPERTS if folder.name in WITH_EXPERTS else NMSE_MAX[kind]
    return f"{label}: NMSE of the logits {max(errors):.2g}, allowed {allowed}", all(error < allowed for error in errors)


def main():
    if sys.argv[1:2] == ["--generate"]:
        return generate(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trueup")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--types", nargs="+", default=TYPES, choices=TYPES)
    arguments = parser.parse_args()
    folders = [folder for kind in KINDS for folder in sorted((FIXTURES / kind).iterdir()) if folder.is_dir()]
    passes = True
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        published = json.loads((FIXTURES / "published.json").read_text(encoding="utf-8"))
        for model in published["models"]:
            folders.append(scratch / "published" / model["name"])
            write_checkpoint(model, published["ids"], FIXTURES / "models", folders[-1])
        for folder in folders:
            for kind in arguments.types if not arguments.names or folder.name in arguments.names else ():
                line, is_equal = check(arguments.trueup, folder, kind, scratch)
                passes = passes and is_equal
                print(line, flush=True)
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
