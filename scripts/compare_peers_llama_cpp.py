#!/usr/bin/env python3
"""Times llama.cpp (llama-cpp-python) on a GGUF file, as compare_peers.py asks for it.

    python scripts/compare_peers_llama_cpp.py FILE.gguf PROMPT GENERATE THREADS CONTEXT

Prints one line of JSON: seconds from loading until the logits behind one token are there, seconds of a prompt and of the tokens
behind it, one by one, and the resident memory that loading, a prompt and a token took. The first prompt is not counted in the
seconds, as in `trueup bench`; the KV cache is f16, as there.
"""
import ctypes
import json
import sys
import time

import llama_cpp


def memory_bytes(field):
    """A field of this process's status; 0 where the system has none."""
    try:
        with open("/proc/self/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field + ":"))
    except (OSError, StopIteration):
        return 0


def ids(vocabulary, count):
    """Those that `trueup bench` computes."""
    return [(i * 2654435761 & 0xFFFFFFFF) * vocabulary >> 32 for i in range(1, count + 1)]


def timed(model, tokens, one_by_one):
    start = time.perf_counter()
    for part in [[token] for token in tokens] if one_by_one else [tokens]:
        model.eval(part)
    llama_cpp.llama_synchronize(model.ctx)
    return time.perf_counter() - start


def main():
    path, (prompt, generate, threads, context) = sys.argv[1], map(int, sys.argv[2:])
    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    before, start = memory_bytes("VmRSS"), time.perf_counter()
    model = llama_cpp.Llama(path, n_ctx=context, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)
    timed(model, ids(model.n_vocab(), 1), True)
    result = {"first": time.perf_counter() - start}
    model.reset()
    timed(model, ids(model.n_vocab(), prompt), False)
    timed(model, ids(model.n_vocab(), 1), True)
    result["memory"] = memory_bytes("VmHWM") - before
    model.reset()
    result["prompt"] = timed(model, ids(model.n_vocab(), prompt), False)
    result["decode"] = timed(model, ids(model.n_vocab(), generate), True)
    result["about"] = f"llama-cpp-python {llama_cpp.__version__}"
    result["system"] = llama_cpp.llama_print_system_info().decode()
    model.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
