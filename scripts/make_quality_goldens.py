#!/usr/bin/env python3
"""Write fixtures/quality/divergence.safetensors: logits of two made-up models, and llama-perplexity's results on them.

    python scripts/make_quality_goldens.py KLD_NPZ

KLD_NPZ holds random logits (5 chunks of 64 tokens, a vocabulary of 301) and the results of the functions of
llama-perplexity that encode base logits and sum the KL divergence. They were compiled from tools/perplexity of
llama.cpp 0c1e57098 with gcc 12.2 and -O2 -ffp-contract=off. The script selects what the tests use:

  tokens       ids of the chunks
  logits       logits of the model at the scored positions
  base_logits  logits of the reference, first chunk only
  records      encoded logits of the reference, all chunks
  head         the bytes in front of the first record of the base file
  kl, dp       KL divergence and change of probability at each position
  stats        the printed figures, in the order of the metadata key "stats"

Packages: scripts/requirements.txt.
"""
import argparse
import pathlib

import numpy as np
from safetensors.numpy import save_file

TARGET = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "quality" / "divergence.safetensors"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kld", type=pathlib.Path, metavar="KLD_NPZ")
    source = np.load(parser.parse_args().kld)
    arrays = {
        "tokens": source["tokens"],
        "logits": source["logits"],
        "base_logits": source["base_logits"][:1],
        "records": source["records"],
        "head": source["file_head"],
        "kl": source["kld"],
        "dp": source["dp"],
        "stats": source["stats"],
    }
    names = " ".join(str(name) for name in source["stat_names"])
    TARGET.parent.mkdir(exist_ok=True)
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, TARGET, metadata={"stats": names})


if __name__ == "__main__":
    main()
