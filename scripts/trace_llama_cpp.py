#!/usr/bin/env python3
"""Write what llama.cpp computes for a model and a prompt, through the Python binding of its library.

    python scripts/trace_llama_cpp.py MODEL.gguf OUT.safetensors --ids "1 5 9 12" [--steps 1] [--flash-attn auto]
    python scripts/trace_llama_cpp.py MODEL.gguf OUT.txt --ids "1 5 9 12" [--steps 1] [--flash-attn auto]

A safetensors file holds every value of every node, so each node is judged by the inputs that llama.cpp had. A text
holds what the eval-callback example prints, a few values of each tensor.

The example and this script set `cb_eval`, a function that sees every tensor after it was computed. The text contains
the name, type, operator and inputs of each tensor, the first and last three values along each dimension, and the sum
of all values. Tensors that only show others in another order are omitted, to keep the text small. The ids at the
start are those of the prompt, followed by the generated ones.
"""
import argparse
import ctypes
import io
import re
import sys
from importlib.metadata import version

import llama_cpp
import numpy as np
from safetensors.numpy import save_file

SHOWN = 3
DIMENSIONS = 4
MAX_SOURCES = 10
MOVES = ("VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE", "SET_ROWS", "CPY")
NORMS = ("RMS_NORM", "NORM")
SUMS = ("ffn_inp", "l_out")
FLASH_ATTN = {"auto": llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO, "on": llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED,
              "off": llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED}
TYPES = {0: ("f32", np.float32), 1: ("f16", np.float16), 26: ("i32", np.int32), 27: ("i64", np.int64)}


class Tensor(ctypes.Structure):
    """`struct ggml_tensor` of ggml.h."""


Tensor._fields_ = [
    ("type", ctypes.c_int), ("buffer", ctypes.c_void_p), ("ne", ctypes.c_int64 * DIMENSIONS),
    ("nb", ctypes.c_size_t * DIMENSIONS), ("op", ctypes.c_int), ("op_params", ctypes.c_int32 * 16), ("flags", ctypes.c_int32),
    ("src", ctypes.POINTER(Tensor) * MAX_SOURCES), ("view_src", ctypes.POINTER(Tensor)), ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p), ("name", ctypes.c_char * 64),
]


def system_info():
    """The instruction sets that llama.cpp was built with: some kernels round differently."""
    return llama_cpp.llama_print_system_info().decode().strip()


def library(name):
    """One of the libraries that llama_cpp has loaded already."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if name in line}
    return ctypes.CDLL(sorted(paths)[0])


GGML = library("libggml-base")
GGML.ggml_op_desc.restype = ctypes.c_char_p
GGML.ggml_op_desc.argtypes = [ctypes.POINTER(Tensor)]


def sizes(tensor):
    return ", ".join(str(size) for size in tensor.ne)


def described(source):
    return f"{source.contents.name.decode()}{{{sizes(source.contents)}}}" if source else ""


def values(tensor):
    """All elements, outermost dimension first, through the strides."""
    dtype = np.dtype(TYPES[tensor.type][1])
    span = sum((size - 1) * stride for size, stride in zip(tensor.ne, tensor.nb)) + dtype.itemsize
    memory = np.frombuffer(ctypes.string_at(tensor.data, span), np.uint8)
    return np.lib.stride_tricks.as_strided(memory.view(), tuple(tensor.ne)[::-1] + (dtype.itemsize,),
                                           tuple(tensor.nb)[::-1] + (1,)).copy().view(dtype)[..., 0].astype(np.float32)


def places(size):
    """Indices that are shown, None for those left out."""
    return [*range(SHOWN), None, *range(size - SHOWN, size)] if size > 2 * SHOWN else [*range(size)]


def row_text(row):
    parts = ["..., " if place is None else f"{row[place]:12.4f}" + (", " if place < len(row) - 1 else "")
             for place in places(len(row))]
    return " " * 39 + "[" + "".join(parts) + "],\n"


def print_tensor(array, out):
    total = float(array.sum(dtype=np.float64))
    for outer in array:
        out.write(" " * 37 + "[\n")
        for place in places(len(outer)):
            if place is None:
                out.write(" " * 38 + "..., \n")
                continue
            out.write(" " * 38 + "[\n")
            for row in places(len(outer[place])):
                out.write(" " * 39 + "..., \n" if row is None else row_text(outer[place][row]))
            out.write(" " * 38 + "],\n")
        out.write(" " * 37 + "]\n")
        out.write(" " * 37 + f"sum = {total:.6f}\n")


def callback(out):
    def see(pointer, ask, _user_data):
        if ask:
            return True
        tensor = ctypes.cast(pointer, ctypes.POINTER(Tensor))
        facts = tensor.contents
        kind = TYPES.get(facts.type, (str(facts.type), None))[0]
        operation = GGML.ggml_op_desc(tensor).decode()
        if operation in MOVES:
            return True
        inputs = f"{described(facts.src[0])}, {described(facts.src[1])}"
        out.write(f"common_debug_cb_eval: {facts.name.decode():>24s} = ({kind}) {operation:>10s}({inputs}}}) = {{{sizes(facts)}}}\n")
        if facts.type in TYPES:
            print_tensor(values(facts), out)
        return True
    return see


def node_name(name, operation, inputs):
    """The node of docs/traces.md that a tensor is; None for tensors that are not nodes."""
    if operation in MOVES or operation in NORMS or " " in name:
        return None
    if operation == "FLASH_ATTN_EXT":
        layer = re.search(r"cache_k_l(\d+)", inputs)
        return f"kqv_out-{layer[1]}" if layer else None
    base, layer = re.fullmatch(r"(.*?)(-\d+)?", name).groups()
    if operation == "GET_ROWS":
        return "inp_embd" if inputs.startswith("token_embd.weight") else None
    if operation == "CONT" and base == "kqv":
        return None
    suffix = {"ROPE": "_rope", "ADD": "" if base in SUMS else "_bias"}.get(operation, "")
    return f"{base}{suffix}{layer or ''}"


class Collected:
    """All values of all nodes, by step."""

    def __init__(self):
        self.step, self.positions, self.arrays = 0, 0, {}

    def callback(self):
        def see(pointer, ask, _user_data):
            if not ask:
                self.add(ctypes.cast(pointer, ctypes.POINTER(Tensor)))
            return True
        return see

    def add(self, tensor):
        facts = tensor.contents
        inputs = f"{described(facts.src[0])}, {described(facts.src[1])}"
        node = node_name(facts.name.decode(), GGML.ggml_op_desc(tensor).decode(), inputs)
        if node is None or TYPES.get(facts.type, (None, None))[0] != "f32" or 0 in tuple(facts.ne):
            return
        array = values(facts)
        if node.startswith("kq") and not node.startswith("kqv"):
            array = array[..., :self.positions]  # Cells after the last token are masked.
        while array.ndim > 1 and array.shape[0] == 1:
            array = array[0]
        self.arrays[f"{self.step}/{node}"] = np.ascontiguousarray(array, np.float32)

    def save(self, path, ids, tokens, flash_attn):
        metadata = {"program": f"llama.cpp (llama-cpp-python {version('llama-cpp-python')})",
                    "ids": " ".join(map(str, ids)), "tokens": " ".join(map(str, tokens)), "flash_attention": flash_attn,
                    "system_info": system_info()}
        save_file(self.arrays, path, metadata)


def compute(context, vocabulary, ids, steps, collected):
    """The prompt at once, then `steps` more tokens, each the most likely one; gives all ids."""
    all_ids, step_ids = list(ids), list(ids)
    for step in range(steps + 1):
        tokens = (llama_cpp.llama_token * len(step_ids))(*step_ids)
        collected.step, collected.positions = step, len(all_ids)
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, len(step_ids))) != 0:
            sys.exit("llama.cpp could not compute the tokens")
        if step < steps:
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), (vocabulary,))
            step_ids = [int(logits.argmax())]
            all_ids += step_ids
    return all_ids


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("out", help="the safetensors file or the text to write")
    parser.add_argument("--ids", required=True, help="token ids of the prompt, like \"1 5 9\"")
    parser.add_argument("--steps", type=int, default=0, help="tokens to generate after the prompt")
    parser.add_argument("--flash-attn", choices=FLASH_ATTN, default="off", help="one fused operator for attention")
    arguments = parser.parse_args()
    ids = [int(id) for id in arguments.ids.split()]
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(arguments.model.encode(), llama_cpp.llama_model_default_params())
    if not model:
        sys.exit(f"{arguments.model}: llama.cpp cannot load it")
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = 256, 256, 256
    parameters.flash_attn_type = FLASH_ATTN[arguments.flash_attn]
    text = io.StringIO()
    collected = Collected()
    whole = arguments.out.endswith(".safetensors")
    see = llama_cpp.ggml_backend_sched_eval_callback(collected.callback() if whole else callback(text))
    parameters.cb_eval = see
    context = llama_cpp.llama_init_from_model(model, parameters)
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    all_ids = compute(context, vocabulary, ids, arguments.steps, collected)
    if whole:
        collected.save(arguments.out, all_ids, [len(ids)] + [1] * arguments.steps, arguments.flash_attn)
        return
    name = arguments.model.rsplit("/", 1)[-1]
    more = (f" --steps {arguments.steps}" if arguments.steps else "")
    more += f" --flash-attn {arguments.flash_attn}" if arguments.flash_attn != "off" else ""
    with open(arguments.out, "w", encoding="utf-8", newline="\n") as out:
        out.write(f"scripts/trace_llama_cpp.py {name} {arguments.out} --ids \"{arguments.ids}\"{more} (llama-cpp-python "
                  f"{version('llama-cpp-python')})\n")
        out.write(f"system_info: {system_info()}\n")
        out.write(f"number of input tokens = {len(all_ids)}\n" + "".join(f"  {id}\n" for id in all_ids))
        out.write(text.getvalue())


if __name__ == "__main__":
    main()
