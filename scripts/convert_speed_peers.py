#!/usr/bin/env python3
"""What convert and quantize are timed against, and whether both sides write the same tensors.

    python scripts/convert_speed_peers.py convert FOLDER OUT.gguf
    python scripts/convert_speed_peers.py quantize IN.gguf OUT.gguf q4_0|q8_0
    python scripts/convert_speed_peers.py same A.gguf B.gguf

`convert` is a minimal converter after the way of llama.cpp's convert_hf_to_gguf.py: one tensor after the other is mapped by
safetensors, widened to f32 by torch, sorted where it is a query or key, narrowed to f16 by NumPy, and written by gguf.GGUFWriter. It
does without a tokenizer and checks. `quantize` is llama.cpp's own llama_model_quantize (llama-cpp-python), pure, with two threads.
Both print the seconds of the work alone: without imports, and without bringing the file to the disk, which neither does.
"""
import contextlib
import ctypes
import json
import os
import sys
import time

THREADS = 2


def permute(weights, heads):
    rows, columns = weights.shape
    return weights.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def convert(folder, output):
    import gguf
    import numpy as np
    import torch
    from safetensors import safe_open

    torch.set_num_threads(THREADS)
    start = time.monotonic()
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(folder, "model.safetensors.index.json"), encoding="utf-8") as file:
        weight_map = json.load(file)["weight_map"]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    writer = gguf.GGUFWriter(output, "llama")
    with contextlib.ExitStack() as opened:
        paths = sorted(set(weight_map.values()))
        files = {name: opened.enter_context(safe_open(os.path.join(folder, name), "pt")) for name in paths}
        tensors = []
        for theirs, path in weight_map.items():
            name = names.get_name(theirs, try_suffixes=(".weight",))
            shape = files[path].get_slice(theirs).get_shape()
            dtype = np.float32 if len(shape) == 1 else np.float16
            writer.add_tensor_info(name, shape, np.dtype(dtype), int(np.prod(shape)) * np.dtype(dtype).itemsize)
            tensors.append((theirs, path, dtype))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for theirs, path, dtype in tensors:
            weights = files[path].get_tensor(theirs).to(torch.float32).numpy()
            if theirs.endswith("q_proj.weight"):
                weights = permute(weights, config["num_attention_heads"])
            if theirs.endswith("k_proj.weight"):
                weights = permute(weights, config["num_key_value_heads"])
            writer.write_tensor_data(np.ascontiguousarray(weights.astype(dtype)))
        writer.close()
    print(f"{time.monotonic() - start:.3f}")


def quantize(source, output, dtype):
    import llama_cpp

    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.nthread = THREADS
    parameters.ftype = {"q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0}[dtype]
    parameters.pure = True
    start = time.monotonic()
    code = llama_cpp.llama_model_quantize(source.encode(), output.encode(), ctypes.byref(parameters))
    print(f"{time.monotonic() - start:.3f}")
    sys.exit(code)


def same(first, second):
    import gguf
    import numpy as np

    tensors = [{tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors} for path in (first, second)]
    if tensors[0].keys() - {"rope_freqs.weight"} != tensors[1].keys() - {"rope_freqs.weight"}:
        sys.exit(f"{first} and {second} have other tensors")
    for name, tensor in tensors[1].items():
        other = tensors[0][name]
        if tensor.tensor_type != other.tensor_type or not np.array_equal(tensor.data.view(np.uint8), other.data.view(np.uint8)):
            sys.exit(f"{first} and {second} differ in {name}")


if __name__ == "__main__":
    {"convert": convert, "quantize": quantize, "same": same}[sys.argv[1]](*sys.argv[2:])
