#!/usr/bin/env python3
"""Write fixtures/quality/moe*: a mixture of experts with the results of llama-imatrix and llama-perplexity on a text.

    python scripts/make_moe_goldens.py DIR

DIR holds moe-f32.gguf (random weights, 2 layers, 12 experts), text.txt, and the files that the programs of llama.cpp
0c1e57098 wrote on a CPU with 2 threads:

    llama-imatrix -m moe-f32.gguf -f text.txt -c 64 -o imatrix.gguf -ngl 0 -t 2
    llama-quantize --pure --imatrix imatrix.gguf moe-f32.gguf moe-q4_0-imatrix.gguf Q4_0 2

The files that the script writes are smaller than the f32 model:

  moe-q4_0.gguf    moe-q4_0-imatrix.gguf
  moe.txt          the text
  moe.safetensors  of the f32 model, what determines the inputs of the first layer's matrices except ffn_down_exps:
                   embedding (the rows of the tokens in ids), attn_q, attn_k, attn_v, attn_output;
                   NAME.sums and NAME.counts of the importance file for these inputs

The perplexities of the test are those that llama-perplexity printed. Packages: scripts/requirements.txt.
"""
import argparse
import pathlib
import shutil
import struct

import gguf
import numpy as np
from safetensors.numpy import save_file

TARGET = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "quality"
# The keys and values have the inputs of attn_q, and ffn_up_exps those of ffn_gate_exps.
SUMS = ["attn_q", "attn_output", "ffn_gate_inp", "ffn_gate_exps"]
WEIGHTS = ["attn_q", "attn_k", "attn_v", "attn_output"]


def tensors(path):
    return {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}


def ids_of(path):
    """The different ids of a file that llama-perplexity --kl-divergence-base wrote."""
    data = path.read_bytes()
    context, _, chunks = struct.unpack("<IiI", data[8:20])
    return np.unique(np.frombuffer(data[20 : 20 + 4 * context * chunks], "<i4"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path, metavar="DIR")
    directory = parser.parse_args().directory
    model, importance = tensors(directory / "moe-f32.gguf"), tensors(directory / "imatrix.gguf")
    ids = ids_of(directory / "base.kld")
    arrays = {"ids": ids, "embedding": model["token_embd.weight"][ids]}
    for name in WEIGHTS:
        arrays[name] = model[f"blk.0.{name}.weight"]
    for name in SUMS:
        arrays[f"{name}.sums"] = importance[f"blk.0.{name}.weight.in_sum2"]
        arrays[f"{name}.counts"] = importance[f"blk.0.{name}.weight.counts"]
    for name, same in [("attn_k", "attn_q"), ("attn_v", "attn_q"), ("ffn_up_exps", "ffn_gate_exps")]:
        sums = importance[f"blk.0.{name}.weight.in_sum2"]
        assert np.array_equal(sums, importance[f"blk.0.{same}.weight.in_sum2"]), name
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, TARGET / "moe.safetensors")
    shutil.copyfile(directory / "moe-q4_0-imatrix.gguf", TARGET / "moe-q4_0.gguf")
    shutil.copyfile(directory / "text.txt", TARGET / "moe.txt")


if __name__ == "__main__":
    main()
