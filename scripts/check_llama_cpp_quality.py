#!/usr/bin/env python3
"""Check imatrix, quantize --imatrix and compare against the files and figures of llama.cpp's programs.

    python scripts/check_llama_cpp_quality.py target/release/trueup DIR

DIR holds a small mixture of experts and what llama.cpp's programs made of it on a CPU: moe-f32.gguf, moe-q8_0.gguf,
moe-q4_0-imatrix.gguf, text.txt (chunks of 64 tokens), imatrix.gguf, base.kld, and commands.txt with the commands and
what they printed. Prints one line per comparison: the largest difference and its bound. Exit code 1 if a bound is
exceeded. Packages: scripts/requirements.txt.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import gguf
import numpy as np

# Sums of f32 are in another order, and the last bits of f16 numbers in the KV cache differ. Relative to the larger of a
# sum and the mean sum of its matrix.
SUM_ERROR = 2e-3
# Perplexities and mean divergences. Products of quantized matrices round their inputs to 8 bits, at values that differ
# in their last bits. The largest divergence is that of one position.
FIGURE_ERROR = {"moe-f32.gguf": 2e-5, "moe-q8_0.gguf": 2e-4, "moe-q4_0-imatrix.gguf": 2e-3}
MAXIMUM_ERROR = 1e-2
# Printed figures, and where they are in the report. Differences count relative to the larger of the figure and 1.
FIGURES = {
    "Mean PPL(Q)": "perplexity",
    "Mean PPL(base)": "against/reference_perplexity",
    "Mean ln(PPL(Q)/PPL(base))": "against/log_ratio",
    "Mean    KLD": "against/kl/mean",
    "Maximum KLD": "against/kl/maximum",
    "Minimum KLD": "against/kl/minimum",
}
wrong = 0


def compared(name, difference, bound):
    global wrong
    wrong += not difference <= bound
    print(f"{'ok' if difference <= bound else 'WRONG':5} {name}: {difference:.3g}, at most {bound:g}")


def run(trueup, *arguments):
    done = subprocess.run([trueup, *map(str, arguments), "-q"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def tensors(path):
    return {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}


def importance(trueup, directory, work):
    output = work / "imatrix.gguf"
    text = ["--corpus", directory / "text.txt", "-c", "64"]
    report = json.loads(run(trueup, "imatrix", directory / "moe-f32.gguf", *text, "-o", output, "--json"))
    found, expected = tensors(output), tensors(directory / "imatrix.gguf")
    compared("imatrix: entries", len(set(found) ^ set(expected)), 0)
    errors = {"counts": 0.0, "in_sum2": 0.0}
    for name, values in expected.items():
        scale = np.maximum(values, values.mean(axis=-1, keepdims=True))
        difference = np.abs(found[name] - values) / np.maximum(scale, 1e-9)
        kind = name.rsplit(".", 1)[1]
        errors[kind] = max(errors[kind], float(difference.max()))
    compared("imatrix: counts", errors["counts"], 0)
    compared("imatrix: sums", errors["in_sum2"], SUM_ERROR)
    printed = re.search(r"Final estimate: PPL = ([\d.]+)", (directory / "commands.txt").read_text())
    compared("imatrix: perplexity", abs(report["perplexity"]["value"] / float(printed[1]) - 1), FIGURE_ERROR["moe-f32.gguf"])


def quantized(trueup, directory, work):
    options = ["--imatrix", directory / "imatrix.gguf", "--imatrix-exact", "--allow-partial-imatrix"]
    for name, dtype, more in [("moe-q8_0.gguf", "q8_0", []), ("moe-q4_0-imatrix.gguf", "q4_0", options)]:
        run(trueup, "quantize", directory / "moe-f32.gguf", work / name, "--type", dtype, "--pure", *more)
        found, expected = tensors(work / name), tensors(directory / name)
        differ = [tensor for tensor in expected if found[tensor].tobytes() != expected[tensor].tobytes()]
        compared(f"quantize: tensors of {name} with other bytes", len(differ), 0)


def figure(report, path):
    for key in path.split("/"):
        report = report[key]
    return report["value"] if isinstance(report, dict) else report


def perplexities(trueup, directory):
    runs = (directory / "commands.txt").read_text().split("$ llama-perplexity -m ")[1:]
    for text in runs:
        name = text.split()[0]
        reference = ["--corpus", directory / "text.txt", "-c", "64"]
        if "Mean PPL(Q)" in text:
            reference = ["--against", directory / "base.kld"]
        report = json.loads(run(trueup, "compare", directory / name, *reference, "--json", "-"))["result"]["figures"]
        printed = dict(re.findall(r"^(M\w+ +[^:\n]*?) *: +(-?[\d.]+)", text, re.MULTILINE))
        pairs = [(label, path) for label, path in FIGURES.items() if label in printed]
        if not pairs:
            printed = {"Mean PPL(Q)": re.search(r"Final estimate: PPL = ([\d.]+)", text)[1]}
            pairs = [("Mean PPL(Q)", "perplexity")]
        for label, path in pairs:
            expected = float(printed[label])
            difference = abs(figure(report, path) - expected) / max(abs(expected), 1)
            bound = MAXIMUM_ERROR if label == "Maximum KLD" else FIGURE_ERROR[name]
            compared(f"compare: {' '.join(label.split())} of {name}", difference, bound)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trueup", type=pathlib.Path, metavar="TRUEUP")
    parser.add_argument("directory", type=pathlib.Path, metavar="DIR")
    arguments = parser.parse_args()
    trueup, directory = arguments.trueup.resolve(), arguments.directory
    with tempfile.TemporaryDirectory() as work:
        importance(trueup, directory, pathlib.Path(work))
        quantized(trueup, directory, pathlib.Path(work))
        perplexities(trueup, directory)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
